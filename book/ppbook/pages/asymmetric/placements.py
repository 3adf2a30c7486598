"""Time and memory of Chimera for every split of the model on a grid, and every placement of its second pipeline."""

from dataclasses import replace
from itertools import permutations
from math import factorial
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppbook.pages.asymmetric import peaks
from ppbook.pages.asymmetric.peaks import EVEN, FRONT_BACK, OWN, SPLITS, compositions, front_back_splits, split_peaks
from ppmodel.clusters.costs import model_costs
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedules import build
from ppmodel.schedules.chimera import placed_chimera
from ppmodel.simulation import compile_graph, makespans, uniform_costs

ELSEWHERE = "placed elsewhere"
"""The family of splits of each stage on its own on every other placement, beside those of `peaks.SPLITS`."""

_DIGITS = 9
"""Decimals of a relative time: times that differ by less are one, as rounding is no order."""

_SEQUENCES = 32
"""Sequences in a microbatch, b, the same for every S."""


class Rates(NamedTuple):
    """A system's times for one microbatch, in seconds.

    Parameters
    ----------
    forward_s, backward_s : float
        On 1/S of the model.
    occupancy_s, latency_s : float
        Times of one transfer.
    """

    forward_s: float
    backward_s: float
    occupancy_s: float
    latency_s: float


def every_placement(num_ranks):
    """Every placement of Chimera's second pipeline: the mirrored one, then the others in lexicographic order.

    Parameters
    ----------
    num_ranks : int
        Ranks S.

    Returns
    -------
    list of tuple of int
        The rank of each stage.

    Examples
    --------
    >>> every_placement(3)[:3]
    [(2, 1, 0), (0, 1, 2), (0, 2, 1)]
    """
    peaks.require_few("pp", num_ranks, factorial(num_ranks), "placements")
    mirrored = tuple(range(num_ranks))[::-1]
    return [mirrored, *(second for second in permutations(range(num_ranks)) if second != mirrored)]


def split_rates(model, system, num_ranks):
    """Times of a model on a system as plain numbers; each stage takes its share of them, in fractions of blocks.

    The system's nodes are left out: shares and placements are compared with all links alike.

    Parameters
    ----------
    model : ModelSpec
        The model; if it has an embedding and a head, they are spread over the stages.
    system : SystemSpec
        The system.
    num_ranks : int
        Ranks S, even.

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
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> rates = split_rates(load_model("paper"), load_system("mid_cp_mid_nw"), 4)
    >>> round(rates.backward_s / rates.forward_s, 2)
    1.88
    """
    schedule = placed_chimera(num_ranks, num_ranks, range(num_ranks)[::-1])
    costs = model_costs(schedule, replace(model, global_batch=_SEQUENCES * num_ranks), replace(system, nodes=None))
    forward, backward = costs.compute_s[[OpKind.F, OpKind.B]].sum(axis=1) / num_ranks
    return Rates(float(forward), float(backward), float(costs.occupancy_s[0, 0]), float(costs.latency_s[0, 0]))


