"""What a framework hides of tensor-parallel collectives, schedule by schedule, in the pages that give advice."""

from functools import cache

from ppmodel import schedules
from ppmodel.ops import OpKind
from ppmodel.points import compare
from ppmodel.schedules.cases import as_case

MEGATRON, _BACKWARD = "Megatron-LM's", "overlap_backward"
OVERLAP = {"nothing": {}, MEGATRON: {_BACKWARD: True}, "everything": {"overlap_tensor": True}}
"""Switches of a layout for what is hidden; Megatron-LM's are for schedules that `hides_in_backward`."""

_WORDS = {
    "nothing": "nothing, as the layout says (`overlap_backward: false`).",
    MEGATRON: "what Megatron-LM hides by default (`overlap_backward`). A whole backward runs the collectives of its "
    "input gradients under its weight gradients; schedules that split most of their backwards cannot.",
    "everything": "all that adjacent GEMMs can, as the layout says (`overlap_tensor: true`).",
}
_ASSUMED = " That is assumed, since the layout does not say it; `overlap_backward: false` in its file turns it off."


def _is_stated(layout):
    return _BACKWARD in [one.field for one in layout.provenance]


def hidden_by(layout):
    """What is hidden in a layout: what its file states, and what Megatron-LM hides if it states nothing.

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
    >>> hidden_by(load_layout("gpus_64"))
    "Megatron-LM's"
    """
    if layout.overlap_tensor:
        return "everything"
    return "nothing" if _is_stated(layout) and not layout.overlap_backward else MEGATRON


def in_words(layout):
    """What is hidden in a layout, as sentences that also say if it is assumed; see `hidden_by`."""
    how = hidden_by(layout)
    return _WORDS[how] + _ASSUMED * (how == MEGATRON and not _is_stated(layout))


def command_switch(layout):
    """The option of ``ppmodel simulate`` that makes a layout hide what `hidden_by` says; empty if it does by itself."""
    return " --overlap-backward" * (hidden_by(layout) == MEGATRON and not layout.overlap_backward)


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


def compared(cases, pp, overlap=MEGATRON, *, tp, **given):
    """Simulate schedules in layouts of one tensor parallelism, each hiding what a framework would hide of it.

    Parameters
    ----------
    cases : list
        Each as in `cases.as_case`.
    pp, tp : int
        Ranks, and devices of a tensor group.
    overlap : str
        A key of `OVERLAP`.
    **given
        As in `evaluate.compare`.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> given = {"model": "llama3_8b", "system": "h100", "global_batch": 16, "sequence_parallel": True}
    >>> hidden, plain = (compared(["1f1b", "zb-v"], 2, how, tp=2, **given).tensor_s for how in (MEGATRON, "nothing"))
    >>> (hidden < plain).tolist()
    [True, False]
    """
    import pandas as pd

    cases, frames = [as_case(one) for one in cases], []
    for whole in (True, False):
        some = [one for one in cases if hides_in_backward(one.name) == whole]
        switches = {} if tp == 1 else {_BACKWARD: False} if overlap == MEGATRON and not whole else OVERLAP[overlap]
        if some:
            frames.append(compare(some, pp, tp=tp, **given, **switches))
    return pd.concat(frames, ignore_index=True)
