"""Attention on one GPU: its projections, grouped or latent, and scores, softmax and context."""

from typing import NamedTuple

from ppmodel.costs.collectives import Collective
from ppmodel.costs.work import (
    NO_WORK,
    BlockOperation,
    Kernel,
    Work,
    exchange,
    gather,
    linear,
    norm,
    reduce,
    sharing_input,
)

_CAUSAL_HALF = 0.5


class _Heads(NamedTuple):
    """Heads of a GPU and their widths: of queries and keys, and of values."""

    queries: float
    keys: float
    size: float
    value_size: float


def attention_operations(model, share):
    """From the normalised stream to the sum over tp of the output projection, in the order of the forward.

    If tp exceeds the number of key-value heads, each GPU has a copy of one (Megatron-LM).
    """
    latent = model.latent_attention
    value_size = latent.value_head_size if latent else model.head_size
    heads = _Heads(model.heads / share.tp, max(model.kv_heads / share.tp, 1.0), model.head_size, value_size)
    if latent:
        projections = _latent_projections(model, share, heads)
    else:  # queries, keys and values in one product, with columns split over tp
        outputs = heads.queries * heads.size + 2 * heads.keys * heads.size
        product = linear("query-key-value", model, share.tokens, model.hidden, outputs, kept_rows=share.stream)
        projections = gather("attention", model, share, model.hidden, [product])
    core = (_fused if model.attention == "fused" else _materialised)(model, share, heads)
    return [
        *projections,
        *_in_context(model, share, heads, core),
        linear("projection", model, share.tokens, heads.queries * heads.value_size, model.hidden),
        *reduce("attention", model, share),
    ]


def _latent_projections(model, share, heads):
    """Queries, keys and values through low-rank latents (DeepSeek-AI, 2024, section 2.1).

    As in Megatron-LM, every GPU of a tensor group has the complete down-projections and applies them to its part of the
    stream; the latents are gathered, and the up-projections are split by heads. All heads share one rotary key.
    """
    latent, stream = model.latent_attention, share.stream
    keys_and_values = latent.nope_head_size + latent.value_head_size
    up = linear(
        "key-value up", model, share.tokens, latent.key_value_rank, heads.keys * keys_and_values, kept_rows=stream
    )
    down = linear("key-value down", model, stream, model.hidden, latent.key_value_rank + latent.rope_head_size)
    return [
        *_latent_queries(model, share, heads),
        sharing_input(down) if latent.query_rank else down,  # the queries keep the same input
        norm("key-value norm", model, stream, latent.key_value_rank),
        *gather("keys and values", model, share, latent.key_value_rank, [up], beside=latent.rope_head_size),
    ]


def _latent_queries(model, share, heads):
    """Queries through their latent or, if its rank is 0 as in DeepSeek-V2-Lite, directly from the stream."""
    rank, outputs = model.latent_attention.query_rank, heads.queries * heads.size
    if not rank:
        up = linear("query", model, share.tokens, model.hidden, outputs, kept_rows=share.stream)
        return gather("queries", model, share, model.hidden, [sharing_input(up)])
    up = linear("query up", model, share.tokens, rank, outputs, kept_rows=share.stream)
    return [
        linear("query down", model, share.stream, model.hidden, rank),
        norm("query norm", model, share.stream, rank),
        *gather("queries", model, share, rank, [up]),
    ]


def _in_context(model, share, heads, core):
    """The core, between the collectives of context parallelism that exchange keys and values.

    Each GPU has the queries of two of 2 cp chunks of the sequence, one from either end, which balances causal
    attention. A ring passes on keys and values in forward and backward and, in the backward, also their gradients
    (Liu et al., 2023); otherwise they are gathered before each pass, and gradients are reduced and scattered
    (Grattafiori et al., 2024, section 3.3.2).
    """
    if share.cp == 1:
        return core
    volume = model.element_bytes * share.sequences * model.sequence * heads.keys * (heads.size + heads.value_size)
    if share.context_exchange == "ring":
        forward, backward = Collective("ring", "context", volume), Collective("ring", "context", 2 * volume)
        return [exchange("ring of keys and values", forward, backward, core=core[0].core), *core]
    whole, parts = Collective("all-gather", "context", volume), Collective("reduce-scatter", "context", volume)
    before = exchange("gather keys and values", whole, input_grad=parts)
    return [before, *core, exchange("gather keys and values again", input_grad=whole)]


