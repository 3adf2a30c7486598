"""What a framework hides of tensor-parallel collectives, schedule by schedule."""

from functools import cache

import pandas as pd

from ppmodel import schedules
from ppmodel.ops import OpKind
from ppmodel.points import columns_of, frame_of, resolve, rows_of
from ppmodel.schedules.cases import as_case

MEGATRON = "Megatron-LM's"
OVERLAP = {
    "nothing": {"overlap_backward": False},
    MEGATRON: {"overlap_backward": True},
    "everything": {"overlap_tensor": True},
}
"""Switches of a layout for what is hidden; Megatron-LM's are for schedules that `hides_in_backward`."""


def stated_overlap(layout):
    """What is hidden in a layout: what its file states, and what Megatron-LM hides by default if it states nothing.

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
    "Megatron-LM's"
    """
    if layout.overlap_tensor:
        return "everything"
    stated = "overlap_backward" in [value.field for value in layout.provenance]
    return "nothing" if stated and not layout.overlap_backward else MEGATRON


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
    kinds = schedules.small(name).kind
    return bool((kinds == OpKind.B).sum() > (kinds == OpKind.W).sum())


def compare_overlapped(cases, pp, overlap=MEGATRON, *, tp, **given):
    """Compare schedules, each hiding what a framework would hide of its tensor-parallel collectives.

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
    >>> hidden, plain = (compare_overlapped(["1f1b", "zb-v"], 2, how, tp=2, **given) for how in (MEGATRON, "nothing"))
    >>> (hidden.tensor_s < plain.tensor_s).tolist()
    [True, False]
    """
    cases, frames = [as_case(case) for case in cases], []
    for whole in (True, False):
        group = [case for case in cases if hides_in_backward(case.name) == whole]
        switches = OVERLAP[overlap] if tp > 1 else {}
        if tp > 1 and overlap == MEGATRON and not whole:
            switches = {"overlap_backward": False}
        if group:
            grid = resolve(group, pp, tp=tp, **given, **switches)
            frames.append(frame_of(columns_of(grid), rows_of(grid.points())))  # no switch is the caller's choice
    return pd.concat(frames, ignore_index=True)
