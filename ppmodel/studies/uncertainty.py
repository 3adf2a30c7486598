"""Does a ranking survive noise: noisy runs beside the noiseless one, and a slow rank by its place."""

from itertools import product

import pandas as pd

from ppmodel.costs import model_costs
from ppmodel.errors import PPModelError
from ppmodel.noise import (
    QUANTILES,
    Comparison,
    Noise,
    all_seeds,
    distribution,
    noisy_makespans_on,
    probability_faster,
)
from ppmodel.simulation import makespans
from ppmodel.studies.cases import TIE, compiled, label, legal_schedules
from ppmodel.studies.words import listed

NOISE_SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "chimera", ("hanayo", {"waves": 2}))

_POINT = ["system", "stages", "microbatches"]
_NOISE = ["jitter", "straggling", "slowdown"]
_QUANTILE_COLUMNS = [f"q{100 * share:.0f}_s" for share in QUANTILES]
_NOTHING_TO_BEAT = Comparison(*[float("nan")] * 3)
_RISK = 0.05  # that one or more of the intervals of a point do not hold
_VERDICTS = ("holds", "open", "tie decided", "reversed")


def noise_study(
    model, systems, num_ranks, microbatches, noises, seeds, cases=NOISE_SCHEDULES, p2p="overlapped",
    allreduce="excluded",
):  # fmt: skip
    """Makespans of noisy runs, and how often each schedule beats the one that wins without noise.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_ranks : int
        Devices, S.
    microbatches : sequence of int
        Values of B. Sizes at which a schedule is not defined are left out.
    noises : sequence of Noise
        What varies from run to run.
    seeds : iterable of int
        One run each, the same for all schedules, systems and noises; see `ppmodel.noise`.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    p2p, allreduce : str
        Communication semantics, as in `graph.compile`.

    Returns
    -------
    DataFrame
        One row a system, B, noise and schedule; columns ``system, stages, microbatches, jitter, straggling,
        slowdown, schedule, runs, t_sim_s, over_winner, mean_s, standard_error_s, q5_s, q25_s, q50_s, q75_s, q95_s,
        winner, beats_winner, low, high``. ``t_sim_s`` is the noiseless time and ``winner`` the schedule where it is
        shortest, of equals the first; ``over_winner`` is the time over the winner's, less 1; ``beats_winner`` the
        share of runs in which the schedule is the faster one, between ``low`` and ``high``; the winner's own rows
        have NaN there. The intervals of one point hold together with 95 percent: each of k is taken at
        1 - 0.05 / k (Bonferroni), as the best of many alike looks better than it is.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule.
    PPModelError
        If a semantics is unknown, there are no seeds, or a noise names a rank that is not there.
    """
    rows, seeds = [], all_seeds(seeds)
    for count, noise in product(microbatches, noises):
        graphs = _graphs(model, systems, num_ranks, count, cases, p2p, allreduce)
        runs = {name: _by_system(case, noisy_makespans_on, noise, seeds) for name, case in graphs.items()}
        noiseless = {name: _by_system(case, makespans) for name, case in graphs.items()}
        for number, system in enumerate(systems):
            point = {"system": system.name, "stages": num_ranks, "microbatches": count}
            point |= {name: getattr(noise, name) for name in _NOISE}
            times = {name: float(spans[number]) for name, spans in noiseless.items()}
            rows += _noise_rows(point, times, {name: spans[number] for name, spans in runs.items()})
    return pd.DataFrame(rows)


def _graphs(model, systems, num_ranks, count, cases, p2p, allreduce):
    """Graphs, and costs on each of their systems, of each schedule that is legal at a size, by its label."""
    return {
        label(name, options): [
            (
                compiled(name, num_ranks, count, tuple(options.items()), p2p, allreduce),
                {place: model_costs(schedule, model, system) for place, system in enumerate(systems)},
            )
        ]
        for name, options, schedule in legal_schedules(cases, num_ranks, count)
    }


def _by_system(graphs, evaluate, *more):
    """What is found on each system, in order of the systems, whatever graph each belongs to."""
    found = {}
    for graph, costs in graphs:
        found |= dict(zip(costs, evaluate(graph, list(costs.values()), *more), strict=True))
    return [found[place] for place in sorted(found)]


