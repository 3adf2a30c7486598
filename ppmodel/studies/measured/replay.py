"""Measured times of operations through schedules' tables: where the time goes, and what another schedule would take."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmodel.errors import PPModelError, refusing, shown
from ppmodel.given import is_number, to_builtin
from ppmodel.metrics.bubbles import operations_s
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import as_case, as_cases
from ppmodel.simulation import OpCosts, graph_of, run_graph
from ppmodel.studies.measured.operation_times import read_operation_times
from ppmodel.studies.points.comparison import frame_of
from ppmodel.studies.points.effect import warn_of_links
from ppmodel.studies.points.grid import resolve_point

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pandas import DataFrame

    from ppmodel.schedules.cases import ScheduleLike
    from ppmodel.studies.points.comparison import LinksLike

CAUSES = ("bubble_s", "slower_ranks_s", "transfers_s", "head_of_line_s")
NAMES = "schedule", "label", "pp", "microbatches", "p2p", "comm", "links"
RESULTS = ("measured_s", "makespan_s", "error", "relative", "idle_s", "idle_ratio", *CAUSES, "refused")
_F, _B, _I, _W = range(4)
_HALVINGS = 40
_ROUNDING = 1e-9
_TOUCHING = 0.01  # what operations may overlap of the shorter: less is the clock


def replay(
    measured: DataFrame | str | os.PathLike[str] | Sequence[Any], schedule: ScheduleLike, pp: int | None = None,
    microbatches: int | None = None, *, p2p: str | None = None, comm: float | None = None, latency: float = 0.0,
    links: LinksLike | None = None, against: Sequence[ScheduleLike] = (), iteration_s: float | None = None,
) -> DataFrame:  # fmt: skip
    """Replay the measured operations of one iteration: under its own schedule, and under others.

    Each operation takes what it took, and transfers take what the arguments say, or what gaps show. Idle time, the
    makespan less what the mean rank computes, is divided by cause: what it would be without each, one after the other:

    - ``bubble_s`` is left where all ranks are alike and transfers take no time: what the table itself costs.
    - ``slower_ranks_s`` is what differences between ranks, and between operations of one kind, add to that; below 0 if
      they shorten it.
    - ``transfers_s`` is what transfers add that only have to arrive (``latency``).
    - ``head_of_line_s`` is what they add by what they occupy under `p2p`: links, ranks or streams that others wait for.

    Parameters
    ----------
    measured : DataFrame, str, Path or list of them
        As in `read_operation_times`: durations by rank, or traces.
    schedule : Schedule, str, Path, (str, dict) or callable
        What ran, as in `simulate`.
    pp, microbatches : int, optional
        As in `simulate`.
    p2p, comm, latency, links
        What a transfer occupies and takes, and the links that differ, as in `simulate`. Without `comm`, a transfer
        takes as long as is needed for operations to start as long after the ends of those that they need as was
        measured, on average over all messages, so that clocks of ranks may differ; no time if starts are not known.
    against : list
        Other schedules, for the same ranks and microbatches. They take the means of every kind and stage: a stage's
        time is spread evenly over its share of the model, and where one of a backward and its halves was measured, the
        others follow from it, halves being equal.
    iteration_s : float, optional
        The iteration that was measured; without it, from the first start to the last end, if starts are known.

    Returns
    -------
    DataFrame
        The schedule that ran, then the others; columns schedule, label, pp, microbatches, p2p, comm, links if given,
        measured_s, makespan_s, error (makespan over measured, less 1), relative (makespan over that of the first row),
        idle_s, idle_ratio, the four above, whose sum is idle_s, and refused, why another schedule has no numbers.

    Raises
    ------
    PPModelError
        If a kind of operation has no row, rows contradict each other or the table, or an argument is illegal.

    Examples
    --------
    >>> import ppmodel as pp
    >>> run = pp.simulate("1f1b", 4, 8, forward=1, backward=2)
    >>> frame = pp.replay(run.to_frame(), "1f1b", 4, 8, against=["zb-h1"])
    >>> frame[["label", "measured_s", "makespan_s", "bubble_s"]].values.tolist()
    [['1F1B', 33.0, 33.0, 9.0], ['ZB-H1', nan, 27.0, 3.0]]
    """
    transfers = {"p2p": p2p, "comm": comm, "latency": latency, "links": links}
    rows = replayed(measured, schedule, pp, microbatches, against, iteration_s, transfers)
    return frame_of(list(rows[0]), rows).astype(dict.fromkeys(RESULTS[:-1], float))


def replayed(measured, schedule, pp, microbatches, against, iteration_s, transfers):
    """The rows of `replay`, for callers that need no frame; None where there is no number."""
    rows = read_operation_times(measured)
    if iteration_s is not None and not (is_number(to_builtin(iteration_s)) and iteration_s > 0):
        raise PPModelError("iteration_s", iteration_s, "must be a number of seconds above 0", "write, for example, 1.5")
    given = _mean_seconds(rows) | transfers
    ran = resolve_point(as_case(schedule), pp, microbatches, **given | {"comm": transfers["comm"] or 0.0})
    size = ran.table.num_ranks, ran.table.num_microbatches
    (stages, factors, spans), records = _by_stage(ran.table, rows), []
    if transfers["comm"] is None:
        given["comm"] = _comm_s(ran, stages, factors, spans)
        table, ran = ran.table, resolve_point(as_case(schedule), pp, microbatches, **given)
        if ran.table is not table:  # an order that was searched for these transfers
            stages, factors, _ = _by_stage(ran.table, rows)
    points = [ran, *(resolve_point(case, *size, **given) for case in as_cases(against))]
    span_s = max(row.start_s + row.seconds for row in rows) - min(row.start_s for row in rows)
    for point in points:
        coordinates = point.coordinates
        records.append({name: coordinates[name] for name in NAMES if name in coordinates} | dict.fromkeys(RESULTS))
        with nullcontext() if point is ran else refusing(records[-1]):
            took = np.broadcast_to(factors if point is ran else 1.0, point.table.num_operations)
            records[-1] |= idle_by_cause(point.table, point.semantics[0], _costs(point, stages, ran.table), took)
    if transfers["links"] is not None:
        warn_of_links([point for point, row in zip(points, records, strict=True) if row["refused"] is None])
    records[0]["measured_s"] = iteration_s or (None if isnan(span_s) else span_s)
    for row in records:
        row["error"] = row["measured_s"] and row["makespan_s"] / row["measured_s"] - 1
        row["relative"] = row["makespan_s"] and row["makespan_s"] / records[0]["makespan_s"]
    return records


def _mean_seconds(rows):
    """Arguments of `simulate`: seconds of each kind on 1/S of the model, on average over ranks."""
    per_rank = len({(row.rank, row.stage) for row in rows}) / len({row.rank for row in rows})
    times = {kind: [row.seconds for row in rows if row.kind == kind] for kind in {row.kind for row in rows}}
    means = {kind: per_rank * float(np.mean(seconds)) for kind, seconds in times.items()}
    if OpKind.F not in means or not {OpKind.B, OpKind.I} & means.keys():
        value = f"without {'B' if OpKind.F in means else 'F'}"
        raise PPModelError("operation", value, "must have forwards and backwards", "give rows of both")
    if OpKind.I in means and OpKind.W in means:
        return {"forward": means[OpKind.F], "input_grad": means[OpKind.I], "weight_grad": means[OpKind.W]}
    return {"forward": means[OpKind.F], "backward": means.get(OpKind.B) or 2 * means[OpKind.I]}


def _by_stage(table, rows):
    """Mean seconds of F, B, I and W of every stage, shape (4, num_stages), and a factor on that for each operation.

    And the start and the end of every cell, in seconds, NaN where they are not known.
    """
    operations = zip(table.kind.tolist(), table.stage.tolist(), table.microbatch.tolist(), strict=True)
    place = {operation: index for index, operation in enumerate(operations)}
    homes = [np.unique(table.stage[table.rank == rank]).tolist() for rank in range(table.num_ranks)]
    seconds, start_s = np.full((2, table.num_operations), np.nan)
    of_kinds = np.zeros((2, 4, table.num_stages))  # what rows without a microbatch say: sums and counts
    for row in rows:
        stages = homes[row.rank] if row.rank < len(homes) else []
        stage = stages[0] if row.stage is None and len(stages) == 1 else row.stage
        if stage not in stages:
            rule = f"has the stages {', '.join(map(str, stages))}" if stages else f"is not one of {len(homes)}"
            value = "no stage" if row.stage is None else f"stage {row.stage}"
            remedy = "name the stage, as in 1F3, or another schedule or --pp"
            raise PPModelError(f"rank {row.rank}", value, rule, remedy, where=row.where)
        index = place.get((row.kind, stage, row.microbatch or 0))
        if index is None:
            operation = f"{stage}{row.kind.name}{'' if row.microbatch is None else row.microbatch}"
            raise PPModelError("operation", operation, f"is not in {table.name}", "name what ran", where=row.where)
        if row.microbatch is None:
            of_kinds[:, row.kind, stage] += row.seconds, 1
        else:
            seconds[index], start_s[index] = row.seconds, row.start_s
    spans = _spans(table, seconds, start_s)
    seconds = _divided(table, seconds, start_s, of_kinds, *spans)
    means, at = _completed(_totals(table, seconds, of_kinds)), (np.minimum(table.kind, _W), table.stage)
    unmeasured = table.computes & np.isnan(seconds)
    for index in np.flatnonzero(unmeasured & np.isnan(means[at]))[:1]:
        rule, remedy = "has no measured time", "add its row, or that of its kind's mean"
        raise PPModelError(f"rank {table.rank[index]}", str(table.op(index)), rule, remedy)
    if len(lacking := np.flatnonzero(unmeasured & (of_kinds[1][at] == 0))):
        names = " ".join(str(table.op(index)) for index in lacking)
        what = PPModelError("operation", shown(names), "has no row and takes the mean of its kind", "add its row")
        warnings.warn(str(what), stacklevel=4)
    return means, np.where(np.isnan(seconds), 1.0, seconds / means[at]), spans


def _totals(table, seconds, of_kinds):
    """Sums and counts of F, B, I and W of every stage, shape (2, 4, num_stages)."""
    totals, timed = of_kinds.copy(), np.flatnonzero(~np.isnan(seconds))
    np.add.at(totals, (slice(None), table.kind[timed], table.stage[timed]), [seconds[timed], np.ones(len(timed))])
    return totals


def _spans(table, seconds, start_s):
    """The start and the end of every cell, in seconds, NaN where they are not known; a rank's may not overlap."""
    begun_s, ended_s = np.full((2, np.count_nonzero(~table.joined)), np.nan)
    np.fmin.at(begun_s, table.cell, start_s)
    np.fmax.at(ended_s, table.cell, start_s + seconds)
    ranks, length_s = table.rank[~table.joined], ended_s - begun_s
    for before, after in pairwise(np.lexsort((begun_s, ranks)).tolist()):  # on a rank, but for the clock's error
        least_s = _TOUCHING * min(length_s[before], length_s[after])
        if ranks[before] == ranks[after] and ended_s[before] - begun_s[after] > least_s:
            names = [str(table.op(np.flatnonzero(table.cell == place)[0])) for place in (before, after)]
            rule, remedy = f"starts before {names[0]} has ended", "give times of one clock and one stream"
            raise PPModelError(f"rank {ranks[after]}", names[1], rule, remedy)
    return begun_s, ended_s


