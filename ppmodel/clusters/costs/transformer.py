"""The operations of a transformer on one GPU: blocks, with attention and MLP or experts, embedding and loss head."""

from typing import NamedTuple

from ppmodel.clusters.costs.collectives import Collective
from ppmodel.clusters.costs.work import (
    FP8_WIDTH,
    NO_WORK,
    BlockOperation,
    GpuWork,
    Kernel,
    Work,
    exchange,
    gathering,
    scattering,
    sharing_input,
)
from ppmodel.clusters.specs.recompute import Module

_CAUSAL_HALF = 0.5
_DISPATCHED = {"fp8": FP8_WIDTH}
_ROUTING = 40
"""Small kernels of a router of Megatron-LM in 2025, by our count: scores, best experts, masks, counts, loss."""

_SINGLE = 4
"""Bytes per number in single precision, in which the loss and the router's probabilities are computed."""


def layer_operations(model, sequences, layout=None):
    """List what one GPU does in each layer of a model, in the order in which stages have them.

    Parameters
    ----------
    model : ModelSpec
    sequences : float
        Sequences per microbatch, b.
    layout : LayoutSpec, optional
        As in `block_operations`.

    Returns
    -------
    dict of str to list of BlockOperation
        ``embedding``, ``dense`` (leading blocks without experts, in a model with experts), ``block``, ``mtp``, ``loss``
        (of an MTP layer) and ``head``; those that the model has.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> [*layer_operations(load_model("paper"), 1)], [*layer_operations(load_model("deepseek_v3"), 1)]
    (['embedding', 'block', 'head'], ['embedding', 'dense', 'block', 'mtp', 'loss', 'head'])
    """
    run = model, sequences, layout
    layers = {"embedding": embedding_operations(*run)}
    if model.experts and model.dense_blocks:
        layers["dense"] = block_operations(*run, dense=True)
    layers["block"] = block_operations(*run)
    if model.mtp_layers:
        layers |= {"mtp": mtp_operations(*run), "loss": head_operations(*run, again=True)}
    return layers | {"head": head_operations(*run)}


def layer_numbers(model):
    """Count each layer of a model, by the names of `layer_operations`.

    >>> from ppmodel.clusters.specs import load_model
    >>> layer_numbers(load_model("deepseek_v3"))
    {'embedding': 1, 'dense': 3, 'block': 58, 'mtp': 1, 'loss': 1, 'head': 1}
    """
    dense, mtp = model.dense_blocks if model.experts else 0, model.mtp_layers
    return {"embedding": 1, "dense": dense, "block": model.blocks - dense, "mtp": mtp, "loss": mtp, "head": 1}


def block_operations(model, sequences, layout=None, *, dense=False):
    """List what one GPU does for one transformer block on a microbatch.

    Parameters
    ----------
    model : ModelSpec
        Its hidden size h, sequence s, attention heads a and precision.
    sequences : float
        Sequences per microbatch, b.
    layout : LayoutSpec, optional
        How the block is split over GPUs, with t in a tensor group. Without it, one GPU has the whole block and computes
        all scores.
    dense : bool
        Whether it is one of the leading blocks that have an MLP in a mixture of experts.

    Returns
    -------
    list of BlockOperation
        In the order of the forward; the backward is the same list in reverse. Collectives are separate operations at
        their place. For the block of Korthikanti et al. (2022, Table 2), with 2-byte elements, an MLP of width 4h,
        dropout and no grouping, forward products sum to sbh(24h + 4s) / t FLOPs, and saved and core bytes to
        sbh(34 + 5as/h); with tensor parallelism, to sbh(10 + 24/t + 5as/(ht)), and with sequence parallelism, to
        sbh(34 + 5as/h) / t.

    Examples
    --------
    >>> from ppmodel.clusters.specs import LayoutSpec, load_model
    >>> [operation.name for operation in block_operations(load_model("paper"), 1)][:4]
    ['norm 1', 'query-key-value', 'scores', 'softmax']
    >>> operations = block_operations(load_model("llama3_70b"), 1, LayoutSpec(tp=8))
    >>> [operation.name for operation in operations if operation.kernel is None]
    ['enter attention', 'leave attention', 'enter MLP', 'leave MLP']
    """
    gpu = GpuWork.of(model, sequences, layout)
    has_mlp = dense or model.experts is None
    return [
        gpu.norm("norm 1"),
        *attention_operations(gpu),
        gpu.residual(1),
        gpu.norm("norm 2"),
        *(mlp_operations(gpu, model.mlp_hidden) if has_mlp else expert_operations(gpu)),
        gpu.residual(2),
    ]


