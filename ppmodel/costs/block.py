"""The operations of a transformer block, of the embedding before the first, and of the loss head after the last."""

from ppmodel.costs.attention import attention_operations
from ppmodel.costs.collectives import Collective
from ppmodel.costs.mlp import expert_operations, mlp_operations
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
    residual,
    share_of,
)

_SINGLE = 4
"""Bytes per number in single precision, in which the loss is computed."""


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
    >>> from ppmodel.specs import LayoutSpec, load_model
    >>> [operation.name for operation in block_operations(load_model("paper"), 1)][:4]
    ['norm 1', 'query-key-value', 'scores', 'softmax']
    >>> operations = block_operations(load_model("llama3_70b"), 1, LayoutSpec(tp=8))
    >>> [operation.name for operation in operations if operation.kernel is None]
    ['enter attention', 'leave attention', 'enter MLP', 'leave MLP']
    """
    share = share_of(model, sequences, layout)
    name = "residual and dropout" if model.dropout else "residual"
    with_mlp = dense or model.experts is None
    return [
        norm("norm 1", model, share.stream),
        *attention_operations(model, share),
        residual(f"{name} 1", model, share.stream),
        norm("norm 2", model, share.stream),
        *(mlp_operations(model, share, model.mlp_hidden) if with_mlp else expert_operations(model, share)),
        residual(f"{name} 2", model, share.stream),
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
    >>> from ppmodel.specs import load_model
    >>> [operation.name for operation in embedding_operations(load_model("gpt3_175b"), 1)]
    ['embedding']
    """
    if not model.vocabulary:
        return []
    share = share_of(model, sequences, layout)
    elements = share.tokens * model.hidden
    moved, kept = Work(elements, (1 + 1 / share.tp) * model.element_bytes * elements), model.element_bytes * elements
    positions = model.sequence if model.learned_positions else 0
    parameters = (model.vocabulary / share.tp + positions) * model.hidden
    looked_up = BlockOperation("embedding", moved, NO_WORK, moved, weight_grad_bytes=kept, parameters=parameters)
    return [looked_up, *reduce("embedding", model, share)]


def head_operations(model, sequences, layout=None):
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

    Returns
    -------
    list of BlockOperation
        Three operations in the order of the forward, with collectives if the vocabulary is split; or empty.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> [operation.name for operation in head_operations(load_model("gpt3_175b"), 1)]
    ['last norm', 'output projection', 'softmax and loss']
    """
    if not model.vocabulary:
        return []
    share = share_of(model, sequences, layout)
    words = model.vocabulary / share.tp
    output = linear("output projection", model, share.tokens, model.hidden, words, kept_rows=share.stream)
    here = layout is not None and layout.pp == 1 and model.tied_embeddings
    output = output._replace(parameters=0.0 if here else model.hidden * words)
    return [
        norm("last norm", model, share.stream),
        *gather("head", model, share, model.hidden, [output]),
        *_loss(model, share, share.tokens * words),
    ]


def _loss(model, share, logits):
    """Cross-entropy over a split vocabulary: all-reduces of the largest logit, the label's logit and the sum."""
    loss = BlockOperation(
        "softmax and loss", Work(5.0 * logits, (model.element_bytes + _SINGLE) * logits),
        Work(2.0 * logits, (model.element_bytes + _SINGLE) * logits), NO_WORK, saved_bytes=_SINGLE * logits,
        kernel=Kernel.LOSS,
    )  # fmt: skip
    if share.tp == 1:
        return [loss]
    names, total = ("largest logit", "logit of the label", "sum of the loss"), _SINGLE * share.tokens
    largest, label, denominator = (
        exchange(name, Collective("all-reduce", "tensor", total), can_hide=False) for name in names
    )
    return [largest, loss, label, denominator]


def working_bytes(operations):
    """Bytes of activations that a fully recomputed block holds while its backward runs.

    Parameters
    ----------
    operations : list of BlockOperation
        From `block_operations`.

    Returns
    -------
    float
        In bytes: everything that the block would keep without recomputation.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> model = load_model("paper")
    >>> elements = model.sequence * model.hidden
    >>> working_bytes(block_operations(model, 1)) == elements * (34 + 5 * model.heads * model.sequence / model.hidden)
    True
    """
    return sum(operation.saved_bytes + operation.core_bytes for operation in operations)


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
    >>> from ppmodel.specs import LayoutSpec, load_model
    >>> logits_bytes(load_model("llama3_70b"), 1, LayoutSpec(tp=8)) / 2**20
    751.5
    """
    share = share_of(model, sequences, layout)
    return (model.element_bytes + _SINGLE) * share.tokens * (model.vocabulary / share.tp)