def _comm_s(point, stages, factors, spans):
    """Seconds of a transfer: with as many, cells start on average as long after the ends they need as was measured."""
    table = point.table
    takers = np.flatnonzero(table.dependencies.remote & table.computes)
    cells = table.cell[[takers, table.dependencies.source[takers]]]
    taker, maker = cells[:, np.isfinite(spans[0][cells[0]] - spans[1][cells[1]])]
    if not len(taker):
        return 0.0
    graph, costs = graph_of(table, point.semantics[0]), _costs(point, stages, table)
    measured_s = float(np.mean(spans[0][taker] - spans[1][maker]))

    def beyond_s(comm):
        run = run_graph(graph, replace(costs, occupancy_s=np.full_like(costs.occupancy_s, comm)), factors)
        return measured_s - float(np.mean(run.start_s[~table.joined][taker] - run.end_s[~table.joined][maker]))

    if beyond_s(0.0) < _ROUNDING * np.ptp(spans[1][maker]):
        return 0.0
    low, high = 0.0, measured_s
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond_s(middle) > 0 else (low, middle)
    return float(f"{low:.6g}")


def _divided(table, seconds, start_s, of_kinds, begun_s, ended_s):
    """Seconds of each operation: of operations that shared the time of their cell, by the means outside such cells.

    Of the stage's own operations, else of all stages'; where there are none, they have equal shares.
    """
    cell, length_s, timed = table.cell, ended_s - begun_s, ~np.isnan(start_s)
    num_timed, busy_s = np.bincount(cell, timed), np.bincount(cell, np.where(timed, seconds, 0))
    is_shared = (num_timed > 0) & ((num_timed < np.bincount(cell)) | (busy_s > (1 + _TOUCHING) * length_s))
    shared = is_shared[cell] & timed
    totals = _totals(table, np.where(shared, np.nan, seconds), of_kinds)
    means = _completed(totals)
    means = np.where(np.isnan(means), _completed(totals.sum(axis=2, keepdims=True)), means)
    weights = means[np.minimum(table.kind, _W), table.stage]
    weights[np.isnan(np.bincount(cell, np.where(weights > 0, weights, np.nan)))[cell]] = 1.0
    return np.where(shared, length_s[cell] * weights / np.bincount(cell, weights)[cell], seconds)


