"""The fastest order of a problem's operations, from OR-tools' CP-SAT."""

from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import product
from math import ceil, lcm
from typing import NamedTuple

import numpy as np

from ppmodel.errors import ScheduleError
from ppmodel.ops import OpKind
from ppmodel.studies.optimum.lower_bounds import bounds
from ppmodel.studies.optimum.problem import TIMES, answers, simulated, time_of
from ppmodel.tables import Schedule


class Optimum(NamedTuple):
    """A solution, and the bound that the solver proved.

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
        If it solves the problem, the search starts from it, and it is the answer if nothing faster is found.
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
    >>> from ppmodel.studies.optimum import Problem
    >>> optimum = solve(Problem([[0, 1]], 2))
    >>> optimum.time, optimum.proven
    (Fraction(7, 1), True)
    """
    if find_spec("ortools") is None:
        raise ScheduleError("ortools", None, "is not installed", "install ppmodel with its extra 'optimum'")
    if hint is not None and not answers(hint, problem):
        hint = None
    model = _Model(problem, objective, hint)
    least, reached = Fraction(model.least, model.scale), None
    if hint is not None:
        reached = Fraction(round(time_of(hint, model.whole, objective)), model.scale)
        if reached == least:
            return Optimum(reached, least, True, hint)
    optimum = model.solved(work)
    if reached is None or (optimum.time is not None and optimum.time < reached):
        return optimum
    return Optimum(reached, optimum.bound, reached == optimum.bound, hint)