def _traffic(model, share, heads):
    """Numbers of elements: queries, a GPU's own keys, the keys that its queries attend to, and scores."""
    query, key = share.tokens * heads.queries * heads.size, share.tokens * heads.keys * heads.size
    scores = share.sequences * heads.queries * model.sequence**2 / share.cp
    return query, key, key * share.cp, scores


def _fused(model, share, heads):
    """One kernel that keeps no scores and recomputes them in the backward (Dao et al., 2022)."""
    width, (query, key, met, scores) = model.element_bytes, _traffic(model, share, heads)
    value = heads.value_size / heads.size
    scores *= _CAUSAL_HALF if share.causal else 1.0
    flops = 2.0 * scores * heads.size
    statistics = 4.0 * share.tokens * heads.queries
    core = Work((1 + value) * flops + 5.0 * scores, width * (1 + value) * (query + met) + statistics)
    moved = width * 2 * (1 + value) * (query + met) + statistics
    gradient = Work((3 + 2 * value) * flops + 10.0 * scores, moved)
    saved = width * (query + (1 + value) * key) + statistics  # the output is the projection's input, kept there
    shape = share.sequences * heads.queries, model.sequence / share.cp, model.sequence, heads.size
    kernel = {"kernel": Kernel.ATTENTION, "shape": shape}
    return [BlockOperation("attention (fused)", core, gradient, NO_WORK, saved_bytes=saved, **kernel)]


def _materialised(model, share, heads):
    """Two batched products with the scores between them in memory; the batch counts as rows of a single product."""
    width, (query, key, met, scores) = model.element_bytes, _traffic(model, share, heads)
    value = heads.value_size / heads.size
    rows, length = scores / model.sequence, model.sequence
    kept = width * scores if model.dropout else 0.0
    first = _batched("scores", model, heads.size, (query, met, scores), (rows, length, heads.size))
    values = query * value, met * value, scores
    last = _batched("context", model, heads.value_size, values, (rows, heads.value_size, length))
    return [
        first._replace(saved_bytes=width * (query + key)),
        *_between(model, scores),
        last._replace(saved_bytes=width * key * value, core_bytes=kept),
    ]


def _batched(name, model, size, elements, shape):
    """A product of queries and keys, or scores and values, by heads; the backward has one for each input."""
    query, key, scores = elements
    product = Work(2.0 * scores * size, model.element_bytes * (query + key + scores))
    moved = model.element_bytes * (2 * query + 2 * key + 2 * scores)
    gradient = Work(2 * product.flops, moved)
    return BlockOperation(name, product, gradient, NO_WORK, core=True, kernel=Kernel.BATCHED, shape=shape)


def _between(model, scores):
    """Softmax and dropout of the scores, as separate passes or as one kernel that also masks."""
    width = model.element_bytes
    kept, mask = width * scores, scores if model.dropout else 0.0
    if model.attention == "fused-softmax":
        results = 2 if model.dropout else 1  # the softmax, which its gradient needs, and what the dropout leaves of it
        forward = Work(5.0 * scores + mask, (1 + results) * width * scores + mask)
        backward = Work(4.0 * scores + mask, 3.0 * width * scores + mask)
        name = "softmax, mask and dropout" if model.dropout else "softmax and mask"
        return [_pass(name, forward, backward, kept + mask, Kernel.FUSED_SOFTMAX)]
    softmax = _pass("softmax", Work(5.0 * scores, 2.0 * width * scores), Work(4.0 * scores, 3.0 * width * scores), kept)
    if not model.dropout:
        return [softmax]
    dropout = Work(scores, (2 * width + 1) * scores)
    return [softmax, _pass("attention dropout", dropout, dropout, scores)]


def _pass(name, forward, backward, kept, kernel=Kernel.SOFTMAX):
    return BlockOperation(name, forward, backward, NO_WORK, core_bytes=kept, core=True, kernel=kernel)
