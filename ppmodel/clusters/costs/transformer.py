"""The operations of a transformer on one GPU: blocks, with attention and MLP or experts, embedding and loss head."""

from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.collectives import Collective
from ppmodel.clusters.costs.work import BlockOperation, GpuWork, Kernel, Work, exchange, gathering, scattering
from ppmodel.clusters.specs.formats import FORMATS
from ppmodel.clusters.specs.layout import DISPATCHERS
from ppmodel.clusters.specs.recompute import Module

_CAUSAL_HALF = 0.5
_UNFUSED = (16, 28), (28, 40)
"""Bytes a number, forward and backward, that experts with biases move beside fused kernels: the activation's input is
clamped, and the second bias, times a weight in single precision, is added expert by expert, in kernels of PyTorch, by
our count (Megatron-LM, core_v0.16.0, weighted_bias_quick_geglu_impl in fusions, _apply_bias in moe/experts.py)."""
_ROUTING = 40
"""Small kernels of a router of Megatron-LM in 2025, by our count: scores, best experts, masks, counts, loss."""

_ACTIVATIONS = {
    "MLP": Module.ACTIVATION, "experts": Module.EXPERT_ACTIVATION, "shared experts": Module.SHARED_ACTIVATION,
}  # fmt: skip

_PASSES = 14
"""Passes over what is rotated, in Megatron-LM's rotary embedding without fusion (core 0.12, rope_utils.py)."""

