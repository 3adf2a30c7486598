"""Arithmetic, memory traffic and saved bytes of the operations of a transformer."""

from typing import NamedTuple

from ppmodel.costs.collectives import Collective


class Work(NamedTuple):
    """Arithmetic and memory traffic of one kernel or of several.

    Parameters
    ----------
    flops : float
        Floating-point operations, in FLOP.
    bytes : float
        Bytes read from memory and written to it.
    """

    flops: float
    bytes: float


NO_WORK = Work(0.0, 0.0)


class BlockOperation(NamedTuple):
    """One operation of a transformer block, or of the embedding or the head, on one microbatch.

    Parameters
    ----------
    name : str
        What it is called in tables.
    forward, input_grad, weight_grad : Work
        Of the forward and of the two halves of the backward.
    saved_bytes : float
        Bytes of the activations that the backward needs and the forward keeps, those of `core_bytes` left out.
    core_bytes : float
        Bytes of those that grow with the square of the sequence, and that selective recomputation drops.
    weight_grad_bytes : float
        Bytes that the weight-gradient half still needs once the input-gradient half is done.
    parameters : float
        Number of parameters.
    core : bool
        Whether selective recomputation runs its forward again.
    kind : {"product", "attention", "memory"}
        Which efficiency it has: of a matrix product by its shape, of an attention kernel, or of a pass over memory.
    shape : tuple of float
        Of a product rows, columns and depth (m, n, k) forward, for one of `count`.
    count : float
        Kernels that it is made of, such as a GPU's experts; each has the fixed cost.
    forward_comm, input_grad_comm, weight_grad_comm : Collective, optional
        What follows the forward, and each half of the backward.
    """

    name: str
    forward: Work
    input_grad: Work
    weight_grad: Work
    saved_bytes: float = 0.0
    core_bytes: float = 0.0
    weight_grad_bytes: float = 0.0
    parameters: float = 0.0
    core: bool = False
    kind: str = "memory"
    shape: tuple = ()
    count: float = 1.0
    forward_comm: Collective | None = None
    input_grad_comm: Collective | None = None
    weight_grad_comm: Collective | None = None


def _linear(name, model, tokens, inputs, outputs):
    """A dense layer: one matrix product forward, one for each gradient; that of its weights needs input and gradient.

    Normalisations have weights as well, but so few that their gradients are held to be computed with the input's.
    """
    width = model.element_bytes
    flops = 2.0 * tokens * inputs * outputs
    moved = width * (tokens * inputs + inputs * outputs + tokens * outputs)
    product = Work(flops, moved)
    saved, kept = width * tokens * inputs, width * tokens * (inputs + outputs)
    parameters = inputs * outputs + (outputs if model.bias else 0)
    return BlockOperation(name, product, product, product, saved, weight_grad_bytes=kept, parameters=parameters)


def _elementwise(name, model, elements, *, flops, reads, saved):
    """A pass over memory that writes one result; the backward reads its gradient and what was saved, and
    writes a gradient for each input.
    """
    width = model.element_bytes
    forward = Work(flops * elements, width * elements * (reads + 1))
    backward = Work(flops * elements, width * elements * (1 + reads) + saved)
    return BlockOperation(name, forward, backward, NO_WORK, saved_bytes=saved)


def _residual(name, model, elements):
    """Dropout of a branch's output and its sum with the stream; backward, the sum of both gradients."""
    width = model.element_bytes
    mask = elements if model.dropout else 0.0
    undropped = 2 if model.dropout else 0  # the gradient in front of the dropout: one read, one written
    forward = Work(2.0 * elements, 3.0 * width * elements + mask)
    backward = Work(2.0 * elements, (3.0 + undropped) * width * elements + mask)
    return BlockOperation(name, forward, backward, NO_WORK, saved_bytes=mask)


def _norm(name, model, tokens):
    """Layer or RMS normalisation: a reduction over each row; its input is kept."""
    elements = tokens * model.hidden
    width, vectors = model.element_bytes, 2 if model.norm == "layernorm" else 1
    forward, input_grad = Work(5.0 * elements, 2.0 * width * elements), Work(8.0 * elements, 3.0 * width * elements)
    weight_grad = Work(2.0 * vectors * elements, 2.0 * width * elements)
    parameters = vectors * model.hidden
    return BlockOperation(name, forward, input_grad, weight_grad, saved_bytes=width * elements, parameters=parameters)