def _noise_rows(point, noiseless, runs):
    winner = _first_of_fastest(noiseless)
    confidence = 1 - _RISK / max(1, len(runs) - 1)
    for name, spans in runs.items():
        found = distribution(spans)
        beats = _NOTHING_TO_BEAT if name == winner else probability_faster(spans, runs[winner], confidence)
        yield {
            **point, "schedule": name, "runs": len(spans), "t_sim_s": noiseless[name],
            "over_winner": noiseless[name] / noiseless[winner] - 1,
            "mean_s": found.mean_s, "standard_error_s": found.standard_error_s,
            **dict(zip(_QUANTILE_COLUMNS, found.quantiles_s, strict=True)),
            "winner": winner, "beats_winner": beats.probability, "low": beats.low, "high": beats.high,
        }  # fmt: skip


def _first_of_fastest(spans):
    """The first name whose time is the shortest, rounding apart."""
    fastest = min(spans.values())
    return next(name for name, span in spans.items() if span <= fastest * (1 + TIE))


def verdict_study(study):
    """Whether the noiseless winner stays the one to bet on.

    Parameters
    ----------
    study : DataFrame
        From `noise_study`: its intervals are wide enough for the best of all challengers. A point with a single
        schedule is left out.

    Returns
    -------
    DataFrame
        One row a system, B and noise; columns ``system, stages, microbatches, jitter, straggling, slowdown, winner,
        challenger, over_winner, beats_winner, low, high, verdict``. The challenger is the schedule that beats the
        winner most often; ``over_winner`` is how much longer it takes without noise, less 1. The first place
        *holds* where the interval of that share lies below one half and is *open* where it contains it; above it
        is *reversed*, or, where the two take the same time without noise, a *tie decided*.

    Raises
    ------
    PPModelError
        If there is nobody to compare with at any point.
    """
    if len(study) and (study.schedule == study.winner).all():
        named = ", ".join(study.schedule.unique())
        raise PPModelError("schedules", named, "meet no other at any point", "name two that are legal at one size")
    rows = []
    for point, group in study.groupby([*_POINT, *_NOISE], sort=False):
        others = group[group.schedule != group.winner]
        if others.empty:
            continue
        best = others.loc[others.beats_winner.idxmax()]
        numbers = best[["winner", "schedule", "over_winner", "beats_winner", "low", "high"]]
        rows.append((*point, *numbers, _verdict(best)))
    names = ["winner", "challenger", "over_winner", "beats_winner", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=[*_POINT, *_NOISE, *names])


def _verdict(row):
    if row.low > 0.5:
        return "tie decided" if row.over_winner <= TIE else "reversed"
    return "holds" if row.high < 0.5 else "open"


def verdict_counts(*verdicts):
    """At how many points the first place holds, by noise.

    Parameters
    ----------
    *verdicts : DataFrame
        From `verdict_study`.

    Returns
    -------
    DataFrame
        One row a noise; columns ``jitter, straggling, slowdown, points, holds, open, tie decided, reversed``.
    """
    rows = []
    for noise, group in pd.concat(verdicts).groupby(_NOISE, sort=False):
        counts = group.verdict.value_counts()
        rows.append((*noise, len(group), *(int(counts.get(verdict, 0)) for verdict in _VERDICTS)))
    return pd.DataFrame(rows, columns=[*_NOISE, "points", *_VERDICTS])


def price_study(study):
    """What noise costs each schedule in the mean, against its own noiseless time.

    Parameters
    ----------
    study : DataFrame
        From `noise_study`.

    Returns
    -------
    DataFrame
        One row a noise and schedule; columns ``jitter, straggling, slowdown, schedule, points, lowest, mean,
        highest``: mean over noiseless time, less 1, over all systems and B where the schedule is defined.
    """
    price = study.assign(price=study.mean_s / study.t_sim_s - 1)
    grouped = price.groupby([*_NOISE, "schedule"], sort=False).price
    table = grouped.agg(points="size", lowest="min", mean="mean", highest="max")
    return table.reset_index()


# ---- one slow rank -----------------------------------------------------------------------------


