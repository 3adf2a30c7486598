"""What the arguments ask for: a schedule by name or file, costs and sizes."""

from pathlib import Path

from ppmodel.errors import PPModelError
from ppmodel.points import SECONDS
from ppmodel.schedules.cases import as_case, cases_of_file
from ppmodel.specs.layout import layout_keywords


def given(arguments):
    """Keep the arguments that were given."""
    return {name: value for name, value in arguments.items() if value is not None}


def asked_costs(arguments):
    """Take the costs and the layout out of the arguments, as keywords of `ppmodel.simulate`."""
    names = (*SECONDS, "model", "system", "framework", "links", "layout", *layout_keywords())
    return given({name: arguments.pop(name) for name in names if name in arguments})


def gpus_not_kept(costs, gpus):
    """What to add about a layout whose file states a number of GPUs that other options override; empty if none does.

    Parameters
    ----------
    costs : dict
        From `asked_costs`.
    gpus : int or None
        Of the run.

    Returns
    -------
    str
    """
    if "layout" not in costs or "gpus" in costs:
        return ""
    from ppmodel.specs import load_layout

    stated = load_layout(costs["layout"]).gpus
    return f"; gpus of {costs['layout']} ({stated}) not kept" if stated not in (None, gpus) else ""


def asked_case(name, file, options):
    """Find the one schedule that a name, a file and options select.

    Parameters
    ----------
    name : str or None
        As in `cases.cases_of_text`; with a generator's file, a schedule that the file registers.
    file : str or None
        A generator or a table.
    options : dict
        The schedule's options as text; None if not given.

    Returns
    -------
    Case

    Raises
    ------
    PPModelError
        If they select none, or several.
    """
    if name is None and file is None:
        remedy = "pass a schedule's name, or --schedule-file FILE"
        raise PPModelError("NAME", None, "must be given unless you name a file", remedy)
    registered = None if None in (name, file) else {case.name for case in cases_of_file(file) if case.own}
    case = as_case(Path(file) if name is None else name)
    if registered is not None and case.name not in registered:
        raise PPModelError("NAME", name, f"is not in {file}, which has no effect", "leave out one of the two")
    return case.with_options(given(options))