_SEARCH, _SEARCHED = 96, 1024
"""Bytes that PyTorch's passes would move while a kernel asks of one expert whether a token goes there, and numbers of a
token for which it asks once: 12 instructions in four warps, where those take some 30 for 32 numbers. Our estimate
(Transformer Engine before 2.6, triton/permutation.py; pull request 1927 calls it bad, and states no time)."""

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
        their place. Where kinds of blocks take turns, with experts and without, with a window and without, it is their
        mean. For the block of Korthikanti et al. (2022, Table 2), with 2-byte elements, an MLP of width 4h,
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
    share = 0.0 if dense or model.experts is None else 1 / model.experts.every
    branches = [operation.times(share) for operation in (expert_operations(gpu) if share else [])]
    if share < 1:
        branches += [operation.times(1 - share) for operation in mlp_operations(gpu, model.mlp_hidden)]
    return [
        gpu.norm("norm 1"), *attention_operations(gpu), gpu.residual(1), gpu.norm("norm 2"), *branches, gpu.residual(2)
    ]  # fmt: skip


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
    rows = model.vocabulary / gpu.tp + (model.sequence if model.learned_positions else 0)
    options = {"weight_grad_bytes": kept, "parameters": rows * model.hidden}
    return [BlockOperation("embedding", moved, weight_grad=moved, **options), *gpu.reduce("embedding")]


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
    volume = model.element_bytes * gpu.tokens * model.hidden
    norms = [gpu.norm(f"MTP norm {number}") for number in (1, 2)]
    left = [gathering("leave MTP", "tensor", volume)] if gpu.is_split else []
    return [*norms, *gpu.gather("MTP", width, [product]), *left, *block_operations(model, sequences, layout)]


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
    options = {"kernel": Kernel.UNQUANTISED, "parameters": model.hidden * vocabulary if is_stored else 0.0}
    output = gpu.linear("output projection", gpu.tokens, model.hidden, vocabulary, kept_rows=gpu.stream, **options)
    logits, width = gpu.tokens * vocabulary, model.element_bytes + _SINGLE
    works = (Work(flops * logits, width * logits) for flops in (5.0, 2.0))
    loss = BlockOperation("softmax and loss", *works, saved_bytes=_SINGLE * logits, kernel=Kernel.LOSS)
    operations = [gpu.norm("last norm"), *gpu.gather("head", model.hidden, [output])]
    if not gpu.is_split:
        return [*operations, loss]
    total = Collective("all-reduce", "tensor", _SINGLE * gpu.tokens)  # of the cross-entropy over a split vocabulary
    names = "largest logit", "logit of the label", "sum of the loss"
    largest, *others = (exchange(name, total, can_hide=False) for name in names)
    return [*operations, largest, loss, *others]


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

    With context parallelism, each GPU has the queries of two of 2 cp chunks of the sequence, one from either end, which
    balances causal attention. A ring passes on keys and values in forward and backward and, in the backward, also their
    gradients (Liu et al., 2023); otherwise they are gathered before each pass, and gradients are reduced and scattered
    (Grattafiori et al., 2024, section 3.3.2).
    """
    model, latent = gpu.model, gpu.model.latent_attention
    value_size = latent.value_head_size if latent else model.head_size
    heads = _Heads(model.heads / gpu.tp, np.maximum(model.kv_heads / gpu.tp, 1.0), model.head_size, value_size)
    if latent:
        projections = _latent_projections(gpu, heads)
    else:  # queries, keys and values in one product, with columns split over tp
        outputs = heads.queries * heads.size + 2 * heads.keys * heads.size
        product = gpu.linear("query-key-value", gpu.tokens, model.hidden, outputs, kept_rows=gpu.stream)
        projections = gpu.gather("attention", model.hidden, [product])
    if model.qk_norm:
        widths = gpu.tokens / gpu.stream * (heads.queries + heads.keys) * heads.size
        projections = [*projections, gpu.norm("query and key norms", widths, None)._replace(parameters=2 * heads.size)]
    core = _core(gpu, heads)
    if np.all(gpu.layout.cp > 1):
        volume = model.element_bytes * gpu.sequences * model.sequence * heads.keys * (heads.size + heads.value_size)
        if gpu.layout.context_exchange == "ring":
            ring, both = Collective("ring", "context", volume), Collective("ring", "context", 2 * volume)
            core = [exchange("ring of keys and values", ring, both, module=core[0].module), *core]
        else:
            again = exchange("gather keys and values again", input_grad=Collective("all-gather", "context", volume))
            core = [gathering("gather keys and values", "context", volume), *core, again]
    attended = heads.queries * heads.value_size
    kept_width = gpu.width(gpu.layout.kept_precision)  # attention's backward needs it in full
    projection = gpu.linear(
        "projection", gpu.tokens, attended, model.hidden, kept_width=kept_width, gradient_rows=gpu.stream
    )
    return [*projections, *core, projection, *gpu.reduce("attention")]


def _latent_projections(gpu, heads):
    """Queries, keys and values through low-rank latents (DeepSeek-AI, 2024, section 2.1).

    As in Megatron-LM, every GPU of a tensor group has the complete down-projections and applies them to its part of the
    stream; the latents are gathered, and the up-projections are split by heads. All heads share one rotary key.
    Norms of latents run again with the up-projections, of which they are a part in Transformer Engine.
    """
    latent, hidden, tokens, stream = gpu.model.latent_attention, gpu.model.hidden, gpu.tokens, gpu.stream
    options, rank = {"kept_rows": stream, "module": Module.LATENT}, latent.query_rank
    outputs = heads.queries * heads.size
    if rank:
        down, norm = gpu.linear("query down", stream, hidden, rank), gpu.norm("query norm", rank, Module.LATENT)
        queries = [down, norm, *gpu.gather("queries", rank, [gpu.linear("query up", tokens, rank, outputs, **options)])]
    else:  # directly from the stream, as in DeepSeek-V2-Lite
        query = gpu.linear("query", tokens, hidden, outputs, shares_input=True, **options)
        queries = gpu.gather("queries", hidden, [query])
    outputs = heads.keys * (latent.nope_head_size + latent.value_head_size)
    up = gpu.linear("key-value up", tokens, latent.key_value_rank, outputs, **options)
    widths = hidden, latent.key_value_rank + latent.rope_head_size
    down = gpu.linear("key-value down", stream, *widths, shares_input=rank > 0)  # with the queries
    norm = gpu.norm("key-value norm", latent.key_value_rank, Module.LATENT)
    keys = [down, norm, *gpu.gather("keys and values", latent.key_value_rank, [up], beside=latent.rope_head_size)]
    # what is rotated, and copies of queries and keys in one piece, and of values
    moved = _PASSES * heads.queries * latent.rope_head_size + 2 * (heads.queries + heads.keys) * heads.size
    moved += 2 * heads.keys * heads.value_size
    rotary = _pass("rotary embedding", Kernel.ROTARY, gpu.model.element_bytes * tokens * moved, Module.LATENT)
    return [*queries, *keys, rotary] if rank else [*keys, *queries, rotary]  # what keeps an input stands first


def _pass(name, kernel, moved, module=None):
    """A pass that only some frameworks run, forward and backward; its launches are not counted."""
    return BlockOperation(name, *2 * [Work(0.0, moved)], module=module, kernel=kernel, count=0)


def _core(gpu, heads):
    """From queries, keys and values to what the output projection reads.

    Fused, it is one kernel that keeps no scores and recomputes them in the backward (Dao et al., 2022). Otherwise there
    are two batched products, with the scores between them in memory; the batch counts as rows of a single product.
    Softmax and dropout are separate passes, or one kernel that also masks. Fused attention with a window skips what is
    outside: causal, a query meets as many keys in the mean as one of a sequence of (2 - w/s) w tokens.
    """
    model, width, length, cp = gpu.model, gpu.model.element_bytes, gpu.model.sequence, gpu.layout.cp
    query, key = gpu.tokens * heads.queries * heads.size, gpu.tokens * heads.keys * heads.size
    met, value = key * cp, heads.value_size / heads.size  # the keys that queries attend to; width of values over keys
    scores = gpu.sequences * heads.queries * length**2 / cp
    if model.attention == "fused":
        scores *= _CAUSAL_HALF if gpu.layout.causal else 1.0
        statistics = 4.0 * gpu.tokens * heads.queries
        core_bytes = width * (1 + value) * (query + met) + statistics
        moved = width * 2 * (1 + value) * (query + met) + statistics
        saved = width * (query + (1 + value) * key) + statistics  # the output is the projection's input, kept there

        def fused(name, keys):
            met = scores * (keys / length)
            flops = 2.0 * met * heads.size
            core = Work((1 + value) * flops + 5.0 * met, core_bytes)
            gradient = Work((3 + 2 * value) * flops + 10.0 * met, moved)
            shape = gpu.sequences * heads.queries, length / cp, keys, heads.size
            kernel = {"module": Module.SCORES, "kernel": Kernel.ATTENTION, "shape": shape}
            return BlockOperation(name, core, gradient, saved_bytes=saved, **kernel)

        everywhere, window = fused("attention (fused)", length), min(model.window, length)
        if not window:
            return [everywhere]
        within, share = fused("attention (window)", (2 - window / length) * window), 1 / (model.global_every or np.inf)
        return [within.times(1 - share), *([everywhere.times(share)] if share else [])]

    def product(name, size, elements, *shape, **kept):
        forward = Work(2.0 * scores * size, width * sum((*elements, scores)))
        backward = Work(2 * forward.flops, 2 * forward.bytes)  # a product for each input
        shape = scores / length, *shape
        return BlockOperation(name, forward, backward, module=Module.SCORES, kernel=Kernel.BATCHED, shape=shape, **kept)

    mask, dropout = (scores, Work(scores, (2 * width + 1) * scores)) if model.dropout else (0.0, None)
    if model.attention == "fused-softmax":
        results = 2 if dropout else 1  # the softmax, which its gradient needs, and what the dropout leaves of it
        forward = Work(5.0 * scores + mask, (1 + results) * width * scores + mask)
        backward = Work(4.0 * scores + mask, 3.0 * width * scores + mask)
        name = "softmax, mask and dropout" if dropout else "softmax and mask"
        passes = [(name, forward, backward, width * scores + mask, Kernel.FUSED_SOFTMAX)]
    else:
        forward, backward = Work(5.0 * scores, 2.0 * width * scores), Work(4.0 * scores, 3.0 * width * scores)
        passes = [("softmax", forward, backward, width * scores, Kernel.SOFTMAX)]
        passes += [("attention dropout", dropout, dropout, scores, Kernel.SOFTMAX)] if dropout else []
    return [
        product("scores", heads.size, (query, met), length, heads.size, saved_bytes=width * (query + key)),
        *(
            BlockOperation(name, *works, core_bytes=kept, module=Module.SCORES, kernel=kernel)
            for name, *works, kept, kernel in passes
        ),
        product(
            "context", heads.value_size, (query * value, met * value), heads.value_size, length,
            saved_bytes=width * key * value, core_bytes=width * scores if dropout else 0.0,
        ),
    ]  # fmt: skip


# ---- MLP and experts ---------------------------------------------------------------------------


def mlp_operations(gpu, size, place="MLP", *, shares_input=False):
    """From the normalised stream to the sum over tp of the second product, in the order of the forward.

    `size` is the hidden width, `place` the name of the products; another operation may keep the input of the first.
    """
    kept = {"kept_rows": gpu.stream, "shares_input": shares_input}
    up, *others = _products(gpu, gpu.tokens, size / gpu.tp, place, kept, gpu.stream)
    operations = [*gpu.gather(place, gpu.model.hidden, [up]), *others, *gpu.reduce(place)]
    return _marked(operations, Module.MLP if place == "MLP" else Module.SHARED)


def _marked(operations, module):
    """The operations, those in no module in this one."""
    return [operation._replace(module=operation.module or module) for operation in operations]


def _products(gpu, rows, size, place, of_first, of_last=None, **options):
    """Both products and the activation between them, which keeps its input (with a gate, both halves).

    `of_first` are options of the first product, `of_last` the gradient's rows of the last.
    """
    model, wide, kept_width = gpu.model, rows * size, gpu.width(gpu.layout.kept_precision)
    projections = 2 if model.gated_mlp else 1
    read, flops = projections * model.element_bytes * wide, (8.0 + projections) * wide
    moved = read + model.element_bytes * wide  # the backward also reads what was saved
    activation = BlockOperation(
        "activation" if place == "MLP" else f"{place} activation", Work(flops, moved), Work(flops, moved + read),
        saved_bytes=projections * kept_width * wide, module=_ACTIVATIONS[place], kernel=Kernel.ACTIVATION,
    )  # fmt: skip
    up = gpu.linear(f"{place} up", rows, model.hidden, projections * size, **of_first, **options)
    return [up, activation, gpu.linear(f"{place} down", rows, size, model.hidden, gradient_rows=of_last, **options)]


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
    keeps the model's precision (DeepSeek-AI, 2024, section 3.3.3). Grouped products in 8 bits need multiples of 16
    rows: copies are padded before and cut behind, which HybridEP does on its way (Megatron-Core 0.10 on, experts.py).
    """
    model, experts, layout, hidden = gpu.model, gpu.model.experts, gpu.layout, gpu.model.hidden
    number, per_token, width, rows = experts.number, experts.experts_per_token, model.element_bytes, gpu.stream
    # complete on every GPU: a product for the scores of all experts, without a bias, then softmax and the best of them
    scores = _SINGLE * rows * number
    best = Work(5.0 * rows * number, 2.0 * scores), Work(4.0 * rows * number, 3.0 * scores)
    router = gpu.linear("router", rows, hidden, number, kernel=Kernel.UNQUANTISED, parameters=hidden * number)
    operations = [router, BlockOperation("top experts", *best, saved_bytes=scores, count=_ROUTING)]
    if shared := experts.shared * experts.hidden:
        operations += mlp_operations(gpu, shared, "shared experts", shares_input=True)
    # the experts of one GPU, on the copies of its expert-tensor group
    repeats, here = gpu.is_split and not gpu.splits_stream, number / layout.ep  # the stream, on every GPU of a group
    gathers, sends = np.all(layout.expert_tp > 1) and not repeats, np.all(layout.ep > 1)
    copies = rows * (layout.expert_tp if gathers else 1) * per_token * layout.expert_imbalance
    inside = _products(gpu, copies, experts.hidden / layout.expert_tp, "experts", {}, count=here, experts=True)
    if model.bias:
        wide = copies * experts.hidden / layout.expert_tp
        bounds, biases = ([Work(0.0, moved * size) for moved in passes]
                          for passes, size in zip(_UNFUSED, (wide, copies * hidden), strict=True))  # fmt: skip
        kept = {"module": Module.EXPERT_ACTIVATION, "saved_bytes": 2 * width * wide}
        inside.insert(1, BlockOperation("bounds of experts", *bounds, kernel=Kernel.EAGER, count=3, **kept))
        inside.append(BlockOperation("biases of experts", *biases, kernel=Kernel.EAGER, count=3 * here))
    moved = Work(0.0, 2.0 * width * copies * hidden)
    if np.all(here > 1) and layout.precision not in (None, "bf16") and layout.dispatcher != "hybridep":
        inside = [BlockOperation("pad copies", moved, moved), *inside, BlockOperation("cut copies", moved, moved)]
    if sends and np.all(here > 1):
        to, back = (BlockOperation(f"sort copies by {key}", moved, moved) for key in ("expert", "sender"))
        inside = [to, *inside, back]
    if gathers:
        group, volume = "expert-tensor", width * copies * hidden
        inside = [gathering("gather copies", group, volume), *inside, scattering("scatter copies", group, volume)]
    if sends:
        elements = rows * per_token * layout.expert_imbalance * hidden
        widths = FORMATS[layout.dispatch_precision].kept_bytes or width, width
        sent, returned = (Collective("all-to-all", "expert", size * elements, (per_token, number)) for size in widths)
        to = exchange("all-to-all to experts", sent, returned)
        inside = [to, *inside, exchange("all-to-all from experts", returned, sent)]
    if not sends or layout.dispatcher not in DISPATCHERS[1:]:  # which read and write tokens where they are
        moved = width * rows * (1 + per_token) * hidden
        copied, summed = Work(0.0, moved), Work(rows * per_token * hidden, moved)
        searched = _SEARCH * rows * number * np.ceil(hidden / _SEARCHED)
        to, back = (_pass(f"search to {key}", Kernel.SEARCH, searched) for key in ("dispatch", "combine"))
        inside = [BlockOperation("dispatch", copied, summed), *inside, BlockOperation("combine", summed, copied)]
        inside = [to, *inside, back]
    if repeats:
        inside = [*gpu.gather("experts", hidden, []), *inside, *gpu.reduce("experts")]
    return _marked([*operations, *inside], Module.EXPERTS)
