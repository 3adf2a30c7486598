"""How good any schedule could be: lower bounds on its time, and the optimum itself from a solver where it is small.

A problem is a placement, sizes, times and a limit of memory; what is free is the order of the operations. Transfers
take time and occupy nothing (``latency``); a reduction of replicas is left out. Times are fractions: bounds are exact.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from importlib.util import find_spec
from math import ceil, lcm
from typing import NamedTuple

import numpy as np

from ppmodel.costs import uniform_costs
from ppmodel.engine import simulate
from ppmodel.errors import ScheduleError
from ppmodel.graph import compile
from ppmodel.metrics import longest_span_s, peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedule import Schedule

OBJECTIVES = ("makespan", "span")
"""From the first start to the last end of all devices, or of the device where that is longest (Zero Bubble's)."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What a schedule must do, and with what; the order of the operations is open.

    Parameters
    ----------
    placement : array of int, shape (num_replicas, num_stages)
        The device of each stage of each copy of the pipeline, as in `Schedule`. Stages are of equal size.
    num_microbatches : int
        B; every copy of the pipeline runs as many.
    forward, input_grad, weight_grad, comm : number
        Times of one microbatch on 1/S of the model, in one unit, and of one transfer; the first three above 0.
    limit : number, optional
        Activations that fit on a device, in microbatches on 1/S of the model; no limit if not given.
    split : bool
        Whether input and weight gradients may stand apart; else a backward is one operation.

    Raises
    ------
    ScheduleError
        If a time is not positive, copies cannot share the microbatches, or not one microbatch fits the limit.

    Examples
    --------
    >>> Problem([[0, 1]], 4, split=False).device_work
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

    def __post_init__(self):
        object.__setattr__(self, "placement", np.atleast_2d(self.placement))
        for name in ("forward", "input_grad", "weight_grad", "comm"):
            time = Fraction(str(getattr(self, name)))
            if time < 0 or (time == 0 and name != "comm"):
                raise ScheduleError(name, time, "must be above 0 (a transfer 0 or more)", "pass for example 1")
            object.__setattr__(self, name, time)
        copies = len(self.placement)
        if self.num_microbatches < 1 or self.num_microbatches % copies:
            rule = f"must be a multiple of the copies of the pipeline, {copies}"
            raise ScheduleError("microbatches", self.num_microbatches, rule, f"pass {copies * 2}")
        if self.limit is not None:
            object.__setattr__(self, "limit", Fraction(str(self.limit)))
            needed = max(np.bincount(homes).max() for homes in self.placement) * self.share
            if self.limit < needed:
                rule = f"must be at least {needed}: a device holds a microbatch on all its stages at once"
                raise ScheduleError("limit", self.limit, rule, f"pass {needed} or more")

    @property
    def num_devices(self):
        return int(self.placement.max()) + 1

    @property
    def share(self):
        """A stage's share of a unit, 1/v."""
        return Fraction(self.num_devices, self.placement.shape[1])

    @property
    def lengths(self):
        """Time of a stage's operation, by kind: of F, I and W, or of F and B."""
        if self.split:
            lengths = {OpKind.F: self.forward, OpKind.I: self.input_grad, OpKind.W: self.weight_grad}
        else:
            lengths = {OpKind.F: self.forward, OpKind.B: self.input_grad + self.weight_grad}
        return {kind: length * self.share for kind, length in lengths.items()}

    @property
    def gradient(self):
        """The kind of operation that hands a gradient on."""
        return OpKind.I if self.split else OpKind.B

    @property
    def last(self):
        """The kind of operation that gives the activations back."""
        return OpKind.W if self.split else OpKind.B

    @property
    def microbatches_per_copy(self):
        return self.num_microbatches // len(self.placement)

    @property
    def stages_at_once(self):
        """Stages' microbatches that fit on a device; None without a limit."""
        return None if self.limit is None else int(self.limit / self.share)

    @cached_property
    def device_work(self):
        """Computing time of each device."""
        each = self.microbatches_per_copy * sum(self.lengths.values())
        return [int(count) * each for count in np.bincount(self.placement.ravel(), minlength=self.num_devices)]

    @cached_property
    def hops(self):
        """Transfers between a stage and the one before it: 0 on one device, else 1; shape of `placement`."""
        return (np.diff(self.placement, axis=1, prepend=self.placement[:, :1]) != 0).astype(int)


def problem_of(schedule, forward=1, input_grad=1, weight_grad=1, comm=0, limit=None, split=True):
    """The `Problem` that a schedule solves: its placement and its microbatches, with these times and this limit.

    Raises
    ------
    ScheduleError
        If its stages differ in size, or it cuts microbatches.

    Examples
    --------
    >>> from ppmodel import build
    >>> problem_of(build("hanayo", 2, 2)).placement
    array([[0, 1, 1, 0]], dtype=int32)
    """
    if schedule.microbatch_parts > 1 or np.ptp(schedule.stage_shares):
        rule, remedy = "must have stages of equal size and whole microbatches", "choose another schedule"
        raise ScheduleError("schedule", schedule.name, rule, remedy)
    placement = np.asarray(schedule.placement, dtype=np.int32)
    return Problem(placement, schedule.num_microbatches, forward, input_grad, weight_grad, comm, limit, split)


def time_of(schedule, problem, objective="makespan"):
    """What a schedule takes with a problem's times: the makespan, or the longest span of a device.

    Parameters
    ----------
    schedule : Schedule
    problem : Problem
        Its limit does not matter here.
    objective : {"makespan", "span"}

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
    timeline = _simulated(schedule, problem)
    return timeline.makespan_s if objective == "makespan" else longest_span_s(timeline)


def _simulated(schedule, problem, scale=1):
    times = {name: float(getattr(problem, name) * scale) for name in ("forward", "input_grad", "weight_grad")}
    latency = float(problem.comm * scale)
    costs = uniform_costs(
        schedule, times["forward"], input_grad=times["input_grad"], weight_grad=times["weight_grad"], latency=latency
    )
    return simulate(compile(schedule, p2p="latency"), costs)


# ---- lower bounds ----------------------------------------------------------------------------


class Bounds(NamedTuple):
    """Lower bounds on the time of any schedule of a problem, each for a reason of its own.

    Parameters
    ----------
    critical_path : Fraction
        One microbatch, all the way there and back.
    busiest_device : Fraction
        Computing time of a device, after the soonest that it may begin and before what must still follow.
    memory : Fraction
        What the limit adds: too few forwards fit to fill the time until the first gradient returns, or
        microbatches must wait for those that came before. 0 without a limit.
    """

    critical_path: Fraction
    busiest_device: Fraction
    memory: Fraction

    @property
    def best(self):
        """The highest of them."""
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
    On each device: until the soonest that a gradient can be there, only forwards run, and no more of them than fit;
    all other work comes later. A backward, where halves do not stand apart, is followed by those of the stages before
    it; of split ones the weight gradients may come last, so that either they or what follows counts. A stage's
    activations stay from its forward to its (weight) gradient, at least as long as the way to the last stage and back
    takes; with room for k of them, one of k places holds B/k, rounded up, one after the other.

    Examples
    --------
    >>> bounds(Problem([[0, 1, 2, 3]], 8, limit=4)).best
    Fraction(27, 1)
    >>> bounds(Problem([[0, 1, 2, 3]], 8, split=False)).best
    Fraction(33, 1)
    """
    ways = _Ways(problem, objective)
    devices = range(problem.num_devices)
    everything = problem.num_microbatches * problem.placement.shape[1]
    path = max(ways.path(copy) for copy in range(len(problem.placement)))
    busiest = max(ways.of_device(device, everything) for device in devices)
    if problem.limit is None:
        return Bounds(path, busiest, Fraction(0))
    filled = max(ways.of_device(device, problem.stages_at_once) for device in devices)
    return Bounds(path, busiest, max(filled, *(ways.in_turn(*stage) for stage in np.ndindex(problem.placement.shape))))


class _Ways:
    """How long a microbatch takes before, beyond and after each stage; for a span, from a device's own first start."""

    def __init__(self, problem, objective):
        self.problem, self.whole = problem, objective == "makespan"
        self.length, self.gradient = problem.lengths, problem.lengths[problem.gradient]
        self.after = problem.lengths.get(OpKind.W, Fraction(0))
        self.stages = [
            [(copy, stage) for copy, stage in np.argwhere(problem.placement == device).tolist()]
            for device in range(problem.num_devices)
        ]

    def _hops(self, copy, first, last):
        return int(self.problem.hops[copy, first + 1 : last + 1].sum()) * self.problem.comm

    def head(self, copy, stage):
        """The soonest that a stage's forward may begin; 0 for a span, which begins with its device."""
        return (stage * self.length[OpKind.F] + self._hops(copy, 0, stage)) if self.whole else Fraction(0)

    def around(self, copy, stage):
        """From the end of a stage's forward until the gradient may be there."""
        beyond = self.problem.placement.shape[1] - 1
        return (beyond - stage) * (self.length[OpKind.F] + self.gradient) + 2 * self._hops(copy, stage, beyond)

    def tail(self, copy, stage):
        """What must follow a stage's gradient: those of the stages before it, and the last weight gradient."""
        return stage * self.gradient + self._hops(copy, 0, stage) + self.after if self.whole else Fraction(0)

    def path(self, copy):
        if not self.whole:
            return Fraction(0)
        return self.length[OpKind.F] + self.around(copy, 0) + self.gradient + self.after

    def of_device(self, device, forwards):
        """All work of a device, of which so many forwards at most come before the first gradient."""
        own = self.stages[device]
        begins = min(self.head(*stage) for stage in own)
        gradient_there = min(self.head(*stage) + self.length[OpKind.F] + self.around(*stage) for stage in own)
        begins = max(begins, gradient_there - forwards * self.length[OpKind.F])
        work, follows = self.problem.device_work[device], min(self.tail(*stage) for stage in own)
        if not self.problem.split:
            return begins + work + follows
        without = len(own) * self.problem.microbatches_per_copy * self.after
        return begins + max(work, work - without + follows)

    def in_turn(self, copy, stage):
        """Microbatches of a stage share the places that the memory has for them, and one place holds many in turn."""
        rounds = ceil(Fraction(self.problem.microbatches_per_copy, self.problem.stages_at_once))
        stays = self.length[OpKind.F] + self.around(copy, stage) + self.gradient + self.after
        follows = 0 if self.problem.split else self.tail(copy, stage)
        return self.head(copy, stage) + rounds * stays + follows


# ---- the optimum -----------------------------------------------------------------------------


class Optimum(NamedTuple):
    """What the solver found.

    Parameters
    ----------
    time : Fraction or None
        Of the best schedule found, in the problem's unit; None if none was found within the limit of work.
    bound : Fraction
        No schedule is faster than this; proven by the solver or by `bounds`.
    proven : bool
        Whether the two are equal: the time is the optimum.
    schedule : Schedule or None
    """

    time: Fraction | None
    bound: Fraction
    proven: bool
    schedule: Schedule | None


def solve(problem, objective="makespan", hint=None, work=10.0):
    """The fastest order of a problem's operations, by OR-tools' CP-SAT; deterministic, on one core.

    Microbatches of one copy are alike: any schedule stays as fast, and holds as much, if each stage takes them in
    order. So they do here, which spares the solver most of its search.

    Parameters
    ----------
    problem : Problem
    objective : {"makespan", "span"}
    hint : Schedule, optional
        Of the same placement and size; where it fits the limit, the search starts from it, and it is the answer
        where nothing faster is found.
    work : float
        Limit in the solver's deterministic units, about seconds of a core; the result does not depend on the
        machine. Where it is reached, `time` is only the best found and `bound` only a bound.

    Returns
    -------
    Optimum

    Raises
    ------
    ScheduleError
        If OR-tools is not installed.

    Examples
    --------
    >>> found = solve(Problem([[0, 1]], 2))
    >>> found.time, found.proven
    (Fraction(7, 1), True)
    """
    if find_spec("ortools") is None:
        raise ScheduleError("ortools", None, "is not installed", "install ppmodel with its extra 'optimum'")
    model = _Model(problem, objective, hint)
    given = model.given(hint)
    if given and given.proven:
        return given
    found = model.solved(work)
    return found if given is None or (found.time is not None and found.time < given.time) else _bounded(given, found)


def _bounded(given, found):
    """The hint, where the solver found nothing faster, with what the solver proved."""
    return Optimum(given.time, found.bound, given.time == found.bound, given.schedule)


def _is_answer(hint, problem):
    """Whether a schedule is one of those that a problem asks for; one of another placement or size is an error."""
    if not np.array_equal(hint.placement, problem.placement) or hint.num_microbatches != problem.num_microbatches:
        rule = "must have the problem's placement and microbatches"
        raise ScheduleError("hint", hint.name, rule, "pass a schedule of the same problem, or none")
    fits = problem.limit is None or peak_activations(hint).max() <= float(problem.limit)
    return fits and (problem.split or not (hint.kind == OpKind.W).any())


class _Model:
    """The problem as CP-SAT sees it, in whole units of time."""

    def __init__(self, problem, objective, hint):
        from ortools.sat.python import cp_model

        self.library, self.model = cp_model, cp_model.CpModel()
        self.problem, self.objective = problem, objective
        times = [*problem.lengths.values(), problem.comm]
        self.scale = lcm(*(time.denominator for time in times))
        self.length = {kind: int(time * self.scale) for kind, time in problem.lengths.items()}
        self.comm = int(problem.comm * self.scale)
        self.least = ceil(bounds(problem, objective).best * self.scale)
        self.begun = self._hinted(hint)
        self.horizon = self._horizon()

    def given(self, hint):
        """The hint as an answer, if it fits the limit: the optimum at once, where it takes no longer than a bound."""
        if not self.begun:
            return None
        reached = Fraction(round(time_of(hint, self._whole_times(), self.objective)), self.scale)
        least = Fraction(self.least, self.scale)
        return Optimum(reached, least, reached == least, hint)

    def _hinted(self, hint):
        """Starts of the hint's operations by kind, copy and stage, in order; empty where it breaks the limit.

        Operations of one cell, and the halves of a backward, run one after the other.
        """
        if hint is None or not _is_answer(hint, self.problem):
            return {}
        start, ranked = _simulated(hint, self.problem, self.scale).start_s, {}
        for op in np.flatnonzero(hint.kind != OpKind.R):
            begins = round(start[op]) + self._before_in_cell(hint, op)
            for kind, later in self._parts(OpKind(hint.kind[op])):
                key = (kind, int(hint.replica[op]), int(hint.stage[op]))
                ranked.setdefault(key, []).append(begins + later)
        return {key: sorted(starts) for key, starts in ranked.items()}

    def _before_in_cell(self, hint, op):
        before = 0
        while hint.joined[op]:
            op -= 1
            before += sum(self.length[kind] for kind, _ in self._parts(OpKind(hint.kind[op])))
        return before

    def _parts(self, kind):
        """An operation of a hint in the problem's own kinds, each with its delay."""
        if kind == OpKind.B and self.problem.split:
            return [(OpKind.I, 0), (OpKind.W, self.length[OpKind.I])]
        return [(kind, 0)]

    def _horizon(self):
        """A time by which everything can be over: the hint's, or that of one microbatch after the other."""
        if self.begun and self.objective == "makespan":
            return max(starts[-1] + self.length[kind] for (kind, *_), starts in self.begun.items())
        one = sum(self.length.values()) + 2 * self.comm
        return one * self.problem.placement.shape[1] * self.problem.num_microbatches

    def _operations(self):
        self.start, self.interval = {}, {}
        for copy, stage in np.ndindex(self.problem.placement.shape):
            for kind, length in self.length.items():
                for number in range(self.problem.microbatches_per_copy):
                    key = (kind, copy, stage, number)
                    begin = self.model.new_int_var(0, self.horizon - length, "")
                    self.start[key] = begin
                    self.interval[key] = self.model.new_fixed_size_interval_var(begin, length, "")
                    if self.begun:
                        self.model.add_hint(begin, self._given_start(key))

    def _after(self, later, earlier, lag=0):
        """One operation begins no sooner than another ends, and a lag more."""
        self.model.add(self.start[later] >= self.start[earlier] + self.length[earlier[0]] + lag)

    def _order(self):
        gradient, last_stage = self.problem.gradient, self.problem.placement.shape[1] - 1
        for key in self.start:
            kind, copy, stage, number = key
            if number:
                self._after(key, (kind, copy, stage, number - 1))
            if kind == OpKind.F and stage:
                self._after(key, (kind, copy, stage - 1, number), self._lag(copy, stage))
            elif kind == gradient and stage < last_stage:
                self._after(key, (kind, copy, stage + 1, number), self._lag(copy, stage + 1))
            elif kind == gradient:
                self._after(key, (OpKind.F, copy, stage, number))
            elif kind == OpKind.W:
                self._after(key, (gradient, copy, stage, number))

    def _lag(self, copy, stage):
        return int(self.problem.hops[copy, stage]) * self.comm

    def _devices(self):
        self.of_device = [[] for _ in range(self.problem.num_devices)]
        for key in self.start:
            self.of_device[self.problem.placement[key[1], key[2]]].append(key)
        for keys in self.of_device:
            self.model.add_no_overlap([self.interval[key] for key in keys])

    def _memory(self):
        places = self.problem.stages_at_once
        if places is None:
            return
        for keys in self.of_device:
            held = [key for key in keys if key[0] == OpKind.F]
            if len({key[1:3] for key in held}) == 1:
                self._in_turn(held, places)
            else:
                self.model.add_cumulative([self._stay(key) for key in held], [1] * len(held), places)

    def _in_turn(self, held, places):
        """With one stage on a device, a forward waits until the microbatch `places` before it has gone."""
        for _, copy, stage, number in held[places:]:
            self._after((OpKind.F, copy, stage, number), (self.problem.last, copy, stage, number - places))

    def _given_start(self, key):
        return self.begun[key[:3]][key[3]]

    def _stay(self, key):
        """From the start of a forward to the end of what gives its activations back."""
        last = (self.problem.last, *key[1:])
        length = self.model.new_int_var(0, self.horizon, "")
        end = self.start[last] + self.length[last[0]]
        if self.begun:
            self.model.add_hint(length, self._given_start(last) + self.length[last[0]] - self._given_start(key))
        return self.model.new_interval_var(self.start[key], length, end, "")

    def _target(self):
        target = self.model.new_int_var(self.least, self.horizon, "")
        for keys in self.of_device:
            first = 0
            if self.objective == "span":
                first = self.model.new_int_var(0, self.horizon, "")
                for key in keys:
                    if key[0] == OpKind.F and key[3] == 0:
                        self.model.add(first <= self.start[key])
            for key in keys:
                if key[0] != OpKind.F and key[3] == self.problem.microbatches_per_copy - 1:
                    self.model.add(target >= self.start[key] + self.length[key[0]] - first)
        self.model.minimize(target)

    def solved(self, work):
        self._operations()
        self._order()
        self._devices()
        self._memory()
        self._target()
        solver = self.library.CpSolver()
        solver.parameters.num_workers, solver.parameters.random_seed = 1, 0
        solver.parameters.max_deterministic_time = work
        status = solver.solve(self.model)
        bound = Fraction(max(self.least, round(solver.best_objective_bound)), self.scale)
        if status not in (self.library.OPTIMAL, self.library.FEASIBLE):
            return Optimum(None, bound, False, None)
        schedule = self._schedule(solver)
        reached = time_of(schedule, self._whole_times(), self.objective)
        time = Fraction(round(reached), self.scale)
        return Optimum(time, bound, time == bound, schedule)

    def _whole_times(self):
        """The problem in units in which every time is whole, so that the engine's times are exact."""
        problem, scale = self.problem, self.scale
        times = [time * scale for time in (problem.forward, problem.input_grad, problem.weight_grad, problem.comm)]
        return Problem(problem.placement, problem.num_microbatches, *times)

    def _schedule(self, solver):
        keys = list(self.start)
        kind, copy, stage, number = (np.array(column) for column in zip(*keys, strict=True))
        slot = np.array([solver.value(self.start[key]) for key in keys])
        microbatch = number * len(self.problem.placement) + copy
        return Schedule.from_slots(
            "optimum", self.problem.placement, self.problem.num_microbatches, kind, stage, microbatch, copy, slot
        )
