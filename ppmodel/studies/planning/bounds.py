"""Lower bounds on the time of candidates, below which no simulation can come."""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.pairs import contention
from ppmodel.clusters.memory import Homes, on_ranks
from ppmodel.ops import OpKind
from ppmodel.schedules import names, small

_ROUNDING = 1 - 1e-9  # also of sums over many candidates
_PHASES = np.array([[OpKind.F, OpKind.F], [OpKind.B, OpKind.I], [OpKind.B, OpKind.W]])


@cache
def _has_pairs(name):
    """Return whether a schedule has cells of two operations."""
    return bool(small(name).joined.any())


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
    return int(_has_pairs(case.name))


def traits_of(table):
    """Return what bounds depend on in a table.

    Returns
    -------
    parts : float
        Units of work of a microbatch on a replica, but for slices.
    slices : int
    is_split : bool
        Whether backwards are split.
    alone : ndarray of float, shape (num_stages, 3)
        Shares of forwards, input gradients and weight gradients that have their cells for themselves, so that nothing
        hides their collectives.
    ends : ndarray of bool, shape (num_stages, 2)
        Whether those forwards are alone whose microbatches a rank begins with, and whole backwards with which it ends.
    kinds : list of int
        The kinds of operations with which forwards share cells.
    """
    ends = np.ones((table.num_stages, 2), dtype=bool)
    counts = table.class_counts.reshape(2, len(OpKind), *table.placement.shape).sum(axis=2)
    of_table = table.microbatch_parts / table.num_replicas, table.slices, bool(counts[:, OpKind.W].any())
    if not table.joined.any():
        return *of_table, np.ones((table.num_stages, 3)), ends, []
    alone, paired = counts[:, _PHASES].sum(axis=2)
    for place, (of_rank, kind) in enumerate(((table.rank_start[:-1], OpKind.F), (table.rank_start[1:] - 1, OpKind.B))):
        is_end, of_kind = np.zeros(table.table_microbatches + 1, dtype=bool), np.flatnonzero(table.kind == int(kind))
        is_end[table.microbatch[of_rank]] = True  # the last for what belongs to none
        of_end = of_kind[is_end[table.microbatch[of_kind]]]
        ends[:, place] = len(of_end)
        ends[table.stage[of_end[table.overlaps[of_end]]], place] = False
    occurs = counts[1].any(axis=1).tolist()
    kinds = [kind for kind in (OpKind.B, OpKind.I, OpKind.W) if occurs[kind]]
    return *of_table, (alone / np.maximum(alone + paired, 1)).T, ends, kinds


def least_share(question, slices):
    """The least share of a microbatch's work that its slices have: without a mask, they compute fewer scores."""
    is_masked = question.fixed.get("causal", True) and question.model.attention == "fused"
    return np.where(is_masked | (np.asarray(slices) == 1), 1.0, 0.5)


def first_shares(attention_shares, slices):
    """The least shares of a mean slice's time that first slices take, on any stage and however much is recomputed.

    A first slice has at least the mean number of tokens, so all but attention takes at least as long as in the mean
    slice; and its queries meet at least 1 / slices of the mean number of keys. A backward has no more attention than
    its own and, recomputed, the forward's.

    Parameters
    ----------
    attention_shares : ndarray of float, shape (num_candidates,)
        The largest share of attention in a half of any layer, without recomputation.
    slices : int

    Returns
    -------
    ndarray of float, shape (num_candidates,)
    """
    return 1 - np.minimum(attention_shares, 1.0) * (1 - 1 / slices)


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
        The candidate of each stage, and the stage's number in it.
    first : ndarray of int, shape (num_candidates,)
        The first stage of each candidate.
    homes : Homes
    rank_row : ndarray of int, shape (num_ranks,)
        The candidate of each rank.
    first_rank : ndarray of int, shape (num_candidates,)
        The first rank of each candidate.
    """

    row: np.ndarray
    stage: np.ndarray
    first: np.ndarray
    homes: Homes
    rank_row: np.ndarray
    first_rank: np.ndarray

    def before(self, column):
        """Sums over the stages of a candidate before each stage."""
        sums = np.cumsum(column) - column
        return sums - sums[self.first][self.row]

    def most(self, of_ranks):
        """The largest value of each candidate's ranks."""
        return np.maximum.reduceat(of_ranks, self.first_rank)


def busy_bounds(spread, of_stages, microbatches, first_share, is_split, alone, ends, system, ratios=0.0):
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
    is_split : ndarray of bool, shape (num_candidates,)
        Whether backwards are split.
    alone, ends : ndarray, shape (num_stages, 3) and (num_stages, 2)
        From `traits_of`.
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
    homes, split, paired = spread.homes, is_split[spread.row], 1 - alone
    columns = paired * computing_s, paired * (whole_s - computing_s), alone * whole_s
    each = *(column.sum(axis=-1) for column in columns), whole_s[:, 2] * split
    computing, exchanged, alone_s, late = (microbatches[spread.rank_row] * on_ranks(homes, column) for column in each)
    work = alone_s + np.maximum(_paired_s(computing, exchanged, system), ratios * (computing + exchanged))
    forward_s, input_s, weight_s = np.where(ends[:, [0, 1, 1]], whole_s, computing_s).T
    first = np.minimum.reduceat(*homes)
    fill, drain = (spread.before(column)[first] for column in (forward_s, input_s + weight_s * ~split))
    before_s, after_s = fill * first_share[spread.rank_row], drain * first_share[spread.rank_row]
    last_s = of_stages.reduction_s, of_stages.gather_s + of_stages.optimizer_s
    reduced, step = (on_ranks(homes, column) for column in last_s)
    until = before_s + np.maximum(work + reduced, work - late + after_s)
    return _ROUNDING * (spread.most(until) + spread.most(step))


def least_ratios(spread, of_stages, runs, kinds):
    """The least that cells of two operations take on the most loaded rank, as shares of their operations' seconds.

    Parameters
    ----------
    spread, of_stages
        As in `busy_bounds`.
    runs : list of LayerCosts
        The layers of each candidate.
    kinds : list of list of OpKind
        Of each candidate's table, from `traits_of`.

    Returns
    -------
    ndarray of float, shape (num_ranks,)
        0 on the other ranks.
    """
    halves_s, homes = of_stages.parts_s.sum(axis=-1), spread.homes
    load_s = on_ranks(homes, halves_s.sum(axis=-1))
    ratios, of_ranks = np.zeros(len(load_s)), np.split(homes.stages, homes.first[1:])
    for place, ranks in enumerate(np.split(np.arange(len(load_s)), spread.first_rank[1:])):
        if kinds[place]:
            rank = ranks[load_s[ranks].argmax()]
            stages = of_ranks[rank]
            alike = dict(zip(map(tuple, of_stages.layers[stages].astype(int).tolist()), stages, strict=True))
            times, (forward_s, *backward_s) = runs[place].pair_times, halves_s.T
            second_s = {OpKind.B: sum(backward_s), OpKind.I: backward_s[0], OpKind.W: backward_s[1]}
            ratios[rank] = min(1.0, *(
                times.seconds(first, kind, second) / (forward_s[one] + second_s[kind][other])
                for (first, one), kind, (second, other) in product(alike.items(), kinds[place], alike.items())
            ))  # fmt: skip
    return ratios
