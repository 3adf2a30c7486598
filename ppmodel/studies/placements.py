"""Asymmetric Chimera, exhaustively: every split of a grid on every placement, in time and peak of activations."""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmodel.analysis.peaks import (
    ELSEWHERE,
    EVEN,
    FRONT_BACK,
    OWN,
    _placements,
    compositions,
    front_back_splits,
    mirrored,
    split_peaks,
)
from ppmodel.costs import OpCosts, model_costs, uniform_costs
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedules.chimera import placed_chimera
from ppmodel.simulation import compile_graph, makespans, run_events

_DIGITS = 9
"""Decimals of a relative time: times that differ by less are one, as rounding is no order."""


class Rates(NamedTuple):
    """What a system takes for one microbatch, in seconds.

    Parameters
    ----------
    forward_s, backward_s : float
        On 1/S of the model.
    occupancy_s, latency_s : float
        Of one transfer.
    """

    forward_s: float
    backward_s: float
    occupancy_s: float
    latency_s: float


def system_rates(model, system, num_ranks, sequences):
    """Times of a model on a system as plain numbers: each stage takes its share of them, in fractions of blocks.

    Nodes of the system are left out: shares and placements are compared where all links are alike.

    Parameters
    ----------
    model : ModelSpec
        The model; an embedding and a head, where it has them, are spread over the stages.
    system : SystemSpec
        The system.
    num_ranks : int
        Stages, S, even.
    sequences : int
        Sequences in a microbatch, b; so a minibatch fits every S.

    Returns
    -------
    Rates
        In seconds.

    Raises
    ------
    CostError
        If the model has fewer blocks than stages.

    Examples
    --------
    >>> from ppmodel.specs import load_model, load_system
    >>> rates = system_rates(load_model("paper"), load_system("mid_cp_mid_nw"), 4, 32)
    >>> round(rates.backward_s / rates.forward_s, 2)
    1.88
    """
    schedule = placed_chimera(num_ranks, num_ranks, mirrored(num_ranks))
    flat = replace(system, nodes=None)
    costs = model_costs(schedule, replace(model, global_batch=sequences * num_ranks), flat)
    forward, backward = costs.compute_s[[OpKind.F, OpKind.B]].sum(axis=1) / num_ranks
    return Rates(float(forward), float(backward), float(costs.occupancy_s[0, 0]), float(costs.latency_s[0, 0]))


def _split_costs(rates, splits):
    """The costs of each split: stages take their share, transfers carry a microbatch whatever the stage's size."""
    num_ranks = splits.shape[1]
    compute = np.zeros((len(splits), len(OpKind), num_ranks))
    shares = splits * num_ranks / splits.sum(axis=1, keepdims=True)
    compute[:, OpKind.F], compute[:, OpKind.B] = rates.forward_s * shares, rates.backward_s * shares
    occupancy, latency = (np.full(compute.shape[1:], seconds) for seconds in rates[2:])
    return [OpCosts(seconds, occupancy, latency) for seconds in compute]


class Frontier(NamedTuple):
    """What every split and placement takes in time and memory.

    Parameters
    ----------
    points : DataFrame
        One row for each S, family, peak and whole percent of relative time, the fastest of them; columns ``stages,
        microbatches, family, second, split, peak, relative_peak, t_sim_s, relative_time, frontier``: peaks in units
        of one microbatch on 1/S of the model, times in seconds, both relative to symmetric Chimera less 1; and
        whether no point of any family of this S is faster with as low a peak, or lower and as fast.
    counts : DataFrame
        One row an S and family; columns ``stages, family, placements, splits, points, lower, lowest, faster,
        fastest, both``: how many points have a lower peak than symmetric Chimera, the lowest relative peak, how many
        are faster, the lowest relative time, and how many are both.
    """

    points: pd.DataFrame
    counts: pd.DataFrame