def _completed(totals):
    """Means, and what follows: a backward is the sum of its halves, each of which is half of it."""
    with np.errstate(invalid="ignore"):
        means = totals[0] / totals[1]
    means[_B] = np.where(np.isnan(means[_B]), means[_I] + means[_W], means[_B])
    for half, counterpart in ((_I, _W), (_W, _I)):
        remainder = np.where(np.isnan(means[counterpart]), means[_B] / 2, means[_B] - means[counterpart])
        means[half] = np.where(np.isnan(means[half]), remainder, means[half])
    return means


def _costs(point, stages, measured_table):
    """The costs of a point whose operations take the mean seconds of stages, spread evenly over the model."""
    table, compute = point.table, np.zeros_like(point.costs.compute_s)
    if table.has_shards:
        rule = "has passes of a divided output layer, whose times no row has"
        raise PPModelError("schedule", table.name, rule, "choose another schedule")
    ends, edges = (np.append(0, np.cumsum(of.stage_shares)) / of.num_stages for of in (table, measured_table))
    even = stages / measured_table.unit_shares
    for stage, (first, last) in enumerate(pairwise(ends)):
        shares = np.clip(np.minimum(last, edges[1:]) - np.maximum(first, edges[:-1]), 0, None) / (last - first)
        compute[:4, ..., stage] = table.unit_shares[stage] * np.where(shares > 0, shares * even, 0).sum(axis=1)
    return replace(point.costs, compute_s=compute, stages=None)


