"""Does the paper's conclusion carry over to all schedules? Gaps between levels, and each statement with its number."""

import pandas as pd

from ppmodel.analysis.orders import order_of_amounts
from ppmodel.studies.cases import TIE, label, named
from ppmodel.studies.fronts import nearest
from ppmodel.studies.ranking import advantage_study, level_rank_study

PAPERS_OWN = ("gpipe", "1f1b", "chimera", "asymmetric-chimera", "hanayo")
CARRIES, PARTLY, FAILS, NOT_ASKED = "carries over", "in part", "does not", "not asked here"
_PAPERS_BASE = (label("gpipe"),)  # over which the paper tells gains
_HALF, _TENTH = 0.5, 0.1
_EXACT = 1e-3
"""A formula gives a bubble ratio of a table where the two differ by no more."""


def papers_own(cases):
    """Labels of the schedules that the paper studies.

    Parameters
    ----------
    cases : sequence of str or (str, dict)
        From `field_cases`.

    Returns
    -------
    list of str

    Examples
    --------
    >>> papers_own(["eager-1f1b", ("hanayo", {"waves": 2})])
    ['Hanayo W = 2']
    """
    return [label(*named(case)) for case in cases if named(case)[0] in PAPERS_OWN]


def carry_text(table):
    """How many statements carry over, in words.

    Parameters
    ----------
    table : DataFrame
        From `verdict_table`.

    Returns
    -------
    str

    Examples
    --------
    >>> carry_text(pd.DataFrame({"verdict": [CARRIES, PARTLY, CARRIES]}))
    'Of 3 statements 2 carry over, 1 does in part, and 0 do not.'
    """
    counts = table.verdict.value_counts().reindex([CARRIES, PARTLY, FAILS], fill_value=0)
    verbs = [("carries over", "carry over"), ("does in part", "do in part"), ("does not", "do not")]
    said = [f"{count} {one if count == 1 else many}" for count, (one, many) in zip(counts, verbs, strict=True)]
    text = f"Of {counts.sum()} statements {said[0]}, {said[1]}, and {said[2]}."
    left = int((table.verdict == NOT_ASKED).sum())
    return f"{text} {left} cannot be asked of these systems." if left else text


def gap_table(study):
    """How far the levels are apart without a network: formula, table, simulation.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, family, sizes, least, most, without_network``: at how many (S, B) it is
        defined; bubble ratio of the table less that of the published formula, over these the least and the most, NaN
        where none is published, for a closed form that is derived from the table cannot differ from it; and the most
        that the idle time of a simulation without a network is above the table's bubble. The largest of these first.
    """
    rows = []
    for (name, kind), group in study.groupby(["schedule", "family"], sort=False):
        apart = group.table_bubble_ratio - group.formula
        idle = group.idle_without_network - group.table_bubble_ratio
        sizes = len(group[["stages", "microbatches"]].drop_duplicates())
        rows.append((name, kind, sizes, apart.min(), apart.max(), idle.max()))
    table = pd.DataFrame(rows, columns=["schedule", "family", "sizes", "least", "most", "without_network"])
    return table.sort_values(["without_network", "schedule"], ascending=[False, True], ignore_index=True)


def gap_text(gaps, clear):
    """Which formulas are exact, and which schedules' tables are, in words.

    Parameters
    ----------
    gaps : DataFrame
        From `gap_table`.
    clear : float
        Share of the total time from which on a simulation clearly idles longer than its table.

    Returns
    -------
    str

    Examples
    --------
    >>> gaps = {"schedule": ["a", "b"], "least": [0, 0.1], "most": [0, 0.2], "without_network": [0, 0.3]}
    >>> gap_text(pd.DataFrame(gaps), 0.01)
    'Of 2 published formulas 1 gives the bubble of the table at every size; that of b (by up to 20.0 points) \
understates it. Simulated without a network, b (+30.0) idles longer than its table says, in points of the total time.'
    """
    known = gaps[gaps.least.notna()]
    under, over = known[known.most > _EXACT], known[known.least < -_EXACT]
    exact = len(known) - len(under.index.union(over.index))
    gives = "gives" if exact == 1 else "give"
    text = f"Of {len(known)} published formulas {exact} {gives} the bubble of the table at every size"
    for word, rows, values in (("understate", under, under.most), ("overstate", over, -over.least)):
        if len(rows):
            those, verb = ("that", f"{word}s") if len(rows) == 1 else ("those", word)
            text += f"; {those} of {_listed(rows.schedule, values, '{} (by up to {:.1f} points)')} {verb} it"
    idle = gaps[gaps.without_network > clear]
    if len(idle):
        found = _listed(idle.schedule, idle.without_network, "{} (+{:.1f})")
        verb = "idles longer than its table says" if len(idle) == 1 else "idle longer than their tables say"
        text += f". Simulated without a network, {found} {verb}, in points of the total time"
    return f"{text}."