def frontier_study(
    model, system, stages_list, parts, placed_stages=(), placed_parts=(), front_back=60, units=1, sequences=32,
    p2p="overlapped",
):  # fmt: skip
    """Time and peak of every split on a grid and every placement, relative to symmetric Chimera.

    Of points with one peak and within one percent of time the fastest is kept; of those as fast within a billionth
    the first: placements in the order mirrored, then lexicographic; splits in the order even, then lexicographic. Of
    equal points on the frontier the first family counts.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        The system.
    stages_list : sequence of int
        Values of S, each even.
    parts : sequence of int
        For each S, into how many parts the model is cut for the mirrored placement; a multiple of S.
    placed_stages, placed_parts : sequence of int
        Values of S for which every other placement is taken, and into how many parts the model is cut there. The
        mirrored one gets these splits, too.
    front_back : int
        Parts of the splits a : b, even.
    units : int
        Microbatches of each stage, B / S.
    sequences : int
        Sequences in a microbatch.
    p2p : str
        Communication semantics, as in `graph.compile`.

    Returns
    -------
    Frontier

    Raises
    ------
    PPModelError
        If a size or a grid is illegal, or a semantics is unknown.

    Examples
    --------
    >>> from ppmodel.specs import load_model, load_system
    >>> frontier = frontier_study(load_model("paper"), load_system("mid_cp_mid_nw"), [4], [8])
    >>> frontier.counts[["family", "splits", "lower"]].values.tolist()
    [['front : back', 59, 0], ['own shares, even work', 9, 0], ['own shares', 35, 5]]
    """
    points, counts = [], []
    grids = dict(zip(placed_stages, placed_parts, strict=True))
    for num_ranks, grid in zip(stages_list, parts, strict=True):
        rates = system_rates(model, system, num_ranks, sequences)
        size, even = (num_ranks, units * num_ranks), np.ones((1, num_ranks), dtype=int)
        base = _measured(size, [mirrored(num_ranks)], even, rates, p2p)
        families = _family_grids(num_ranks, grid, grids.get(num_ranks), front_back)
        for family, (placements, splits) in families.items():
            table = _measured(size, placements, splits, rates, p2p)
            table = table.assign(
                family=family, relative_peak=table.peak / base.peak[0] - 1,
                relative_time=(table.t_sim_s / base.t_sim_s[0] - 1).round(_DIGITS) + 0.0,
            )  # fmt: skip
            points.append(_thinned(table, placements, splits).assign(stages=num_ranks, microbatches=size[1]))
            counts.append(_counted(table, placements, splits) | {"stages": num_ranks, "family": family})
    points = _marked(pd.concat(points, ignore_index=True))
    order = ["stages", "microbatches", "family", "second", "split", "peak", "relative_peak", "t_sim_s", "relative_time"]
    counts = pd.DataFrame(counts)
    return Frontier(points[[*order, "frontier"]], counts[["stages", "family", *counts.columns[:-2]]])


