"""A block, the embedding or the head as arrays: the kernels and collectives of the phases of its operations.

The work depends only on model and layout; its time on a system takes a few array operations. So a calibration, or a
sweep over systems, computes the work only once.
"""

from typing import NamedTuple

import numpy as np

from ppmodel.costs import roofline
from ppmodel.costs.collectives import collective_line
from ppmodel.costs.roofline import Kernels, kernels_s
from ppmodel.costs.work import NO_WORK

FORWARD, INPUT_GRAD, WEIGHT_GRAD, AGAIN = range(4)
"""The phases: forward, both halves of the backward, and the recomputed forward."""

PARTS = ("computing", "tensor", "context", "expert", "data")
"""The parts of an operation's seconds: kernels, and the exposed collectives of each group."""

PARTS_THAT_HIDE = slice(0, 2)
"""The parts that hide data-parallel collectives: kernels, and tensor-parallel collectives on other links."""

_NUM_PHASES, NOTHING = 4, -1
_STREAM = "norm", "last norm", "residual"
_OF_LOSS = "largest logit", "logit of the label", "sum of the loss"
_PRODUCT = roofline.PRODUCT, roofline.PRODUCT, roofline.WEIGHT_PRODUCT, roofline.PRODUCT


class Phases(NamedTuple):
    """Kernels and collectives of one or several lists of operations, by phase.

    Parameters
    ----------
    kernels : Kernels
        Those of all lists and phases in sequence.
    ends : list of int
        End of each phase of each list among the kernels.
    pairs : tuple of (str, str)
        Kinds and groups of collectives that occur.
    pair, slot, beside : ndarray of int, shape (num_collectives,)
        The collective's index in `pairs`; its list, phase and part as one number; and the kernel that may hide it.
    volume : ndarray of float, shape (num_collectives,)
        Bytes of the collective.
    kernel_of, collective_of : list of int
        The operation of its list that each kernel and collective belongs to.
    """

    kernels: Kernels
    ends: list
    pairs: tuple
    pair: np.ndarray
    slot: np.ndarray
    beside: np.ndarray
    volume: np.ndarray
    kernel_of: list
    collective_of: list


def phases_of(lists, again):
    """Convert lists of operations to arrays.

    Parameters
    ----------
    lists : sequence of list of BlockOperation
        For one microbatch, each in the order of the forward.
    again : sequence of str
        Recomputation of each list: ``none``, ``selective`` or ``full``.

    Returns
    -------
    Phases

    Examples
    --------
    >>> from ppmodel.costs import block_operations
    >>> from ppmodel.specs import load_model
    >>> found = phases_of([block_operations(load_model("paper"), 1)], ["selective"])
    >>> found.ends, found.pairs
    ([13, 26, 32, 36], ())
    """
    rows, ends, collectives, kernel_of = [], [], [], []
    for index, (operations, recompute) in enumerate(zip(lists, again, strict=True)):
        for phase in range(_NUM_PHASES):
            _add_phase(operations, phase, recompute, index * _NUM_PHASES + phase, rows, collectives, kernel_of)
            ends.append(len(rows))
    pairs = tuple(dict.fromkeys((one.kind, one.group) for one, *_ in collectives))
    number = {pair: index for index, pair in enumerate(pairs)}
    columns = [(number[one.kind, one.group], slot, beside) for one, slot, beside, _ in collectives]
    pair, slot, beside = np.array(columns, dtype=np.intp).reshape(-1, 3).T
    volume = np.array([one.bytes for one, *_ in collectives], dtype=float)
    of = kernel_of, [index for *_, index in collectives]
    return Phases(Kernels.of(rows), ends, pairs, pair, slot, beside, volume, *of)


def _add_phase(operations, phase, recompute, number, rows, collectives, kernel_of):
    """Append the kernels of a phase, and its collectives with the kernels that may hide them."""
    skipped = phase == AGAIN and recompute != "full"
    place = {}
    for index, operation in enumerate(operations):
        if skipped and (recompute == "none" or not operation.core):
            continue
        row = _kernel(operation, phase)
        if row is not None:
            place[index] = len(rows)
            rows.append(row)
            kernel_of.append(index)
    for index, operation in enumerate(operations):
        if skipped and (recompute == "none" or not operation.core):
            continue
        one = _collective(operation, phase)
        if one is not None:
            beside = _beside(operations, index, one, place)
            collectives.append((one, number * len(PARTS) + PARTS.index(one.group), beside, index))


