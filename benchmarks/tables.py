"""Benchmark results as tables: each stage with its goal, its growth, and ratios to peers.

Nothing is timed here; ``python -m benchmarks`` does that, and writes ``data/reference/benchmarks.json``.
"""

import json

import numpy as np
import pandas as pd

from benchmarks.results import RESULTS

SLOPE_GOAL = 1.1
"""The largest exponent of time over operations that counts as linear growth, caches included."""

_TWO_DECADES = 101  # sizes are whole numbers, so about a hundredth counts too


def load_speed(file=RESULTS):
    """Load the results of the benchmarks.

    Parameters
    ----------
    file : str or Path
        As written by ``python -m benchmarks``; the project's own by default.

    Returns
    -------
    dict
        ``machine``, and ``how`` it was measured; rows of ``stages``, ``growth`` and ``peers``.

    Examples
    --------
    >>> sorted(load_speed())
    ['growth', 'how', 'machine', 'peers', 'stages']
    """
    with open(file, encoding="utf-8") as text:
        return json.load(text)


def cases_table(results):
    """Tabulate every case of every stage, with its goal.

    Parameters
    ----------
    results : dict
        From `load_speed`.

    Returns
    -------
    DataFrame
        One row per case; columns ``stage, case, unit, operations, runs, best, median, goal, met``. The median decides;
        without a goal, ``met`` is empty; if a case ran out of time or memory, it says so.
    """
    table = pd.DataFrame(results["stages"]).astype({"best": float, "median": float, "goal": float})
    met = np.where(table.goal.isna(), "", np.where(table["median"] <= table.goal, "yes", "no"))
    met = np.where(table["median"].isna(), "not finished", met)
    return table[["stage", "case", "unit", "operations", "runs", "best", "median", "goal"]].assign(met=met)


def headline_table(results):
    """For each stage and goal, the case furthest from the goal, or the slowest; and all cases in seconds.

    Parameters
    ----------
    results : dict
        From `load_speed`.

    Returns
    -------
    DataFrame
        Rows of `cases_table`; if a stage has goals, only cases with a goal.
    """
    table = cases_table(results)
    has_goal = table.groupby("stage").goal.transform(lambda goals: goals.notna().any())
    table = table[table.goal.notna() | ~has_goal]
    alone = table.case.where(table.unit == "s", "")
    slow = table.assign(median=table["median"].fillna(np.inf))
    slowest = slow.groupby([table.stage, table.goal.fillna(0), alone], sort=False)["median"].idxmax()
    return table.loc[slowest].reset_index(drop=True)


def growth_table(results):
    """Tabulate times by number of operations.

    Parameters
    ----------
    results : dict
        From `load_speed`.

    Returns
    -------
    DataFrame
        One row per stage and size; columns ``stage, pp, microbatches, operations, systems, runs, best_s, median_s,
        ns_per_operation``: seconds per call; nanoseconds per operation and, if there are several, per system.
    """
    return pd.DataFrame(results["growth"])


def slope_table(results):
    """Fit the exponent with which each stage grows, by least squares through the logarithms of its medians.

    Parameters
    ----------
    results : dict
        From `load_speed`.

    Returns
    -------
    DataFrame
        One row per stage; columns ``stage, smallest, largest`` (numbers of operations), ``slope``, ``slope_of_large``
        over the two decades below the largest, ``steepest`` between two neighbouring sizes, and ``goal, met`` for the
        slope; small trial sizes have no goal.

    Examples
    --------
    >>> rows = [{"stage": "compile", "operations": n, "median_s": 2 * n} for n in (10, 100, 1000)]
    >>> slope_table({"growth": rows}).slope.round(9).tolist()
    [1.0]
    """
    rows, goal = [], np.nan if _for_trying(results) else SLOPE_GOAL
    for stage, group in growth_table(results).groupby("stage", sort=False):
        group = group.sort_values("operations")
        smallest, largest = group.operations.min(), group.operations.max()
        slope = _slope(group)
        rows.append({
            "stage": stage, "smallest": smallest, "largest": largest, "slope": slope,
            "slope_of_large": _slope(group[group.operations >= largest / _TWO_DECADES]),
            "steepest": max(_slope(group[n : n + 2]) for n in range(len(group) - 1)),
            "goal": goal, "met": "" if np.isnan(goal) else "yes" if slope <= goal else "no",
        })  # fmt: skip
    return pd.DataFrame(rows)


def growth_text(results):
    """Say to which slopes the goal applies, and which stages grow more steeply at large sizes.

    Parameters
    ----------
    results : dict
        From `load_speed`.

    Returns
    -------
    str
        One sentence.

    Examples
    --------
    >>> rows = [{"stage": "compile", "operations": n, "median_s": n * n} for n in (10, 100, 1000)]
    >>> growth_text({"growth": rows})
    'The goal of 1.1 applies to all sizes together; over the last two decades alone, compile (2.00) exceeds it.'
    """
    if _for_trying(results):
        return "These sizes are too small for the growth goal."
    steep = [one for one in slope_table(results).itertuples() if one.slope_of_large > SLOPE_GOAL]
    named = " and ".join(f"{one.stage} ({one.slope_of_large:.2f})" for one in steep) or "no stage"
    verb = "exceed" if len(steep) > 1 else "exceeds"
    where = "over the last two decades alone"
    return f"The goal of {SLOPE_GOAL:g} applies to all sizes together; {where}, {named} {verb} it."