def slow_rank_study(
    model, systems, num_ranks, microbatches, slowdown, cases=NOISE_SCHEDULES, p2p="overlapped", allreduce="excluded"
):
    """What one slow rank costs, by its place, without any other noise.

    Parameters
    ----------
    model, systems, num_ranks, microbatches, cases, p2p, allreduce
        As in `noise_study`.
    slowdown : float
        Factor above 1 on all operations of the rank.

    Returns
    -------
    DataFrame
        One row a system, B, schedule and rank; columns ``system, stages, microbatches, schedule, slowdown, rank,
        t_sim_s, t_slow_s, passed_on``: time without and with the slow rank in seconds, and
        (t_slow / t_sim - 1) / (slowdown - 1), the share of the slowdown that the iteration feels: between 0 and 1
        where no NIC is shared.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule.
    PPModelError
        If a semantics is unknown or the slowdown is below 1.
    """
    rows = []
    for count in microbatches:
        for name, case in _graphs(model, systems, num_ranks, count, cases, p2p, allreduce).items():
            noiseless = _by_system(case, makespans)
            for rank in range(num_ranks):
                noise = Noise(slowdown=slowdown, slow_ranks=(rank,))
                slow = (float(spans[0]) for spans in _by_system(case, noisy_makespans_on, noise, [0]))
                rows += [
                    (system.name, num_ranks, count, name, slowdown, rank, t_sim, t_slow)
                    for system, t_sim, t_slow in zip(systems, map(float, noiseless), slow, strict=True)
                ]
    names = [*_POINT, "schedule", "slowdown", "rank", "t_sim_s", "t_slow_s"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(passed_on=(table.t_slow_s / table.t_sim_s - 1) / (slowdown - 1))


def places(num_ranks):
    """The ranks that stand for a place in the pipeline.

    Parameters
    ----------
    num_ranks : int
        Devices, S.

    Returns
    -------
    dict of str to int
        The first, a middle and the last rank; one number may stand for several places.

    Examples
    --------
    >>> places(8)
    {'first': 0, 'middle': 4, 'last': 7}
    """
    return {"first": 0, "middle": num_ranks // 2, "last": num_ranks - 1}


def place_table(study):
    """The share of a slow rank's slowdown that each schedule passes on, by its place.

    Parameters
    ----------
    study : DataFrame
        From `slow_rank_study`.

    Returns
    -------
    DataFrame
        One row a system, B and schedule; columns ``system, microbatches, schedule, first, middle, last, least at``:
        the last names the ranks on which the slowdown costs least.
    """
    rows = []
    for (system, _, count, name), group in study.groupby([*_POINT, "schedule"], sort=False):
        shares = group.set_index("rank").passed_on
        named = {place: shares[rank] for place, rank in places(len(group)).items()}
        least = _ranks(_best_places(group), len(group))
        rows.append({"system": system, "microbatches": count, "schedule": name, **named, "least at": least})
    return pd.DataFrame(rows)


def _best_places(group):
    """The ranks, in order, on which being slow costs the iteration least."""
    return tuple(sorted(group.rank[group.t_slow_s <= group.t_slow_s.min() * (1 + TIE)]))


def _ranks(numbers, num_ranks):
    """Some ranks in words.

    Examples
    --------
    >>> _ranks((0, 1, 2, 5), 8), _ranks((3,), 8), _ranks((0, 1), 2)
    ('ranks 0 to 2 and 5', 'rank 3', 'any rank')
    """
    if len(numbers) == num_ranks:
        return "any rank"
    runs = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 2 else listed(run) for run in runs]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {listed(words)}"


def slow_winner_study(study):
    """Which schedule is the fastest with a slow rank, and which absorbs it best, by its place.

    Parameters
    ----------
    study : DataFrame
        From `slow_rank_study`.

    Returns
    -------
    DataFrame
        One row a system, B and rank; columns ``system, stages, microbatches, rank, fastest, fastest_slow, lead,
        verdict, absorbs_best, passed_on``: the fastest schedule without and with the slow rank, of equals the
        first; by how much the former is slower than the latter once the rank is; what becomes of the first place,
        as in `verdict_study`; the schedule that passes on least of the slowdown, with its share.
    """
    rows = []
    for point, group in study.groupby([*_POINT, "rank"], sort=False):
        group = group.set_index("schedule")
        fastest, now = (_first_of_fastest(group[column].to_dict()) for column in ("t_sim_s", "t_slow_s"))
        best = _first_of_fastest(group.passed_on.to_dict())
        lead = group.t_slow_s[fastest] / group.t_slow_s[now] - 1
        equal = group.t_sim_s[now] <= group.t_sim_s[fastest] * (1 + TIE)
        verdict = "holds" if lead <= TIE else "tie decided" if equal else "reversed"
        rows.append((*point, fastest, now, lead, verdict, best, group.passed_on[best]))
    names = ["rank", "fastest", "fastest_slow", "lead", "verdict", "absorbs_best", "passed_on"]
    return pd.DataFrame(rows, columns=[*_POINT, *names])


def place_winners(winners):
    """Who is first with a slow rank, as a page shows it.

    Parameters
    ----------
    winners : DataFrame
        From `slow_winner_study`.

    Returns
    -------
    DataFrame
        One row a system and B; columns ``system, microbatches, no slow rank, first, middle, last``: the fastest
        schedule without a slow rank and with one at that place; where it is another one, by how much it is ahead.
    """
    rows = []
    for (system, _, count), group in winners.groupby(_POINT, sort=False):
        group = group.set_index("rank")
        named = {place: _new_first(group.loc[rank]) for place, rank in places(len(group)).items()}
        rows.append({"system": system, "microbatches": count, "no slow rank": group.fastest.iloc[0], **named})
    return pd.DataFrame(rows)


def _new_first(row):
    return row.fastest_slow if row.verdict == "holds" else f"{row.fastest_slow}, by {row.lead:.1%}"


# ---- in words ------------------------------------------------------------------------------------


def price_text(prices):
    """Which schedule pays least for noise in the mean, and which most.

    Parameters
    ----------
    prices : DataFrame
        From `price_study`, of one noise. Schedules that are not defined at all points are left out.

    Returns
    -------
    str
        One sentence.
    """
    prices = prices[prices.points == prices.points.max()]
    least, most = prices.loc[prices["mean"].idxmin()], prices.loc[prices["mean"].idxmax()]
    return (
        f"A jitter of {least.jitter:.0%} costs {least.schedule} least, {least['mean']:.1%} in the mean, "
        f"and {most.schedule} most, {most['mean']:.1%}"
    )


def verdict_text(verdicts):
    """Where the first place is lost as noise grows, and how safe it is elsewhere.

    Parameters
    ----------
    verdicts : DataFrame
        From `verdict_study`, of growing jitter.

    Returns
    -------
    str
        A list in Markdown.
    """
    lines, safe = [], []
    for (system, _, count), group in verdicts.groupby(_POINT, sort=False):
        lost = group[group.verdict != "holds"]
        if lost.empty:
            safe.append(group.loc[group.beats_winner.idxmax()])
        else:
            lines.append(f"- **{system}, B = {count}:** {_loss(lost)}")
    if safe:
        worst = max(safe, key=lambda row: row.beats_winner)
        most = f"the most that a challenger wins is {worst.beats_winner:.1%} of the runs"
        where = f"{worst.challenger} against {worst.winner} on {worst.system}, B = {worst.microbatches}"
        points = f"{len(safe)} of {len(lines) + len(safe)} points"
        lines.append(
            f"- **At {points}** the first place holds at every level; {most} ({where}, jitter {worst.jitter:.0%})."
        )
    return "\n".join(lines)


def _loss(lost):
    """By challenger, which need not be the same one at every level, in how many runs it is before the winner."""
    return "; ".join(_loss_to(group) for _, group in lost.groupby("challenger", sort=False)) + "."


def _loss_to(lost):
    first = lost.iloc[0]
    tied = first.over_winner <= TIE
    ahead = "equal to it without noise" if tied else f"{first.over_winner:.1%} slower without noise"
    shares = ", ".join(
        f"{row.beats_winner:.1%} of the runs ({row.low:.1%} to {row.high:.1%}) at a jitter of {row.jitter:.0%}"
        for row in (lost.iloc[[0, -1]] if len(lost) > 1 else lost).itertuples()
    )
    return f"{first.challenger}, {ahead}, is before {first.winner} in {shares}"


def lead_text(verdicts):
    """How wide the leads are that each jitter takes or puts in doubt, and how many ties it decides.

    Parameters
    ----------
    verdicts : DataFrame
        From `verdict_study`, of growing jitter.

    Returns
    -------
    str
        A sentence for leads and one for ties, where there are such.
    """
    tied = verdicts.over_winner <= TIE
    leads, ties = verdicts[~tied], verdicts[tied]
    sentences = [_lead_text(leads)] if len(leads) else []
    if len(ties):
        level = ties[ties.jitter == ties.jitter.min()]
        decided = (level.verdict == "tie decided").sum()
        sentences.append(
            f"Where the challenger is as fast as the first without noise, a jitter of {level.jitter.iloc[0]:.0%} "
            f"puts it first at {decided} of {len(level)} points."
        )
    return " ".join(sentences)


def _lead_text(leads):
    lost = leads[leads.verdict != "holds"]
    kept = leads[~leads.jitter.isin(lost.jitter)]
    words = []
    if len(kept):
        levels = listed([f"{jitter:.0%}" for jitter in sorted(kept.jitter.unique())])
        narrowest = f"and the narrowest is {kept.over_winner.min():.1%}"
        words.append(f"at a jitter of {levels} no lead is lost or in doubt, {narrowest}")
    for jitter, group in lost.groupby("jitter"):
        verb, widest = "is" if len(group) == 1 else "are", f"the widest of them {group.over_winner.max():.1%}"
        count = f"{len(group)} of {(leads.jitter == jitter).sum()} leads"
        words.append(f"at a jitter of {jitter:.0%} {count} {verb} lost or in doubt, {widest}")
    text = "; ".join(words)
    return f"{text[0].upper()}{text[1:]}."


def place_text(study, winners):
    """How often a slow rank changes who is first, and how much of its slowdown is felt on each system.

    Parameters
    ----------
    study : DataFrame
        From `slow_rank_study`.
    winners : DataFrame
        From `slow_winner_study`.

    Returns
    -------
    str
        A sentence, and a list in Markdown.
    """
    counts, total = winners.verdict.value_counts(), len(winners)
    lines = [
        f"A rank slower by a factor of {study.slowdown.iloc[0]:g} puts another schedule first at "
        f"{counts.get('reversed', 0)} of {total} cases (a system, a B and a rank each), and decides a tie at "
        f"{counts.get('tie decided', 0)}. Of its slowdown the iteration feels:\n"
    ]
    for system, group in study.groupby("system", sort=False):
        shares = group.passed_on.round(9)  # of equals the first, rounding apart
        least, most = group.loc[shares.idxmin()], group.loc[shares.idxmax()]
        lines.append(f"- on **{system}** from {_felt(least)} to {_felt(most)};")
    return "\n".join(lines)[:-1] + "."


def _felt(row):
    return f"{row.passed_on:.0%} ({row.schedule}, B = {row.microbatches})"


def best_place_text(study):
    """Where a slow rank costs each schedule least, and what the worst place costs.

    Parameters
    ----------
    study : DataFrame
        From `slow_rank_study`.

    Returns
    -------
    str
        A list in Markdown: one rank that is best at every point, where there is such a one, or else the best
        ranks with their points.
    """
    num_ranks, lines = study.stages.max(), []
    for name, rows in study.groupby("schedule", sort=False):
        points = dict(list(rows.groupby(["system", "microbatches"], sort=False)))
        best = _best({point: _best_places(group) for point, group in points.items()}, num_ranks)
        lines.append(f"- **{name}:** {best}{_worst_place(points)}.")
    return "\n".join(lines)


def _best(best, num_ranks):
    """The ranks that are best at all points, or else the best ones by point."""
    common = tuple(sorted(set.intersection(*map(set, best.values()))))
    if common:
        return f"{_ranks(common, num_ranks)}, at {_all_of(len(best))}"
    by_ranks = {}
    for point, ranks in best.items():
        by_ranks.setdefault(ranks, []).append(point)
    groups = [f"{_ranks(ranks, num_ranks)} {_on(points)}" for ranks, points in by_ranks.items()]
    return f"not the same everywhere: {'; '.join(groups)}"


def _worst_place(points):
    longer = {point: group.t_slow_s.max() / group.t_slow_s.min() - 1 for point, group in points.items()}
    worst = max(longer, key=longer.get)
    if longer[worst] <= TIE:
        return ""
    return f". In the worst place instead, an iteration takes up to {longer[worst]:.1%} longer ({_on([worst])})"


def _all_of(count):
    return f"all {count} points" if count > 1 else "the only point"


def _on(points):
    counts = {}
    for system, count in points:
        counts.setdefault(system, []).append(count)
    return ", ".join(f"on {system} with B = {listed(found)}" for system, found in counts.items())
