"""How far schedules are from the best possible: against bounds, and against optima that a solver proves."""

from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmodel import schedules
from ppmodel.errors import ScheduleError
from ppmodel.optimum import answers, bounds, is_whole, peak_of, problem_of, solve, time_of
from ppmodel.studies.cases import TIE, label, legal_schedules, named, placement_text
from ppmodel.studies.words import listed

STEPS = {"order": "the best order", "halves": "backwards split", "free": "and no limit of memory"}
"""What a schedule is held against, each with more freedom than the one before; all on the schedule's own placement."""

LOSSES = {
    "its order": ("time", "order_time"),
    "backwards in one piece": ("order_time", "halves_time"),
    "its limit of memory": ("halves_time", "free_time"),
}
"""What a schedule loses time to, and the columns of a `distance_study` between which that lies."""


def distance_study(stages_list, multiples, comms, cases, work=1.0, objective="makespan"):
    """Time of some schedules, and the least that any order of the same operations on the same ranks takes.

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
        Searched ones are searched for the times at hand. One with F&B pairs, cells in which a forward meets a
        backward, is followed by its order with the pairs taken apart, its label by "apart".
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


def _entries(cases, num_ranks, num_microbatches, comm):
    searched = [(name, _for_times(name, options, comm)) for name, options in map(named, cases)]
    exact = Fraction(str(comm))
    for (name, options), (case, shown) in zip(searched, map(named, cases), strict=True):
        for _, _, schedule in legal_schedules([(name, options)], num_ranks, num_microbatches):
            try:
                problem_of(schedule)
            except ScheduleError:
                continue  # its stages are not alike
            for said, order in _whole_and_apart(label(case, shown), schedule):
                yield _Entry(said, order, exact, peak_of(order), is_whole(order))


def _whole_and_apart(said, schedule):
    """A schedule, and its order with the F&B pairs taken apart where it has any: the solver's orders have none."""
    yield said, schedule
    if schedule.overlaps.any():
        yield f"{said} apart", schedule.unfused()


def _for_times(name, options, comm):
    """The options, with the times at hand where an order is searched for times."""
    if any(option.name == "times" for option in schedules.get(name).options):
        return {"times": (1, 1, 1, comm), **options}
    return options


def _answer(known, entries, entry, step, work, objective):
    """Derived bound, `Optimum` or None, of a problem; one that was solved before is not solved again."""
    problem = entry.problem(step)
    key = (problem.placement.tobytes(), problem.placement.shape, problem.limit, problem.split)
    if key not in known:
        at_hand = [other.schedule for other in entries] + [found.schedule for _, found in known.values() if found]
        hint = _fastest(at_hand, problem, objective) if work else None
        known[key] = bounds(problem, objective).best, solve(problem, objective, hint, work) if work else None
    return known[key]


def _fastest(at_hand, problem, objective):
    """The fastest schedule at hand that answers a problem, the first of several; None if none does."""
    fitting = [schedule for schedule in at_hand if schedule is not None and answers(schedule, problem)]
    return min(fitting, key=lambda schedule: time_of(schedule, problem, objective), default=None)


def _row(entry, comm, steps, objective):
    schedule = entry.schedule
    row = {
        "stages": schedule.num_ranks, "microbatches": schedule.num_microbatches, "comm_over_forward": comm,
        "schedule": entry.label, "placement": placement_text(schedule), "backward": "whole" if entry.whole else "split",
        "peak": float(entry.peak), "time": time_of(schedule, entry.problem("free"), objective),
    }  # fmt: skip
    for step, (least, found) in steps.items():
        solved = found is not None and found.time is not None
        row |= {
            f"{step}_plain": float(least),
            f"{step}_bound": float(least if found is None else max(least, found.bound)),
            f"{step}_time": float(found.time) if solved else np.nan,
            f"{step}_proven": solved and found.proven,
        }
    return row