def _for_trying(results):
    """Whether these are small trial sizes, which have no goals."""
    return results.get("how", {}).get("quick", False)


def _slope(group):
    """The exponent of time over operations, by least squares."""
    return float(np.polyfit(np.log(group.operations), np.log(group.median_s), 1)[0])


def ratio_table(results):
    """Compare the times of peers with ours.

    Parameters
    ----------
    results : dict
        From `load_speed`.

    Returns
    -------
    DataFrame
        One row per peer and size; columns ``peer, pp, microbatches, operations, pairs, peer_s, ours_s, ratio, goal,
        met, ratio_low, ratio_high, peer_again_s, ours_again_s, ratio_again``. Empty if a peer was not installed.
    """
    columns = [
        "peer", "pp", "microbatches", "operations", "pairs", "peer_s", "ours_s", "ratio", "goal", "met", "ratio_low",
        "ratio_high", "peer_again_s", "ours_again_s", "ratio_again",
    ]  # fmt: skip
    table = pd.DataFrame(results["peers"]).reindex(columns=columns).astype({"ratio": float, "goal": float})
    goal = np.nan if _for_trying(results) else table.goal
    return table.assign(goal=goal, met=np.where(np.isnan(goal), "", np.where(table.ratio >= goal, "yes", "no")))


def machine_text(results):
    """Describe the machine, the versions and the day in one sentence.

    Parameters
    ----------
    results : dict
        From `load_speed`.

    Returns
    -------
    str
    """
    of = results["machine"]
    changed = " and uncommitted changes" if of["state"] == "files differ" else ""
    small = " Small trial sizes only." if _for_trying(results) else ""
    packages = ", ".join(f"{name} {found}" for name, found in of["packages"].items())
    return (
        f"Measured on {of['day']} at commit `{of['commit'][:10]}`{changed}: {of['processor']}, {of['cores']} cores, "
        f"caches {of['caches']}, {of['memory_gib']:g} GiB of memory; {of['system']}, Python {of['python']}, "
        f"{packages}.{small}"
    )


# ---- as text -------------------------------------------------------------------------------------


def speed_text(results):
    """Format the results as tables in Markdown, as `python -m benchmarks` prints them.

    Parameters
    ----------
    results : dict
        From `load_speed`.

    Returns
    -------
    str
        Stages with their goals, growth, ratios, and the machine; ends with a newline.
    """
    stages = [
        (one.stage, one.case, _number(one.best), _number(one.median), one.unit, _number(one.goal), one.met)
        for one in headline_table(results).itertuples()
    ]
    slopes = [
        (
            one.stage,
            f"{one.smallest:,} to {one.largest:,}",
            f"{one.slope:.2f}",
            _number(one.goal),
            one.met,
            f"{one.slope_of_large:.2f}",
        )
        for one in slope_table(results).itertuples()
    ]
    parts = [
        _markdown(["stage", "slowest case", "best", "median", "unit", "goal", "met"], stages),
        _markdown(["growth of", "operations", "log-log slope", "goal", "met", "slope, last two decades"], slopes),
        growth_text(results),
        _markdown(*_ratios(ratio_table(results))),
        machine_text(results),
    ]
    return "\n\n".join(parts) + "\n"


def _ratios(table):
    """Header and rows: one column per size, with the ratios for each further system."""
    sizes = list(dict.fromkeys(zip(table.pp, table.microbatches, strict=True)))
    header = ["time of a peer over ours", *(f"S = {s}, B = {b}" for s, b in sizes)]
    rows = []
    for peer, group in table.groupby("peer", sort=False):
        rows.append([f"{peer}: one schedule, one system", *map(_times, group.ratio)])
        if group.goal.notna().any():
            rows.append([f"{peer}: the goal", *("" if np.isnan(goal) else f"{goal:g} x" for goal in group.goal)])
        if group.ratio_again.notna().any():
            rows.append([f"{peer}: each further system", *map(_times, group.ratio_again)])
    return header, rows


def _times(ratio):
    return "not installed" if pd.isna(ratio) else f"{_number(ratio)} x"


def _number(value):
    """Three significant digits, without an exponent."""
    if pd.isna(value):
        return ""
    digits = max(0, 2 - int(np.floor(np.log10(abs(value))))) if value else 0
    return f"{value:,.{digits}f}"


def _markdown(header, rows):
    """A table in Markdown, with columns aligned for reading as text."""
    table = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in table]
    lines = [f"| {' | '.join(row)} |" for row in padded]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
