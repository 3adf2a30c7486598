"""From points to rows. Points that share a graph are evaluated together; the topology is part of their costs."""

from ppmodel import metrics
from ppmodel.clusters.costs import slowest_over_mean
from ppmodel.clusters.memory import memory
from ppmodel.errors import PPModelError, refusing
from ppmodel.simulation import comm_over_forward, iterations
from ppmodel.studies.points.iteration import iteration_columns, iterations_of
from ppmodel.studies.points.order import ordered_for, prepare_search
from ppmodel.studies.points.point import once, places_of
from ppmodel.tables import brief


def rows_of(points):
    """Compute the rows of points.

    Parameters
    ----------
    points : sequence of Point

    Returns
    -------
    list of dict
        One row for each point, in order. A refused row has the reason in ``refused``, and no numbers.

    Examples
    --------
    >>> from ppmodel.studies.points.point import Point
    >>> from ppmodel.schedules.cases import as_case
    >>> rows = rows_of([Point(as_case("chimera"), (pp, 4), seconds={"forward": 1, "backward": 2}) for pp in (4, 5)])
    >>> rows[0]["makespan_s"], rows[1]["refused"]
    (16.0, 'pp = 5: must be even for chimera; pass pp 4 or 6')
    """
    prepare_search(points)
    rows = [point.coordinates | {"ordered_for": None, "refused": None} for point in points]
    ordered = []
    for point, row in zip(points, rows, strict=True):
        with refusing(row):
            row["ordered_for"] = ordered_for(point)
            ordered.append((point, row))
    for places in places_of(point.graph_key for point, _ in ordered).values():
        _fill(*zip(*(ordered[place] for place in places), strict=True))
    return rows


def _fill(points, rows):
    """Complete the rows of points that share a graph."""
    graph, priced = None, []
    with refusing(*rows):
        graph = points[0].graph
    for point, row in zip(points, rows, strict=True) if graph else ():
        point.__dict__["table"] = graph.schedule
        with refusing(row):
            priced.append((point.costs, point, row))
    try:
        evaluated = list(zip(priced, evaluate(graph, [costs for costs, *_ in priced]), strict=True))
    except (PPModelError, MemoryError):  # one by one, so that only the faulty ones are refused
        evaluated = []
        for entry in priced:
            with refusing(entry[-1]):
                evaluated += zip([entry], evaluate(graph, [entry[0]]), strict=True)
    laid_out = [(point, costs, numbers["makespan_s"]) for (costs, point, _), numbers in evaluated if point.layout]
    wholes = iter(iterations_of(graph, *zip(*laid_out, strict=True)) if laid_out else ())
    for (_, point, row), numbers in evaluated:
        row.update(numbers | point_columns(point, next(wholes) if point.layout else None))


def evaluate(graph, many_costs, ends=None, busy_s=None):
    """Evaluate one graph under many costs: all columns that depend on times, of noisy runs too.

    Parameters
    ----------
    graph : ExecutionGraph
        The topology is part of the costs.
    many_costs : sequence of OpCosts
        For the graph's schedule.
    ends : Iterations, optional
        Their times, if they are known.
    busy_s : ndarray of float, shape (n,), optional
        Their computing times, summed over ranks, in seconds; as follows from the costs, unless runs are noisy.

    Returns
    -------
    list of dict
        For each, ``makespan_s, busy_s, idle_ratio, bubble_ratio_total, bubble_ratio_ideal, bubble_ratio_span,
        comm_over_forward, nics_shared``; times in seconds, ``busy_s`` summed over ranks.

    Raises
    ------
    CostError
        If costs do not fit the schedule, or times overflow.
    """
    if not many_costs:
        return []
    ranks = graph.schedule.num_ranks
    ends = ends or iterations(graph, many_costs)
    if busy_s is None:
        busy_s = metrics.computing_s(graph.schedule, many_costs)
    total, ideal, span = metrics.ratios_of(ranks, busy_s, ends.reduced_s, ends.span_s)
    columns = {
        "makespan_s": ends.makespan_s, "busy_s": busy_s, "idle_ratio": total, "bubble_ratio_total": total,
        "bubble_ratio_ideal": ideal, "bubble_ratio_span": span,
    }  # fmt: skip
    values = zip(*(array.tolist() for array in columns.values()), strict=True)
    rows = [dict(zip(columns, row, strict=True)) for row in values]
    for numbers, costs in zip(rows, many_costs, strict=True):
        numbers["comm_over_forward"] = comm_over_forward(costs, ranks)
        numbers["nics_shared"] = costs.nics is not None and graph.links_queue
    return rows


def point_columns(point, iteration=None):
    """The columns of a point's results that are the same in all its noisy runs: none depends on their times.

    Parameters
    ----------
    point : Point
    iteration : Iteration, optional
        From `iterations_of`, with a layout, under which runs are not noisy.

    Returns
    -------
    dict
    """
    columns = table_columns(point.table)
    if point.model is None:
        return columns
    return columns | (memory_columns(point) if iteration is None else iteration_columns(point, iteration))


def table_columns(table):
    """The columns that depend only on the table: bubble ratio, peak of the most loaded rank, messages."""

    def compute():
        _, _, messages, bubble_ratio = brief(table)
        peak = float(metrics.peak_activations(table).max())
        return {"table_bubble_ratio": bubble_ratio, "peak_activations": peak, "messages": messages}

    return once(table, "columns", compute)


def memory_columns(point):
    """The columns of memory without a layout, and the balance of computing time."""
    table, model, system = point.table, point.model, point.changed_system

    def compute():
        of_stages = point.costs.stages
        of_ranks = memory(table, model, of_stages)
        fullest = of_ranks.total.argmax()
        seconds = of_stages.forward_s + of_stages.input_grad_s + of_stages.weight_grad_s
        return {
            "peak_memory_bytes": float(of_ranks.total[fullest]),
            "activations_bytes": float(of_ranks.activations[fullest]),
            "slowest_over_mean": slowest_over_mean(table, seconds),
        }

    return once(table, ("memory", model, system), compute) | {"memory_capacity_bytes": system.memory_capacity_bytes}