def distances(study):
    """A `distance_study` as lost time: how much longer a schedule takes than the best of each of `STEPS`.

    Parameters
    ----------
    study : DataFrame
        From `distance_study`.

    Returns
    -------
    DataFrame
        Columns ``stages, microbatches, comm_over_forward, schedule, placement, peak, time``, then ``over_order,
        over_halves, over_free``: time over the best found, less 1 (NaN where none was); ``at_most_order,
        at_most_free``: time over the bound, less 1; ``proven``: whether all that was found is optimal.
    """
    table = study[["stages", "microbatches", "comm_over_forward", "schedule", "placement", "peak", "time"]].copy()
    for step in STEPS:
        table[f"over_{step}"] = study.time / study[f"{step}_time"] - 1
    for step in ("order", "free"):
        table[f"at_most_{step}"] = study.time / study[f"{step}_bound"] - 1
    return table.assign(proven=np.where(_proven(study).all(axis=1), "yes", "no"))


def _proven(study):
    return np.column_stack([study[f"{step}_proven"].to_numpy(dtype=bool) for step in STEPS])


def distance_facts(study):
    """What a `distance_study` says in numbers.

    Parameters
    ----------
    study : DataFrame
        From `distance_study`, with a solver's answers.

    Returns
    -------
    dict
        ``points``: rows; ``optimal``: those as fast as the proven optimum of their memory and kind of backward;
        ``best_possible``: those as fast as the proven optimum of their placement, whatever the memory; ``questions``:
        rows times steps; ``open``: those where the solver's limit came first; ``widest``: of these, the largest
        distance between the best found and the bound, relative to the bound; ``tight``: questions whose derived bound
        is the optimum.
    """
    best, bound, plain = (
        np.column_stack([study[f"{step}_{what}"].to_numpy(dtype=float) for step in STEPS])
        for what in ("time", "bound", "plain")
    )
    proven, reached = _proven(study), study.time.to_numpy()[:, None] <= best * (1 + TIE)
    return {
        "points": len(study),
        "optimal": int((proven & reached)[:, 0].sum()),
        "best_possible": int((proven & reached)[:, -1].sum()),
        "questions": proven.size,
        "open": int((~proven).sum()),
        "widest": float(np.max((best / bound - 1)[~proven], initial=0)),
        "tight": int((proven & (best <= plain * (1 + TIE))).sum()),
    }


def distance_findings(study):
    """A `distance_study` in sentences: who is optimal, and who loses most to what.

    Parameters
    ----------
    study : DataFrame
        From `distance_study`, with a solver's answers.

    Returns
    -------
    list of str
        In Markdown.
    """
    facts, lost = distance_facts(study), distances(study)
    sure = study.free_proven & (lost.over_free <= TIE)
    always = [name for name, rows in sure.groupby(study.schedule, sort=False) if rows.all()]
    sentences = [
        f"**{facts['optimal']} of {facts['points']}** schedules, each at a size and a time of a transfer, have an "
        f"optimal order: none on their placement is faster with their memory and their kind of backward. "
        f"{facts['best_possible']} are as fast as any order on their placement, whatever its memory; at every point "
        f"of this page: {', '.join(always) or 'none'}.",
    ]
    sentences += [_most_lost(study, what, *columns) for what, columns in LOSSES.items()]
    return [*sentences, _proof_text(facts)]


def largest_losses(study):
    """The most that any schedule of a `distance_study` loses to each cause.

    Parameters
    ----------
    study : DataFrame
        From `distance_study`, with a solver's answers.

    Returns
    -------
    str
        For a figure's title.
    """
    parts = [f"{_losses(study, *times).max():.0%} to {what}" for what, times in LOSSES.items()]
    return f"At most {', '.join(parts)}"


def _losses(study, longer, shorter):
    return study[longer] / study[shorter] - 1


def _most_lost(study, what, longer, shorter):
    losses = _losses(study, longer, shorter)
    if not losses.max() > TIE:
        return f"Nothing is lost to **{what}**."
    most = study[losses >= losses.max() - TIE]
    places = most.groupby(["stages", "microbatches", "comm_over_forward"], sort=False).schedule
    where = [f"{listed(names)} at S = {s}, B = {b}, c = {comm:g} F" for (s, b, comm), names in places]
    return f"The most that is lost to **{what}**: {losses.max():.1%}, by {'; '.join(where)}."


def _proof_text(facts):
    tight = f"The derived bounds alone are the optimum for {facts['tight']} of {facts['questions']} questions"
    if not facts["open"]:
        return f"{tight}; the solver proved all others."
    return (
        f"{tight}. For {facts['open']} the solver's limit came first: there the best found stands in place of the "
        f"optimum, at most {facts['widest']:.1%} above a proven bound."
    )
