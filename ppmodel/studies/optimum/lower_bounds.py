"""Lower bounds on the time of every schedule of a problem."""

from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np

from ppmodel.ops import OpKind


class Bounds(NamedTuple):
    """Lower bounds on the time of any schedule of a problem, each with a reason of its own.

    Parameters
    ----------
    critical_path : Fraction
        One microbatch's trip through all stages and back.
    busiest_rank : Fraction
        Computing time of a rank, plus the least time before its first operation and after its last.
    memory : Fraction
        The bound that the limit adds: too few forwards fit to fill the time until the first gradient returns, or
        microbatches must wait for earlier ones. 0 without a limit.
    """

    critical_path: Fraction
    busiest_rank: Fraction
    memory: Fraction

    @property
    def best(self):
        """The highest of the bounds."""
        return max(self)


def bounds(problem, objective="makespan"):
    """Lower bounds on the time of every schedule of a problem, derived here.

    Parameters
    ----------
    problem : Problem
    objective : {"makespan", "span"}

    Returns
    -------
    Bounds
        In the problem's unit of time.

    Notes
    -----
    Until the first gradient can reach a rank, the rank runs only forwards, and no more of them than fit; all its other
    work comes later. A whole backward is followed by the backwards of the stages before it. With split backwards, the
    weight gradients may come last: then either they or the operations that follow the input gradients count, whichever
    takes longer. A stage's activations stay from its forward to its (weight) gradient, at least for the trip to the
    last stage and back. With room for k microbatches, one of the k places holds at least B/k of them, rounded up, one
    after the other.

    Examples
    --------
    >>> from ppmodel.studies.optimum import Problem
    >>> bounds(Problem([[0, 1, 2, 3]], 8, limit=4)).best
    Fraction(27, 1)
    >>> bounds(Problem([[0, 1, 2, 3]], 8, split=False)).best
    Fraction(33, 1)
    """
    whole = objective == "makespan"  # times of a span count from its rank's own first start
    stages = range(problem.placement.shape[1])
    forward, gradient, after = (
        np.array([problem.lengths.get((kind, stage), Fraction(0)) for stage in stages])
        for kind in (OpKind.F, problem.gradient, OpKind.W)
    )
    # of each copy and stage: transfers on the way to it; the earliest start of its forward; the time from that
    # forward's end until a gradient can return; what follows the gradient: those before it, and a weight gradient
    transfers = np.cumsum(problem.hops * problem.comm, axis=1)
    head = (np.cumsum(forward) - forward + transfers) * whole
    computing = np.cumsum(forward + gradient)
    around = computing[-1] - computing + 2 * (transfers[:, -1:] - transfers)
    tail = (np.cumsum(gradient) - gradient + transfers + after[0]) * whole
    trip = forward + around + gradient + after
    path, ranks = trip[:, 0].max() * whole, range(problem.num_ranks)

    def rank_bound(rank, limited):
        """All work of a rank, with no more forwards before its first gradient than fit."""
        here = problem.placement == rank
        sizes = np.broadcast_to(problem.sizes, here.shape)[here]
        forwards = problem.num_microbatches * forward.sum()
        if limited:  # the forwards that fit at once: whole ones if the rank's stages are alike
            unit = sizes[0] if (sizes == sizes[0]).all() else problem.limit
            forwards = problem.limit // unit * unit * problem.forward
        begins = max(head[here].min(), (head + forward + around)[here].min() - forwards)
        work, follows = problem.rank_work[rank], tail[here].min()
        if problem.split:  # the weight gradients may come last
            weight_grads = problem.microbatches_per_copy * np.broadcast_to(after, here.shape)[here].sum()
            return begins + max(work, work - weight_grads + follows)
        return begins + work + follows

    busiest = max(rank_bound(rank, limited=False) for rank in ranks)
    if problem.limit is None:
        return Bounds(path, busiest, Fraction(0))
    # a stage's microbatches in turn: they share the places that memory has for them
    rounds = [ceil(Fraction(problem.microbatches_per_copy, int(problem.limit / size))) for size in problem.sizes]
    in_turn = head + rounds * trip + (0 if problem.split else tail)
    return Bounds(path, busiest, max(in_turn.max(), *(rank_bound(rank, limited=True) for rank in ranks)))
