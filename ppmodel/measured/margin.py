"""How far off memory predictions have been, and which runs therefore may not fit."""

from functools import cache

from ppmodel.specs import DATA, system_names
from ppmodel.specs.document import read_last_block


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
    return [name for name in system_names() if read_last_block(DATA / "systems" / f"{name}.yaml", "errors")]


@cache
def memory_errors():
    """Mean errors of predicted memory on measured runs that no fit had seen, as the packaged fitted systems state them.

    Returns
    -------
    dict of str to float
        By system; 0.05 is 5 %.

    Examples
    --------
    >>> sorted(memory_errors())
    ['a100_bigscience', 'b200_simumax']
    """
    stated = {name: read_last_block(DATA / "systems" / f"{name}.yaml", "errors") for name in fitted_systems()}
    return {name: float(errors["memory"]["value"]) for name, errors in stated.items() if "memory" in errors}


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
