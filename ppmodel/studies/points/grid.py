"""The door: what a caller gives is resolved once, into a grid of points."""

from dataclasses import dataclass, replace
from itertools import product

from ppmodel.clusters import specs
from ppmodel.clusters.specs.entries import RENAMED
from ppmodel.errors import CostError, did_you_mean
from ppmodel.given import as_list, to_builtin
from ppmodel.schedules.cases import as_case, as_cases, size_of
from ppmodel.simulation import require_semantics
from ppmodel.studies.points.change import UNCHANGED, as_changes
from ppmodel.studies.points.columns import SECONDS
from ppmodel.studies.points.point import Point, require_seconds

_INSTEAD = "give {model} and {system}, or leave it out"


@dataclass(frozen=True)
class Grid:
    """Every combination of schedules, layouts, sizes, semantics and costs, ordered like nested loops.

    From the slowest: schedule, layout, pp, microbatches, p2p, allreduce; then the seconds and the links, or system with
    links and model; then the change. All points up to ``allreduce`` share one table and, unless p2p is open, one graph.

    Parameters
    ----------
    cases : tuple of Case
        Schedules with their options.
    pp, microbatches : tuple of int
        Ranks and microbatches; empty if layouts or tables have their own.
    p2p, allreduce : tuple of str
        Communication semantics, as in `simulation.compile_graph`; a `p2p` of None is `Point.usual_p2p`.
    systems : tuple of SystemSpec
    models : tuple of ModelSpec
        Neither if costs are given in seconds.
    layouts : tuple of LayoutSpec or None
        Only None if a rank is one GPU.
    seconds : tuple of dict
        Costs in seconds.
    changes : tuple of Change
        Empty if none were asked for.

    Raises
    ------
    CostError
        If a size is no whole number, or all-reduces are timed in the pipeline although layouts time them in the
        iteration.
    """

    cases: tuple
    pp: tuple = ()
    microbatches: tuple = ()
    p2p: tuple = (None,)
    allreduce: tuple = ("excluded",)
    systems: tuple = ()
    models: tuple = ()
    layouts: tuple = (None,)
    seconds: tuple = ()
    changes: tuple = ()

    def __post_init__(self):
        for name, counts in (("pp", self.pp), ("microbatches", self.microbatches)):
            if others := [count for count in counts if type(count) is not int]:
                rule = "must be a whole number of at least 1"
                raise CostError(name, others[0], rule, "give, for example, {field}=8", names_fields=True)
        contradicting = [word for word in self.allreduce if word != "excluded"]
        if self.layouts != (None,) and contradicting:
            rule = "cannot be combined with a layout, which reduces gradients once the pipeline has ended, or beside it"
            raise CostError("allreduce", contradicting[0], rule, "leave it out; overlap_gradients hides reductions")

    @property
    def more_columns(self):
        """``change`` if changes were asked for, ``links`` if any point has some: these identify rows, too."""
        links = [system.links for system in self.systems] + [entry.get("links") for entry in self.seconds]
        return ("change",) * bool(self.changes) + ("links",) * any(links)

    @property
    def graph_shape(self):
        """Lengths of the loops that determine a graph."""
        sizes = max(1, len(self.pp)), max(1, len(self.microbatches))
        return len(self.cases), len(self.layouts), *sizes, len(self.p2p), len(self.allreduce)

    def sizes(self, case, layout):
        """The ranks and the numbers of microbatches of a schedule under a layout.

        Returns
        -------
        (tuple of int, tuple of int)
            As asked for; else the layout's; else the table's, also for schedules beside tables of one size.

        Raises
        ------
        ScheduleError
            If one is missing.
        """
        asked = [self.pp, self.microbatches]
        if layout is not None:
            stated = layout.pp, layout.microbatches
            asked = [values or ((count,) if count else ()) for values, count in zip(asked, stated, strict=True)]
        size = size_of(case, *(values[0] if values else None for values in asked), beside=self.cases)
        return tuple(values or (count,) for values, count in zip(asked, size, strict=True))

    def points_of(self, *place):
        """The points of a graph, in order.

        Parameters
        ----------
        *place : int
            An index into each loop of `graph_shape`.

        Returns
        -------
        list of Point
            Their case has the layout's number of chunks, if it has that option and it is not set; their layout the
            ranks of this graph, which override those that it states.
        """
        case, layout, pp, count, p2p, allreduce = place
        case, layout = self.cases[case], self.layouts[layout]
        ranks, counts = self.sizes(case, layout)
        if layout is not None:
            if layout.pp is not None:
                layout = specs.as_layout(layout, {"pp": ranks[pp]})
            if layout.chunks is not None and "chunks" in case.known_options and "chunks" not in dict(case.options):
                case = case.with_options({"chunks": str(layout.chunks)})
        size, semantics = (ranks[pp], counts[count]), (self.p2p[p2p], self.allreduce[allreduce])
        costs = [{"seconds": seconds} for seconds in self.seconds]
        for system, model in product(self.systems, self.models):
            costs.append({"system": system, "model": system.framework.model(model)})
            if layout is not None:
                costs[-1]["layout"] = layout.under(system.framework, size[0])
                if layout.sequence is not None:
                    costs[-1]["model"] = replace(costs[-1]["model"], sequence=layout.sequence)
        columns, of_points = self.more_columns, product(costs, self.changes or [UNCHANGED])
        return [Point(case, size, semantics, change=change, columns=columns, **entry) for entry, change in of_points]

    def points(self):
        """All points, in order.

        Returns
        -------
        list of Point
        """
        return [point for place in product(*map(range, self.graph_shape)) for point in self.points_of(*place)]


