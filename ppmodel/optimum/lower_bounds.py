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
    >>> from ppmodel.optimum import Problem
    >>> bounds(Problem([[0, 1, 2, 3]], 8, limit=4)).best
    Fraction(27, 1)
    >>> bounds(Problem([[0, 1, 2, 3]], 8, split=False)).best
    Fraction(33, 1)
    """
    ways = _Ways(problem, objective)
    ranks = range(problem.num_ranks)
    path = max(ways.path(copy) for copy in range(len(problem.placement)))
    busiest = max(ways.of_rank(rank, limited=False) for rank in ranks)
    if problem.limit is None:
        return Bounds(path, busiest, Fraction(0))
    filled = max(ways.of_rank(rank) for rank in ranks)
    return Bounds(path, busiest, max(filled, *(ways.in_turn(*stage) for stage in np.ndindex(problem.placement.shape))))


class _Ways:
    """A microbatch's time before, beyond and after each stage; for a span, counted from a rank's own first start."""

    def __init__(self, problem, objective):
        self.problem, self.whole = problem, objective == "makespan"
        lengths, number = problem.lengths, problem.placement.shape[1]
        self.forward, self.gradient, self.after = (
            [lengths.get((kind, stage), Fraction(0)) for stage in range(number)]
            for kind in (OpKind.F, problem.gradient, OpKind.W)
        )
        self.stages = [np.argwhere(problem.placement == rank).tolist() for rank in range(problem.num_ranks)]

    def _hops(self, copy, first, last):
        return int(self.problem.hops[copy, first + 1 : last + 1].sum()) * self.problem.comm

    def head(self, copy, stage):
        """The earliest start of a stage's forward; 0 for a span, which begins with its rank."""
        return (sum(self.forward[:stage]) + self._hops(copy, 0, stage)) if self.whole else Fraction(0)

    def around(self, copy, stage):
        """From the end of a stage's forward until its gradient can arrive."""
        beyond = slice(stage + 1, None)
        return sum(self.forward[beyond]) + sum(self.gradient[beyond]) + 2 * self._hops(copy, stage, len(self.forward))

    def tail(self, copy, stage):
        """What must follow a stage's gradient: the gradients of the stages before it, and the last weight gradient."""
        if not self.whole:
            return Fraction(0)
        return sum(self.gradient[:stage]) + self._hops(copy, 0, stage) + self.after[0]

    def path(self, copy):
        if not self.whole:
            return Fraction(0)
        return self.forward[0] + self.around(copy, 0) + self.gradient[0] + self.after[0]

    def of_rank(self, rank, *, limited=True):
        """All work of a rank, with no more forwards before its first gradient than fit."""
        places, problem = self.stages[rank], self.problem
        first_gradient = min(
            self.head(copy, stage) + self.forward[stage] + self.around(copy, stage) for copy, stage in places
        )
        forwards = problem.num_microbatches * sum(self.forward)
        if limited:  # the forwards that fit at once: whole ones if the rank's stages are alike
            sizes = {problem.sizes[stage] for _, stage in places}
            unit = sizes.pop() if len(sizes) == 1 else problem.limit
            forwards = problem.limit // unit * unit * problem.forward
        begins = max(min(self.head(*place) for place in places), first_gradient - forwards)
        work, follows = problem.rank_work[rank], min(self.tail(*place) for place in places)
        if not problem.split:
            return begins + work + follows
        weight_grads = problem.microbatches_per_copy * sum(self.after[stage] for _, stage in places)
        return begins + max(work, work - weight_grads + follows)

    def in_turn(self, copy, stage):
        """A stage's microbatches in turn: they share the places that memory has for them."""
        places = int(self.problem.limit / self.problem.sizes[stage])
        rounds = ceil(Fraction(self.problem.microbatches_per_copy, places))
        stays = self.forward[stage] + self.around(copy, stage) + self.gradient[stage] + self.after[stage]
        follows = 0 if self.problem.split else self.tail(copy, stage)
        return self.head(copy, stage) + rounds * stays + follows
