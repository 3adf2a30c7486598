"""Ways to recompute: what a layer keeps of its activations, and which forwards run again.

A new way is one entry of `KEEPS`, and its name in the specification of a model.
"""

from typing import NamedTuple


class Keeps(NamedTuple):
    """What a layer keeps from forward to backward: 1 or 0 for each.

    Parameters
    ----------
    saved : float
        What its operations save, apart from the core of attention; if they do not, their forwards run again.
    core : float
        The core of unfused attention, which is quadratic in the sequence length; or else it runs again.
    entry : float
        The input of its first operation.
    """

    saved: float
    core: float
    entry: float


KEEPS = {"none": Keeps(1.0, 1.0, 0.0), "selective": Keeps(1.0, 0.0, 0.0), "full": Keeps(0.0, 0.0, 1.0)}
"""By the name of the recomputation."""


def runs_again(operation, recompute):
    """Whether an operation's forward runs again before its backward."""
    keeps = KEEPS[recompute]
    return not (keeps.core if operation.core else keeps.saved)


def recompute_of(model, layout=None):
    """The name of a model's recomputation or, if only some blocks of a stage are recomputed fully, their number."""
    return model.recompute if layout is None or layout.recompute is None else layout.recompute
