"""How a study names its cases: schedules with their options, built and compiled once."""

from functools import cache
from typing import NamedTuple

from ppmodel import schedules
from ppmodel.errors import ScheduleError, SizeError
from ppmodel.metrics import peak_activations, table_bubble_ratio, table_slots
from ppmodel.schedules.registry import option_text
from ppmodel.simulation import compile_graph

PAPER_SCHEDULES = ("gpipe", "1f1b", "chimera")

TIE = 1e-9
"""Relative difference below which two times are one: rounding is no order."""

from ppmodel.analysis import FAMILIES, LAYOUTS as PLACEMENTS, family, layout as placement_text  # noqa

_SYMBOLS = {"microbatches": "B", "stages": "S"}


def label(name, options=None):
    """A schedule and its options as they are printed in figures.

    Parameters
    ----------
    name : str
        Name of the schedule.
    options : dict, optional
        Its options, where they differ from the defaults.

    Returns
    -------
    str

    Examples
    --------
    >>> label("hanayo", {"waves": 2}), label("asymmetric-chimera", {"split": (1, 2)})
    ('Hanayo W = 2', 'asymmetric Chimera 1:2')
    """
    entry = schedules.get(name)
    forms = {option.name: option.form for option in entry.options}
    words = [entry.label]
    for key, value in (options or {}).items():
        words.append(f"{forms[key]} = {value}" if isinstance(value, int) else option_text(value))
    return " ".join(words)


@cache
def built(name, num_ranks, num_microbatches, options):
    """`schedules.build`, once for each schedule; the options as a tuple of pairs."""
    return schedules.build(name, num_ranks, num_microbatches, **dict(options))


@cache
def compiled(name, num_ranks, num_microbatches, options, p2p, allreduce):
    """`graph.compile`, once for each schedule, semantics and NICs; these as a tuple."""
    return compile_graph(built(name, num_ranks, num_microbatches, options), p2p, allreduce)


class TableNumbers(NamedTuple):
    """What is read off a table alone; a backward takes two forwards.

    Parameters
    ----------
    bubble_ratio : float
        Idle share of the table.
    forward_times : float
        Its length in forwards of 1/S of the model.
    peak : float
        Peak activations of the fullest rank, in microbatches on 1/S of the model.
    """

    bubble_ratio: float
    forward_times: float
    peak: float


@cache
def table_numbers(name, num_ranks, num_microbatches, options):
    """`TableNumbers` of a schedule, once for each; the options as a tuple of pairs."""
    schedule = built(name, num_ranks, num_microbatches, options)
    length = table_slots(schedule) / schedule.pieces_per_unit
    return TableNumbers(table_bubble_ratio(schedule), length, float(peak_activations(schedule).max()))


def named(case):
    """Name and options of a case.

    Parameters
    ----------
    case : str or (str, dict)
        A schedule, with options where they differ from the defaults.

    Returns
    -------
    name : str
    options : dict
        Lists in it become tuples.

    Examples
    --------
    >>> named("gpipe"), named(["asymmetric-chimera", {"split": [1, 2]}])
    (('gpipe', {}), ('asymmetric-chimera', {'split': (1, 2)}))
    """
    name, options = (case, {}) if isinstance(case, str) else case
    return name, {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


def field_cases(listed=()):
    """All registered schedules, with their defaults where nothing else is listed."""
    known = {named(case)[0] for case in listed}
    return [name for name in schedules.names() if name not in known] + list(listed)


def legal_schedules(cases, num_ranks, num_microbatches):
    """Those of some schedules that are defined at a size.

    Parameters
    ----------
    cases : iterable of str or (str, dict)
        Names, with options where they differ from the defaults.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.

    Yields
    ------
    name : str
    options : dict
        Lists in it become tuples.
    schedule : Schedule

    Raises
    ------
    ScheduleError
        If a name is unknown; a case that is illegal at the size is left out.

    Examples
    --------
    >>> [name for name, _, _ in legal_schedules(["gpipe", "chimera"], 4, 6)]
    ['gpipe']
    """
    built("gpipe", num_ranks, num_microbatches, ())  # legal everywhere: refuses what is no size at all
    for case in cases:
        name, options = named(case)
        try:
            yield name, options, built(name, num_ranks, num_microbatches, tuple(options.items()))
        except ScheduleError as error:
            if not isinstance(error, SizeError):
                raise  # an unknown name or option is an error, an illegal size is not


def spread(table, rows, columns, value):
    """A long table as a grid: one row for each of some columns' values, in order of appearance.

    Parameters
    ----------
    table : DataFrame
        One row a point.
    rows : list of str
        Columns whose values tell the rows of the grid apart.
    columns, value : str
        The column whose values become columns, and the one that fills the grid.

    Returns
    -------
    DataFrame
        The columns `rows`, then one for each value of `columns`; a number gets its symbol before it
        (``B = 8``).

    Examples
    --------
    >>> import pandas as pd
    >>> long = pd.DataFrame({"S": [4, 4], "schedule": ["b", "a"], "slots": [1, 2]})
    >>> spread(long, ["S"], "schedule", "slots").to_dict("records")
    [{'S': 4, 'b': 1, 'a': 2}]
    """
    order = list(dict.fromkeys(table[columns]))
    grid = table.pivot_table(index=rows, columns=columns, values=value, aggfunc="first", sort=False)
    grid = grid.reindex(columns=order)  # a column without a number is left out by the pivot, and has its place
    grid.columns = [name if isinstance(name, str) else f"{_SYMBOLS.get(columns, columns)} = {name}" for name in order]
    return grid.reset_index()
