"""Ways to recompute: what a layer keeps of its activations. A new way is one entry of `KEEPS`.

It is more only if it keeps a part of a column.
"""

from typing import NamedTuple


class Keeps(NamedTuple):
    """What a layer keeps from forward to backward: 1, or 0 for what is computed again.

    Parameters
    ----------
    saved : float
        What its operations save, apart from the core of attention.
    core : float
        The core of unfused attention, which is quadratic in the sequence length.
    entry : float
        The input of its first operation.
    light : float
        The outputs of norms, activation functions and up-projections of latents, which take little time to run again
        (DeepSeek-AI, 2024, section 3.2.3; Megatron-LM's ``--recompute-modules layernorm moe_act mla_up_proj``).
    """

    saved: float
    core: float
    entry: float
    light: float


KEEPS = {
    "none": Keeps(1.0, 1.0, 0.0, 1.0), "selective": Keeps(1.0, 0.0, 0.0, 1.0), "light": Keeps(1.0, 1.0, 0.0, 0.0),
    "full": Keeps(0.0, 0.0, 1.0, 0.0),
}  # fmt: skip
"""By the name of the recomputation."""
