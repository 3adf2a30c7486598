"""Ways to recompute: what a layer runs again before its backward, and need not keep. A new way is an entry of `MODES`.
Modules whose inputs may wait in the memory of the host instead are in `OFFLOADED`.

One that runs again what no `Module` is yet, or a part of one, also adds that, and marks its operations where they are
made, in `costs.transformer`.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple


class Module(Enum):
    """Operations that run again together; their results are then not kept. Values are the words of help texts.

    The output of attention, which comes from its scores, and the stream behind a dropout are exceptions. What is in no
    module, such as most products, runs again with the whole layer alone.
    """

    SCORES = "attention scores"
    NORM = "norms"
    DROPOUT = "dropout"
    ACTIVATION = "activation functions"
    LATENT = "up-projections of latents"
    MLP = "MLP"
    EXPERTS = "experts and their exchange"
    EXPERT_ACTIVATION = "activation functions of experts"
    SHARED = "shared experts"
    SHARED_ACTIVATION = "activation functions of shared experts"


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
    >>> print(MODES["mla_up_proj"])
    up-projections of latents
    """

    again: tuple
    is_tried: Callable = lambda _: False

    def __str__(self):
        return "everything" if None in self.again else ", ".join(module.value for module in self.again)


def again_of(recompute):
    """What runs again: `RecomputeMode.again` of one or several keys of `MODES` joined by ``+``.

    >>> [module.name for module in again_of("layernorm+moe_act")]
    ['NORM', 'EXPERT_ACTIVATION']
    """
    return tuple(module for name in recompute.split("+") for module in MODES[name].again)


_ACTIVATIONS = Module.ACTIVATION, Module.EXPERT_ACTIVATION, Module.SHARED_ACTIVATION
_SHARED, _CHEAP = (Module.SHARED, Module.SHARED_ACTIVATION), (Module.NORM, Module.DROPOUT)
MODES = {
    "none": RecomputeMode((), lambda _: True),
    "selective": RecomputeMode((Module.SCORES,), lambda model: model.attention != "fused"),  # which keeps no scores
    # frameworks run activation functions alone again in experts only, as data/launchers say
    "light": RecomputeMode((*_CHEAP, *_ACTIVATIONS, Module.LATENT), lambda model: model.experts is not None),
    "full": RecomputeMode((*Module, None)),  # tried as a number of layers instead
}
MODULES = {  # as Megatron-LM's --recompute-modules names them
    "core_attn": RecomputeMode((Module.SCORES,)),
    "layernorm": RecomputeMode((Module.NORM,)),
    "mla_up_proj": RecomputeMode((Module.LATENT,)),
    "mlp": RecomputeMode((Module.MLP, Module.ACTIVATION)),
    "moe": RecomputeMode((Module.EXPERTS, Module.EXPERT_ACTIVATION, *_SHARED)),
    "moe_act": RecomputeMode((Module.EXPERT_ACTIVATION,)),
    "shared_experts": RecomputeMode(_SHARED),
}
MODES |= MODULES
"""By name. What is light takes little time to run again (DeepSeek-AI, 2024, section 3.2.3; Megatron-LM's
``--recompute-modules layernorm moe_act mla_up_proj``); with dropout, which few models have, its masks are not kept
either (PipeOffload's ``--recompute-lgd``)."""

OFFLOADED = {  # as Megatron-LM's --offload-modules names them
    "attn_norm": ("norm 1",), "qkv_linear": ("query", "key"),
    "core_attn": ("attention", "scores", "softmax", "context"), "attn_proj": ("projection",), "mlp_norm": ("norm 2",),
    "expert_fc1": ("experts up",), "moe_act": ("experts activation", "bounds of experts"),
}  # fmt: skip
"""Modules of a block whose inputs can be offloaded, by name: with what the names of their operations begin."""


def tried_ways(model):
    """The ways to recompute that plans try, the least first; 1 stands for the fewest layers that are enough.

    >>> from ppmodel.clusters.specs import load_model
    >>> tried_ways(load_model("paper")), tried_ways(load_model("deepseek_v3"))
    (('none', 'selective', 1), ('none', 'light', 1))
    """
    return *(name for name, way in MODES.items() if way.is_tried(model)), 1
