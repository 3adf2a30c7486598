"""Ways to recompute: what a layer runs again before its backward, and need not keep. A new way is an entry of `MODES`.

One that runs again what no `Module` is yet, or a part of one, also adds that, and marks its operations where they are
made, in `costs.transformer`.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple


class Module(Enum):
    """Operations that run again together; their results are then not kept. Values are the words of help texts.

    The output of attention, which comes from its scores, is an exception. What is in no module, such as most products,
    runs again with the whole layer alone.
    """

    SCORES = "attention scores"
    NORM = "norms"
    ACTIVATION = "activation functions"
    LATENT = "up-projections of latents"


class RecomputeMode(NamedTuple):
    """A way to recompute.

    Parameters
    ----------
    again : tuple of Module or None
        What runs again. None stands for what is in no module; with it everything runs again, and a layer keeps its
        input alone.
    is_tried : callable
        Whether `plan` tries the way for a `ModelSpec`.

    Examples
    --------
    >>> print(MODES["light"])
    norms, activation functions, up-projections of latents
    """

    again: tuple
    is_tried: Callable

    def __str__(self):
        return "everything" if None in self.again else ", ".join(module.value for module in self.again)


MODES = {
    "none": RecomputeMode((), lambda _: True),
    "selective": RecomputeMode((Module.SCORES,), lambda model: model.attention != "fused"),  # which keeps no scores
    # frameworks run activation functions alone again in experts only, as data/launchers say
    "light": RecomputeMode((Module.NORM, Module.ACTIVATION, Module.LATENT), lambda model: model.experts is not None),
    "full": RecomputeMode((*Module, None), lambda _: False),  # as a number of layers instead
}
"""By name. What is light takes little time to run again (DeepSeek-AI, 2024, section 3.2.3; Megatron-LM's
``--recompute-modules layernorm moe_act mla_up_proj``)."""
