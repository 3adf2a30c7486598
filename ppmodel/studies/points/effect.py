"""Warnings of options that change nothing, by the conditions declared beside them, and of links that carry nothing."""

import warnings
from collections import namedtuple
from contextlib import suppress
from dataclasses import replace
from math import isclose

from ppmodel.clusters.costs import stages
from ppmodel.clusters.memory import memory
from ppmodel.clusters.specs.layout import DIMENSIONS, LAYOUT_KEYWORDS, LAYOUT_OPTIONS, LayoutSpec
from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.simulation import crossed
from ppmodel.studies.points.iteration import memory_of
from ppmodel.studies.points.rows import table_columns

_SIZES = {*DIMENSIONS, "gpus", "microbatch_size", "global_batch", "sequence"}
"""Values that change every answer, or are checked."""

_OF_MEMORY = ("offload", "offload_warm_up", "offload_chunks")

Resolved = namedtuple("Resolved", "layout model system table costs graph")
"""A point with all that its options leave open: what conditions are asked of."""


def _has_transfers(run):
    """Return whether messages take time, or wait for both of their ranks."""
    takes_time = run.costs.occupancy_s.any() or run.costs.latency_s.any()
    return table_columns(run.table)["messages"] and (takes_time or run.graph.needs_handshake)


def _has_reductions(run):
    """Return whether all-reduces over the replicas of a table take time."""
    return (run.table.num_replicas > 1 or run.table.reduces) and run.costs.compute_s[OpKind.R].any()


def _is_uneven(run):
    """Return whether any stage has other layers than a balanced one."""
    balanced = stages(run.table, run.model, run.system, layout=replace(run.layout, layers="balanced"))
    return run.costs.stages.text != balanced.text


_OPTIONS = {name: LAYOUT_OPTIONS[name] for name in LAYOUT_KEYWORDS if name not in _SIZES}
_DEFAULTS = {"allreduce": "excluded", "p2p": "overlapped"} | {name: getattr(LayoutSpec, name) for name in _OPTIONS}
_NEEDS = {name: option.needs for name, option in _OPTIONS.items() if option.needs} | {
    "p2p": _has_transfers, "allreduce": _has_reductions, "layers": _is_uneven,
}  # fmt: skip
"""When options have an effect, as `specs.layout.Declared.needs`; others always have one."""


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
        self.effect = "saves no memory" if field in _OF_MEMORY else "changes nothing"
        super().__init__(field, value)

    def __str__(self) -> str:
        value = "true" if self.value is True else "false" if self.value is False else self.value
        return f"{self.field} = {value}: {self.effect} here; leave it out"


def warn_without_effect(points, given, level=3):
    """Warn of each option without which all rows would be the same.

    Parameters
    ----------
    points : sequence of Point
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
    for name, value in without_effect(points, names.union(layout if isinstance(layout, dict) else ())):
        warnings.warn(NoEffectWarning(name, value), stacklevel=level)


def without_effect(points, names):
    """Find the options that change no number of any row.

    Parameters
    ----------
    points : sequence of Point
        Those that are defined.
    names : iterable of str
        What the caller gave. An option that has several values is passed over: its rows can be compared.

    Returns
    -------
    list of (str, object)
        Their names and values.
    """
    found = [("links", link) for link in (idle_links(points) if "links" in names else [])]
    for name in sorted(_DEFAULTS.keys() & set(names)) if points else ():
        values = {_value(point, name) for point in points}
        is_default = all(_default(point, name) in values for point in points)
        if len(values) == 1 and not is_default and not any(has_effect(name, point) for point in points):
            found.append((name, values.pop()))
    return found


def has_effect(name, point):
    """Determine whether the value of an option can change a number of a point.

    Parameters
    ----------
    name : str
    point : Point

    Returns
    -------
    bool
    """
    layout, system = point.complete_layout, point.changed_system
    run = Resolved(layout, point.model, system, point.table, point.costs, point.graph)
    with suppress(PPModelError):  # another value is refused
        if name in _NEEDS and not _NEEDS[name](run):
            return False
        if name in _OF_MEMORY:
            resident = stages(run.table, run.model, system, replace(layout, offload=0.0, offload_warm_up=None))
            resident_bytes = memory(run.table, run.model, resident, layout, system).total.max()
            return not isclose(resident_bytes, memory_of(point).total.max())
        if _DEFAULTS[name] is not None:
            return _value(point, name) != _default(point, name)
        open_layout = replace(point.layout, **{name: None}).under(point.system.framework, point.size[0])
        return getattr(replace(point, layout=open_layout).layout_of(run.table), name) != getattr(layout, name)
    return True


def idle_links(points):
    """The links that no message of the points' tables crosses, as text."""
    links = sorted({link for point in points for link in point.links}, key=str)
    for point in points if links else ():
        with suppress(PPModelError):  # a refused point has no table
            used = crossed(links, point.table)
            links = [link for link in links if link not in used]
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


def _value(point, name):
    """The value of an option at a point."""
    return dict(zip(("p2p", "allreduce"), point.semantics, strict=True)).get(name) or getattr(point.layout, name)


def _default(point, name):
    """The value that holds if an option is not given."""
    return point.usual_p2p if name == "p2p" else _DEFAULTS[name]
