"""Margins of memory: how far off predictions have been, and which runs therefore may not fit."""

import re
from functools import cache

import numpy as np

from ppmodel.clusters.specs import packaged


@cache
def _stated_errors():
    """The errors of each packaged system that was fitted: the last block of its file, as `measured.system_file` has it.

    To read the files as YAML would take 20 times as long.
    """
    texts = {name: path.read_text(encoding="utf-8") for name, path in packaged("systems").items()}
    blocks = {name: text.partition("\nerrors:\n")[2] for name, text in texts.items()}
    entries = re.compile(r"^  (\w+):\s*\{value: ([^,]+),", re.MULTILINE)
    return {name: dict(entries.findall(block)) for name, block in blocks.items() if block}


def fitted_systems():
    """Names of the packaged systems that were fitted to measured runs: their files end in its errors.

    Returns
    -------
    list of str

    Examples
    --------
    >>> "a100_vtrain" in fitted_systems(), "a100" in fitted_systems()
    (True, False)
    """
    return list(_stated_errors())


def memory_errors():
    """Bounds of nine in ten errors of predicted memory on unseen runs, as the packaged fitted systems state them.

    Returns
    -------
    dict of str to float
        By system; 0.05 is 5 %.

    Examples
    --------
    >>> sorted(memory_errors())
    ['a100_bigscience', 'b200_simumax']
    """
    stated = _stated_errors().items()
    return {name: float(errors["memory_nine_tenths"]) for name, errors in stated if "memory" in errors}


def memory_margin():
    """Largest of `memory_errors`: nine of ten predictions of memory are off by at most this share.

    Returns
    -------
    float

    Examples
    --------
    >>> 0.03 < memory_margin() < 0.2
    True
    """
    return max(memory_errors().values())


FITS = "fits", "tight", "may not fit", "does not fit"
"""The words of `fit_word`, in order of the memory that a run needs."""


def fit_word(held_bytes, capacity_bytes):
    """Judge whether runs fit, with a margin on both sides: nine of ten predictions of memory are off by less.

    Parameters
    ----------
    held_bytes : float, or an array or Series of them
        Predicted, with the system's reserve.
    capacity_bytes : float, or as many of them
        The capacity of a GPU.

    Returns
    -------
    str, or an array of them
        One of `FITS`: ``tight`` if the run fits by less than the margin, ``may not fit`` if less than the margin is
        missing. The margin is `memory_margin`.

    Examples
    --------
    >>> [fit_word(held, 80e9) for held in (70e9, 79e9, 81e9, 90e9)]
    ['fits', 'tight', 'may not fit', 'does not fit']
    """
    margin = memory_margin()
    share = np.asarray(held_bytes, dtype=float) / np.asarray(capacity_bytes, dtype=float)
    words = np.array(FITS)[(share[..., None] > (1 - margin, 1.0, 1 + margin)).sum(axis=-1)]
    return words if words.ndim else str(words)
