"""What a framework hides of tensor-parallel collectives, schedule by schedule, in the pages that give advice."""

from functools import cache

from ppmodel import evaluate, schedules
from ppmodel.cases import as_case
from ppmodel.ops import OpKind

MEGATRON = "Megatron-LM's"
OVERLAP = {"nothing": {}, MEGATRON: {"overlap_backward": True}, "everything": {"overlap_tensor": True}}
"""Switches of a layout for what is hidden; Megatron-LM's are for schedules that `hides_in_backward`."""


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
        switches = OVERLAP["nothing" if tp == 1 or (overlap == MEGATRON and not whole) else overlap]
        if some:
            frames.append(evaluate.compare(some, pp, tp=tp, **given, **switches))
    return pd.concat(frames, ignore_index=True)