def _attention_core(model, sequences):
    """Scores, softmax, dropout and context: the part that is quadratic in the sequence."""
    width, length = model.element_bytes, model.sequence
    tokens = sequences * length
    query, key = tokens * model.heads * model.head_size, tokens * model.kv_heads * model.head_size
    scores = sequences * model.heads * length**2
    flops = 2.0 * scores * model.head_size
    if model.attention == "fused":
        statistics = 4.0 * sequences * model.heads * length
        core = Work(2 * flops + 5.0 * scores, width * (2 * query + 2 * key) + statistics)
        gradient = Work(5 * flops + 10.0 * scores, width * (4 * query + 4 * key) + statistics)
        saved = width * (query + 2 * key) + statistics  # the output is the projection's input, kept there
        return [BlockOperation("attention (fused)", core, gradient, NO_WORK, saved_bytes=saved)]
    product = Work(flops, width * (query + key + scores))
    products = Work(2 * product.flops, width * (2 * query + 2 * key + 2 * scores))
    softmax = Work(5.0 * scores, 2.0 * width * scores)
    softmax_gradient = Work(4.0 * scores, 3.0 * width * scores)
    kept = width * scores
    operations = [
        BlockOperation("scores", product, products, NO_WORK, saved_bytes=width * (query + key), core=True),
        BlockOperation("softmax", softmax, softmax_gradient, NO_WORK, core_bytes=kept, core=True),
    ]
    if model.dropout:
        passed = Work(scores, (2 * width + 1) * scores)
        operations.append(BlockOperation("attention dropout", passed, passed, NO_WORK, core_bytes=scores, core=True))
    dropped = kept if model.dropout else 0.0
    context = BlockOperation(
        "context", product, products, NO_WORK, saved_bytes=width * key, core_bytes=dropped, core=True
    )
    return [*operations, context]


def block_operations(model, sequences):
    """The operations of one transformer block on a microbatch.

    Parameters
    ----------
    model : ModelSpec
        Its hidden size h, sequence s, attention heads a and precision.
    sequences : float
        Sequences in the microbatch, b.

    Returns
    -------
    list of BlockOperation
        In the order of the forward. Their products sum to sbh(24h + 4s) FLOPs forward, and their saved and core
        bytes to sbh(34 + 5as/h), for the block of Korthikanti et al. (2022): 2-byte elements, 4h wide MLP,
        dropout, no grouping.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> [operation.name for operation in block_operations(load_model("paper"), 1)][:4]
    ['norm 1', 'query-key-value', 'scores', 'softmax']
    """
    tokens, hidden = sequences * model.sequence, model.hidden
    inner, kv = model.heads * model.head_size, model.kv_heads * model.head_size
    elements = tokens * hidden
    wide = tokens * model.mlp_hidden
    projections = 2 if model.gated_mlp else 1
    name = "residual and dropout" if model.dropout else "residual"

    saved = projections * model.element_bytes * wide
    activation = _elementwise("activation", model, wide, flops=8.0 + projections, reads=projections, saved=saved)
    return [
        _norm("norm 1", model, tokens),
        _linear("query-key-value", model, tokens, hidden, inner + 2 * kv),
        *_attention_core(model, sequences),
        _linear("projection", model, tokens, inner, hidden),
        _residual(f"{name} 1", model, elements),
        _norm("norm 2", model, tokens),
        _linear("MLP up", model, tokens, hidden, projections * model.mlp_hidden),
        activation,
        _linear("MLP down", model, tokens, model.mlp_hidden, hidden),
        _residual(f"{name} 2", model, elements),
    ]


def embedding_operations(model, sequences):
    """The embedding in front of the first block; none where the model names no vocabulary.

    Parameters
    ----------
    model : ModelSpec
        Its vocabulary, sequence and hidden size.
    sequences : float
        Sequences in the microbatch, b.

    Returns
    -------
    list of BlockOperation
        One operation, or empty.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> [operation.name for operation in embedding_operations(load_model("gpt3_175b"), 1)]
    ['embedding']
    """
    if not model.vocabulary:
        return []
    elements = sequences * model.sequence * model.hidden
    moved, kept = Work(elements, 2.0 * model.element_bytes * elements), model.element_bytes * elements
    parameters = (model.vocabulary + (model.sequence if model.learned_positions else 0)) * model.hidden
    return [BlockOperation("embedding", moved, NO_WORK, moved, weight_grad_bytes=kept, parameters=parameters)]


def head_operations(model, sequences):
    """The last normalisation, the output projection and the loss; none where no vocabulary is named.

    Parameters
    ----------
    model : ModelSpec
        Its vocabulary, sequence and hidden size.
    sequences : float
        Sequences in the microbatch, b.

    Returns
    -------
    list of BlockOperation
        Three operations in the order of the forward, or empty.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> [operation.name for operation in head_operations(load_model("gpt3_175b"), 1)]
    ['last norm', 'output projection', 'softmax and loss']
    """
    if not model.vocabulary:
        return []
    tokens = sequences * model.sequence
    logits = tokens * model.vocabulary
    output = _linear("output projection", model, tokens, model.hidden, model.vocabulary)
    output = output._replace(parameters=model.hidden * model.vocabulary)
    single = 4  # the loss is computed in single precision
    loss = BlockOperation(
        "softmax and loss", Work(5.0 * logits, (model.element_bytes + single) * logits),
        Work(2.0 * logits, (model.element_bytes + single) * logits), NO_WORK, saved_bytes=single * logits,
    )  # fmt: skip
    return [_norm("last norm", model, tokens), output, loss]
