"""The kind of a schedule, determined from the table's structure rather than its name."""

from ppmodel.ops import OpKind

FAMILIES = ("one chunk", "one chunk, split backward", "loop", "V or waves", "two directions")
"""The values that `family` returns."""


def layout(schedule):
    """Classify how the stages of a schedule are placed on the ranks.

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    str
        *Two directions*: a second copy of the model runs in the opposite direction. *One chunk*: each rank has one
        stage. Otherwise it has several: dealt out in turn (*loop*), or in a zigzag that turns once (*V*) or more often
        (*waves*).

    Examples
    --------
    >>> from ppmodel import build
    >>> [layout(build(*case)) for case in (("1f1b", 4, 4), ("chimera", 4, 4), ("hanayo", 4, 4))]
    ['one chunk', 'two directions', 'V']
    """
    if schedule.num_replicas > 1:
        return "two directions"
    if schedule.chunks_per_rank == 1:
        return "one chunk"
    turns = (schedule.placement[:, 1:] == schedule.placement[:, :-1]).any()
    return ("V" if schedule.chunks_per_rank == 2 else "waves") if turns else "loop"


def family(schedule):
    """Classify a schedule by the structure of its table, not by its name.

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    str
        One of `FAMILIES`: its `layout`, with V and waves combined, and with one chunk divided by whether backwards
        are split.

    Examples
    --------
    >>> from ppmodel import build
    >>> [family(build(name, 4, 4)) for name in ("gpipe", "hanayo", "chimera")]
    ['one chunk', 'V or waves', 'two directions']
    """
    placement = layout(schedule)
    if placement == "one chunk" and (schedule.kind == OpKind.I).any():
        return "one chunk, split backward"
    return "V or waves" if placement in ("V", "waves") else placement