def embedding_operations(model, sequences, layout=None):
    """List the operations of the embedding before the first block; none if the model has no vocabulary.

    Parameters
    ----------
    model : ModelSpec
        Its vocabulary, sequence and hidden size.
    sequences : float
        Sequences per microbatch, b.
    layout : LayoutSpec, optional
        As in `block_operations`; each GPU of a tensor group has part of the vocabulary.

    Returns
    -------
    list of BlockOperation
        One operation, with a collective if the vocabulary is split; or empty.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> [operation.name for operation in embedding_operations(load_model("gpt3_175b"), 1)]
    ['embedding']
    """
    if not model.vocabulary:
        return []
    gpu = GpuWork.of(model, sequences, layout)
    elements = gpu.tokens * model.hidden
    moved, kept = Work(elements, (1 + 1 / gpu.tp) * model.element_bytes * elements), model.element_bytes * elements
    positions = model.sequence if model.learned_positions else 0
    parameters = (model.vocabulary / gpu.tp + positions) * model.hidden
    looked_up = BlockOperation("embedding", moved, NO_WORK, moved, weight_grad_bytes=kept, parameters=parameters)
    return [looked_up, *gpu.reduce("embedding")]


def mtp_operations(model, sequences, layout=None):
    """List the operations of a multi-token-prediction layer (DeepSeek-AI, 2024, section 2.2), but for its loss.

    Parameters
    ----------
    model : ModelSpec
    sequences : float
        Sequences per microbatch, b.
    layout : LayoutSpec, optional
        As in `block_operations`.

    Returns
    -------
    list of BlockOperation
        Norms of the stream and of the next tokens' embedding, a product that halves their joint width, gathered again
        if it is split, and a block.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> [operation.name for operation in mtp_operations(load_model("llama3_8b"), 1)][:4]
    ['MTP norm 1', 'MTP norm 2', 'MTP projection', 'norm 1']
    """
    gpu, width = GpuWork.of(model, sequences, layout), 2 * model.hidden
    product = gpu.linear("MTP projection", gpu.tokens, width, model.hidden / gpu.tp, kept_rows=gpu.stream)
    volume = float(model.element_bytes * gpu.tokens * model.hidden)
    return [
        *(gpu.norm(f"MTP norm {number}") for number in (1, 2)),
        *gpu.gather("MTP", width, [product]),
        *([gathering("leave MTP", "tensor", volume)] if gpu.tp > 1 else []),
        *block_operations(model, sequences, layout),
    ]


def head_operations(model, sequences, layout=None, *, again=False):
    """List the operations of the last normalisation, the output projection and the loss; none without a vocabulary.

    Parameters
    ----------
    model : ModelSpec
        Its vocabulary, sequence and hidden size.
    sequences : float
        Sequences per microbatch, b.
    layout : LayoutSpec, optional
        As in `block_operations`; each GPU of a tensor group has the logits of part of the vocabulary. If the embedding
        is tied, a pipeline with one stage stores it once.
    again : bool
        Whether the stage has another head already, whose projection this one uses.

    Returns
    -------
    list of BlockOperation
        Three operations in the order of the forward, with collectives if the vocabulary is split; or empty.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> [operation.name for operation in head_operations(load_model("gpt3_175b"), 1)]
    ['last norm', 'output projection', 'softmax and loss']
    """
    if not model.vocabulary:
        return []
    gpu = GpuWork.of(model, sequences, layout)
    vocabulary = model.vocabulary / gpu.tp
    is_stored = not again and (gpu.layout.pp != 1 or not model.tied_embeddings)
    output = gpu.linear(
        "output projection", gpu.tokens, model.hidden, vocabulary, kept_rows=gpu.stream, kernel=Kernel.UNQUANTISED,
        parameters=model.hidden * vocabulary if is_stored else 0.0,
    )  # fmt: skip
    logits, width = gpu.tokens * vocabulary, model.element_bytes + _SINGLE
    loss = BlockOperation(
        "softmax and loss", Work(5.0 * logits, width * logits), Work(2.0 * logits, width * logits), NO_WORK,
        saved_bytes=_SINGLE * logits, kernel=Kernel.LOSS,
    )  # fmt: skip
    operations = [gpu.norm("last norm"), *gpu.gather("head", model.hidden, [output])]
    if gpu.tp == 1:
        return [*operations, loss]
    names, total = ("largest logit", "logit of the label", "sum of the loss"), _SINGLE * gpu.tokens
    largest, label, denominator = (  # of the cross-entropy over a split vocabulary
        exchange(name, Collective("all-reduce", "tensor", total), can_hide=False) for name in names
    )
    return [*operations, largest, loss, label, denominator]


