"""A schedule of one's own: what is read off its table, and its place among all the others."""

import math
from contextlib import suppress

import pandas as pd

from ppmodel import schedules
from ppmodel.analysis.orders import beats, every_two, order_of_amounts, order_of_bubbles, pareto_front
from ppmodel.errors import CostError
from ppmodel.metrics import messages_sent, peak_activations, table_bubble_ratio, table_slots
from ppmodel.ops import OpKind
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.studies.bubble import published_bubble_ratio
from ppmodel.studies.cases import TIE, label, legal_schedules
from ppmodel.studies.words import listed

_MANY = 4


def table_facts(schedule):
    """What is read off a table alone.

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    DataFrame
        One row a number, with its name: slots and bubble ratio with a backward of two slots, peak activations of each
        rank in microbatches on 1/S of the model, messages of one iteration.

    Examples
    --------
    >>> from ppmodel import build
    >>> table_facts(build("1f1b", 2, 4)).set_index("of the table")["number"]["peak activations by rank"]
    '2, 1'
    """
    numbers = {
        "ranks": f"{schedule.num_ranks}",
        "microbatches": f"{schedule.num_microbatches}",
        "operations": f"{schedule.num_operations}",
        "slots": f"{table_slots(schedule)}",
        "bubble ratio": f"{table_bubble_ratio(schedule):.1%}",
        "peak activations by rank": ", ".join(f"{peak:.4g}" for peak in peak_activations(schedule)),
        "messages": f"{messages_sent(schedule).sum()}",
    }
    return pd.DataFrame(numbers.items(), columns=["of the table", "number"])


def rank_study(title, schedule, costs_of, registered=None, p2p="overlapped", allreduce="blocking", nics=None):
    """A schedule among all registered ones that are legal at its size, each with its default options.

    Parameters
    ----------
    title : str
        What the schedule is called; where another one is called the same, ``(yours)`` is added.
    schedule : Schedule
        One's own; gives the number of ranks and microbatches.
    costs_of : callable
        ``Schedule -> OpCosts``. Another schedule that it refuses, such as one with more stages than the model has
        blocks, is left out.
    registered : str, optional
        Name under which the schedule is registered itself, if it is.
    p2p, allreduce : str
        As in `graph.compile`. A schedule without replicas has no gradients to sum.
    nics : sequence of int, optional
        The NIC of each rank; see `specs.nics_of`.

    Returns
    -------
    DataFrame
        One row a schedule, the fastest first, of equally fast ones that with the lowest peak, then by label; columns
        ``schedule, own, formula, bubble_ratio, t_sim_s, peak_activations, messages, weights, halves, unbeaten``. The
        two bubble ratios are of the total time: the published formula (NaN where there is none) and the table with a
        backward of two slots. The peak is that of the fullest rank, in microbatches on 1/S of the model; messages are
        those of one iteration; weights how many copies of them are kept; halves whether backwards are split. A schedule
        is unbeaten if no other is at least as fast with at most its peak, and better in one of the two.

    Raises
    ------
    CostError
        If `costs_of` refuses the schedule itself.

    Examples
    --------
    >>> from functools import partial
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> costs_of = partial(uniform_costs, forward=1, backward=2, comm=0.5)
    >>> study = rank_study("mine", build("eager-1f1b", 4, 6), costs_of, registered="eager-1f1b")
    >>> study[study.own][["schedule", "peak_activations"]].values.tolist()
    [['mine', 6.0]]
    """
    names = [name for name in schedules.names() if name != registered]
    others = [(label(name), name, other) for name, _, other in legal_schedules(names, *_size(schedule))]
    title += " (yours)" if title in [text for text, _, _ in others] else ""
    rows = [_row(title, registered, schedule, costs_of(schedule), p2p, allreduce, nics)]
    for text, name, other in others:
        with suppress(CostError):
            rows.append(_row(text, name, other, costs_of(other), p2p, allreduce, nics))
    study = pd.DataFrame(rows).assign(own=[True] + [False] * (len(rows) - 1))
    study = study.assign(place=(every_two(order_of_amounts, study.t_sim_s) > 0).sum(axis=1))  # rounding is no order
    study = study.sort_values(["place", "peak_activations", "schedule"], ignore_index=True).drop(columns="place")
    return study.assign(unbeaten=pareto_front(study.t_sim_s, study.peak_activations))


