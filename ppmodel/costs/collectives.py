"""Collectives between the GPUs of a layout: what they move, and how long that takes on the links they use."""

from typing import NamedTuple


class Collective(NamedTuple):
    """A collective that an operation waits for.

    Parameters
    ----------
    kind : {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring"}
        A ring passes blocks around, as context parallelism does with keys and values.
    group : {"tensor", "context", "expert", "data"}
        The GPUs that take part.
    bytes : float
        Of the whole tensor: what is reduced on every GPU, what each holds after an all-gather or before a
        reduce-scatter or a ring has gone round, what each sends and keeps in an all-to-all.
    """

    kind: str
    group: str
    bytes: float