def logits_bytes(model, sequences, layout=None):
    """Bytes of the logits of one microbatch on a GPU while the loss is computed.

    Parameters
    ----------
    model, sequences, layout
        As in `head_operations`.

    Returns
    -------
    float
        In bytes, for one copy in the model's precision and one in single precision. The loss keeps the second copy for
        its backward, so it is also included in the saved bytes of `head_operations`.

    Examples
    --------
    >>> from ppmodel.clusters.specs import LayoutSpec, load_model
    >>> logits_bytes(load_model("llama3_70b"), 1, LayoutSpec(tp=8)) / 2**20
    751.5
    """
    gpu = GpuWork.of(model, sequences, layout)
    return (model.element_bytes + _SINGLE) * gpu.tokens * (model.vocabulary / gpu.tp)


# ---- attention ---------------------------------------------------------------------------------


class _Heads(NamedTuple):
    """Heads of a GPU and their widths: of queries and keys, and of values."""

    queries: float
    keys: float
    size: float
    value_size: float


def attention_operations(gpu):
    """From the normalised stream to the sum over tp of the output projection, in the order of the forward.

    If tp exceeds the number of key-value heads, each GPU has a copy of one (Megatron-LM).
    """
    model, latent = gpu.model, gpu.model.latent_attention
    value_size = latent.value_head_size if latent else model.head_size
    heads = _Heads(model.heads / gpu.tp, max(model.kv_heads / gpu.tp, 1.0), model.head_size, value_size)
    if latent:
        projections = _latent_projections(gpu, heads)
    else:  # queries, keys and values in one product, with columns split over tp
        outputs = heads.queries * heads.size + 2 * heads.keys * heads.size
        product = gpu.linear("query-key-value", gpu.tokens, model.hidden, outputs, kept_rows=gpu.stream)
        projections = gpu.gather("attention", model.hidden, [product])
    core = (_fused if model.attention == "fused" else _materialised)(gpu, heads)
    attended, kept_width = heads.queries * heads.value_size, gpu.kept_width()  # attention's backward needs it in full
    return [
        *projections,
        *_in_context(gpu, heads, core),
        gpu.linear("projection", gpu.tokens, attended, model.hidden, kept_width=kept_width),
        *gpu.reduce("attention"),
    ]


def _latent_projections(gpu, heads):
    """Queries, keys and values through low-rank latents (DeepSeek-AI, 2024, section 2.1).

    As in Megatron-LM, every GPU of a tensor group has the complete down-projections and applies them to its part of the
    stream; the latents are gathered, and the up-projections are split by heads. All heads share one rotary key.
    """
    latent, hidden, tokens, stream = gpu.model.latent_attention, gpu.model.hidden, gpu.tokens, gpu.stream
    outputs = heads.keys * (latent.nope_head_size + latent.value_head_size)
    options = {"kept_rows": stream, "module": Module.LATENT}
    up = gpu.linear("key-value up", tokens, latent.key_value_rank, outputs, **options)
    down = gpu.linear("key-value down", stream, hidden, latent.key_value_rank + latent.rope_head_size)
    rank, outputs = latent.query_rank, heads.queries * heads.size
    if rank:
        queries = [
            gpu.linear("query down", stream, hidden, rank),
            gpu.norm("query norm", rank),
            *gpu.gather("queries", rank, [gpu.linear("query up", tokens, rank, outputs, **options)]),
        ]
    else:  # directly from the stream, as in DeepSeek-V2-Lite
        query = gpu.linear("query", tokens, hidden, outputs, kept_rows=stream)
        queries = gpu.gather("queries", hidden, [sharing_input(query)])
    return [
        *queries,
        sharing_input(down) if rank else down,  # the queries keep the same input
        gpu.norm("key-value norm", latent.key_value_rank),
        *gpu.gather("keys and values", latent.key_value_rank, [up], beside=latent.rope_head_size),
    ]


