"""Totals of a whole model: parameters, and the arithmetic of one iteration as counted for utilization."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ppmodel.clusters.costs.transformer import layer_numbers, layer_operations
from ppmodel.clusters.costs.work import Kernel
from ppmodel.clusters.specs.recompute import again_of


class Parameters(NamedTuple):
    """Numbers of parameters of a model, without those of multi-token prediction, which are dropped after training.

    Parameters
    ----------
    total : int
        All of them; tied embeddings count once.
    active : int
        Those that process a given token: only `experts_per_token` of the routed experts.
    embedding : int
        Those of the embedding, included in both; some publications exclude them from the active ones, because a token
        looks up only one row.
    """

    total: int
    active: int
    embedding: int


@lru_cache(2**10)
def parameters(model):
    """Count the parameters of a model.

    Parameters
    ----------
    model : ModelSpec
        Without a vocabulary, it has neither embedding nor head.

    Returns
    -------
    Parameters

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> parameters(load_model("llama3_70b")).total
    70553706496
    """
    layers, numbers = layer_operations(model, 1), layer_numbers(model)
    total = active = -model.vocabulary * model.hidden * model.tied_embeddings
    used = model.experts.experts_per_token / model.experts.number if model.experts else 1.0
    for part, operations in layers.items():
        number = 0 if part in ("mtp", "loss") else numbers[part]
        total += number * sum(operation.parameters for operation in operations)
        active += number * sum(operation.parameters * (used if operation.experts else 1.0) for operation in operations)
    embedding = sum(operation.parameters for operation in layers["embedding"])
    return Parameters(round(total), round(active), round(embedding))


@lru_cache(2**10)
def model_flops(model, *, sequences=None, causal=False, recompute="none"):
    """Compute the arithmetic of one iteration as counted for model FLOPs utilization: only matrix products.

    Three times the forward's products: one for the forward and two in the backward, however the attention is computed.
    All scores count, including masked ones. This is the convention of PaLM (Chowdhery et al., 2022, appendix B), which
    gives 6N + 12lhs per token, where N is the number of parameters in products, and of Narayanan et al. (2021,
    equation 3): 72Bslh^2 (1 + s/6h + V/12lh).

    Parameters
    ----------
    model : ModelSpec
        Provides blocks, sequence length and vocabulary.
    sequences : int, optional
        Sequences per iteration; the model's `global_batch` by default.
    causal : bool
        Whether to count only the half of the scores that a causal mask leaves.
    recompute : str
        What is recomputed, a key of `MODES`, to count hardware FLOPs: with full recomputation, the blocks count four
        times their forward, 96Bslh^2 (1 + s/6h + V/16lh); with selective, only the scores and the context do.

    Returns
    -------
    float
        In FLOP, over all GPUs.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> model = load_model("gpt3_175b")
    >>> round(model_flops(model) / 1e15), round(model_flops(model, recompute="full") / 1e15)
    (3386, 4511)
    """
    numbers, flops = layer_numbers(model), 0.0
    for part, operations in layer_operations(replace(model, attention="materialised"), 1).items():
        again = again_of(recompute if part in ("dense", "block") else "none")
        for product in (operation for operation in operations if operation.is_product):
            share = 0.5 if causal and product.kernel == Kernel.BATCHED else 1.0
            flops += numbers[part] * (3 + (product.module in again)) * share * product.forward.flops
    return float((model.global_batch if sequences is None else sequences) * flops)
