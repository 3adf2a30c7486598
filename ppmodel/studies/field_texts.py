"""What the chapter on all schedules says in words, from its numbers."""

import math

from ppmodel.studies.cases import TIE


def cause_text(ranks):
    """Whether an order by bubble ratio is one by time, and what the causes are where it is not.

    Parameters
    ----------
    ranks : DataFrame
        From `level_rank_study`.

    Returns
    -------
    str

    Examples
    --------
    >>> import pandas as pd
    >>> cause_text(pd.DataFrame({"pairs": [9], "reversed": [3], "by_network": [2]}))
    'An order by bubble ratio is no order by time: of 9 ordered pairs 3 take times in the other order. The network is \
the cause of 2; 1 would be reversed without it, too, since what a table has as equal slots takes unequal times.'
    """
    pairs, every, network = (int(ranks[name].sum()) for name in ("pairs", "reversed", "by_network"))
    if not every:
        return f"An order by bubble ratio is an order by time here: none of {pairs} ordered pairs is reversed."
    text = (
        f"An order by bubble ratio is no order by time: of {pairs} ordered pairs {every} take times in the other order"
    )
    if network == every:
        return f"{text}. The network is the cause of all of them."
    return (
        f"{text}. The network is the cause of {network}; {every - network} would be reversed without it, too, since "
        "what a table has as equal slots takes unequal times."
    )


def unequal_halves_text(halves, gaps, clear):
    """What a table of equal slots leaves out, and whether it fades as B grows.

    Parameters
    ----------
    halves : DataFrame
        From `halves_study`.
    gaps : DataFrame
        From `gap_table`.
    clear : float
        Share of the total time from which on a simulation clearly idles longer than its table.

    Returns
    -------
    str
    """
    others = gaps.schedule[(gaps.without_network > clear) & ~gaps.schedule.isin(halves.schedule)]
    whole = f" With backwards in one piece, these idle longer as well: {', '.join(others)}." if len(others) else ""
    if halves.empty:
        return f"No schedule here splits its backwards.{whole}"
    first, last = halves.iloc[0], halves[halves.microbatches == halves.microbatches.max()]
    apart = (halves.equal - halves.table).abs().max()
    same = "is the table to the last digit" if apart < TIE else f"is up to {100 * apart:.1f} points off the table"
    lasting = ", ".join(last.schedule[last.own - last.table > clear]) or "none"
    return (
        f"Here an input gradient takes {first.input_grad:.2f} and a weight gradient {first.weight_grad:.2f} of a "
        f"forward. Where each takes a forward (`equal`) the simulation {same}. At B = {last.microbatches.iloc[0]} a "
        f"loss of more than {clear:.0%} is left with {lasting}.{whole}"
    )


def worth_text(table, base):
    """Which schedules stop being faster than a base as transfers grow, and how much they send.

    Parameters
    ----------
    table : DataFrame
        From `message_study`.
    base : str
        Label of the base schedule.

    Returns
    -------
    str
        For a figure's title.

    Examples
    --------
    >>> import pandas as pd
    >>> worth_text(pd.DataFrame({"over_base": [2.0, 1.0], "worth_until": [0.5, float("inf")]}), "1F1B")
    '1 of 2 schedules stop being faster than 1F1B; they send at least 2 times its messages'
    """
    stops = table[table.worth_until < float("inf")]
    said = f"{len(stops)} of {len(table)} schedules stop being faster than {base}"
    return f"{said}; they send at least {stops.over_base.min():.3g} times its messages" if len(stops) else said


def lasting_text(growing, close):
    """Who still loses time in every microbatch at the largest B, without a network and on each system.

    Parameters
    ----------
    growing : DataFrame
        From `field_study`, of one S.
    close : float
        Time over the computing time alone, less 1, from which on it counts.

    Returns
    -------
    str
    """
    last, most = growing[growing.microbatches == growing.microbatches.max()], close / (1 + close)
    still = last.groupby("schedule", sort=False).idle_without_network.max() > most
    lost = [
        f"{int((group.idle_ratio > most).sum())} of {len(group)} on {system}"
        for system, group in last.groupby("system", sort=False)
    ]
    return (
        f"At B = {last.microbatches.iloc[0]} these take more than {close:.0%} above their computing time, without a "
        f"network: {', '.join(still.index[still]) or 'none'}; with the network {', '.join(lost)}."
    )


def worth_of_pairs_text(study):
    """What F&B pairs cost without a gain, and from which gain on they pay, in words.

    Parameters
    ----------
    study : DataFrame
        From `overlap_study`.

    Returns
    -------
    str
        In Markdown; one item a schedule.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [("DualPipe", "a", -0.1, 0.875), ("DualPipe", "b", -0.2, float("nan"))]
    >>> print(worth_of_pairs_text(pd.DataFrame(rows, columns=["schedule", "system", "time apart", "worth below"])))
    - **DualPipe**: taken apart, its time changes by -10.0% (a), -20.0% (b); pairs pay below 0.88 (a), never (b).
    """
    items = []
    for name, rows in study.groupby("schedule", sort=False):
        both = list(zip(rows["time apart"], rows["worth below"], rows.system, strict=True))
        apart = ", ".join(f"{change:+.1%} ({system})" for change, _, system in both)
        below = ", ".join(f"{_below(factor)} ({system})" for _, factor, system in both)
        items.append(f"- **{name}**: taken apart, its time changes by {apart}; pairs pay {below}.")
    return "\n".join(items)


def _below(factor):
    return "never" if math.isnan(factor) else f"below {factor:.2f}"