def idle_by_cause(table, p2p, costs, factors):
    """Compute the makespan of a table and divide its idle time, as `replay` does.

    Parameters
    ----------
    table : Schedule
    p2p : str
        What a transfer occupies.
    costs : OpCosts
    factors : ndarray of float, shape (num_operations,)
        What each operation took, over its costs.

    Returns
    -------
    dict of str to float
        ``makespan_s``, ``idle_s``, ``idle_ratio`` and the four causes.
    """
    compute = costs.compute_s
    each_s = operations_s(table, costs) * factors
    equal = np.zeros_like(compute)
    for kind in set(table.kind[table.computes].tolist()):
        of_kind = table.kind == kind
        equal[kind] = table.unit_shares * each_s[of_kind].sum() / table.unit_shares[table.stage[of_kind]].sum()
    free = OpCosts(compute, 0 * compute, 0 * compute)
    makespan_s, arriving_s, uneven_s, equal_s = (
        run_graph(graph_of(table, semantics), of, times).makespan_s
        for semantics, of, times in [
            (p2p, costs, factors), ("latency", costs, factors), ("latency", free, factors),
            ("latency", replace(free, compute_s=equal), None),
        ]
    )  # fmt: skip
    busy_s = float(each_s.sum()) / table.num_ranks
    steps = equal_s - busy_s, uneven_s - equal_s, arriving_s - uneven_s, makespan_s - arriving_s
    return {
        "makespan_s": makespan_s, "idle_s": makespan_s - busy_s, "idle_ratio": 1 - busy_s / makespan_s,
        **dict(zip(CAUSES, steps, strict=True)),
    }  # fmt: skip