def split_points(rates, num_ranks, parts, placed_parts=None, front_back=60, units=1, p2p="overlapped"):
    """Time and peak of every split on a grid and every placement, relative to symmetric Chimera.

    Parameters
    ----------
    rates : Rates
        From `split_rates`.
    num_ranks : int
        Ranks S, even.
    parts : int
        The number of parts into which the model is cut for the mirrored placement; a multiple of S.
    placed_parts : int, optional
        The number of parts into which the model is cut for every other placement; if not given, those are left out. The
        mirrored placement gets these splits too.
    front_back : int
        Parts of the splits a : b, even.
    units : int
        Microbatches of each stage, B / S.
    p2p : str
        Communication semantics.

    Returns
    -------
    DataFrame
        One row per split and placement; columns ``pp, microbatches, family, second, split, peak, relative_peak,
        makespan_s, relative_time``: peaks in units of one microbatch on 1/S of the model, times in seconds, and both
        relative to symmetric Chimera, minus 1. Placements are in the order of `every_placement`; splits start with the
        even one and continue in lexicographic order.

    Raises
    ------
    PPModelError
        If a size or a grid is illegal, or the semantics is unknown.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> points = split_points(split_rates(load_model("paper"), load_system("mid_cp_mid_nw"), 4), 4, 8)
    >>> lower = points.relative_peak < 0
    >>> lower.groupby(points.family, observed=True).agg(["size", "sum"]).values.tolist()
    [[59, 0], [9, 0], [35, 5]]
    """
    splits = compositions(parts, num_ranks)
    mirrored, *elsewhere = every_placement(num_ranks) if placed_parts else [tuple(range(num_ranks))[::-1]]
    if placed_parts:  # the mirrored one gets these too, or the frontier would compare grids
        placed, whole = compositions(placed_parts, num_ranks), np.lcm(parts, placed_parts)
        peaks.require_few("parts", placed_parts, len(placed) * len(elsewhere), "splits and placements")
        splits = np.unique(np.vstack((splits * (whole // parts), placed * (whole // placed_parts))), axis=0)
    even = splits[(splits + splits[:, ::-1] == 2 * splits[0].sum() // num_ranks).all(axis=1)]
    families = {FRONT_BACK: front_back_splits(front_back, num_ranks), EVEN: even, OWN: splits}
    size = (num_ranks, units * num_ranks)
    tables = [_measured(rates, size, [mirrored], grid, p2p).assign(family=family) for family, grid in families.items()]
    if placed_parts:
        tables.append(_measured(rates, size, elsewhere, placed, p2p).assign(family=ELSEWHERE))
    points = pd.concat(tables, ignore_index=True).assign(pp=num_ranks, microbatches=size[1])
    points["family"] = pd.Categorical(points.family, [*SPLITS, ELSEWHERE])
    base = points.iloc[0]  # the even split comes first
    points["relative_peak"] = points.peak / base.peak - 1
    points["relative_time"] = (points.makespan_s / base.makespan_s - 1).round(_DIGITS) + 0.0
    order = "pp microbatches family second split peak relative_peak makespan_s relative_time"
    return points[order.split()]


def frontier(points):
    """The points that matter for time against peak, and which of them no other point beats on both.

    Parameters
    ----------
    points : DataFrame
        From `split_points`, of one S or several.

    Returns
    -------
    DataFrame
        The fastest point for each S, family, peak and whole percent of time, the first of equal ones; with a column
        ``frontier``: whether no point of any family of this S is faster with as low a peak, or lower and as fast. Of
        equal points on the frontier, that of the first family counts.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> points = split_points(split_rates(load_model("paper"), load_system("mid_cp_mid_nw"), 4), 4, 8)
    >>> best = frontier(points).query("frontier")
    >>> best.sort_values("relative_time")[["split", "peak"]].values.tolist()
    [['3:1:2:2', 4.0], ['2:1:2:3', 3.5], ['1:1:2:4', 3.0]]
    """
    order = ["pp", "family", "peak", "relative_time"]
    rows = points.assign(percent=np.floor(100 * points.relative_time)).sort_values(order, kind="stable")
    rows = rows.drop_duplicates(["pp", "family", "peak", "percent"], ignore_index=True).drop(columns="percent")
    ordered = rows.sort_values(["pp", "relative_time", "peak"], kind="stable")
    before = ordered.groupby("pp").peak.transform(lambda peak: peak.cummin().shift(fill_value=np.inf))
    return rows.assign(frontier=ordered.peak < before)


def lowest_peaks(sizes, placed_sizes, units=1):
    """The lowest peak of each family of splits, on the mirrored placement and, at some sizes, on the best of all.

    Examples
    --------
    >>> lowest_peaks([4], [])[["family", "lowest", "empty"]].values.tolist()
    [['front : back', '4', 0], ['own shares, even work', '4', 0], ['own shares', '8/3', 2]]
    """
    rows = []
    for size in sizes:
        chimera = build("chimera", size, units * size)
        mirrored, *elsewhere = every_placement(size) if size in placed_sizes else [tuple(range(size))[::-1]]
        even = int(peak_activations(chimera).max())
        proofs = {family: {mirrored: peaks.lowest_peak(chimera, family)} for family in SPLITS}
        if elsewhere:
            tables = {second: placed_chimera(size, units * size, second) for second in elsewhere}
            proofs[ELSEWHERE] = {second: peaks.lowest_peak(table) for second, table in tables.items()}
        for family, of_placement in proofs.items():
            second, best = min(of_placement.items(), key=lambda item: item[1].peak)
            shares = best.shares if best.peak < even else (1,) * size
            rows.append({
                "pp": size, "family": family, "placements": len(of_placement), "even": even,
                "below": sum(proof.peak < even for proof in of_placement.values()), "lowest": str(best.peak),
                "relative": float(best.peak / even - 1), "second": " ".join(map(str, second)),
                "shares": " ".join(map(str, shares)), "empty": shares.count(0),
            })  # fmt: skip
    return pd.DataFrame(rows)


def uneven_gains(rates, num_ranks, parts, units, p2p="overlapped"):
    """What splits with uneven work gain as microbatches are added, on the mirrored placement.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> gains = uneven_gains(split_rates(load_model("paper"), load_system("mid_cp_mid_nw"), 4), 4, 8, [1, 4])
    >>> gains.both.is_monotonic_decreasing
    True
    """
    points = pd.concat([split_points(rates, num_ranks, parts, units=count, p2p=p2p) for count in units])
    uneven = points[points.family == OWN].assign(p2p=p2p)
    uneven["free"] = uneven.relative_peak.where(uneven.relative_time <= 0)
    uneven["both"] = (uneven.relative_peak < 0) & (uneven.relative_time < 0)
    return uneven.groupby(["pp", "microbatches", "p2p"], as_index=False).agg(
        splits=("split", "size"), both=("both", "sum"), fastest=("relative_time", "min"), lowest_free=("free", "min")
    )


def _measured(rates, size, placements, splits, p2p):
    """Peak and time of every split on every placement; splits vary fastest, the even one first.

    A stage takes its share of the time; a transfer carries a microbatch whatever the stage's size.
    """
    splits = splits[np.argsort((splits != splits[:, :1]).any(axis=1), kind="stable")]
    parts = splits.sum(axis=1)
    tables = [placed_chimera(*size, second) for second in placements]
    even = uniform_costs(tables[0], *rates[:3], latency=rates.latency_s)
    costs = [replace(even, compute_s=even.compute_s * split) for split in splits * size[0] / parts[:, None]]
    peaks_in_parts = np.concatenate([split_peaks(table, splits) for table in tables])
    names = [":".join(map(str, split // np.gcd.reduce(split))) for split in splits]
    return pd.DataFrame({
        "second": np.repeat([" ".join(map(str, second)) for second in placements], len(splits)),
        "split": np.tile(np.array(names, dtype=object), len(placements)),
        "peak": size[0] * peaks_in_parts / np.tile(parts, len(placements)),  # whole numbers: equal peaks stay equal
        "makespan_s": np.concatenate([makespans(compile_graph(table, p2p), costs) for table in tables]),
    })  # fmt: skip