def _listed(names, shares, form):
    return ", ".join(form.format(name, 100 * share) for name, share in zip(names, shares, strict=True))


def verdict_table(study, gaps, ranks, advantages, fronts, convergence, old, base, clear, close, short):
    """The paper's statements, asked of all schedules: what stands, and the number behind it.

    Parameters
    ----------
    study, gaps, ranks, advantages, fronts, convergence : DataFrame
        From `field_study`, `gap_table`, `level_rank_study`, `advantage_study`, `front_study` and `convergence_study`.
    old : sequence of str
        Labels of the schedules that the paper studies, from `papers_own`.
    base : str
        Label of the schedule that `advantage_study` was given.
    clear, close : float
        As `level_rank_study` and `convergence_study` were given them.
    short : float
        Transfers of less of a forward count as short.

    Returns
    -------
    DataFrame
        One row a statement; columns ``statement, verdict, number``. What is said of all carries over if all are so, in
        part if some are. What is said to happen carries over if it does at half of the places or more, in part if at
        a tenth or more. What a study cannot tell is not asked.
    """
    papers = study[study.schedule.isin(old)]
    bases = {other: advantage_study(study, other) for other in _PAPERS_BASE if other in set(study.schedule)}
    bases |= {base: advantages}
    rows = [
        ("A published formula understates the bubble.", *_understates(gaps, old)),
        ("Formula and table rank schedules alike without a network, and so does the simulation.", *_alike(ranks)),
        ("Schedule rankings are not abstraction-invariant.", *_invariant(ranks, level_rank_study(papers, clear))),
        ("It is communication that reverses them.", *_by_network(ranks)),
        ("Communication can negate a structural advantage.", *_negated(advantages, clear)),
        ("Gains shrink as B grows.", *_shrinking(advantages, short)),
        ("Gains are made where the network is fast.", *_fast_networks(bases, short)),
        ("All schedules converge for large B.", *_converging(convergence, close)),
        ("A smaller bubble costs messages or memory.", *_costs(study, advantages, base)),
        ("A schedule of the paper is worth taking, in time or in memory.", *_worth_taking(fronts, old)),
    ]
    return pd.DataFrame(rows, columns=["statement", "verdict", "number"])


def _word(found, of):
    """Of what a statement says of all: all, some or none."""
    return CARRIES if found == of > 0 else PARTLY if found else FAILS


def _often(found, of):
    """Of what a statement says can happen: it happens at half of the places or more, at a tenth or more, at fewer."""
    share = found / of if of else 0.0
    return CARRIES if share >= _HALF else PARTLY if share >= _TENTH else FAILS


def _understates(gaps, old):
    new = gaps[gaps.least.notna() & ~gaps.schedule.isin(old)]
    under = new[new.most > _EXACT]
    number = f"{len(under)} of {len(new)} formulas that are published for schedules that are not the paper's"
    if len(under):
        number += f": {_listed(under.schedule, under.most, '{} by up to {:.1f} points')}"
    return _word(len(under), len(new)), number


def _alike(ranks):
    formula, without = ranks.formula_table.median(), ranks.table_without_network.median()
    number = (
        f"Kendall's tau of formula and table {formula:.2f}, of table and time without a network {without:.2f} (medians)"
    )
    return CARRIES if min(formula, without) > 1 - TIE else PARTLY if min(formula, without) > 0.5 else FAILS, number


def _invariant(ranks, papers):
    points, systems = int((ranks.clear > 0).sum()), ranks[ranks.clear > 0].system.nunique()
    shares = [f"{one.clear.sum()} of {one.pairs.sum()} ordered pairs ({_share(one):.1%})" for one in (ranks, papers)]
    number = (
        f"the network clearly reverses {shares[0]}, at {points} of {len(ranks)} points, on {systems} of "
        f"{ranks.system.nunique()} systems; among the paper's own schedules {shares[1]}"
    )
    return _often(points, len(ranks)), number


def _share(ranks):
    return ranks.clear.sum() / max(1, ranks.pairs.sum())


