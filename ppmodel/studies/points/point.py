"""A point: a schedule with its options, a size, semantics, and what its operations cost. Every row comes from one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from numbers import Real
from weakref import WeakKeyDictionary

from ppmodel.clusters.costs import check_layout, model_costs
from ppmodel.clusters.specs import LayoutSpec, ModelSpec, SystemSpec
from ppmodel.clusters.specs.framework import DEFAULT, load_framework
from ppmodel.errors import CostError, PPModelError
from ppmodel.given import as_list
from ppmodel.schedules.cases import Case, built
from ppmodel.schedules.options import option_text
from ppmodel.simulation import OpCosts, crossed, graph_of, run_graph, uniform_costs
from ppmodel.studies.points.change import UNCHANGED, Change
from ppmodel.studies.points.order import ordered_case
from ppmodel.tables import Schedule

_HALVES = {"input_grad", "weight_grad"}
_changed = lru_cache(2**10)(Change.system)
_OF_SOME_TABLES = {
    "pair": ("cell with both a forward and a backward", lambda table: table.overlaps.any()),
    "optimizer": ("optimizer steps", lambda table: len(table.steps)),
    "gather": ("gathers", lambda table: table.gathers),
}


@dataclass(frozen=True, eq=False)
class Point:
    """A schedule at a size, with what its operations cost; everything that is computed starts from one.

    It is resolved once, at the door (`grid.resolve`). Its table, graph and costs are computed when they are first asked
    for.

    Parameters
    ----------
    case : Case
        The schedule with its options, as its user names it.
    size : (int, int)
        Ranks S and microbatches B.
    semantics : (str, str)
        What transfers and all-reduces occupy, as in `simulation.compile_graph`; None is `usual_p2p`.
    seconds : dict of str to float, optional
        Costs of `SECONDS`, and the links if they differ, instead of a model and a system.
    model : ModelSpec, optional
    system : SystemSpec, optional
    layout : LayoutSpec, optional
        As given: what it leaves open follows from the size.
    change : Change
    columns : collection of str
        Which of ``change`` and ``links`` also identify the row.

    Examples
    --------
    >>> from ppmodel.schedules.cases import as_case
    >>> point = Point(as_case("1f1b"), (4, 8), seconds={"forward": 1, "backward": 2})
    >>> point.run().makespan_s
    33.0
    """

    case: Case
    size: tuple[int, int]
    semantics: tuple[str | None, str] = (None, "excluded")
    seconds: dict | None = None
    model: ModelSpec | None = None
    system: SystemSpec | None = None
    layout: LayoutSpec | None = None
    change: Change = UNCHANGED
    columns: tuple[str, ...] = ()

    def __post_init__(self):
        p2p, allreduce = self.semantics
        object.__setattr__(self, "semantics", (p2p or self.usual_p2p, allreduce))

    @cached_property
    def ordered_case(self):
        """The case whose order is searched for this point's costs; the case itself if it has nothing to search."""
        return ordered_case(self)

    @cached_property
    def table(self) -> Schedule:
        """The schedule's table."""
        return built(self.ordered_case, *self.size)

    @property
    def graph(self):
        """The table's execution graph."""
        return graph_of(self.table, *self.semantics)

    @property
    def graph_key(self):
        """A key that points have in common if they share a graph; it needs no table."""
        return id(self.case), self.ordered_case.options, self.size, self.semantics

    @property
    def changed_system(self) -> SystemSpec | None:
        """The system under the change; what is known of its errors is that of `system`."""
        return self.system and _changed(self.change, self.system)

    @cached_property
    def costs(self) -> OpCosts:
        """`OpCosts` of the table."""
        return self.costs_of(self.table)

    def costs_of(self, table):
        """Compute the costs of a table of this schedule and size; the same for all semantics.

        Parameters
        ----------
        table : Schedule

        Returns
        -------
        OpCosts

        Raises
        ------
        PPModelError
            If the model does not fit the schedule or the layout, or seconds are missing.
        """
        if self.model is None:
            allreduce = self.semantics[1]
            seconds = {name: value for name, value in self.seconds.items() if _has_effect(name, table)}
            if allreduce != "excluded" and "reduction" not in seconds and (table.num_replicas > 1 or table.reduces):
                raise CostError("reduction", None, f"is missing for allreduce = {allreduce}", "give its seconds")
            return self.change.costs(uniform_costs(table, **seconds), table)
        key = self.model, self.change.of_system, self.system, self.layout
        costs = once(table, key, lambda: model_costs(table, self.model, self.changed_system, self.layout_of(table)))
        return once(table, (*key, self.change), lambda: self.change.costs(costs, table))

    def require_effect(self):
        """Refuse seconds without effect on the table, if it is the only one.

        Raises
        ------
        CostError
        """
        for name, value in (self.seconds or {}).items():
            if not _has_effect(name, self.table):
                rule = f"has no effect: {self.table.name} has no {_OF_SOME_TABLES[name][0]}"
                raise CostError(name, value, rule, "leave it out")

    def layout_of(self, table):
        """The layout with everything that it leaves open, checked against a table; None without one."""
        return self.layout and check_layout(self.layout, self.model, self.system, table)

    @cached_property
    def complete_layout(self) -> LayoutSpec | None:
        """`layout_of` the point's own table."""
        return self.layout_of(self.table)

    @property
    def links(self):
        """The links that differ from the others; a tuple of `Link`."""
        return self.seconds.get("links", ()) if self.model is None else self.system.links

    @property
    def usual_p2p(self):
        """Semantics of transfers if none are asked for: as the framework sends, which is the default's for seconds."""
        framework = self.system and self.system.framework
        if framework is None and not self.links:
            return "overlapped"  # without a file to read
        links = self.links
        with suppress(PPModelError):  # a refused point has no table
            links = links and crossed(links, built(self.case, *self.size))
        return (framework or load_framework(DEFAULT)).sends(self.case.name, links)

    @property
    def coordinates(self):
        """The columns that identify its row."""
        case, (pp, microbatches), (p2p, allreduce) = self.case, self.size, self.semantics
        columns = {
            "schedule": case.name, "options": " ".join(f"{name}={option_text(value)}" for name, value in case.options),
            "label": case.label, "pp": pp, "microbatches": microbatches, "p2p": p2p, "allreduce": allreduce,
        }  # fmt: skip
        if self.model is not None:
            columns |= {"system": self.system.name, "model": self.model.name, "framework": self.system.framework.label}
        else:
            columns |= {name: value for name, value in self.seconds.items() if name != "links"}
        if self.links or "links" in self.columns:
            columns["links"] = " ".join(map(str, self.links))
        if "change" in self.columns:
            columns["change"] = repr(self.change)
        return columns if self.layout is None else columns | self.layout.columns

    def run(self):
        """Simulate the point.

        Returns
        -------
        Run

        Raises
        ------
        PPModelError
            If the schedule is not defined at the size, or the costs do not suit it.
        """
        from ppmodel.studies.points.run import Run

        return Run(self, run_graph(self.graph, self.costs))