def _size(schedule):
    return schedule.num_ranks, schedule.num_microbatches


def _row(title, registered, schedule, costs, p2p, allreduce, nics):
    """What a rank compares of one schedule."""
    sums = allreduce if schedule.num_replicas > 1 else "excluded"
    published = published_bubble_ratio(registered, *_size(schedule)) if registered else float("nan")
    return {
        "schedule": title, "formula": float(published), "bubble_ratio": table_bubble_ratio(schedule),
        "t_sim_s": run_graph(compile_graph(schedule, p2p, sums), costs).makespan_s,
        "peak_activations": float(peak_activations(schedule).max()),
        "messages": int(messages_sent(schedule).sum()), "weights": schedule.num_replicas,
        "halves": bool((schedule.kind == OpKind.I).any()),
    }  # fmt: skip


def timelines_beside(title, schedule, cases, costs_of, p2p="overlapped"):
    """The timeline of a schedule, and of some others of its size.

    Parameters
    ----------
    title : str
        What the schedule is called.
    schedule : Schedule
        One's own.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    costs_of : callable
        ``Schedule -> OpCosts``.
    p2p : str
        Communication semantics; gradient sums are left out.

    Returns
    -------
    dict of str to Timeline
        By label, one's own first.
    """
    others = {label(name, options): other for name, options, other in legal_schedules(cases, *_size(schedule))}
    return {
        name: run_graph(compile_graph(one, p2p), costs_of(one)) for name, one in ({title: schedule} | others).items()
    }


def beaten_by(study, name):
    """The schedules that take neither more time nor more activations than one, and less of either.

    Parameters
    ----------
    study : DataFrame
        From `rank_study`.
    name : str
        Label of the one.

    Returns
    -------
    list of str
        Labels, the fastest first.
    """
    better = beats(study.t_sim_s, study.peak_activations)[:, study.schedule == name]
    return study.schedule[better.ravel()].tolist()


def rank_of(study, measure):
    """The place of one's own schedule by a measure, equals sharing the best place.

    Parameters
    ----------
    study : DataFrame
        From `rank_study`.
    measure : {"bubble_ratio", "t_sim_s", "peak_activations", "messages"}
        What is ranked, the smallest first.

    Returns
    -------
    place, equals : int
        How many are better, plus 1; and how many others are equal, to 1 part in 10**9.
    """
    order = order_of_bubbles if measure == "bubble_ratio" else order_of_amounts
    against_own = order(study[measure], study.loc[study.own, measure].item())
    return int((against_own < 0).sum()) + 1, int((against_own == 0).sum()) - 1


def rank_text(study):
    """A rank in words.

    Parameters
    ----------
    study : DataFrame
        From `rank_study`.

    Returns
    -------
    str
        In Markdown: the place of one's own schedule by each measure, and what beats it.
    """
    own, fastest = study[study.own].iloc[0], study.iloc[0]
    measures = ("bubble_ratio", "t_sim_s", "peak_activations")
    (by_bubble, alike), (by_time, _), (by_peak, _) = (rank_of(study, measure) for measure in measures)
    share = f", a ratio that it shares with {alike} other{'s' if alike > 1 else ''}" if alike else ""
    behind = "" if by_time == 1 else f", {own.t_sim_s / fastest.t_sim_s - 1:.2%} behind {fastest.schedule}"
    return (
        f"Of the {len(study)} schedules that are legal at this size, **{own.schedule}** is number {by_bubble} by the "
        f"bubble ratio of its table ({own.bubble_ratio:.1%}{share}), number {by_time} by simulated time "
        f"({own.t_sim_s:.4g} s{behind}) and number {by_peak} by peak activations ({own.peak_activations:.4g}). "
        f"{_verdict(study, own.schedule)}"
    )