def _family_grids(num_ranks, parts, placed_parts, front_back):
    """Placements and splits of each family."""
    first, *others = _placements(num_ranks) if placed_parts else [mirrored(num_ranks)]
    own = compositions(parts, num_ranks)
    if placed_parts:  # what every placement has the mirrored one has too, or the frontier would compare grids
        own = _union(own, compositions(placed_parts, num_ranks))
    even = own[(own + own[:, ::-1] == 2 * own[0].sum() // num_ranks).all(axis=1)]
    families = {FRONT_BACK: ([first], front_back_splits(front_back, num_ranks)), EVEN: ([first], even)}
    families[OWN] = ([first], own)
    if placed_parts:
        families[ELSEWHERE] = (others, compositions(placed_parts, num_ranks))
    return families


def _union(left, right):
    """Two grids as one, in parts that both are whole numbers of."""
    whole = np.lcm(left[0].sum(), right[0].sum())
    return np.unique(np.vstack([grid * (whole // grid[0].sum()) for grid in (left, right)]), axis=0)


def _measured(size, placements, splits, rates, p2p):
    """Peak and time of every split on every placement, one row each, splits fastest."""
    many = _split_costs(rates, splits)
    peaks, times = [], []
    for second in placements:
        schedule = placed_chimera(*size, second)
        peaks.append(split_peaks(schedule, splits))
        times.append(makespans(compile_graph(schedule, p2p), many))
    unit = splits.shape[1] * np.concatenate(peaks)  # whole numbers, so that equal peaks stay equal when divided
    whole = np.tile(splits.sum(axis=1), len(placements))
    place, split = np.divmod(np.arange(len(unit)), len(splits))
    return pd.DataFrame({"place": place, "number": split, "peak": unit / whole, "t_sim_s": np.concatenate(times)})


def _thinned(table, placements, splits):
    """Of each peak the fastest point within every percent of time; see `frontier_study` for ties."""
    uneven = (splits != splits[:, :1]).any(axis=1)[table.number]
    order = ["peak", "relative_time", "place", "uneven", "number"]
    found = table.assign(uneven=uneven, percent=np.floor(100 * table.relative_time)).sort_values(order, kind="stable")
    found = found.drop_duplicates(["peak", "percent"], ignore_index=True)
    second = [" ".join(map(str, placements[place])) for place in found.place]
    split = [":".join(map(str, row // np.gcd.reduce(row))) for row in splits[found.number]]
    return found.assign(second=second, split=split)


def _counted(table, placements, splits):
    lower, faster = table.relative_peak < 0, table.relative_time < 0
    return {
        "placements": len(placements), "splits": len(splits), "points": len(table), "lower": int(lower.sum()),
        "lowest": table.relative_peak.min(), "faster": int(faster.sum()), "fastest": table.relative_time.min(),
        "both": int((lower & faster).sum()),
    }  # fmt: skip


def _marked(points):
    """Mark the frontier of each S: from the fastest on, each point with a lower peak than all before it."""
    points["frontier"] = False
    for _, group in points.groupby("stages"):
        ordered = group.sort_values(["relative_time", "peak"], kind="stable")
        before = ordered.peak.cummin().shift(fill_value=np.inf)
        points.loc[ordered.index[ordered.peak < before], "frontier"] = True
    return points


def gain_study(model, system, stages_list, parts, units, semantics, sequences=32):
    """What splits of each stage on its own gain on symmetric Chimera as microbatches grow in number, mirrored.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        The system.
    stages_list : sequence of int
        Values of S, each even.
    parts : sequence of int
        For each S, into how many parts the model is cut; a multiple of S.
    units : sequence of int
        Values of B / S.
    semantics : sequence of str
        Communication semantics, as in `graph.compile`.
    sequences : int
        Sequences in a microbatch.

    Returns
    -------
    DataFrame
        One row an S, B and semantics; columns ``stages, microbatches, p2p, splits, both, fastest, lowest_free``: how
        many splits are both faster and lower than symmetric Chimera, the lowest relative time, and the lowest
        relative peak of the splits that take no more time.

    Raises
    ------
    PPModelError
        If a size or a grid is illegal, or a semantics is unknown.

    Examples
    --------
    >>> from ppmodel.specs import load_model, load_system
    >>> case = (load_model("paper"), load_system("mid_cp_mid_nw"))
    >>> gain_study(*case, [4], [16], [1, 2], ["overlapped"])[["microbatches", "lowest_free"]].values.tolist()
    [[4.0, -0.125], [8.0, -0.125]]
    """
    rows = []
    for num_ranks, grid in zip(stages_list, parts, strict=True):
        for count, p2p in product(units, semantics):
            found = frontier_study(model, system, [num_ranks], [grid], units=count, sequences=sequences, p2p=p2p)
            own = found.counts[found.counts.family == OWN].iloc[0]
            free = found.points[(found.points.family == OWN) & (found.points.relative_time <= 0)]
            rows.append({
                "stages": num_ranks, "microbatches": count * num_ranks, "p2p": p2p, "splits": own.splits,
                "both": own.both, "fastest": own.fastest, "lowest_free": free.relative_peak.min(),
            })  # fmt: skip
    return pd.DataFrame(rows)


def recheck_study(points, model, system, sequences=32, p2p="overlapped"):
    """Peak and time of single points by a second way: the plain count, and the event queue.

    Parameters
    ----------
    points : DataFrame
        From `frontier_study`.
    model, system, sequences, p2p
        As in `frontier_study`.

    Returns
    -------
    DataFrame
        One row a point; columns ``stages, family, second, split, peak, peak_again, t_sim_s, t_sim_again_s``.

    Raises
    ------
    PPModelError
        If a size is illegal, or a semantics is unknown.

    Examples
    --------
    >>> from ppmodel.specs import load_model, load_system
    >>> case = (load_model("paper"), load_system("mid_cp_mid_nw"))
    >>> points = frontier_study(*case, [4], [8]).points
    >>> again = recheck_study(points[points.frontier], *case)
    >>> bool((again.peak == again.peak_again).all())
    True
    """
    rows = []
    for point in points.itertuples():
        rates = system_rates(model, system, point.stages, sequences)
        shares = np.array([int(part) for part in point.split.split(":")])
        shares = shares * point.stages / shares.sum()
        second = tuple(int(rank) for rank in point.second.split())
        schedule = placed_chimera(point.stages, point.microbatches, second, shares)
        schedule.validate()
        forward, backward, comm, latency = rates
        costs = uniform_costs(schedule, forward, backward, comm, latency=latency)
        rows.append({
            "stages": point.stages, "family": point.family, "second": point.second, "split": point.split,
            "peak": point.peak, "peak_again": float(peak_activations(schedule).max()), "t_sim_s": point.t_sim_s,
            "t_sim_again_s": run_events(compile_graph(schedule, p2p), costs).makespan_s,
        })  # fmt: skip
    return pd.DataFrame(rows)
