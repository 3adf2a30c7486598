"""What a whole model comes to: its parameters, and the arithmetic of one iteration as utilization counts it."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ppmodel.costs.block import block_operations, embedding_operations, head_operations

_KEPT = 2**10


class Parameters(NamedTuple):
    """Numbers of parameters of a model.

    Parameters
    ----------
    total : int
        All of them; tied embeddings count once.
    active : int
        Those that a token meets: of the routed experts `experts_per_token` alone.
    embedding : int
        Those of the embedding, which both hold; some publications leave them out of the active ones, as a token
        looks up one row.
    """

    total: int
    active: int
    embedding: int


@lru_cache(_KEPT)
def parameters(model):
    """How many parameters a model has.

    Parameters
    ----------
    model : ModelSpec
        Without a vocabulary it has neither embedding nor head.

    Returns
    -------
    Parameters

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> parameters(load_model("llama3_70b")).total
    70553706496
    """
    embedding = _parameters(embedding_operations(model, 1))
    head = head_operations(model, 1)
    tied = model.vocabulary * model.hidden if model.tied_embeddings else 0
    total, active = embedding + _parameters(head) - tied, embedding + _parameters(head) - tied
    for operations, number in _blocks(model):
        total += number * _parameters(operations)
        active += number * sum(operation.parameters * _seen(model, operation) for operation in operations)
    return Parameters(round(total), round(active), round(embedding))


def _blocks(model):
    """The operations of a dense block and of one with experts on one sequence, and the number of each."""
    dense = model.dense_blocks
    both = (True, dense), (False, model.blocks - dense)
    return [(block_operations(model, 1, dense=is_dense), number) for is_dense, number in both if number]


def _parameters(operations):
    return sum(operation.parameters for operation in operations)


def _seen(model, operation):
    """The share of an operation's parameters that one token meets."""
    return model.experts.experts_per_token / model.experts.number if operation.experts else 1.0


@lru_cache(_KEPT)
def model_flops(model, *, sequences=None, causal=False, recompute="none"):
    """Arithmetic of one iteration as model FLOPs utilization counts it: the matrix products alone.

    Three times the forward's products, for the forward and the two products of each in the backward, however the
    attention is computed. All scores count, masked ones, too: the convention of PaLM (Chowdhery et al., 2022, appendix
    B), which is 6N + 12lhs for a token, where N are the parameters of products, and of Narayanan et al. (2021,
    equation 3): 72Bslh^2 (1 + s/6h + V/12lh).

    Parameters
    ----------
    model : ModelSpec
        Gives blocks, sequence and vocabulary.
    sequences : int, optional
        Sequences of the iteration, the model's `global_batch` by default.
    causal : bool
        Whether only the half of the scores counts that a causal mask leaves.
    recompute : {"none", "selective", "full"}
        What is computed again, for the FLOPs of the hardware: with full recomputation the blocks count four times
        their forward, 96Bslh^2 (1 + s/6h + V/16lh); with selective the scores and the context do.

    Returns
    -------
    float
        In FLOP, of all GPUs together.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> model = load_model("gpt3_175b")
    >>> round(model_flops(model) / 1e15), round(model_flops(model, recompute="full") / 1e15)
    (3386, 4511)
    """
    plain = replace(model, attention="materialised")
    again = {"none": (), "selective": (True,), "full": (True, False)}[recompute]
    total = 3 * _product_flops(head_operations(plain, 1))
    for operations, number in _blocks(plain):
        for core in (True, False):
            passes = 4 if core in again else 3
            scale = 0.5 if core and causal else 1.0
            total += number * passes * scale * _product_flops([one for one in operations if one.core is core])
    return (model.global_batch if sequences is None else sequences) * total


def _product_flops(operations):
    """Forward FLOPs of the matrix products among some operations."""
    return sum(operation.forward.flops for operation in operations if operation.kind == "product")
