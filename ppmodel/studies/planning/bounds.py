"""Lower bounds on the time of candidates, below which no simulation can come."""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.pairs import contention
from ppmodel.clusters.memory import Homes, on_ranks
from ppmodel.ops import OpKind
from ppmodel.schedules import names, small

ROUNDING = 1 - 1e-9  # also of sums over many candidates
_PHASES = np.array([[OpKind.F, OpKind.F], [OpKind.B, OpKind.I], [OpKind.B, OpKind.W]])


def _paired_s(computing_s, exchanged_s, system):
    """The least seconds of cells of two operations: neither stream has less work, and each slows the other down."""
    shorter, longer = np.sort([computing_s, exchanged_s], axis=0)
    return longer + (contention(system) - 1) * shorter


def mean_bounds(whole, split, system):
    """Lower bounds on the seconds of a microbatch through a whole model: in general, and in cells of two operations.

    The most loaded rank computes at least as long as the mean of all ranks, without recomputation.

    Parameters
    ----------
    whole, split : Stages
        The model as one stage, with whole and with split backwards.
    system : SystemSpec

    Returns
    -------
    ndarray of float, shape (2, num_candidates)
    """
    both_s = np.minimum(*(of_stages.parts_s.sum(axis=(1, 2)) for of_stages in (whole, split)))
    computing_s = split.parts_s[..., 0].sum(axis=1)
    return np.array([both_s, _paired_s(computing_s, both_s - computing_s, system)])


@cache
def bound_of(case):
    """The place of a schedule's bound in `mean_bounds`; None if it has none."""
    if case.name not in names() or case.user_entry or "concat" in dict(case.options):  # two microbatches
        return None
    return int(small(case.name).joined.any())


def traits_of(table):
    """Return what bounds depend on in a table.

    Returns
    -------
    parts : float
        Units of work of a microbatch on a replica, but for slices.
    is_split : bool
        Whether backwards are split.
    kinds : list of int
        The kinds of operations with which forwards share cells.
    alone : ndarray of float, shape (num_stages, 3)
        Shares of forwards, input gradients and weight gradients that have their cells for themselves, so that nothing
        hides their collectives.
    """
    counts = table.class_counts.reshape(2, len(OpKind), *table.placement.shape).sum(axis=2)
    occurs = counts.any(axis=2).tolist()
    kinds = [kind for kind in (OpKind.B, OpKind.I, OpKind.W) if occurs[1][kind]]
    alone, paired = counts[:, _PHASES].sum(axis=2)
    alone = 1 - paired / np.maximum(alone + paired, 1)
    return table.microbatch_parts / table.num_replicas, occurs[0][OpKind.W] or occurs[1][OpKind.W], kinds, alone.T


def least_share(question, slices):
    """The least share of a microbatch's work that its slices have: without a mask, they compute fewer scores."""
    is_masked = question.fixed.get("causal", True) and question.model.attention == "fused"
    return np.where(is_masked | (np.asarray(slices) == 1), 1.0, 0.5)


def first_shares(costs, slices):
    """The least shares of a mean slice's time that first slices take in layers and their backwards.

    A first slice has at least the mean number of tokens, so all but attention takes at least as long as in the mean
    slice; and its queries meet at least 1 / slices of the mean number of keys.

    Parameters
    ----------
    costs : LayerCosts
        Of a mean slice.
    slices : int

    Returns
    -------
    ndarray of float, shape (num_layers,)
    """
    if slices == 1:
        return np.ones(len(costs.seconds))
    shares = costs.attention_s[:, :2] / np.maximum(costs.seconds[:, :2].sum(axis=-1), np.finfo(float).tiny)
    return 1 - np.minimum(shares.max(axis=1), 1.0) * (1 - 1 / slices)


def least_held(names, numbers, seconds, kept, again):
    """Lower bounds on the activations of a microbatch on all ranks, in bytes times the seconds that they are held.

    A layer's activations are held at least while forward and input gradient pass it and all later layers. So the first
    layers' are held longest, and nothing saves more than to recompute these.

    Parameters
    ----------
    names : list of (str, str)
        As in `LayerWork`, blocks also recomputed in full if any may be.
    numbers : dict of str to int
        From `layer_numbers`.
    seconds, kept : ndarray of float, shape (num_candidates, num_names)
        Of kernels, without weight gradients; bytes.
    again : ndarray of int, shape (num_candidates,)
        Blocks that may be recomputed in full; MTP layers may be as well.

    Returns
    -------
    ndarray of float, shape (num_candidates,)
    """
    held, later_s, columns = 0.0, 0.0, {name: (seconds[:, place], kept[:, place]) for place, name in enumerate(names)}
    before = {"dense": 0, "block": numbers["dense"]}
    for (part, mode), (layer_s, kept_bytes) in reversed(columns.items()):
        if mode != "full":
            count, full_bytes = numbers[part], columns.get((part, "full"), (0.0, kept_bytes))[1]
            first = np.clip(again - before[part], 0, count) if part in before else count
            for some, num_bytes in (count, kept_bytes), (first, np.minimum(full_bytes - kept_bytes, 0.0)):
                passing_s = some * (later_s + (count + 1) * layer_s) - some * (some + 1) / 2 * layer_s
                held = held + num_bytes * passing_s
            later_s = later_s + count * layer_s
    return held