def _in_context(gpu, heads, core):
    """The core, between the collectives of context parallelism that exchange keys and values.

    Each GPU has the queries of two of 2 cp chunks of the sequence, one from either end, which balances causal
    attention. A ring passes on keys and values in forward and backward and, in the backward, also their gradients
    (Liu et al., 2023); otherwise they are gathered before each pass, and gradients are reduced and scattered
    (Grattafiori et al., 2024, section 3.3.2).
    """
    if gpu.layout.cp == 1:
        return core
    model, widths = gpu.model, heads.size + heads.value_size
    volume = model.element_bytes * gpu.sequences * model.sequence * heads.keys * widths
    if gpu.layout.context_exchange == "ring":
        forward, backward = Collective("ring", "context", volume), Collective("ring", "context", 2 * volume)
        return [exchange("ring of keys and values", forward, backward, module=core[0].module), *core]
    again = exchange("gather keys and values again", input_grad=Collective("all-gather", "context", volume))
    return [gathering("gather keys and values", "context", volume), *core, again]


def _traffic(gpu, heads):
    """Numbers of elements: queries, a GPU's own keys, the keys that its queries attend to, and scores."""
    query, key = gpu.tokens * heads.queries * heads.size, gpu.tokens * heads.keys * heads.size
    scores = gpu.sequences * heads.queries * gpu.model.sequence**2 / gpu.layout.cp
    return query, key, key * gpu.layout.cp, scores


def _fused(gpu, heads):
    """One kernel that keeps no scores and recomputes them in the backward (Dao et al., 2022)."""
    width, (query, key, met, scores) = gpu.model.element_bytes, _traffic(gpu, heads)
    value, length = heads.value_size / heads.size, gpu.model.sequence
    scores *= _CAUSAL_HALF if gpu.layout.causal else 1.0
    flops = 2.0 * scores * heads.size
    statistics = 4.0 * gpu.tokens * heads.queries
    core = Work((1 + value) * flops + 5.0 * scores, width * (1 + value) * (query + met) + statistics)
    moved = width * 2 * (1 + value) * (query + met) + statistics
    gradient = Work((3 + 2 * value) * flops + 10.0 * scores, moved)
    saved = width * (query + (1 + value) * key) + statistics  # the output is the projection's input, kept there
    shape = gpu.sequences * heads.queries, length / gpu.layout.cp, length, heads.size
    kernel = {"kernel": Kernel.ATTENTION, "shape": shape}
    return [BlockOperation("attention (fused)", core, gradient, NO_WORK, saved_bytes=saved, **kernel)]


def _materialised(gpu, heads):
    """Two batched products with the scores between them in memory; the batch counts as rows of a single product."""
    model, (query, key, met, scores) = gpu.model, _traffic(gpu, heads)
    width, value = model.element_bytes, heads.value_size / heads.size
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
    return BlockOperation(name, product, gradient, NO_WORK, module=Module.SCORES, kernel=Kernel.BATCHED, shape=shape)


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
    return BlockOperation(name, forward, backward, NO_WORK, core_bytes=kept, module=Module.SCORES, kernel=kernel)


# ---- MLP and experts ---------------------------------------------------------------------------


def mlp_operations(gpu, size, place="MLP", *, shares_input=False):
    """From the normalised stream to the sum over tp of the second product, in the order of the forward.

    `size` is the hidden width, `place` the name of the products; another operation may keep the input of the first.
    """
    up, activation, down = _products(gpu, gpu.tokens, size / gpu.tp, place, kept_rows=gpu.stream)
    up = sharing_input(up) if shares_input else up
    return [*gpu.gather(place, gpu.model.hidden, [up]), activation, down, *gpu.reduce(place)]


def _products(gpu, rows, size, place, **options):
    """Both products and the activation between them, which keeps its input (with a gate, both halves)."""
    model, wide = gpu.model, rows * size
    projections = 2 if model.gated_mlp else 1
    read, flops = projections * model.element_bytes * wide, (8.0 + projections) * wide
    moved = read + model.element_bytes * wide  # the backward also reads what was saved
    forward, backward = Work(flops, moved), Work(flops, moved + read)
    activation = BlockOperation(
        "activation" if place == "MLP" else f"{place} activation", forward, backward, NO_WORK,
        projections * gpu.kept_width() * wide, module=Module.ACTIVATION, kernel=Kernel.ACTIVATION,
    )  # fmt: skip
    up = gpu.linear(f"{place} up", rows, model.hidden, projections * size, **options)
    down = gpu.linear(f"{place} down", rows, size, model.hidden, **(options | {"kept_rows": rows}))
    return up, activation, down


