"""How far off memory predictions have been, and which runs therefore may not fit."""

import re
from functools import cache

from ppmodel.files import read_text
from ppmodel.specs import DATA

_SAID = re.compile(r"^# (\S+)\.csv memory: .*unseen mean ([\d.]+)%", re.MULTILINE)


@cache
def memory_errors():
    """Mean errors of predicted memory on measured runs that no fit had seen, as stated in the files of fitted systems.

    Returns
    -------
    dict of str to float
        By the stem of the file of runs in ``data/reference/measured``; 0.05 is 5 %.

    Examples
    --------
    >>> sorted(memory_errors())
    ['bigscience_a100', 'simumax_b200']
    """
    files = (read_text(path) for path in sorted((DATA / "systems").glob("*.yaml")))
    return {runs: float(mean) / 100 for file in files for runs, mean in _SAID.findall(file)}


def is_tight(held_bytes, capacity_bytes):
    """Whether a run fits by less than memory predictions have been off, so that it may not fit in practice.

    Parameters
    ----------
    held_bytes : float, or an array or Series of them
        Predicted, with the system's reserve.
    capacity_bytes : float, or as many of them
        The capacity of a GPU.

    Returns
    -------
    bool, or as many of them
        Judged by the largest mean error of `memory_errors`.

    Examples
    --------
    >>> is_tight(70e9, 80e9), is_tight(79e9, 80e9), is_tight(81e9, 80e9)
    (False, True, False)
    """
    enough = (1 - max(memory_errors().values())) * capacity_bytes
    return (held_bytes > enough) & (held_bytes <= capacity_bytes)