class _Model:
    """The problem as CP-SAT sees it, in units in which all times are whole numbers, so simulated times are exact.

    Variables have a key: kind, copy, stage and number of the microbatch in its copy.
    """

    def __init__(self, problem, objective, hint):
        from ortools.sat.python import cp_model

        self.cp_sat, self.model = cp_model, cp_model.CpModel()
        self.problem, self.objective = problem, objective
        self.scale = lcm(*(time.denominator for time in (*problem.lengths.values(), problem.comm)))
        self.whole = replace(problem, **{name: getattr(problem, name) * self.scale for name in TIMES})
        self.least = ceil(bounds(problem, objective).best * self.scale)
        self.lengths = lengths = {of: int(time) for of, time in self.whole.lengths.items()}
        self.hinted = hinted = self._hinted(hint) if hint else {}
        # a time by which everything can be finished: the hint's, or that of one microbatch after the other
        trip = sum(lengths.values()) + 2 * int(self.whole.comm) * problem.placement.shape[1]
        self.horizon = trip * problem.num_microbatches
        if hinted and objective == "makespan":
            self.horizon = max(start + lengths[kind, stage] for (kind, _, stage, _), start in hinted.items())
        self.start, self.end, self.interval = {}, {}, {}
        self.of_rank = [[] for _ in range(problem.num_ranks)]
        for copy, stage in np.ndindex(problem.placement.shape):
            for kind, number in product(problem.times, range(problem.microbatches_per_copy)):
                key, length = (kind, copy, stage, number), lengths[kind, stage]
                self.start[key] = begin = self.model.new_int_var(0, self.horizon - length, "")
                self.end[key] = begin + length
                self.interval[key] = self.model.new_fixed_size_interval_var(begin, length, "")
                self.of_rank[problem.placement[copy, stage]].append(key)
                if hinted:
                    self.model.add_hint(begin, hinted[key])

    def _hinted(self, hint):
        """Starts of the hint's operations.

        Operations of one cell, and the halves of a backward, run one after the other.
        """
        start, ranked, end = simulated(hint, self.whole).start_s, {}, 0
        for op in np.flatnonzero(hint.kind < OpKind.R):
            if not hint.joined[op]:
                end = round(start[op])
            stage, is_cut = int(hint.stage[op]), hint.kind[op] == OpKind.B and self.problem.split
            for kind in (OpKind.I, OpKind.W) if is_cut else (OpKind(hint.kind[op]),):
                ranked.setdefault((kind, int(hint.replica[op]), stage), []).append(end)
                end += self.lengths[kind, stage]
        return {(*of, number): start for of, starts in ranked.items() for number, start in enumerate(sorted(starts))}

    def _memory(self):
        sizes, limit, last = self.problem.sizes, self.problem.limit, self.problem.last
        unit = Fraction(1, lcm(*(size.denominator for size in sizes)))
        for keys in self.of_rank:
            forwards = [key for key in keys if key[0] == OpKind.F]
            if len({key[1:3] for key in forwards}) == 1:  # a forward waits until an earlier microbatch has been freed
                places = int(limit / sizes[forwards[0][2]])
                for _, copy, stage, number in forwards[places:]:
                    freed = self.end[last, copy, stage, number - places]
                    self.model.add(self.start[OpKind.F, copy, stage, number] >= freed)
            else:
                stays, demands = [], [int(sizes[key[2]] / unit) for key in forwards]
                for key in forwards:  # from its start to the end of the operation that frees its activations
                    freed, length = (last, *key[1:]), self.model.new_int_var(0, self.horizon, "")
                    if self.hinted:
                        until = self.hinted[freed] + self.lengths[last, key[2]]
                        self.model.add_hint(length, until - self.hinted[key])
                    stays.append(self.model.new_interval_var(self.start[key], length, self.end[freed], ""))
                self.model.add_cumulative(stays, demands, int(limit / unit))

    def solved(self, work):
        problem, last_stage = self.problem, self.problem.placement.shape[1] - 1
        lags = (problem.hops * int(self.whole.comm)).tolist()
        for kind, copy, stage, number in self.start:  # after the same of an earlier microbatch, and what it needs
            earlier = [((kind, copy, stage, number - 1), 0)] if number else []
            if kind == OpKind.F and stage:
                earlier.append(((kind, copy, stage - 1, number), lags[copy][stage]))
            elif kind == problem.gradient and stage < last_stage:
                earlier.append(((kind, copy, stage + 1, number), lags[copy][stage + 1]))
            elif kind != OpKind.F:
                earlier.append(((OpKind.F if kind == problem.gradient else problem.gradient, copy, stage, number), 0))
            for before, lag in earlier:
                self.model.add(self.start[kind, copy, stage, number] >= self.end[before] + lag)
        for keys in self.of_rank:
            self.model.add_no_overlap([self.interval[key] for key in keys])
        if problem.limit is not None:
            self._memory()
        target = self.model.new_int_var(self.least, self.horizon, "")
        for keys in self.of_rank:
            first = 0
            if self.objective == "span":
                first = self.model.new_int_var(0, self.horizon, "")
                for key in keys:
                    if key[0] == OpKind.F and key[3] == 0:
                        self.model.add(first <= self.start[key])
            for key in keys:
                if key[0] != OpKind.F and key[3] == problem.microbatches_per_copy - 1:
                    self.model.add(target >= self.end[key] - first)
        self.model.minimize(target)
        solver = self.cp_sat.CpSolver()
        solver.parameters.num_workers, solver.parameters.random_seed = 1, 0
        solver.parameters.max_deterministic_time = work
        status = solver.solve(self.model)
        bound = Fraction(max(self.least, round(solver.best_objective_bound)), self.scale)
        if status not in (self.cp_sat.OPTIMAL, self.cp_sat.FEASIBLE):
            return Optimum(None, bound, False, None)
        kind, copy, stage, number = (np.array(column) for column in zip(*self.start, strict=True))
        slot = np.array([solver.value(begin) for begin in self.start.values()])
        shares = problem.shares
        operations = (kind, stage, number * len(problem.placement) + copy, copy, slot)
        sizes = {} if shares is None else {"stage_shares": np.array(shares, dtype=float)}
        schedule = Schedule.from_slots("optimum", problem.placement, problem.num_microbatches, *operations, **sizes)
        time = Fraction(round(time_of(schedule, self.whole, self.objective)), self.scale)
        return Optimum(time, bound, time == bound, schedule)
