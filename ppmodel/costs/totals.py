"""Totals of a whole model: parameters, and the arithmetic of one iteration as counted for utilization."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ppmodel.costs.transformer import block_operations, embedding_operations, head_operations, mtp_operations
from ppmodel.costs.work import Kernel
from ppmodel.specs.recompute import WAYS


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
    >>> from ppmodel.specs import load_model
    >>> parameters(load_model("llama3_70b")).total
    70553706496
    """
    embedding = sum(operation.parameters for operation in embedding_operations(model, 1))
    head = sum(operation.parameters for operation in head_operations(model, 1))
    total = active = embedding + head - (model.vocabulary * model.hidden if model.tied_embeddings else 0)
    used = model.experts.experts_per_token / model.experts.number if model.experts else 1.0
    for operations, number in _blocks(model):
        total += number * sum(operation.parameters for operation in operations)
        active += number * sum(operation.parameters * (used if operation.experts else 1.0) for operation in operations)
    return Parameters(round(total), round(active), round(embedding))


def _blocks(model):
    """The operations of a dense block and of one with experts on one sequence, with the number of each."""
    numbers = {True: model.dense_blocks, False: model.blocks - model.dense_blocks}
    return [(block_operations(model, 1, dense=dense), number) for dense, number in numbers.items() if number]


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
        What is recomputed, a key of `WAYS`, to count hardware FLOPs: with full recomputation, the blocks count four
        times their forward, 96Bslh^2 (1 + s/6h + V/16lh); with selective, only the scores and the context do.

    Returns
    -------
    float
        In FLOP, over all GPUs.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> model = load_model("gpt3_175b")
    >>> round(model_flops(model) / 1e15), round(model_flops(model, recompute="full") / 1e15)
    (3386, 4511)
    """
    plain = replace(model, attention="materialised")
    flops = 3 * (1 + model.mtp_layers) * _product_flops(head_operations(plain, 1))
    if model.mtp_layers:
        flops += 3 * model.mtp_layers * _product_flops(mtp_operations(plain, 1), causal)
    for operations, number in _blocks(plain):
        again = [operation for operation in operations if operation.module in WAYS[recompute].again]
        flops += number * (3 * _product_flops(operations, causal) + _product_flops(again, causal))
    return (model.global_batch if sequences is None else sequences) * flops


def _product_flops(operations, causal=False):
    """Forward FLOPs of the matrix products among a list of operations."""
    products = [operation for operation in operations if operation.is_product]
    halved = Kernel.BATCHED if causal else None
    return sum(product.forward.flops * (0.5 if product.kernel == halved else 1.0) for product in products)