def _verdict(study, name):
    """Which schedules beat one on both time and memory, and what they take for it."""
    copies = study.set_index("schedule").weights
    beaten = [
        other if copies[other] == copies[name] else f"{other} (weights: {copies[other]} to {copies[name]})"
        for other in beaten_by(study, name)
    ]
    if not beaten:
        return "None beats it on both time and memory."
    return f"At least as good on both time and peak, and better on one: {listed(beaten, _MANY)}."


def rivals_text(study):
    """What the schedules that beat one's own on both time and memory have in common, in words.

    Parameters
    ----------
    study : DataFrame
        From `rank_study`.

    Returns
    -------
    str
        Whether they split the backward into its halves; those that do not are named. Empty where none beats it.
    """
    name = study.loc[study.own, "schedule"].item()
    halves = study.set_index("schedule").halves[beaten_by(study, name)]
    if halves.empty:
        return ""
    split, whole = int(halves.sum()), halves.index[~halves].tolist()
    why = "splits the backward into its halves, and fills gaps with one of them that a deeper warm-up cannot"
    if not whole:
        return f"Whatever beats {name} on both time and peak {why}."
    others = f"{listed(whole, _MANY)} {'does' if len(whole) == 1 else 'do'} not split it"
    return (
        f"Of the {len(halves)} schedules that beat {name} on both time and peak, {split} split the backward; {others}."
    )


def between(study, low, high):
    """How far one's own schedule is on the way from one schedule to another that is faster and needs more memory.

    Parameters
    ----------
    study : DataFrame
        From `rank_study`.
    low, high : str
        Labels.

    Returns
    -------
    time, memory : float
        Shares of the time that `high` saves and of the activations that it adds; NaN where it does neither, or one of
        the two is not in the study.
    """
    rows = study.set_index("schedule")
    if not {low, high} <= set(rows.index):
        return float("nan"), float("nan")
    own, low, high = rows[rows.own].iloc[0], rows.loc[low], rows.loc[high]
    saved, added = low.t_sim_s - high.t_sim_s, high.peak_activations - low.peak_activations
    if not (saved > TIE * low.t_sim_s and added > 0):
        return float("nan"), float("nan")
    return float((low.t_sim_s - own.t_sim_s) / saved), float((own.peak_activations - low.peak_activations) / added)


def between_text(study, low, high):
    """`between` in words; empty where there is nothing between.

    Parameters
    ----------
    study : DataFrame
        From `rank_study`.
    low, high : str
        Labels.

    Returns
    -------
    str
    """
    time, memory = between(study, low, high)
    if math.isnan(time):
        return ""
    name = study.loc[study.own, "schedule"].item()
    won = f"Of the time that {high} saves against {low}, **{name}** saves {time:.0%}"
    return f"{won}, for {memory:.0%} of the activations that {high} adds."


def rank_table(study):
    """A rank as a page shows it.

    Parameters
    ----------
    study : DataFrame
        From `rank_study`.

    Returns
    -------
    DataFrame
        One row a schedule, numbered by time; one's own is marked with an arrow, ratios are fractions of the total time.
    """
    shown = {
        "": [f"{rank_of(study.assign(own=study.schedule == name), 't_sim_s')[0]}" for name in study.schedule],
        "schedule": ["→ " * own + name for own, name in zip(study.own, study.schedule, strict=True)],
        "T_sim (s)": study.t_sim_s, "peak": study.peak_activations, "bubble, formula": study.formula,
        "bubble, table": study.bubble_ratio, "messages": study.messages, "weights": study.weights,
        "unbeaten": study.unbeaten.map({True: "yes", False: ""}),
    }  # fmt: skip
    return pd.DataFrame(shown)
