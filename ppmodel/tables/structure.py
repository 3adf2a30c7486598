"""What kind of schedule a table is, by its structure and not by its name."""

from ppmodel.ops import OpKind

LAYOUTS = ("one chunk", "loop", "V", "waves", "two directions")
"""What `layout` may say."""

FAMILIES = ("one chunk", "one chunk, split backward", "loop", "V or waves", "two directions")
"""What `family` may say."""


def layout(schedule):
    """How the stages of a schedule are placed on the ranks, in a word.

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    str
        One of `LAYOUTS`. *Two directions*: a second copy of the model runs against the first. *One chunk*: a rank
        has one stage. Else it has several: dealt out in turn, a *loop*, or in a zigzag, once in a *V* and more often
        in *waves*.

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
    """What kind of schedule a table is, by its structure and not by its name.

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    str
        One of `FAMILIES`: its `layout`, a V and waves being one; those of one chunk by whether
        they split backwards.

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
