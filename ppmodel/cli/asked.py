"""What the arguments ask for: a schedule by name or file, its size, and the costs of its operations."""

import os

from ppmodel.cases import cases_of_file, cases_of_text
from ppmodel.errors import PPModelError
from ppmodel.layouts import LAYOUT_FIELDS, as_layout, as_layouts, layout_size
from ppmodel.prices import require_model

_SECONDS = ("forward", "backward", "input_grad", "weight_grad", "pair", "comm", "reduction", "optimizer")
COSTS = (*_SECONDS, "model", "system")


def given(arguments):
    """Keep the arguments that were given."""
    return {key: value for key, value in arguments.items() if value is not None}


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

    Raises
    ------
    PPModelError
        If they select none, or several.
    """
    if name is None and file is None:
        remedy = "pass a schedule's name, or --schedule-file FILE"
        raise PPModelError("NAME", None, "must be given unless you name a file", remedy)
    found = cases_of_file(file) if file is not None else []
    if name is not None:
        if found and found[0].source is not None:
            raise PPModelError("NAME", name, f"cannot be combined with the table {file}", "leave out one of the two")
        found = cases_of_text(name)
    if len(found) > 1:
        names = ", ".join(case.name for case in found)
        rule = f"registers several schedules: {names}"
        raise PPModelError("file", file or name, rule, "name one of them, and pass the file with --schedule-file")
    return found[0].with_options(given(options))


def asked_size(case, pp, microbatches, layout=None):
    """The size asked for: the table's, the one given, or the layout's."""
    if case.size is None:
        pp, microbatches = layout_size(layout, pp, microbatches)
    sizes = {"--pp": pp, "--microbatches": microbatches}
    for option, value in sizes.items():
        if case.size is not None and value is not None:
            raise PPModelError(option, value, "is part of the table", f"leave {option} out")
        if case.size is None and value is None:
            raise PPModelError(option, None, "is missing", f"pass, for example, {option} 8")
    return case.size or (pp, microbatches)


def asked_costs(arguments):
    """The costs given, as keyword arguments of `evaluate.simulate`."""
    return {key: arguments[key] for key in COSTS if arguments[key] is not None}


def asked_layout(arguments, costs, pp):
    """The layout that the options ask for at a number of ranks, removed from the arguments; None if there is none.

    Returns
    -------
    LayoutSpec or None
    str
        What to say of a number of GPUs that the layout's file states and other options override; empty otherwise.
    """
    name = arguments.pop("layout")
    values = given({field: arguments.pop(field) for field in LAYOUT_FIELDS if field in arguments})
    base = None if name is None else as_layout(name)
    (layout,) = as_layouts(base, values, pp)
    if "model" not in costs and "system" not in costs:
        option, value = next(iter(given({"layout": name} | values).items()), ("layout", None))
        require_model(layout, f"--{option}".replace("_", "-"), str(value), "pass --model and --system, or leave it out")
    stated = base.gpus if base is not None and layout.gpus is None else None
    return layout, f"; gpus of {name} ({stated}) not kept" if stated else ""


def refuse_target(option, target, *inputs):
    """Refuse an output path that cannot be written, or that the same command reads.

    Raises
    ------
    PPModelError
        Also if the path is empty.
    """
    from ppmodel.export.files import checked_target

    if not target:
        raise PPModelError(option, repr(target), "must be the name of a file", f"pass, for example, {option} out")
    checked_target(target, option)
    for path in inputs:
        if path is not None and os.path.exists(path) and os.path.realpath(path) == os.path.realpath(target):
            raise PPModelError(option, target, "is what this command reads", "name another file")


def require_folder(out):
    """Refuse an empty folder name."""
    if out is not None and not out.strip():
        raise PPModelError("--out", repr(out), "must name a folder", "pass a folder, or leave --out out")
