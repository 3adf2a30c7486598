"""Problems for a scheduler: what is to be run, and on what; which schedules solve one, and how long they take."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm

import numpy as np

from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.simulation import compile_graph, run_graph, uniform_costs

_FINEST = 10**4
"""Largest denominator of a share."""

TIMES = ("forward", "input_grad", "weight_grad", "comm")
"""The times of a `Problem`."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Operations that a schedule must run, and its limits; only the order of the operations is open.

    Parameters
    ----------
    placement : array of int, shape (num_replicas, num_stages)
        The rank of each stage of each copy of the pipeline, as in `Schedule`.
    num_microbatches : int
        B; every copy of the pipeline runs the same number.
    forward, input_grad, weight_grad, comm : number
        Times of one microbatch on 1/S of the model and of one transfer, in one unit; the first three must be above 0.
    limit : number, optional
        Activations that fit on a rank, in microbatches on 1/S of the model; if not given, there is no limit.
    split : bool
        Whether input and weight gradients may be separate; otherwise a backward is one operation.
    shares : tuple of Fraction, optional
        Sizes of the stages, relative to their mean; if not given, all are equal.

    Examples
    --------
    >>> Problem([[0, 1]], 4, split=False).rank_work
    [Fraction(12, 1), Fraction(12, 1)]
    """

    placement: np.ndarray
    num_microbatches: int
    forward: Fraction = 1
    input_grad: Fraction = 1
    weight_grad: Fraction = 1
    comm: Fraction = 0
    limit: Fraction | None = None
    split: bool = True
    shares: tuple | None = None

    def __post_init__(self):
        object.__setattr__(self, "placement", np.atleast_2d(self.placement))
        for name in (*TIMES, "limit"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, Fraction(str(value)))

    @property
    def num_ranks(self):
        return int(self.placement.max()) + 1

    @cached_property
    def sizes(self):
        """Each stage's share of a unit; 1/v where they are equal."""
        mean = Fraction(self.num_ranks, self.placement.shape[1])
        return [mean * share for share in self.shares or (1,) * self.placement.shape[1]]

    @cached_property
    def rank_sizes(self):
        """Sizes of the parts that each rank has of each copy of the model, in units."""
        return [(self.placement == rank) @ np.array(self.sizes) for rank in range(self.num_ranks)]

    @property
    def times(self):
        """Time of an operation on one unit of the model, by kind: F, I and W, or F and B."""
        if self.split:
            return {OpKind.F: self.forward, OpKind.I: self.input_grad, OpKind.W: self.weight_grad}
        return {OpKind.F: self.forward, OpKind.B: self.input_grad + self.weight_grad}

    @property
    def lengths(self):
        """Time of each stage's operation, by kind and stage."""
        return {
            (kind, stage): time * size for kind, time in self.times.items() for stage, size in enumerate(self.sizes)
        }

    @property
    def gradient(self):
        """The kind of operation that passes a gradient on."""
        return OpKind.I if self.split else OpKind.B

    @property
    def last(self):
        """The kind of operation that frees the activations."""
        return OpKind.W if self.split else OpKind.B

    @property
    def microbatches_per_copy(self):
        return self.num_microbatches // len(self.placement)

    @cached_property
    def rank_work(self):
        """Computing time of each rank."""
        unit_work = self.microbatches_per_copy * sum(self.times.values())
        return [unit_work * sum(of_copies) for of_copies in self.rank_sizes]

    @cached_property
    def hops(self):
        """Transfers between a stage and the one before it: 0 if both are on one rank, else 1; shape of `placement`."""
        return (np.diff(self.placement, axis=1, prepend=self.placement[:, :1]) != 0).astype(int)


def problem_of(schedule, forward=1, input_grad=1, weight_grad=1, comm=0, limit=None, split=True):
    """The `Problem` that a schedule of whole microbatches solves: its placement, with these times and this limit.

    Examples
    --------
    >>> from ppmodel import build
    >>> problem_of(build("hanayo", 2, 2)).placement
    array([[0, 1, 1, 0]], dtype=int32)
    """
    times = forward, input_grad, weight_grad, comm
    return Problem(schedule.placement, schedule.num_microbatches, *times, limit, split, _shares(schedule))


def _shares(schedule):
    """A schedule's shares as fractions; None if they are equal."""
    if not np.ptp(schedule.stage_shares):
        return None
    return tuple(Fraction(share).limit_denominator(_FINEST) for share in schedule.stage_shares.tolist())


def time_of(schedule, problem, objective="makespan"):
    """The makespan of a schedule with a problem's times, or the longest span of a rank.

    Parameters
    ----------
    schedule : Schedule
    problem : Problem
        Its limit does not matter here.
    objective : {"makespan", "span"}
        From the first start to the last end of all ranks, or of the rank where that is longest (Zero Bubble's).

    Returns
    -------
    float
        In the problem's unit of time.

    Examples
    --------
    >>> from ppmodel import build
    >>> schedule = build("1f1b", 4, 8)
    >>> time_of(schedule, problem_of(schedule)), time_of(schedule, problem_of(schedule), "span")
    (33.0, 33.0)
    """
    timeline = simulated(schedule, problem)
    return timeline.makespan_s if objective == "makespan" else timeline.longest_span_s


def simulated(schedule, problem):
    """The timeline of a schedule with a problem's times, in the problem's unit; the limit does not matter here."""
    forward, *grads, latency = (float(getattr(problem, name)) for name in TIMES)
    costs = uniform_costs(schedule, forward, input_grad=grads[0], weight_grad=grads[1], latency=latency)
    return run_graph(compile_graph(schedule, p2p="latency"), costs)


def is_whole(schedule):
    """Return whether no backward of a schedule is split.

    >>> from ppmodel import build
    >>> is_whole(build("1f1b", 2, 4)), is_whole(build("zb-1p", 2, 4))
    (True, False)
    """
    return not (schedule.kind == OpKind.W).any()


def peak_of(schedule):
    """Peak activations of a schedule's most loaded rank, exactly.

    Parameters
    ----------
    schedule : Schedule
        A schedule of whole microbatches.

    Returns
    -------
    Fraction
        In microbatches on 1/S of the model.

    Examples
    --------
    >>> from ppmodel import build
    >>> peak_of(build("interleaved-1f1b", 3, 6, chunks=3))
    Fraction(11, 3)
    """
    shares = _shares(schedule) or (Fraction(1),)
    unit = Fraction(schedule.num_ranks, schedule.num_stages) / lcm(*(share.denominator for share in shares))
    return round(float(peak_activations(schedule, held_for_weight_grad=1.0).max() / unit)) * unit


def answers(schedule, problem):
    """Return whether a schedule solves a problem.

    Parameters
    ----------
    schedule : Schedule
    problem : Problem

    Returns
    -------
    bool
        Whether it has the problem's placement and microbatches, fits its limit, and has whole backwards if those are
        required.

    Examples
    --------
    >>> from ppmodel import build
    >>> schedule = build("gpipe", 2, 4)
    >>> [answers(schedule, problem_of(schedule, limit=limit)) for limit in (None, 4, 3)]
    [True, True, False]
    """
    return (
        np.array_equal(schedule.placement, problem.placement)
        and _shares(schedule) == problem.shares
        and schedule.num_microbatches == problem.num_microbatches
        and (problem.limit is None or peak_of(schedule) <= problem.limit)
        and (problem.split or is_whole(schedule))
    )
