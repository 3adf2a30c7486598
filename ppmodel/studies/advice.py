"""What to take of all schedules: the fastest, the fastest within a base's memory, and the one that holds least."""

import pandas as pd

from ppmodel.analysis.orders import order_of_amounts
from ppmodel.studies.cases import TIE

_COLUMNS = ["kind", "where", "asked", "schedule", "best_on", "of", "time_low", "time_high", "bytes_low", "bytes_high"]
FASTEST, WITHIN, SMALLEST = "fastest", "fastest within the base's bytes", "fewest bytes"


def advice_table(study, real, base, short, real_words):
    """Which schedule is best at one size, where transfers are short, where they are long, and for a real model.

    Parameters
    ----------
    study : DataFrame
        From `field_study`, of one S and B.
    real : DataFrame
        From `field_study`, of one S and B: another model.
    base : str
        Label of the schedule that time and bytes are held against; it is among them.
    short : float
        Transfers of less of a forward count as short; the median over the schedules counts.
    real_words : str
        What `real` is of.

    Returns
    -------
    DataFrame
        One row a place, a question and a schedule that is the answer on at least one of its systems; columns ``kind,
        where, asked, schedule, best_on, of, time_low, time_high, bytes_low, bytes_high``: on how many systems, of how
        many; and the least and the most, over these, of its time and of the bytes of its fullest rank over those of
        the base, less 1. Of equally fast ones that with fewer bytes is taken, then the first by name; of those that
        hold as much the fastest.
    """
    is_short = study.groupby("system").comm_over_forward.transform("median") < short
    kinds = [
        ("Short transfers", f"less than {short:g} of a forward", study[is_short]),
        ("Longer transfers", f"{short:g} of a forward or more", study[~is_short]),
    ]
    number = study.system.nunique()
    rows = [
        _best(rows, base, asked) | {"kind": kind, "where": f"{words}, {rows.system.nunique()} of {number} systems"}
        for kind, words, rows in kinds
        if len(rows)
        for asked in (FASTEST, WITHIN)
    ]
    rows.append(_best(study, base, SMALLEST) | {"kind": "Least memory", "where": f"{number} systems"})
    rows += [_best(real, base, asked) | {"kind": "Another model", "where": real_words} for asked in (FASTEST, WITHIN)]
    return pd.concat([pd.DataFrame(row)[_COLUMNS] for row in rows], ignore_index=True)


def _best(study, base, asked):
    """The best schedule of each system, counted."""
    picks = pd.DataFrame([_pick(group, base, asked) for _, group in study.groupby("system", sort=False)])
    groups = picks.groupby("schedule", sort=False)
    counts = groups.size().sort_values(ascending=False, kind="stable")
    lows, highs = groups[["time", "bytes"]].min().loc[counts.index], groups[["time", "bytes"]].max().loc[counts.index]
    return {
        "asked": asked, "schedule": list(counts.index), "best_on": counts.tolist(), "of": len(picks),
        "time_low": lows.time.tolist(), "time_high": highs.time.tolist(),
        "bytes_low": lows.bytes.tolist(), "bytes_high": highs.bytes.tolist(),
    }  # fmt: skip


def _pick(group, base, asked):
    one = group[group.schedule == base].iloc[0]
    order = ["t_sim_s", "total_bytes", "schedule"]
    if asked == WITHIN:
        group = group[order_of_amounts(group.total_bytes, one.total_bytes) <= 0]
    first = "total_bytes" if asked == SMALLEST else "t_sim_s"
    equal = group[group[first] <= group[first].min() * (1 + TIE)]
    taken = equal.sort_values([name for name in order if name != first]).iloc[0]
    return {
        "schedule": taken.schedule, "time": taken.t_sim_s / one.t_sim_s - 1,
        "bytes": taken.total_bytes / one.total_bytes - 1,
    }  # fmt: skip


def advice_text(table, base, links=None):
    """What to take, as a list in Markdown, one line a place.

    Parameters
    ----------
    table : DataFrame
        From `advice_table`.
    base : str
        Label of the schedule that it was made against.
    links : dict of str to str, optional
        What follows the line of a kind.

    Returns
    -------
    str

    Examples
    --------
    >>> row = ["Least memory", "2 systems", SMALLEST, "V-Min", 2, 2, 0.05, 0.1, -0.5, -0.5]
    >>> print(advice_text(pd.DataFrame([row], columns=_COLUMNS), "1F1B"))
    - **Least memory** (2 systems): fewest bytes, **V-Min**: +5% to +10% time, -50% bytes.
    """
    lines = []
    for (kind, where), here in table.groupby(["kind", "where"], sort=False):
        asked = dict(list(here.groupby("asked", sort=False)))
        if WITHIN in asked and list(asked[WITHIN].schedule) == list(asked[FASTEST].schedule):
            del asked[WITHIN]  # the fastest holds no more than the base: nothing is left to say
        parts = [f"{_asked(name, base)}, {_named(rows, base)}" for name, rows in asked.items()]
        lines.append(" ".join([f"- **{kind}** ({where}): {'; '.join(parts)}.", (links or {}).get(kind, "")]).rstrip())
    return "\n".join(lines)


def _asked(asked, base):
    return f"fastest that holds no more than {base}" if asked == WITHIN else asked


def _named(rows, base):
    """Each schedule, on how many systems where there are several, and its time and bytes."""
    said = []
    for row in rows.itertuples():
        share = f" on {row.best_on} of {row.of}" if row.best_on < row.of else ""
        numbers = f"{_change(row.time_low, row.time_high, 'time')}, {_change(row.bytes_low, row.bytes_high, 'bytes')}"
        said.append(f"**{row.schedule}**{share}" + (f": {numbers}" if row.schedule != base else " itself"))
    return ", and ".join(said)


def _change(low, high, what):
    """A range of changes: in percent, as a multiple where it is more than twice as much, or none."""
    if low > 1:
        first, last = f"{1 + low:.1f}", f"{1 + high:.1f}"
        return f"{first if first == last else f'{first} to {last}'} times the {what}"
    first, last = (f"{share:+.0%}" for share in (low, high))
    if first == last:
        return f"{first} {what}" if round(100 * low) else f"the same {what}"
    return f"{first} to {last} {what}"
