"""The kind of a schedule, determined from the table's structure rather than its name."""

from ppmodel.ops import OpKind

FAMILIES = ("one chunk", "one chunk, split backward", "loop", "V or waves", "two directions")
"""The values that `family` returns."""


def family(schedule):
    """Classify a schedule by the structure of its table, not by its name.

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    str
        One of `FAMILIES`. *Two directions*: a second copy of the model runs in the opposite direction. *One chunk*:
        each rank has one stage, and backwards may be split. Otherwise it has several: dealt out in turn (*loop*), or in
        a zigzag that turns once or more often (*V or waves*).

    Examples
    --------
    >>> from ppmodel import build
    >>> [family(build(name, 4, 4)) for name in ("gpipe", "hanayo", "chimera")]
    ['one chunk', 'V or waves', 'two directions']
    """
    if schedule.num_replicas > 1:
        return "two directions"
    if schedule.chunks_per_rank == 1:
        return "one chunk, split backward" if (schedule.kind == OpKind.I).any() else "one chunk"
    return "V or waves" if (schedule.placement[:, 1:] == schedule.placement[:, :-1]).any() else "loop"
