"""How far schedules are from the best possible: against bounds, and against optima that a solver proves."""

from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmodel import schedules
from ppmodel.errors import ScheduleError
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.optimum import bounds, problem_of, solve, time_of
from ppmodel.studies.cases import label, legal_schedules, named

STEPS = {"order": "the best order", "halves": "backwards split", "free": "and no limit of memory"}
"""What a schedule is held against, each with more freedom than the one before; all on the schedule's own placement."""

_MAX_DENOMINATOR = 10**6


def distance_study(stages_list, multiples, comms, cases, work=1.0, objective="makespan"):
    """Time of some schedules, and the least that any order of the same operations on the same devices takes.

    Parameters
    ----------
    stages_list : sequence of int
        Values of S.
    multiples : sequence of int
        Values of B/S. Sizes at which a schedule is not defined are left out.
    comms : sequence of float
        Times of a transfer in forwards; transfers occupy nothing.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`; schedules with stages of unequal size, or parts of microbatches, are left out.
        Searched ones are searched for the times at hand.
    work : float
        The solver's limit for each problem, as in `optimum.solve`; 0 asks for bounds alone.
    objective : {"makespan", "span"}
        As in `optimum.solve`.

    Returns
    -------
    DataFrame
        One row a schedule, size and time of a transfer; F = I = W = 1 on 1/S of the model. Columns ``stages,
        microbatches, comm_over_forward, schedule, placement, backward, peak, time``, then for each of `STEPS` the
        bound of `optimum.bounds`, the one that the solver proved, the best time found (NaN where none was) and
        whether it is the optimum: ``order_plain, order_bound, order_time, order_proven``: the same memory, and
        backwards whole where the schedule's are; ``halves_...``: backwards may be split; ``free_...``: memory without
        limit, too.
    """
    rows = []
    for size, multiple, comm in product(stages_list, multiples, comms):
        found = list(_entries(cases, size, size * multiple, comm))
        known = {}
        for entry in found:
            steps = {step: _answer(known, found, entry, step, work, objective) for step in STEPS}
            rows.append(_row(entry, comm, steps, objective))
    return pd.DataFrame(rows)


class _Entry(NamedTuple):
    label: str
    schedule: object
    comm: Fraction
    peak: Fraction
    whole: bool

    def problem(self, step):
        limit = None if step == "free" else self.peak
        return problem_of(self.schedule, comm=self.comm, limit=limit, split=step != "order" or not self.whole)


def _entries(cases, num_stages, num_microbatches, comm):
    searched = [(name, _for_times(name, options, comm)) for name, options in map(named, cases)]
    exact = Fraction(str(comm))
    for (name, options), (case, shown) in zip(searched, map(named, cases), strict=True):
        for _, _, schedule in legal_schedules([(name, options)], num_stages, num_microbatches):
            try:
                problem_of(schedule)
            except ScheduleError:
                continue  # its stages are not alike
            peak = Fraction(float(peak_activations(schedule).max())).limit_denominator(_MAX_DENOMINATOR)
            whole = not (schedule.kind == OpKind.W).any()
            yield _Entry(label(case, shown), schedule, exact, peak, whole)


def _for_times(name, options, comm):
    """The options, with the times at hand where an order is searched for times."""
    if any(option.name == "times" for option in schedules.get(name).options):
        return {"times": (1, 1, 1, comm), **options}
    return options


def _answer(known, entries, entry, step, work, objective):
    """Derived bound, proven bound, best time and proof of a problem; one that was solved before is not solved again."""
    problem = entry.problem(step)
    key = (problem.placement.tobytes(), problem.placement.shape, problem.limit, problem.split)
    if key not in known:
        least = bounds(problem, objective).best
        known[key] = (least, least, None, False)
        if work:
            found = solve(problem, objective, _fastest(entries, problem, objective), work)
            known[key] = (least, found.bound, found.time, found.proven)
    return known[key]


def _fastest(entries, problem, objective):
    """The fastest schedule at hand that answers a problem, the first of several; None if none does."""
    fitting = [
        entry.schedule
        for entry in entries
        if np.array_equal(entry.schedule.placement, problem.placement)
        and (problem.limit is None or entry.peak <= problem.limit)
        and (problem.split or entry.whole)
    ]
    return min(fitting, key=lambda schedule: time_of(schedule, problem, objective), default=None)


def _row(entry, comm, steps, objective):
    schedule = entry.schedule
    row = {
        "stages": schedule.num_devices, "microbatches": schedule.num_microbatches, "comm_over_forward": comm,
        "schedule": entry.label, "placement": placement_text(schedule), "backward": "whole" if entry.whole else "split",
        "peak": float(entry.peak), "time": time_of(schedule, entry.problem("free"), objective),
    }  # fmt: skip
    for step, (plain, least, time, proven) in steps.items():
        row |= {
            f"{step}_plain": float(plain),
            f"{step}_bound": float(least),
            f"{step}_time": np.nan if time is None else float(time),
            f"{step}_proven": proven,
        }
    return row


def placement_text(schedule):
    """Where the stages of a schedule lie, in a word.

    >>> from ppmodel import build
    >>> [placement_text(build(*case)) for case in (("1f1b", 4, 4), ("chimera", 4, 4), ("hanayo", 4, 4))]
    ['line', 'both ways', 'V']
    """
    first = schedule.placement[0]
    if schedule.num_replicas > 1:
        return "both ways"
    if schedule.num_stages == schedule.num_devices:
        return "line"
    turns = bool((np.diff(first) == 0).any())
    return ("V" if schedule.num_stages == 2 * schedule.num_devices else "zigzag") if turns else "loop"


def distances(study):
    """A `distance_study` as lost time: what a schedule takes longer than the best of each of `STEPS`.

    Parameters
    ----------
    study : DataFrame
        From `distance_study`.

    Returns
    -------
    DataFrame
        Columns ``stages, microbatches, comm_over_forward, schedule, placement, peak, time``, then ``over_order,
        over_halves, over_free``: time over the best found, less 1; and ``certain``: whether all three are optima. Where
        one is not, the loss is at least what the best found says and at most ``at_most``, the time over the bound
        without limit, less 1.
    """
    table = study[["stages", "microbatches", "comm_over_forward", "schedule", "placement", "peak", "time"]].copy()
    for step in STEPS:
        table[f"over_{step}"] = study.time / study[f"{step}_time"] - 1
    table["certain"] = study[[f"{step}_proven" for step in STEPS]].all(axis=1)
    table["at_most"] = study.time / study.free_bound - 1
    return table


def distance_facts(study):
    """What a `distance_study` says in numbers.

    Parameters
    ----------
    study : DataFrame
        From `distance_study`, with a solver's answers.

    Returns
    -------
    dict
        ``points``: rows; ``optimal``: those that reach the optimum of their own memory and kind of backward;
        ``best_possible``: those that no order on their placement beats, whatever its memory; ``problems`` and
        ``open``: rows times steps, and those where the solver's limit came first; ``bound_met``: of those proven,
        how many have a bound that is the optimum.
    """
    proven = np.column_stack([study[f"{step}_proven"] for step in STEPS])
    tight = np.column_stack([study[f"{step}_plain"] == study[f"{step}_time"] for step in STEPS])
    return {
        "points": len(study),
        "optimal": int((study.order_proven & (study.time <= study.order_time * (1 + 1e-9))).sum()),
        "best_possible": int((study.free_proven & (study.time <= study.free_time * (1 + 1e-9))).sum()),
        "problems": proven.size,
        "open": int((~proven).sum()),
        "bound_met": int((proven & tight).sum()),
    }
