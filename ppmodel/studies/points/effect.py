"""Options that change nothing: found by computing points again without them, and named in a warning.

Links that no message of a pipeline crosses are named, too.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from math import isclose

import numpy as np

from ppmodel.clusters.specs.layout import DIMENSIONS, LayoutSpec, layout_keywords
from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.simulation import receivers
from ppmodel.studies.points.columns import NUMBERS, column_names
from ppmodel.studies.points.rows import rows_of

_SIZES = {*DIMENSIONS, "gpus", "microbatch_size", "global_batch", "sequence"}
"""Values that change every answer, or are checked."""

_DEFAULTS = {"p2p": "overlapped", "allreduce": "excluded"} | {
    name: getattr(LayoutSpec, name) for name in layout_keywords() if name not in _SIZES
}
_ANSWER = (*NUMBERS, *column_names("iteration"))
_OF_MEMORY = ("offload", "offload_warm_up", "offload_chunks")
_FEWEST, _MOST = 1, 64


class NoEffectWarning(UserWarning):
    """An option that changes no number of an answer, offloading that saves no memory, or a link that is not used.

    Parameters
    ----------
    field : str
    value : object

    Examples
    --------
    >>> print(NoEffectWarning("zero", 3))
    zero = 3: changes nothing here; leave it out
    """

    def __init__(self, field: str, value: object) -> None:
        self.field, self.value = field, value
        super().__init__(field, value)

    def __str__(self) -> str:
        lacking = "saves no memory" if self.field in _OF_MEMORY else "changes nothing"
        value = "true" if self.value is True else "false" if self.value is False else self.value
        return f"{self.field} = {value}: {lacking} here; leave it out"


def warn_without_effect(points, given, rows=None, level=3):
    """Warn of each option without which all rows would be the same.

    Parameters
    ----------
    points, rows
        As in `without_effect`.
    given : dict of str to object
        What the caller gave by name, also in a layout's dictionary; None is not given.
    level : int
        As in `warnings.warn`: whose line is named.

    Warns
    -----
    NoEffectWarning
        For each.

    Examples
    --------
    >>> import ppmodel as pp
    >>> size = {"pp": 4, "microbatches": 8, "model": "llama3_8b", "system": "dgx_h100"}
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     run = pp.simulate("1f1b", tp=2, context_exchange="all-gather", **size)
    >>> [warning.message.field for warning in caught]
    ['context_exchange']
    """
    layout = given.get("layout")
    names = {name for name, value in given.items() if value is not None} | {"p2p", "allreduce"}
    for name, value in without_effect(points, names.union(layout if isinstance(layout, dict) else ()), rows):
        warnings.warn(NoEffectWarning(name, value), stacklevel=level)


def without_effect(points, names, rows=None):
    """Find the options without which all rows would be the same.

    Parameters
    ----------
    points : sequence of Point
        Of many, 64 are tried, from the whole grid.
    names : iterable of str
        What the caller gave. An option that has several values is passed over: its rows can be compared.
    rows : sequence of dict, optional
        Of the points, if they are known.

    Returns
    -------
    list of (str, object)
        Their names and values.
    """
    defined = [place for place in range(len(points)) if rows is None or rows[place]["refused"] is None]
    links = idle_links([points[place] for place in defined]) if "links" in names else []
    idle, was_tried = {}, False  # options with the same value everywhere, other than the default
    for name in sorted(_DEFAULTS.keys() & set(names)):
        values = {_semantics(point).get(name) or getattr(point.layout, name) for point in points}
        if len(values) == 1 and any(_default(point, name) not in values for point in points):
            idle[name] = values.pop()
    for count in (_FEWEST, _MOST) if idle and defined else ():  # nearly every option shows at once what it does
        places = sorted({defined[max(place * len(defined) // count, 1) - 1] for place in range(1, count + 1)})
        tried = [points[place] for place in places]
        before = rows_of(tried) if rows is None else [rows[place] for place in places]
        pairs = [(point, row) for point, row in zip(tried, before, strict=True) if row["refused"] is None]
        was_tried |= bool(pairs)
        if any(row["messages"] and row["comm_over_forward"] for _, row in pairs):
            idle.pop("p2p", None)  # transfers take time, so the choice had a meaning
        trials = [(name, *pair) for name in idle for pair in pairs]
        without = rows_of([_without(point, name) for name, point, _ in trials])
        for (name, _, row), trial in zip(trials, without, strict=True):
            columns = ("peak_memory_bytes",) if name in _OF_MEMORY else _ANSWER
            for number, tried_number in ((row.get(column), trial.get(column)) for column in columns):
                are_numbers = isinstance(number, float) and isinstance(tried_number, float)
                if number != tried_number and not (are_numbers and isclose(number, tried_number)):
                    idle.pop(name, None)
    return [("links", link) for link in links] + ([*idle.items()] if was_tried else [])


def idle_links(points):
    """The links that no message of the points' tables crosses, as text."""
    links = sorted({link for point in points for link in point.links}, key=str)
    for point in points if links else ():
        with suppress(PPModelError):  # a refused point has no table
            ends = receivers(point.table)[[OpKind.F, OpKind.B]]
            crossed = set(zip(np.broadcast_to(point.table.placement, ends.shape).flat, ends.flat, strict=True))
            if not (links := [link for link in links if not crossed & {*link.directions}]):
                break
    return list(map(str, links))


def warn_of_links(points):
    """Warn of each link of some points that no message of any of them crosses.

    Warns
    -----
    NoEffectWarning
        For each.
    """
    for link in idle_links(points):
        warnings.warn(NoEffectWarning("links", link), stacklevel=4)


def _default(point, name):
    """What holds if an option is not given."""
    return point.system.framework.p2p if name == "p2p" and point.system else _DEFAULTS[name]


def _semantics(point):
    """What a point's transfers and all-reduces occupy, by the names of the options."""
    return dict(zip(("p2p", "allreduce"), point.semantics, strict=True))


def _without(point, name):
    default, semantics = _default(point, name), _semantics(point)
    if name in semantics:
        return replace(point, semantics=(*(semantics | {name: default}).values(),))
    return replace(point, layout=replace(point.layout, **{name: default}).under(point.system.framework, point.size[0]))