def resolve(
    schedules, pp=None, microbatches=None, *, model=None, system=None, layout=None, framework=None, links=None,
    p2p=None, allreduce="excluded", changes=None, **given,
):  # fmt: skip
    """Resolve what a caller gives: names, files, specifications, seconds and values of a layout, each one or several.

    Parameters
    ----------
    schedules, pp, microbatches, model, system, layout, framework, links, p2p, allreduce, changes, **given
        As in `compare`.

    Returns
    -------
    Grid

    Raises
    ------
    PPModelError
        As for `compare`.

    Examples
    --------
    >>> grid = resolve(["gpipe", "1f1b"], 4, [4, 8], forward=1, backward=2, comm=[0, 0.1])
    >>> grid.graph_shape, len(grid.points())
    ((2, 1, 1, 2, 1, 1), 8)
    """
    cases, in_seconds = tuple(as_cases(schedules)), model is None and system is None
    seconds, values = _seconds_and_layout(given, cases)
    ranks = None if pp is None else as_list(pp)
    if ranks is not None and len(ranks) > 1:  # ranks are set point by point, and GPUs are checked against each
        ranks = [None] if "gpus" in values else None
    layouts = tuple(specs.as_layouts(layout, values, ranks))
    networks = links if isinstance(links, list) else [links]
    frameworks = product(as_list(framework), [] if system is None else map(specs.load_system, as_list(system)))
    systems = [specs.with_framework(entry, name) for name, entry in frameworks]
    systems = tuple(entry.with_links(network) for entry in systems for network in networks)
    semantics = _semantics(p2p, allreduce, seconds)
    changes = () if changes is None else tuple(as_changes(changes, in_seconds))
    sizes = [() if counts is None else tuple(as_list(counts)) for counts in (pp, microbatches)]
    if not in_seconds:
        for name, value in seconds.items():
            rule, remedy = "cannot be combined with model and system", "give either seconds or {model} and {system}"
            raise CostError(name, value, rule, remedy, names_fields=True)
        for name, value in (("model", model), ("system", system)):
            if value is None:
                raise CostError(name, None, "is missing", "give {model} and {system}, or seconds", names_fields=True)
        models = tuple(map(specs.load_model, as_list(model)))
        return Grid(cases, *sizes, *semantics, systems, models, layouts, changes=changes)
    if framework is not None:
        rule = "has no effect: costs in seconds include what software does"
        raise CostError("framework", framework, rule, _INSTEAD, names_fields=True)
    for entry in filter(None, layouts):
        field, value = ("layout", entry.name) if layout is not None else next(iter(values.items()))
        raise CostError(field, value or "given", "needs a model and a system", _INSTEAD, names_fields=True)
    require_seconds(seconds)
    several = {name: as_list(value) for name, value in seconds.items()}
    if links is not None:
        several["links"] = list(map(specs.as_links, networks))
    combined = tuple(dict(zip(several, entry, strict=True)) for entry in product(*several.values()))
    return Grid(cases, *sizes, *semantics, layouts=layouts, seconds=combined, changes=changes)


def _semantics(p2p, allreduce, seconds):
    """Semantics of transfers and all-reduces, as given."""
    p2p, allreduce = as_list(p2p), as_list(allreduce)
    for semantics in product(["overlapped"] if p2p == [None] else p2p, allreduce):
        require_semantics(*semantics)
    if seconds.get("reduction") is not None and set(allreduce) == {"excluded"}:
        rule = "has no effect: the all-reduce is excluded"
        raise CostError("reduction", seconds["reduction"], rule, "set allreduce to blocking, or leave it out")
    return tuple(p2p), tuple(allreduce)


def resolve_point(schedule, pp=None, microbatches=None, **given):
    """Resolve a single point.

    Parameters
    ----------
    schedule, pp, microbatches, **given
        As in `simulate`.

    Returns
    -------
    Point

    Raises
    ------
    PPModelError
        Also if an argument is a list.
    """
    if "changes" in given:
        raise CostError("changes", given["changes"], "is not known here", "ppmodel.compare takes changes")
    for name, value in {"pp": pp, "microbatches": microbatches, **given}.items():
        is_single = name == "layers" or (name == "links" and not isinstance(value, list))
        if not is_single and isinstance(to_builtin(value), list | tuple | range):
            raise CostError(name, to_builtin(value), "must be one value", "ppmodel.compare takes several")
    points = resolve(as_case(schedule), pp, microbatches, **given).points()
    if len(points) > 1:
        raise CostError("layers", given["layers"], "must be one value", "ppmodel.compare takes several")
    return points[0]


def _seconds_and_layout(given, cases):
    """Separate seconds from values of a layout, and refuse anything else."""
    given = {RENAMED.get(name, name): value for name, value in given.items() if value is not None}
    seconds = {name: given.pop(name) for name in SECONDS if name in given}
    for name, value in given.items():
        if name not in specs.LAYOUT_KEYWORDS:
            arguments = ("pp", "microbatches", "model", "system", "layout", "links", "p2p", "allreduce", "changes")
            remedy = did_you_mean(name, (*SECONDS, *arguments, *specs.LAYOUT_KEYWORDS))
            if owner := next((case.name for case in cases if name in case.known_options), None):
                remedy = f'write ("{owner}", {{"{name}": {to_builtin(value)!r}}})'
            remedy = remedy or f"give {', '.join(SECONDS)}, or model and system"
            raise CostError(name, value, "is not known here", remedy)
    return seconds, given
