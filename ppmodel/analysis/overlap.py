"""What a framework hides of tensor-parallel collectives, schedule by schedule."""

from functools import cache

from ppmodel import schedules
from ppmodel.costs.partition import has_whole_backwards
from ppmodel.points import columns_of, frame_of, resolve, rows_of

FRAMEWORKS = "the framework's"
OVERLAP = {"nothing": {"overlap_backward": False}, FRAMEWORKS: {}, "everything": {"overlap_tensor": True}}
"""Switches of a layout for what is hidden; without any, it is what the framework hides."""


def stated_overlap(layout):
    """What is hidden in a layout: what its file states, and what the framework hides if it states nothing.

    Parameters
    ----------
    layout : LayoutSpec
        Read from a file.

    Returns
    -------
    str
        A key of `OVERLAP`.

    Examples
    --------
    >>> from ppmodel.specs import load_layout
    >>> stated_overlap(load_layout("gpus_64"))
    "the framework's"
    """
    if layout.overlap_tensor:
        return "everything"
    stated = "overlap_backward" in [value.field for value in layout.provenance]
    return "nothing" if stated and not layout.overlap_backward else FRAMEWORKS


@cache
def hides_in_backward(name):
    """Whether most backwards of a schedule are whole, so that they can hide collectives under weight gradients.

    Parameters
    ----------
    name : str
        Of a schedule.

    Returns
    -------
    bool

    Examples
    --------
    >>> hides_in_backward("1f1b"), hides_in_backward("dualpipev"), hides_in_backward("zb-v")
    (True, True, False)
    """
    return has_whole_backwards(schedules.small(name))


def compare_overlapped(cases, pp, overlap=FRAMEWORKS, *, tp, **given):
    """Compare schedules that hide nothing, what the framework hides, or all of their tensor-parallel collectives.

    Parameters
    ----------
    cases : list
        Each as in `cases.as_case`.
    pp, tp : int
        Ranks, and devices of a tensor group.
    overlap : str
        A key of `OVERLAP`.
    **given
        As in `ppmodel.compare`.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> given = {"model": "llama3_8b", "system": "h100", "global_batch": 16, "sequence_parallel": True}
    >>> rows = {how: compare_overlapped(["1f1b", "zb-v"], 2, how, tp=2, **given) for how in OVERLAP}
    >>> (rows["the framework's"].tensor_s < rows["nothing"].tensor_s).tolist()
    [True, False]
    """
    grid = resolve(list(cases), pp, tp=tp, **given, **(OVERLAP[overlap] if tp > 1 else {}))
    return frame_of(columns_of(grid), rows_of(grid.points()))  # no switch is the caller's choice