class Spread(NamedTuple):
    """The stages of many candidates one after another, and likewise the ranks that have them.

    Parameters
    ----------
    row, stage : ndarray of int, shape (num_stages,)
        The candidate of each stage, and its place among the stages of all that are known.
    first : ndarray of int, shape (num_candidates,)
        The first stage of each candidate.
    homes : Homes
    rank_row : ndarray of int, shape (num_ranks,)
        The candidate of each rank.
    first_rank : ndarray of int, shape (num_candidates,)
        The first rank of each candidate.
    alone : ndarray of float, shape (num_stages, 3)
        From `traits_of`.
    """

    row: np.ndarray
    stage: np.ndarray
    first: np.ndarray
    homes: Homes
    rank_row: np.ndarray
    first_rank: np.ndarray
    alone: np.ndarray

    def before(self, column):
        """Sums over the stages of a candidate before each stage."""
        sums = np.cumsum(column) - column
        return sums - sums[self.first][self.row]

    def most(self, of_ranks):
        """The largest value of each candidate's ranks."""
        return np.maximum.reduceat(of_ranks, self.first_rank)


def busy_bounds(spread, of_stages, microbatches, first_share, is_split, has_pairs, hides, system, ratios=0.0):
    """Lower bounds on the seconds of an iteration.

    Parameters
    ----------
    spread : Spread
    of_stages : Stages
        Of many candidates.
    microbatches : ndarray of float, shape (num_candidates,)
        Of each replica of the table.
    first_share : ndarray of float, shape (num_candidates,)
        The least that the first of its parts takes, as a share of the mean.
    is_split, has_pairs, hides : ndarray of bool, shape (num_candidates,)
        Whether backwards are split; whether there are cells of two operations; whether a rank reduces the gradients of
        a stage while it computes others.
    system : SystemSpec
    ratios : ndarray of float, shape (num_ranks,), optional
        From `least_ratios`.

    Returns
    -------
    ndarray of float, shape (num_candidates,)

    Notes
    -----
    All work of a rank comes after the forwards of the stages before its first one. A whole backward is followed by
    those of the stages before it, then every rank has its optimizer step; split backwards may leave the weight
    gradients for last. Cells of two operations may hide collectives.
    """
    computing_s, whole_s = of_stages.parts_s[..., 0], of_stages.parts_s.sum(axis=-1)
    homes, split, alone, paired = spread.homes, is_split[spread.row], spread.alone, 1 - spread.alone
    columns = paired * computing_s, paired * (whole_s - computing_s), alone * whole_s
    each = *(column.sum(axis=-1) for column in columns), whole_s[:, 2] * split
    computing, exchanged, alone_s, late = (microbatches[spread.rank_row] * on_ranks(homes, column) for column in each)
    work = alone_s + np.maximum(_paired_s(computing, exchanged, system), ratios * (computing + exchanged))
    forward_s, input_s, weight_s = np.where(has_pairs[spread.row, None], computing_s, whole_s).T
    first = np.minimum.reduceat(*homes)
    fill, drain = (spread.before(column)[first] for column in (forward_s, input_s + weight_s * ~split))
    before_s, after_s = fill * first_share[spread.rank_row], drain * first_share[spread.rank_row]
    step = on_ranks(homes, of_stages.gather_s + of_stages.optimizer_s)
    every, least = (on_ranks(homes, of_stages.reduction_s, combine) for combine in (np.add, np.minimum))
    reduced = np.where(hides[spread.rank_row], least, every)
    until = before_s + np.maximum(work + reduced, work - late + after_s)
    return ROUNDING * (spread.most(until) + spread.most(step))


def least_ratios(spread, of_stages, pairs):
    """The least that cells of two operations take on the most loaded rank, as shares of their operations' seconds.

    Parameters
    ----------
    spread, of_stages
        As in `busy_bounds`.
    pairs : dict of int to (LayerCosts, list of OpKind)
        Layers of some candidates, and the kinds of their tables from `traits_of`.

    Returns
    -------
    ndarray of float, shape (num_ranks,)
        0 on the other ranks.
    """
    halves_s, homes = of_stages.parts_s.sum(axis=-1), spread.homes
    load_s = on_ranks(homes, halves_s.sum(axis=-1))
    ratios, ends = np.zeros(len(load_s)), np.append(homes.first, len(homes.stages))
    for place, (costs, kinds) in pairs.items():
        first, end = np.searchsorted(spread.rank_row, [place, place + 1])
        rank = first + load_s[first:end].argmax()
        stages = homes.stages[ends[rank] : ends[rank + 1]]
        alike = dict(zip(map(tuple, of_stages.layers[stages].astype(int).tolist()), stages, strict=True))
        times, (forward_s, *backward_s) = costs.pair_times, halves_s.T
        second_s = {OpKind.B: sum(backward_s), OpKind.I: backward_s[0], OpKind.W: backward_s[1]}
        ratios[rank] = min(1.0, *(
            times.seconds(one, kind, other) / (forward_s[alike[one]] + second_s[kind][alike[other]])
            for one, kind, other in product(alike, kinds, alike)
        ))  # fmt: skip
    return ratios
