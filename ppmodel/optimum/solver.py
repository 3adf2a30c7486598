"""The fastest order of a problem's operations, from OR-tools' CP-SAT."""

from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from math import ceil, lcm
from typing import NamedTuple

import numpy as np

from ppmodel.errors import ScheduleError
from ppmodel.ops import OpKind
from ppmodel.optimum.lower_bounds import bounds
from ppmodel.optimum.problem import TIMES, answers, simulated, time_of
from ppmodel.tables import Schedule


class Optimum(NamedTuple):
    """What the solver found.

    Parameters
    ----------
    time : Fraction or None
        Time of the best schedule found, in the problem's unit; None if none was found within the limit of work.
    bound : Fraction
        No schedule is faster than this; proven by the solver or by `bounds`.
    proven : bool
        Whether the two are equal, so that the time is the optimum.
    schedule : Schedule or None
    """

    time: Fraction | None
    bound: Fraction
    proven: bool
    schedule: Schedule | None


def solve(problem, objective="makespan", hint=None, work=10.0):
    """The fastest order of a problem's operations, by OR-tools' CP-SAT; deterministic, on one core.

    Microbatches of one copy are alike: any schedule stays as fast, and holds as much, if each stage takes them in
    order. The solver is therefore told to keep them in order, which spares it most of its search.

    Parameters
    ----------
    problem : Problem
    objective : {"makespan", "span"}
    hint : Schedule, optional
        A schedule of the same placement and size; if it fits the limit, the search starts from it, and it is the answer
        if nothing faster is found.
    work : float
        Limit in the solver's deterministic units, about seconds of one core; the result does not depend on the machine.
        If it is reached, `time` is only the best found and `bound` only a bound.

    Returns
    -------
    Optimum

    Raises
    ------
    ScheduleError
        If OR-tools is not installed.

    Examples
    --------
    >>> from ppmodel.optimum import Problem
    >>> found = solve(Problem([[0, 1]], 2))
    >>> found.time, found.proven
    (Fraction(7, 1), True)
    """
    if find_spec("ortools") is None:
        raise ScheduleError("ortools", None, "is not installed", "install ppmodel with its extra 'optimum'")
    if hint is not None and not answers(hint, replace(problem, limit=None, split=True)):
        rule = "must have the problem's placement and microbatches"
        raise ScheduleError("hint", hint.name, rule, "pass a schedule of the same problem, or none")
    model = _Model(problem, objective, hint if hint is not None and answers(hint, problem) else None)
    given = model.given()
    if given and given.proven:
        return given
    found = model.solved(work)
    if given is None or (found.time is not None and found.time < given.time):
        return found
    return Optimum(given.time, found.bound, given.time == found.bound, given.schedule)


