"""How far schedules are from the best possible: against bounds, and against optima that a solver proves."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ppmodel import schedules
from ppmodel.cases import as_case, legal_cases
from ppmodel.optimum import answers, bounds, is_whole, peak_of, problem_of, solve, time_of
from ppmodel.tables import Schedule, layout

STEPS = ("order", "halves", "free")
"""What a schedule is compared with, each with more freedom than the one before: the best order with its memory and its
kind of backward; with backwards that may be split; with memory without limit, too. All are on its own placement."""


class _Entry(NamedTuple):
    label: str
    schedule: Schedule
    comm: Fraction
    peak: Fraction
    whole: bool

    def problem(self, step):
        limit = None if step == "free" else self.peak
        return problem_of(self.schedule, comm=self.comm, limit=limit, split=step != "order" or not self.whole)


def distances(cases, pp, microbatches, comm=0.0, work=1.0, objective="makespan"):
    """Times of schedules at a size, and the least that any order of the same operations on the same ranks takes.

    Parameters
    ----------
    cases : iterable
        Schedules as `ppmodel.compare` takes them; those that are not defined at the size, have stages of unequal size,
        or cut microbatches into parts, are left out. Searched ones are searched for the times at hand. One with F&B
        pairs, cells in which a forward meets a backward, is followed by its order with unfused pairs, its label by
        "unfused".
    pp, microbatches : int
        Ranks S and microbatches B.
    comm : float
        Time of a transfer in forwards; transfers occupy nothing.
    work : float
        The solver's limit for each problem, as in `optimum.solve`; 0 asks for bounds alone.
    objective : {"makespan", "span"}
        As in `optimum.solve`.

    Returns
    -------
    DataFrame
        One row a schedule; F = I = W = 1 on 1/S of the model. Columns ``pp, microbatches, comm_over_forward, label,
        layout, backward, peak_activations, time``, then for each of `STEPS`, such as ``order``: ``order_plain``, the
        bound of `optimum.bounds`; ``order_bound``, the one that the solver proved; ``order_time``, the best time found
        (NaN where none was); ``order_proven``, whether it is the optimum; ``over_order``, the schedule's time over it,
        less 1; and ``at_most_order``, its time over the bound, less 1. ``proven`` says whether all three are optima.

    Raises
    ------
    ScheduleError
        If a schedule or an option is unknown, or work is asked for where OR-tools is not installed.

    Examples
    --------
    >>> rows = distances(["1f1b", "zb-1p"], 2, 4)
    >>> rows[["label", "time", "order_time", "free_time"]].values.tolist()
    [['1F1B', 15.0, 15.0, 13.0], ['ZB-1p', 13.0, 13.0, 13.0]]
    """
    import pandas as pd

    entries, known, rows = list(_entries(cases, pp, microbatches, comm)), {}, []
    for entry in entries:
        row = {
            "pp": pp, "microbatches": microbatches, "comm_over_forward": comm, "label": entry.label,
            "layout": layout(entry.schedule), "backward": "whole" if entry.whole else "split",
            "peak_activations": float(entry.peak), "time": time_of(entry.schedule, entry.problem("free"), objective),
        }  # fmt: skip
        for step in STEPS:
            row |= _columns(step, row["time"], *_answer(known, entries, entry.problem(step), work, objective))
        rows.append(row | {"proven": all(row[f"{step}_proven"] for step in STEPS)})
    return pd.DataFrame(rows)


def _entries(cases, num_ranks, num_microbatches, comm):
    shown = [as_case(case) for case in cases]
    for case in shown:
        for _, table in legal_cases([_for_times(case, comm)], num_ranks, num_microbatches):
            if table.microbatch_parts > 1 or np.ptp(table.stage_shares):
                continue  # its orders are compared with those of stages that are alike
            unfused = {f"{case.label} unfused": table.unfused()} if table.overlaps.any() else {}
            for label, order in ({case.label: table} | unfused).items():
                yield _Entry(label, order, Fraction(str(comm)), peak_of(order), is_whole(order))


def _for_times(case, comm):
    """The case, with the times at hand where its order is searched for times."""
    searched = case.source is None and any(option.name == "times" for option in schedules.get(case.name).options)
    if not searched or "times" in dict(case.options):
        return case
    return case._replace(options=(("times", (1, 1, 1, comm)), *case.options))


def _answer(known, entries, problem, work, objective):
    """Derived bound, and `Optimum` or None, of a problem; one that was solved before is not solved again."""
    key = (problem.placement.tobytes(), problem.placement.shape, problem.limit, problem.split)
    if key not in known:
        at_hand = [entry.schedule for entry in entries] + [found.schedule for _, found in known.values() if found]
        hint = _fastest(at_hand, problem, objective) if work else None
        known[key] = bounds(problem, objective).best, solve(problem, objective, hint, work) if work else None
    return known[key]


def _fastest(at_hand, problem, objective):
    """The fastest schedule at hand that answers a problem, the first of several; None if none does."""
    fitting = [schedule for schedule in at_hand if schedule is not None and answers(schedule, problem)]
    return min(fitting, key=lambda schedule: time_of(schedule, problem, objective), default=None)


def _columns(step, time, least, found):
    solved = found is not None and found.time is not None
    best = float(found.time) if solved else float("nan")
    bound = float(least if found is None else max(least, found.bound))
    return {
        f"{step}_plain": float(least), f"{step}_bound": bound, f"{step}_time": best,
        f"{step}_proven": solved and found.proven, f"over_{step}": time / best - 1, f"at_most_{step}": time / bound - 1,
    }  # fmt: skip