def expert_operations(gpu):
    """From the normalised stream to the experts' weighted sum, in the order of the forward.

    Tokens are spread evenly over experts, but for the layout's imbalance, and none is dropped. Experts are on `ep`
    groups of `etp` GPUs, over which each is split like an MLP. As in Megatron-LM, the weights of a token's experts are
    applied in their activation, so their outputs need not be kept. Shared experts are one MLP, whose input the router
    keeps.

    Tokens go to the GPUs of their experts and back, one copy per expert. A GPU sends its part of the tokens, and the
    copies that an expert-tensor group has received are gathered there. With tensor but without sequence parallelism,
    every GPU of a tensor group, which is then also the expert-tensor group, sends all tokens, and f and g are outside.
    Where a GPU has several experts, it sorts the copies that come from several senders, and back. What goes to experts,
    tokens and in the backward the gradients of their outputs, may have 8 bits; what they return
    keeps the model's precision (DeepSeek-AI, 2024, section 3.3.3).
    """
    model, experts, outside = gpu.model, gpu.model.experts, gpu.repeats_stream
    shared = experts.shared * experts.hidden
    per_token, copies = experts.experts_per_token, gpu.stream * experts.experts_per_token
    moved = model.element_bytes * (gpu.stream + copies) * model.hidden
    copied, summed = Work(0.0, moved), Work(float(copies * model.hidden), moved)
    elements = copies * gpu.layout.expert_imbalance * model.hidden
    widths = _DISPATCHED.get(gpu.layout.dispatch_precision, model.element_bytes), model.element_bytes
    dispatched, combined = (Collective("all-to-all", "expert", float(width * elements), per_token) for width in widths)
    outward = exchange("all-to-all to experts", dispatched, input_grad=combined)
    back = exchange("all-to-all from experts", combined, input_grad=dispatched)
    of_experts = _of_experts(gpu)
    # complete on every GPU: a product for the scores of all experts, then softmax and selection of the best
    rows, number = gpu.stream, experts.number
    scores = _SINGLE * rows * number
    best = Work(5.0 * rows * number, 2.0 * scores), Work(4.0 * rows * number, 3.0 * scores)
    weights = model.hidden * number  # without a bias
    return [
        gpu.linear("router", rows, model.hidden, number, kernel=Kernel.UNQUANTISED, parameters=weights),
        BlockOperation("top experts", *best, NO_WORK, saved_bytes=scores, count=_ROUTING),
        *(mlp_operations(gpu, shared, "shared experts", shares_input=True) if shared else []),
        *(gpu.gather("experts", model.hidden, []) if outside else []),
        BlockOperation("dispatch", copied, summed, NO_WORK),
        *([outward, *of_experts, back] if gpu.layout.ep > 1 else of_experts),
        BlockOperation("combine", summed, copied, NO_WORK),
        *(gpu.reduce("experts") if outside else []),
    ]  # fmt: skip


def _of_experts(gpu):
    """The experts of one GPU on the copies of its expert-tensor group."""
    model, experts, layout = gpu.model, gpu.model.experts, gpu.layout
    gathers = layout.expert_tp > 1 and not gpu.repeats_stream
    copies = gpu.stream * (layout.expert_tp if gathers else 1) * experts.experts_per_token * layout.expert_imbalance
    count = experts.number / layout.ep
    operations = _products(gpu, copies, experts.hidden / layout.expert_tp, "experts", count=count, experts=True)
    if layout.ep > 1 and count > 1:
        pass_ = Work(0.0, 2.0 * model.element_bytes * copies * model.hidden)
        to, back = (BlockOperation(f"sort copies by {key}", pass_, pass_, NO_WORK) for key in ("expert", "sender"))
        operations = to, *operations, back
    if not gathers:
        return operations
    volume = float(model.element_bytes * copies * model.hidden)
    before = gathering("gather copies", "expert-tensor", volume)
    return [before, *operations, scattering("scatter copies", "expert-tensor", volume)]