class _Model:
    """The problem as CP-SAT sees it, in units in which all times are whole numbers, so simulated times are exact."""

    def __init__(self, problem, objective, hint):
        from ortools.sat.python import cp_model

        self.cp_sat, self.model = cp_model, cp_model.CpModel()
        self.problem, self.objective = problem, objective
        self.scale = lcm(*(time.denominator for time in (*problem.lengths.values(), problem.comm)))
        self.whole = replace(problem, **{name: getattr(problem, name) * self.scale for name in TIMES})
        self.length = {of: int(time) for of, time in self.whole.lengths.items()}
        self.comm = int(self.whole.comm)
        self.least = ceil(bounds(problem, objective).best * self.scale)
        self.hint, self.begun = hint, self._hinted(hint) if hint else {}
        self.horizon = self._horizon()

    def given(self):
        """The hint as an answer; it is the optimum already if it takes no longer than a bound."""
        if self.hint is None:
            return None
        reached = Fraction(round(time_of(self.hint, self.whole, self.objective)), self.scale)
        least = Fraction(self.least, self.scale)
        return Optimum(reached, least, reached == least, self.hint)

    def _hinted(self, hint):
        """Starts of the hint's operations by kind, copy and stage, in order.

        Operations of one cell, and the halves of a backward, run one after the other.
        """
        start, ranked = simulated(hint, self.whole).start_s, {}
        for op in np.flatnonzero(hint.kind < OpKind.R):
            begins = round(start[op]) + self._before_in_cell(hint, op)
            for kind, later in self._parts(hint, op):
                key = (kind, int(hint.replica[op]), int(hint.stage[op]))
                ranked.setdefault(key, []).append(begins + later)
        return {key: sorted(starts) for key, starts in ranked.items()}

    def _before_in_cell(self, hint, op):
        before = 0
        while hint.joined[op]:
            op -= 1
            before += sum(self.length[kind, int(hint.stage[op])] for kind, _ in self._parts(hint, op))
        return before

    def _parts(self, hint, op):
        """An operation of a hint in the problem's own kinds, each with its delay."""
        if hint.kind[op] == OpKind.B and self.problem.split:
            return [(OpKind.I, 0), (OpKind.W, self.length[OpKind.I, int(hint.stage[op])])]
        return [(OpKind(hint.kind[op]), 0)]

    def _horizon(self):
        """A time by which everything can be finished: the hint's, or that of one microbatch after the other."""
        if self.begun and self.objective == "makespan":
            return max(starts[-1] + self.length[kind, stage] for (kind, _, stage), starts in self.begun.items())
        one = sum(self.length.values()) + 2 * self.comm * self.problem.placement.shape[1]
        return one * self.problem.num_microbatches

    def _operations(self):
        self.start, self.interval = {}, {}
        for copy, stage in np.ndindex(self.problem.placement.shape):
            for kind in self.problem.times:
                length = self.length[kind, stage]
                for number in range(self.problem.microbatches_per_copy):
                    key = (kind, copy, stage, number)
                    begin = self.model.new_int_var(0, self.horizon - length, "")
                    self.start[key] = begin
                    self.interval[key] = self.model.new_fixed_size_interval_var(begin, length, "")
                    if self.begun:
                        self.model.add_hint(begin, self._given_start(key))

    def _after(self, later, earlier, lag=0):
        """Let an operation begin no sooner than a lag after another one ends."""
        self.model.add(self.start[later] >= self._end(earlier) + lag)

    def _end(self, key):
        return self.start[key] + self.length[key[0], key[2]]

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

    def _ranks(self):
        self.of_rank = [[] for _ in range(self.problem.num_ranks)]
        for key in self.start:
            self.of_rank[self.problem.placement[key[1], key[2]]].append(key)
        for keys in self.of_rank:
            self.model.add_no_overlap([self.interval[key] for key in keys])

    def _memory(self):
        if self.problem.limit is None:
            return
        sizes = self.problem.sizes
        unit = Fraction(1, lcm(*(size.denominator for size in sizes)))
        for keys in self.of_rank:
            held = [key for key in keys if key[0] == OpKind.F]
            if len({key[1:3] for key in held}) == 1:
                self._in_turn(held, int(self.problem.limit / sizes[held[0][2]]))
            else:
                demands = [int(sizes[key[2]] / unit) for key in held]
                self.model.add_cumulative([self._stay(key) for key in held], demands, int(self.problem.limit / unit))

    def _in_turn(self, held, places):
        """With one stage on a rank, a forward waits until the microbatch `places` before it has been freed."""
        for _, copy, stage, number in held[places:]:
            self._after((OpKind.F, copy, stage, number), (self.problem.last, copy, stage, number - places))

    def _given_start(self, key):
        return self.begun[key[:3]][key[3]]

    def _stay(self, key):
        """From the start of a forward to the end of the operation that frees its activations."""
        last = (self.problem.last, *key[1:])
        length = self.model.new_int_var(0, self.horizon, "")
        if self.begun:
            until = self._given_start(last) + self.length[last[0], last[2]]
            self.model.add_hint(length, until - self._given_start(key))
        return self.model.new_interval_var(self.start[key], length, self._end(last), "")

    def _target(self):
        target = self.model.new_int_var(self.least, self.horizon, "")
        for keys in self.of_rank:
            first = 0
            if self.objective == "span":
                first = self.model.new_int_var(0, self.horizon, "")
                for key in keys:
                    if key[0] == OpKind.F and key[3] == 0:
                        self.model.add(first <= self.start[key])
            for key in keys:
                if key[0] != OpKind.F and key[3] == self.problem.microbatches_per_copy - 1:
                    self.model.add(target >= self._end(key) - first)
        self.model.minimize(target)

    def solved(self, work):
        self._operations()
        self._order()
        self._ranks()
        self._memory()
        self._target()
        solver = self.cp_sat.CpSolver()
        solver.parameters.num_workers, solver.parameters.random_seed = 1, 0
        solver.parameters.max_deterministic_time = work
        status = solver.solve(self.model)
        bound = Fraction(max(self.least, round(solver.best_objective_bound)), self.scale)
        if status not in (self.cp_sat.OPTIMAL, self.cp_sat.FEASIBLE):
            return Optimum(None, bound, False, None)
        schedule = self._schedule(solver)
        time = Fraction(round(time_of(schedule, self.whole, self.objective)), self.scale)
        return Optimum(time, bound, time == bound, schedule)

    def _schedule(self, solver):
        keys = list(self.start)
        kind, copy, stage, number = (np.array(column) for column in zip(*keys, strict=True))
        slot = np.array([solver.value(self.start[key]) for key in keys])
        microbatch = number * len(self.problem.placement) + copy
        shares = self.problem.shares
        more = {} if shares is None else {"stage_shares": np.array(shares, dtype=float)}
        return Schedule.from_slots(
            "optimum",
            self.problem.placement,
            self.problem.num_microbatches,
            kind,
            stage,
            microbatch,
            copy,
            slot,
            **more,
        )
