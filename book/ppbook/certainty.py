"""How sure a predicted difference is: what became of such differences between runs that were measured.

The error of a predicted time says little about this: what two predictions have in common cancels. So the rule counts
pairs of measured runs that were predicted to be about as far apart, and came out the other way round.
"""

import re

import numpy as np
import pandas as pd

from ppbook.against import SIZE
from ppmodel.cli.text import joined

TIE, WITHIN, LIKELY, CLEAR = "a tie", "within the error", "likely", "clear"
"""The words for a difference, from the least to the most certain."""

EQUAL = 0.01
"""A schedule that saves a smaller share of the time is as fast: a tie."""

REVERSED, OFTEN = 0.05, 0.25
"""A difference is clear if at most the first share of such pairs is reversed, and likely if at most the second."""

ENOUGH = 20
"""Fewer pairs say nothing: the difference is within the error."""

_ABOUT = 1.5  # times as much, or as little
_GPU = re.compile(r"[a-z]+\d+[a-z]?")


def kind_of(system):
    """The kind of GPU that a system is named after.

    Parameters
    ----------
    system : str

    Returns
    -------
    str
        The first part of the name that is letters and a number; the whole name if there is none.

    Examples
    --------
    >>> [kind_of(name) for name in ("a100_vtrain", "dgx_h100_nodes", "mi300x", "mid_cp_slow_nw")]
    ['a100', 'h100', 'mi300x', 'mid_cp_slow_nw']
    """
    return next((part for part in system.split("_") if _GPU.fullmatch(part)), system)


def errors_by_gpu(runs):
    """Mean error of time, by kind of GPU.

    Parameters
    ----------
    runs : DataFrame
        From `ppbook.against.unfitted_runs`.

    Returns
    -------
    Series
    """
    return runs.error.abs().groupby(runs.system.map(kind_of)).mean()


def pairs_of(runs):
    """Every two runs of one source with the same model, GPUs and batch, that is, in two layouts.

    Parameters
    ----------
    runs : DataFrame
        From `ppbook.against.unfitted_runs`.

    Returns
    -------
    DataFrame
        One row per pair; columns ``gpu``; ``apart``, the share of time that one of the two saves by prediction;
        ``reversed``, whether that one was the slower in the measurement.

    Examples
    --------
    >>> size = dict.fromkeys(SIZE, 1)
    >>> runs = pd.DataFrame({**size, "runs": "one", "system": "a100", "iteration_s": [1.0, 2.0], "error": [1.0, -0.5]})
    >>> pairs_of(runs).apart.tolist(), pairs_of(runs)["reversed"].tolist()
    ([0.5], [True])
    """
    found = []
    for (system, *_), group in runs.groupby(["system", "runs", *SIZE], sort=False):
        ran = group.iteration_s.to_numpy()
        ours = ran * (1 + group.error.to_numpy())
        first, second = np.triu_indices(len(ran), 1)
        apart = 1 - np.minimum(ours[first], ours[second]) / np.maximum(ours[first], ours[second])
        wrong = (ran[first] - ran[second]) * (ours[first] - ours[second]) < 0
        found.append(pd.DataFrame({"gpu": kind_of(system), "apart": apart, "reversed": wrong}))
    return pd.concat(found, ignore_index=True)


def like(pairs, apart):
    """The pairs that differ by about as much: between two thirds and one and a half times as much.

    Parameters
    ----------
    pairs : DataFrame
        From `pairs_of`.
    apart : float
        As in `pairs_of`.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> like(pd.DataFrame({"apart": [0.01, 0.05, 0.1]}), 0.04).apart.tolist()
    [0.05]
    """
    return pairs[pairs.apart.between(apart / _ABOUT, apart * _ABOUT)]


def in_a_word(apart, pairs):
    """How certain it is that the faster of two predictions is the faster.

    Parameters
    ----------
    apart : float
        The share of the other's time that it saves.
    pairs : DataFrame
        From `pairs_of`.

    Returns
    -------
    str
        `TIE` below `EQUAL`; `CLEAR` or `LIKELY` if at most `REVERSED` or `OFTEN` of the pairs that differ by about as
        much are reversed; `WITHIN` if more are, or if there are fewer than `ENOUGH` such pairs.

    Examples
    --------
    >>> pairs = pd.DataFrame({"apart": [0.1] * 40 + [0.5] * 40, "reversed": [True] * 10 + [False] * 70})
    >>> [in_a_word(apart, pairs) for apart in (0.001, 0.03, 0.1, 0.5)]
    ['a tie', 'within the error', 'likely', 'clear']
    """
    if apart < EQUAL:
        return TIE
    such = like(pairs, apart)["reversed"]
    if len(such) < ENOUGH or such.mean() > OFTEN:
        return WITHIN
    return CLEAR if such.mean() <= REVERSED else LIKELY


def evidence(rows):
    """Describe the runs that a mean error rests on: how many, in which precision, of which schedules.

    Parameters
    ----------
    rows : sequence of dict
        Rows of files of measured runs, from `ppbook.against.fitted_rows`.

    Returns
    -------
    str

    Examples
    --------
    >>> from ppbook.against import fitted_rows
    >>> evidence(fitted_rows("h100_mlperf"))
    '6 runs, all in FP8, of interleaved 1F1B with V = 8 or 12'
    """
    eights, chunks = sum("FP8" in row["source"] for row in rows), {int(row["chunks"] or 1) for row in rows} - {1}
    precision = {0: "none", len(rows): "all"}.get(eights, str(eights))
    kinds = ["1F1B"] if any(row["schedule"] == "1f1b" for row in rows) else []
    if chunks:
        kinds.append(f"interleaved 1F1B with V = {' or '.join(map(str, sorted(chunks)))}")
    return f"{len(rows)} runs, {precision} in FP8, of {joined(kinds)}"
