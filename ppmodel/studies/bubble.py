"""Bubble ratios by published formula, by table and by simulation without communication (Fig. 3)."""

from fractions import Fraction

import pandas as pd

from ppmodel import schedules
from ppmodel.costs import uniform_costs
from ppmodel.metrics import idle_ratio, peak_activations, table_bubble_ratio, table_slots
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.studies.cases import PAPER_SCHEDULES, built, label, legal_schedules


def closed_form_bubble_ratio(schedule, num_ranks, num_microbatches, options=None):
    """The bubble ratio of a schedule by closed form, over the total time, whether published or derived here.

    Parameters
    ----------
    schedule : str
        Name of the schedule.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    options : dict, optional
        The schedule's options.

    Returns
    -------
    Fraction or float
        Idle time over the total time; NaN where there is no closed form.

    Examples
    --------
    >>> closed_form_bubble_ratio("zb-h2", 8, 16), published_bubble_ratio("zb-h2", 8, 16)
    (Fraction(7, 55), Fraction(0, 1))
    """
    closed_form = schedules.get(schedule).bubble_ratio
    ratio = closed_form and closed_form(num_ranks, num_microbatches, **(options or {}))
    return float("nan") if ratio is None else ratio


def published_bubble_ratio(schedule, num_ranks, num_microbatches, options=None):
    """The bubble ratio that a schedule's own authors publish.

    It is over the total time, but for ZB-H2 and ZB-V, whose authors' is over the longest span of a rank. A closed
    form that is derived here is none of theirs, see `closed_form_bubble_ratio`.

    Parameters
    ----------
    schedule : str
        Name of the schedule.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    options : dict, optional
        The schedule's options.

    Returns
    -------
    Fraction or float
        Idle time over the time that they divide by; NaN where they publish none.

    Examples
    --------
    >>> published_bubble_ratio("chimera", 8, 16)
    Fraction(3, 19)
    >>> published_bubble_ratio("hanayo", 8, 8, {"waves": 2})
    Fraction(14, 55)
    """
    published = schedules.get(schedule).published
    ratio = published and published(num_ranks, num_microbatches, **(options or {}))
    return float("nan") if ratio is None else ratio


def bubble_study(num_ranks, microbatches, cases=PAPER_SCHEDULES):
    """Bubble ratio by published formula and from the idealised table, over the total time.

    Parameters
    ----------
    num_ranks : int
        Devices, S.
    microbatches : iterable of int
        Values of B. Sizes at which a schedule is not defined are left out.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.

    Returns
    -------
    DataFrame
        One row a B and schedule; columns ``schedule, stages, microbatches, formula, table, slots``: two ratios
        of the total time, and the length of the table with a backward of two slots.

    Raises
    ------
    ScheduleError
        If a name is unknown.

    Examples
    --------
    >>> bubble_study(8, [16], ["chimera"]).round(3).to_dict("records")[0]["table"]
    0.273
    """
    rows = []
    for count in microbatches:
        for name, options, schedule in legal_schedules(cases, num_ranks, count):
            formula = published_bubble_ratio(name, num_ranks, count, options)
            rows.append({
                "schedule": label(name, options), "stages": num_ranks, "microbatches": count,
                "formula": float(formula), "table": table_bubble_ratio(schedule), "slots": table_slots(schedule),
            })  # fmt: skip
    return pd.DataFrame(rows)


def agreement_study(max_stages, max_microbatches):
    """Largest difference between formula, table and simulation of GPipe and 1F1B without communication.

    Every S and B up to the given ones, F = 1 and Bw = 2; the formula is exact, a `Fraction`.

    Parameters
    ----------
    max_stages, max_microbatches : int
        Largest S and B; both count from 1.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, cases, formula_table, formula_simulation``: the number of sizes,
        and absolute differences of bubble ratios.

    Examples
    --------
    >>> agreement_study(2, 2)[["schedule", "cases", "formula_table"]].values.tolist()
    [['GPipe', 4, 0.0], ['1F1B', 4, 0.0]]
    """
    rows = []
    for name in ("gpipe", "1f1b"):
        worst = [Fraction(0), 0.0]
        for num_ranks in range(1, max_stages + 1):
            for count in range(1, max_microbatches + 1):
                schedule = schedules.build(name, num_ranks, count)
                formula = published_bubble_ratio(name, num_ranks, count)
                table = 1 - Fraction(3 * count, table_slots(schedule))
                simulated = idle_ratio(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2)))
                worst = [max(worst[0], abs(formula - table)), max(worst[1], abs(float(formula) - simulated))]
        rows.append({
            "schedule": label(name), "cases": max_stages * max_microbatches,
            "formula_table": float(worst[0]), "formula_simulation": float(worst[1]),
        })  # fmt: skip
    return pd.DataFrame(rows)


def level_study(names, num_ranks, num_microbatches):
    """The bubble ratio at the three levels without communication: formula, table, simulation.

    Parameters
    ----------
    names : iterable of str or (str, dict)
        As the cases of `legal_schedules`.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, formula, table, simulation``: ratios of the total time with a
        backward of two forwards.

    Raises
    ------
    ScheduleError
        If a name is unknown.

    Examples
    --------
    >>> level_study(["gpipe"], 4, 4).round(3).values.tolist()
    [['GPipe', 0.429, 0.429, 0.429]]
    """
    rows = []
    for name, options, schedule in legal_schedules(names, num_ranks, num_microbatches):
        simulated = run_graph(compile_graph(schedule), uniform_costs(schedule, forward=1, backward=2))
        rows.append({
            "schedule": label(name, options),
            "formula": float(published_bubble_ratio(name, num_ranks, num_microbatches, options)),
            "table": table_bubble_ratio(schedule), "simulation": idle_ratio(simulated),
        })  # fmt: skip
    return pd.DataFrame(rows)


def concatenation_study(num_ranks, num_microbatches):
    """Chimera's ways of following one unit by the next: table length, bubble and peak activations.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        Devices S and microbatches B, at which every way is defined: S even, and B = S or 2S dividing B.

    Returns
    -------
    DataFrame
        One row a way; columns ``concatenation, forward_times, bubble, peak_activations``. A forward-time is
        that of one microbatch on one stage; peak activations are those of the fullest rank in units of one
        microbatch on 1/S of the model.

    Raises
    ------
    ScheduleError
        If a way is not defined at the size.

    Examples
    --------
    >>> concatenation_study(8, 16).forward_times.tolist()
    [66.0, 65.0, 60.0, 54.0]
    """
    rows = []
    for way in CONCATENATIONS:
        schedule = built("chimera", num_ranks, num_microbatches, (("concat", way),))
        rows.append({
            "concatenation": way, "forward_times": table_slots(schedule) / schedule.pieces_per_unit,
            "bubble": table_bubble_ratio(schedule), "peak_activations": peak_activations(schedule).max(),
        })  # fmt: skip
    return pd.DataFrame(rows)
