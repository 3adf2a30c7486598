"""How certain a predicted saving is: how often such savings were reversed when runs were measured.

The error of a predicted time says little about this, because what two predictions have in common cancels. So the rule
counts pairs of measured runs that were predicted to be about as far apart, and that came out the other way round.
"""

import pandas as pd

SIZE = ("hidden", "layers", "gpus", "sequence", "global_batch")
"""What two runs share if they differ only in their layout: the model, the GPUs and the batch."""

TIE, WITHIN, LIKELY, CLEAR = "a tie", "within the error", "likely", "clear"
"""Degrees of certainty, from the least to the most."""

EQUAL = 0.01
"""A smaller saving is a tie."""

REVERSED, OFTEN = 0.05, 0.25
"""A saving is clear if at most the first share of similar pairs is reversed, and likely if at most the second."""

ENOUGH = 20
"""With fewer similar pairs a saving is within the error."""


def measured_pairs(runs):
    """Every two measured runs of one source with the same model, GPUs and batch, that is, in two layouts.

    Parameters
    ----------
    runs : DataFrame
        A row per run: ``system`` and ``runs``, the source; those of `SIZE`; ``iteration_s``, measured; and ``error``,
        predicted over measured, less 1.

    Returns
    -------
    DataFrame
        One row per pair; columns ``apart``, the share of time that one of the two saves by prediction;
        ``reversed``, whether that one was the slower in the measurement.

    Examples
    --------
    >>> size = dict.fromkeys(SIZE, 1)
    >>> runs = pd.DataFrame({**size, "runs": "a", "system": "a100", "iteration_s": [1.0, 2.0], "error": [1.0, -0.5]})
    >>> measured_pairs(runs).apart.tolist(), measured_pairs(runs)["reversed"].tolist()
    ([0.5], [True])
    """
    pairs = every_two(runs.assign(predicted_s=runs.iteration_s * (1 + runs.error)), ["system", "runs", *SIZE])
    both = pairs[["predicted_s", "predicted_s_other"]]
    opposite = (pairs.iteration_s - pairs.iteration_s_other) * (pairs.predicted_s - pairs.predicted_s_other) < 0
    return pd.DataFrame({"apart": 1 - both.min(axis=1) / both.max(axis=1), "reversed": opposite})


def every_two(runs, by):
    """Every two runs that agree in some columns, each pair once.

    Parameters
    ----------
    runs : DataFrame
    by : list of str

    Returns
    -------
    DataFrame
        One row per pair: the columns of the first, and those of the second with ``_other`` behind their names.

    Examples
    --------
    >>> runs = pd.DataFrame({"gpus": [8, 8, 16], "id": ["a", "b", "c"]})
    >>> every_two(runs, ["gpus"])[["id", "id_other"]].values.tolist()
    [['a', 'b']]
    """
    runs = runs.assign(place=range(len(runs)))
    pairs = runs.merge(runs, on=by, suffixes=("", "_other"))
    return pairs[pairs.place < pairs.place_other].reset_index(drop=True)


def similar_pairs(pairs, saving):
    """The pairs that are about as far apart: between two thirds and one and a half times as much.

    Parameters
    ----------
    pairs : DataFrame
        From `measured_pairs`.
    saving : float
        The share of time that the faster of two predictions saves.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> similar_pairs(pd.DataFrame({"apart": [0.01, 0.05, 0.1]}), 0.04).apart.tolist()
    [0.05]
    """
    return pairs[pairs.apart.between(saving / 1.5, saving * 1.5)]


def certainty_of(saving, pairs):
    """How certain it is that the faster of two predictions is the faster.

    Parameters
    ----------
    saving : float
        As in `similar_pairs`.
    pairs : DataFrame
        From `measured_pairs`.

    Returns
    -------
    str
        `TIE` below `EQUAL`; `CLEAR` or `LIKELY` if at most `REVERSED` or `OFTEN` of the similar pairs are reversed;
        `WITHIN` if more are, or if there are fewer than `ENOUGH` of them.

    Examples
    --------
    >>> pairs = pd.DataFrame({"apart": [0.1] * 40 + [0.5] * 40, "reversed": [True] * 10 + [False] * 70})
    >>> [certainty_of(saving, pairs) for saving in (0.001, 0.03, 0.1, 0.5)]
    ['a tie', 'within the error', 'likely', 'clear']
    """
    if saving < EQUAL:
        return TIE
    wrong = similar_pairs(pairs, saving)["reversed"]
    if len(wrong) < ENOUGH or wrong.mean() > OFTEN:
        return WITHIN
    return CLEAR if wrong.mean() <= REVERSED else LIKELY


def savings(faster, slower, pairs):
    """What predicted times save on others, and how certain that is.

    Parameters
    ----------
    faster, slower : DataFrame
        With ``label`` and ``iteration_s``, and one row per case in their index; cases that only one has are left out.
    pairs : DataFrame
        From `measured_pairs`.

    Returns
    -------
    DataFrame
        Columns ``label, other``; ``apart``, the share of the other's time that is saved; ``pairs``, how many are
        similar, and ``reversed``, the share of them that is; and ``sure``, its `certainty_of`.

    Examples
    --------
    >>> pairs = pd.DataFrame({"apart": [0.1] * 40, "reversed": [True] * 10 + [False] * 30})
    >>> fast = pd.DataFrame({"label": ["ZB-V"], "iteration_s": [9.0]})
    >>> slow = pd.DataFrame({"label": ["1F1B"], "iteration_s": [10.0]})
    >>> savings(fast, slow, pairs)[["label", "other", "pairs", "sure"]].values.tolist()
    [['ZB-V', '1F1B', 40, 'likely']]
    """
    columns, suffixes = ["label", "iteration_s"], ("", "_other")
    both = faster[columns].merge(slower[columns], left_index=True, right_index=True, suffixes=suffixes)
    both["apart"] = 1 - both.iteration_s / both.iteration_s_other
    similar = [similar_pairs(pairs, saving)["reversed"] for saving in both.apart]
    return both.rename(columns={"label_other": "other"})[["label", "other", "apart"]].assign(
        pairs=[len(wrong) for wrong in similar], reversed=[wrong.mean() for wrong in similar],
        sure=[certainty_of(saving, pairs) for saving in both.apart],
    )  # fmt: skip
