"""Distance of schedules from the best possible: from bounds, and from optima proved by a solver."""

from fractions import Fraction

import numpy as np
import pandas as pd

from ppmodel.schedules.cases import as_case, legal_cases
from ppmodel.studies.optimum import answers, bounds, is_whole, peak_of, problem_of, solve, time_of
from ppmodel.tables import layout

STEPS = ("order", "halves", "free")
"""What a schedule is compared with, in order of increasing freedom: the best order within its memory and with its kind
of backward; also with split backwards; also with unlimited memory. All use the schedule's own placement."""


def distances(cases, pp, microbatches, comm=0.0, work=1.0, objective="makespan"):
    """Compare schedules at a size with the shortest time of any order of the same operations on the same ranks.

    Parameters
    ----------
    cases : iterable
        Schedules as for `ppmodel.compare`; those that are not defined at the size, have stages of unequal size or split
        microbatches are left out. Searched orders are searched for these times. A schedule with F&B pairs, cells with a
        forward and a backward, is followed by the same order with unfused pairs, labelled "unfused".
    pp, microbatches : int
        Ranks S and microbatches B.
    comm : float
        Time of a transfer over that of a forward; transfers occupy nothing.
    work : float
        The solver's limit for each problem, as in `optimum.solve`; 0 for bounds only.
    objective : {"makespan", "span"}
        As in `optimum.solve`.

    Returns
    -------
    DataFrame
        One row per schedule; F = I = W = 1 on 1/S of the model. Columns ``pp, microbatches, comm_over_forward, label,
        layout, backward, peak_activations, time``, then for each of `STEPS`, such as ``order``: ``order_plain``, the
        bound from `optimum.bounds`; ``order_bound``, the bound the solver proved; ``order_time``, the best time found
        (NaN if none); ``order_proven``, whether that is the optimum; ``over_order``, the schedule's time over it, minus
        1; and ``at_most_order``, its time over the bound, minus 1. ``proven`` says whether all three are optima.

    Raises
    ------
    ScheduleError
        If a schedule or an option is unknown, or if `work` is not 0 and OR-tools is not installed.

    Examples
    --------
    >>> rows = distances(["1f1b", "zb-1p"], 2, 4)
    >>> rows[["label", "time", "order_time", "free_time"]].values.tolist()
    [['1F1B', 15.0, 15.0, 13.0], ['ZB-1p', 13.0, 13.0, 13.0]]
    """
    entries, solved, rows = list(_entries(cases, pp, microbatches, comm)), {}, []
    for label, table in entries:
        peak, whole = peak_of(table), is_whole(table)
        problems = {
            step: problem_of(
                table, comm=Fraction(str(comm)), limit=None if step == "free" else peak,
                split=step != "order" or not whole,
            )
            for step in STEPS
        }  # fmt: skip
        row = {
            "pp": pp, "microbatches": microbatches, "comm_over_forward": comm, "label": label, "layout": layout(table),
            "backward": "whole" if whole else "split", "peak_activations": float(peak),
            "time": time_of(table, problems["free"], objective),
        }  # fmt: skip
        for step, problem in problems.items():
            least, optimum = _answer(solved, [table for _, table in entries], problem, work, objective)
            is_solved = optimum is not None and optimum.time is not None
            best = float(optimum.time) if is_solved else float("nan")
            bound = float(least if optimum is None else max(least, optimum.bound))
            row |= {
                f"{step}_plain": float(least), f"{step}_bound": bound, f"{step}_time": best,
                f"{step}_proven": is_solved and optimum.proven, f"over_{step}": row["time"] / best - 1,
                f"at_most_{step}": row["time"] / bound - 1,
            }  # fmt: skip
        rows.append(row | {"proven": all(row[f"{step}_proven"] for step in STEPS)})
    return pd.DataFrame(rows)


def _entries(cases, num_ranks, num_microbatches, comm):
    for case in [as_case(case) for case in cases]:
        options = () if "times" in dict(case.options) else set(case.known_options) & {"times"}
        searched = case.with_options(dict.fromkeys(options, (1, 1, 1, comm)))
        for _, table in legal_cases([searched], num_ranks, num_microbatches):
            if table.microbatch_parts > 1 or np.ptp(table.stage_shares):
                continue  # only orders of equal stages are compared
            yield case.label, table
            if table.overlaps.any():
                yield f"{case.label} unfused", table.unfused()


def _answer(solved, tables, problem, work, objective):
    """Derived bound, and `Optimum` or None, of a problem; solved problems are cached."""
    key = (problem.placement.tobytes(), problem.placement.shape, problem.limit, problem.split)
    if key not in solved:
        at_hand = [*tables, *(optimum.schedule for _, optimum in solved.values() if optimum)]
        # of the given schedules that solve the problem, the fastest; ties go to the first
        fitting = [schedule for schedule in at_hand if work and schedule is not None and answers(schedule, problem)]
        hint = min(fitting, key=lambda schedule: time_of(schedule, problem, objective), default=None)
        solved[key] = bounds(problem, objective).best, solve(problem, objective, hint, work) if work else None
    return solved[key]