def _has_effect(name, table):
    """Return whether seconds matter to a table: some have pairs, optimizer steps or gathers, others not."""
    return name not in _OF_SOME_TABLES or bool(_OF_SOME_TABLES[name][1](table))


def require_seconds(seconds):
    """Refuse seconds that are no numbers, contradict each other, or do not suffice for any table.

    Parameters
    ----------
    seconds : dict of str to object
        Costs of `SECONDS` that are given.

    Raises
    ------
    CostError
    """
    for name, value in seconds.items():
        for entry in as_list(value):
            if isinstance(entry, bool) or not isinstance(entry, Real):
                raise CostError(name, repr(entry), "must be a number of seconds", "write, for example, 0.1")
    halves = seconds.keys() & _HALVES
    if halves and "backward" in seconds:
        rule, remedy = "cannot be combined with its halves", "leave it out: it is their sum"
        raise CostError("backward", seconds["backward"], rule, remedy)
    if "forward" not in seconds:
        remedy = "give {forward} and {backward} (or {input_grad} and {weight_grad}), or {model} and {system}"
        raise CostError("forward", None, "is missing", remedy, names_fields=True)
    if "backward" not in seconds and len(halves) < len(_HALVES):
        remedy = "give {field}, or {input_grad} and {weight_grad}"
        raise CostError("backward", None, "is missing", remedy, names_fields=True)


def places_of(keys):
    """Indices of each key, in the order in which keys occur first.

    >>> places_of("abca")
    {'a': [0, 3], 'b': [1], 'c': [2]}
    """
    places = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    return places


_results_of = WeakKeyDictionary()  # what was computed of each table, forgotten with the table


def once(table, key, compute):
    """Compute something of a table once, and forget it with the table."""
    results = _results_of.setdefault(table, {})
    if key not in results:
        results[key] = compute()
    return results[key]