def _by_network(ranks):
    network, every = int(ranks.by_network.sum()), int(ranks.reversed.sum())
    number = f"{network} of {every} reversals; the others are there without a network, too"
    return _word(network, every), number


def _negated(advantages, clear):
    promised = advantages[advantages.smaller_bubble]
    lost = promised[promised.by_network & (promised.without_network <= -clear)]
    lost = lost.groupby("schedule").comm_over_forward.min().sort_values(kind="stable")
    every = list(dict.fromkeys(promised.schedule))
    number = (
        f"{len(lost)} of {len(every)} schedules with a smaller bubble lose a gain of {clear:.0%} or more to the network"
    )
    if len(lost):
        number += f", first {lost.index[0]} at c/F = {lost.iloc[0]:.2g}"
    if kept := [name for name in every if name not in lost.index]:
        number += f"; never: {', '.join(kept)}"
    return _often(len(lost), len(every)), number


def _best_gain(advantages):
    """The most that any schedule gains on the base at each point; by whole numbers of B/S."""
    best = advantages.groupby(["system", "stages", "microbatches"], sort=False).relative.min().reset_index()
    return best.assign(multiple=best.microbatches // best.stages)


def _by_network_speed(advantages, short):
    """Rows of short transfers and of long ones, each with words for it; without rows left out."""
    fast = advantages.comm_over_forward < short
    words = f"where a transfer takes less than {short:g} of a forward", "where it takes more"
    return [(advantages[rows], text) for rows, text in zip((fast, ~fast), words, strict=True) if rows.any()]


def _shrinking(advantages, short):
    """Whether the best schedule's gain falls with every step of B, on fast networks and on slow ones."""
    said, falls = [], []
    for rows, text in _by_network_speed(advantages, short):
        gains = -_best_gain(rows).groupby("multiple").relative.median()
        falls.append(gains.is_monotonic_decreasing)
        said.append(", ".join(f"{gain:.0%} at B = {multiple} S" for multiple, gain in gains.items()) + f" {text}")
    return _word(sum(falls), len(falls)), f"the best schedule's median gain: {'; '.join(said)}"


def _fast_networks(bases, short):
    """Whether the best schedule gains more on fast networks than on slow ones, over each of some bases."""
    said, more = [], []
    for base, advantages in bases.items():
        gains = [(-_best_gain(rows).relative.median(), text) for rows, text in _by_network_speed(advantages, short)]
        if len(gains) == 2:
            more.append(gains[0][0] > gains[1][0])
            said.append(f"over {base} " + ", ".join(f"{gain:.0%} {text}" for gain, text in gains))
    if not more:
        return NOT_ASKED, "the networks are all fast, or all slow"
    return _word(sum(more), len(more)), f"the best schedule's median gain: {'; '.join(said)}"


def _converging(convergence, close):
    last = convergence[convergence.microbatches == convergence.microbatches.max()]
    all_close = int((last.within == last.schedules).sum())
    spreads = ", ".join(f"{row.within} of {row.schedules} on {row.system}" for row in last.itertuples())
    return _word(
        all_close, len(last)
    ), f"within {close:.0%} of the fastest at B = {last.microbatches.iloc[0]}: {spreads}"


def _costs(study, advantages, base):
    """Schedules with a smaller bubble than the base's that nowhere hold or send more than it."""
    keys = ["system", "stages", "microbatches"]
    both = study.merge(
        study.loc[study.schedule == base, [*keys, "messages", "total_bytes"]], on=keys, suffixes=("", "_base")
    )
    both = both.merge(advantages.loc[advantages.smaller_bubble, [*keys, "schedule"]], on=[*keys, "schedule"])
    more = (both.messages > both.messages_base) | (order_of_amounts(both.total_bytes, both.total_bytes_base) > 0)
    free = ~more.groupby(both.schedule, sort=False).any()
    names = list(free.index[free])
    number = f"{len(names)} of {len(free)} schedules with a smaller bubble than {base} send no more, and hold no more "
    number += "on the fullest rank"
    number += f": {', '.join(names)}" if names else ""
    return _word(len(free) - len(names), len(free)), number


def _worth_taking(fronts, old):
    best = nearest(fronts)
    there = best[best.front & best.schedule.isin(old)]
    points, every = (
        len(there[["system", "stages"]].drop_duplicates()),
        len(best[["system", "stages"]].drop_duplicates()),
    )
    number = f"one is on the front at {points} of {every} (system, S)"
    number += f": {', '.join(dict.fromkeys(there.schedule))}" if points else ""
    return _often(points, every), number