def _kernel(operation, phase):
    """A row of `Kernels`, or None if the phase has no work."""
    work = (operation.forward, operation.input_grad, operation.weight_grad, operation.forward)[phase]
    if work == NO_WORK:
        return None
    rows = width = np.inf
    if operation.kind == "product" and not operation.core and operation.shape:
        m, n, k = operation.shape
        rows, width = (m, min(n, k)) if phase != WEIGHT_GRAD else (k, min(n, m))
    return work.flops, work.bytes, _kind(operation, phase), rows, width, operation.count


def _kind(operation, phase):
    """The efficiency class of an operation's kernel; products without weights are those of unfused attention."""
    if operation.kind == "product":
        return roofline.BATCHED if operation.core else _PRODUCT[phase]
    if operation.kind == "attention":
        return roofline.ATTENTION if phase in (FORWARD, AGAIN) else roofline.ATTENTION_BACKWARD
    if operation.name == "softmax and loss":
        return roofline.LOSS
    if operation.core:
        return roofline.FUSED_SOFTMAX if "mask" in operation.name else roofline.SOFTMAX
    if operation.name.endswith("activation"):
        return roofline.ACTIVATION
    return roofline.STREAM if operation.name.startswith(_STREAM) else roofline.MEMORY


def _collective(operation, phase):
    """The collective of a phase, or None."""
    comm = operation.forward_comm, operation.input_grad_comm, operation.weight_grad_comm, operation.forward_comm
    return comm[phase]


def _beside(operations, index, collective, place):
    """The kernel that may hide a collective: its product or, for a ring, the attention that it feeds.

    Collectives of the loss wait for all logits, or for each other, so no product hides them.
    """
    if collective.kind == "ring":
        found = [other for other in place if operations[other].kind == "attention"]
        return place[min(found, key=lambda other: abs(other - index))] if found else NOTHING
    if collective.group != "tensor" or operations[index].name in _OF_LOSS:
        return NOTHING
    products = [other for other in place if operations[other].kind == "product"]
    if _stands_before(operations[index]):
        return next((place[other] for other in products if other >= index), NOTHING)
    return next((place[other] for other in reversed(products) if other <= index), NOTHING)


def _stands_before(operation):
    """Whether an exchange comes before its products (Megatron-LM's f) rather than after them."""
    forward = operation.forward_comm
    return forward.kind == "all-gather" if forward else operation.input_grad_comm is not None


def phase_seconds(phases, system, layout=None):
    """Compute the seconds of each phase, by part.

    Parameters
    ----------
    phases : Phases
    system : SystemSpec
        Provides kernels and links.
    layout : LayoutSpec, optional
        Provides groups, precision, and whether tensor-parallel collectives are hidden: each up to the duration of its
        product, min(collective, product). A ring is always hidden under attention in this way.

    Returns
    -------
    ndarray of float, shape (num_lists, 4, 5)
        By list, phase and part; the kernels of a phase are summed in order.
    """
    taken, exposed = taken_s(phases, system, layout)
    seconds = np.zeros((len(phases.ends), len(PARTS)))
    if len(phases.volume):
        seconds = np.bincount(phases.slot, exposed, seconds.size).reshape(seconds.shape)
    listed, first = taken.tolist(), 0
    for row, end in enumerate(phases.ends):
        seconds[row, 0] = sum(listed[first:end])
        first = end
    return seconds.reshape(-1, _NUM_PHASES, len(PARTS))


def taken_s(phases, system, layout=None):
    """Seconds of each kernel, and exposed seconds of each collective; arguments as in `phase_seconds`."""
    taken = kernels_s(phases.kernels, system, layout.precision if layout else "bf16")
    return taken, _exposed(phases, taken, system, layout) if len(phases.volume) else np.empty(0)


def _exposed(phases, taken, system, layout):
    """Exposed seconds of each collective."""
    lines = np.array([collective_line(*pair, layout, system) for pair in phases.pairs])
    seconds = lines[phases.pair, 0] + lines[phases.pair, 1] * phases.volume
    hides = np.array([may_hide(*pair, layout) for pair in phases.pairs])
    return less_hidden(seconds, taken, hides[phases.pair], phases.beside)


def may_hide(kind, group, layout):
    """Whether a kernel may hide a collective."""
    return kind == "ring" or (group == "tensor" and layout.overlap_tensor)


def less_hidden(seconds, taken, hides, beside):
    """Seconds of collectives, minus those of the kernel that each may hide under."""
    under = np.append(taken, 0.0)[beside]
    return np.where(hides & (beside != NOTHING), np.maximum(seconds - under, 0.0), seconds)
