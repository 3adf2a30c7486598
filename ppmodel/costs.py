"""What an operation, a transfer and a stage's memory cost: roofline, Hockney, and bytes.

The time of an operation of a transformer block is the longer of its arithmetic and its memory traffic,
t = max(FLOP / (peak e_c) + L_c, bytes / (bandwidth e_m) + L_m); of a transfer of V bytes, V / BW + L.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.errors import CostError
from ppmodel.ops import OpKind

_PARTS_KEPT = 2**12


@dataclass(frozen=True, eq=False)
class OpCosts:
    """Seconds for every kind of operation on every stage; the only thing that the engine knows of a system.

    Parameters
    ----------
    compute_s : ndarray of float, shape (5, num_stages) or (5, num_replicas, num_stages)
        Duration by `OpKind` and stage; without an axis for them, replicas are alike.
    occupancy_s, latency_s : ndarray of float, shape (5, num_stages) or (5, num_replicas, num_stages)
        Of the transfer of an operation's result: how long it holds its link or device, and how much
        later it arrives. Replicas differ where their stages lie on different nodes.
    overlap_factor : float
        Duration of a cell in which a forward meets a backward (F&B), relative to the sum of its operations; other cells
        that are shared take the sum.

    Raises
    ------
    CostError
        If a duration is negative or not finite, or a table has another shape.

    Examples
    --------
    >>> OpCosts(np.ones((5, 4)), np.zeros((5, 4)), np.zeros((5, 4))).num_stages
    4
    """

    compute_s: np.ndarray
    occupancy_s: np.ndarray
    latency_s: np.ndarray
    overlap_factor: float = 1.0

    def __post_init__(self):
        for name in ("compute_s", "occupancy_s", "latency_s"):
            table = np.asarray(getattr(self, name), dtype=float)
            if table.ndim not in (2, 3) or len(table) != len(OpKind) or table.shape[-1] != self.num_stages:
                rule = (
                    f"must be ({len(OpKind)}, stages) or ({len(OpKind)}, replicas, stages), with stages as in compute_s"
                )
                raise CostError(f"shape of {name}", table.shape, rule, "give a row for each kind of operation")
            if not (np.isfinite(table) & (table >= 0)).all():
                bad, rule = table[~(np.isfinite(table) & (table >= 0))][0], "must be finite and not negative"
                raise CostError(name, bad, rule, "check the durations, rates and sizes that it follows from")
            table.flags.writeable = False
            object.__setattr__(self, name, table)
        if not (np.ndim(self.overlap_factor) == 0 and np.isfinite(self.overlap_factor) and self.overlap_factor > 0):
            rule = "must be a finite number above 0"
            raise CostError("overlap_factor", self.overlap_factor, rule, "write 1 where nothing is won")

    @property
    def num_stages(self):
        """Stages that the costs are for: the columns of each array."""
        return np.shape(self.compute_s)[-1]

    def by_class(self, num_replicas):
        """The three tables, flattened as `ExecutionGraph.cost_class` counts: kind, replica, stage.

        Parameters
        ----------
        num_replicas : int
            Copies of the pipeline.

        Returns
        -------
        compute_s, occupancy_s, latency_s : ndarray of float, shape (5 * num_replicas * num_stages,)
            In seconds.

        Examples
        --------
        >>> [table.size for table in OpCosts(np.ones((5, 4)), np.zeros((5, 4)), np.zeros((5, 4))).by_class(2)]
        [40, 40, 40]
        """
        return tuple(table[:, 0] for table in side_by_side([self], num_replicas))


def side_by_side(many_costs, num_replicas, names=("compute_s", "occupancy_s", "latency_s")):
    """The tables of many systems side by side, flattened as `ExecutionGraph.cost_class` counts: kind, replica, stage.

    Parameters
    ----------
    many_costs : sequence of OpCosts
        For one number of stages.
    num_replicas : int
        Copies of the pipeline.
    names : sequence of str
        The tables that are wanted.

    Returns
    -------
    ndarray of float, shape (len(names), 5 * num_replicas * num_stages, len(many_costs))
        In seconds.

    Examples
    --------
    >>> costs = OpCosts(np.ones((5, 4)), np.zeros((5, 4)), np.zeros((5, 4)))
    >>> side_by_side([costs, costs, costs], 2).shape
    (3, 40, 3)
    """
    num_classes = len(OpKind) * num_replicas * (many_costs[0].num_stages if many_costs else 0)
    tables = np.empty((len(names), num_classes, len(many_costs)))
    for table, name in zip(tables, names, strict=True):
        _lay_flat([getattr(costs, name) for costs in many_costs], num_replicas, table)
    return tables


def _lay_flat(given, num_replicas, table):
    if num_replicas > 1:  # a table without an axis for replicas means that they are alike
        given = [np.repeat(one[:, None], num_replicas, axis=1) if one.ndim == 2 else one for one in given]
    else:
        given = [one.reshape(len(one), -1) for one in given]
    table[...] = np.array(given).reshape(len(given), -1).T


def uniform_costs(
    schedule, forward, backward=None, comm=0.0, *, latency=0.0, input_grad=None, weight_grad=None, pair=None,
    reduction=0.0, nodes=None, node_comm=0.0, node_latency=0.0,
):  # fmt: skip
    """Costs given as plain numbers, as the literature does.

    Parameters
    ----------
    schedule : Schedule
        Gives the stages and their shares of the model.
    forward, backward : float
        Seconds for one microbatch on 1/S of the model; a stage takes its share of them. Without `backward`
        it is the sum of its halves.
    comm : float
        Seconds that one transfer occupies. A transfer carries one microbatch whatever the stage's size,
        so only a schedule that cuts microbatches divides it.
    latency : float
        Seconds between the end of a transfer's occupancy and its arrival.
    input_grad, weight_grad : float, optional
        Seconds of the halves of the backward; half of `backward` each where not given.
    pair : float, optional
        Seconds of a forward and a whole backward that share a cell (F&B), their sum where not given. It makes the
        `overlap_factor` of all cells in which a forward meets a backward.
    reduction : float
        Seconds of one stage's gradient all-reduce, on 1/S of the model.
    nodes : sequence of int, optional
        The node of each device. `comm` and `latency` are then those between nodes.
    node_comm, node_latency : float
        As `comm` and `latency`, between two devices of one node.

    Returns
    -------
    OpCosts
        In seconds, by kind of operation and stage; with nodes, transfers also by replica.

    Raises
    ------
    CostError
        If a duration is negative or not finite, if neither `backward` nor both its halves are given, or if there
        is not one node for each device.

    Examples
    --------
    >>> from ppmodel import build
    >>> uniform_costs(build("hanayo", 4, 4, waves=2), forward=1, backward=2).compute_s[:, 0]
    array([0.25, 0.5 , 0.25, 0.25, 0.  ])
    >>> costs = uniform_costs(build("gpipe", 4, 4), 1, 2, comm=0.5, nodes=[0, 0, 1, 1], node_comm=0.1)
    >>> costs.occupancy_s[0, 0]
    array([0.1, 0.5, 0.1, 0. ])
    """
    if backward is None and (input_grad is None or weight_grad is None):
        raise CostError("backward", None, "is missing", "give backward, or input_grad and weight_grad")
    backward = input_grad + weight_grad if backward is None else backward
    input_grad = backward / 2 if input_grad is None else input_grad
    weight_grad = backward - input_grad if weight_grad is None else weight_grad
    given = {
        "forward": forward, "backward": backward, "comm": comm, "latency": latency, "input_grad": input_grad,
        "weight_grad": weight_grad, "reduction": reduction, "node_comm": node_comm, "node_latency": node_latency,
        **({} if pair is None else {"pair": pair}),
    }  # fmt: skip
    for name, value in given.items():
        if not (np.isfinite(value) and value >= 0):
            raise CostError(name, value, "must be a finite number of seconds, 0 or more", "pass for example 0.1")
    if pair is not None and forward + backward == 0:
        raise CostError("pair", pair, "is longer than its parts, which take no time", "give forward or backward")
    factor = 1.0 if pair is None else pair / (forward + backward)
    durations = np.array([forward, backward, input_grad, weight_grad])[:, None] * schedule.unit_shares
    compute = np.vstack((durations, reduction * schedule.stage_shares / schedule.chunks_per_device))
    times = [(comm / schedule.microbatch_parts, float(latency)), (node_comm / schedule.microbatch_parts, node_latency)]
    return OpCosts(compute, *_transfers(schedule, _checked_nodes(nodes, schedule), *times), overlap_factor=factor)


# ---- transfers -----------------------------------------------------------------------------------


def _checked_nodes(nodes, schedule):
    if nodes is None or np.shape(nodes) == (schedule.num_devices,):
        return nodes
    rule = f"must name the node of each device, of {schedule.num_devices}"
    raise CostError("nodes", np.asarray(nodes).tolist(), rule, "give one number for each device")


def _transfers(schedule, nodes, between, inside):
    """Occupancy and latency of every transfer: without nodes one pair of seconds, by stage; else one of two.

    Where nothing is sent, 0.
    """
    if nodes is None:
        return tuple(np.full((len(OpKind), schedule.num_stages), seconds) for seconds in between)
    sender, receiver = schedule.placement, receivers(schedule)
    same = np.asarray(nodes)[receiver] == np.asarray(nodes)[sender]
    return tuple(np.where(receiver == sender, 0.0, np.where(same, *pair)) for pair in zip(inside, between, strict=True))


def receivers(schedule):
    """The device that needs the result of an operation: of a forward the next stage's, of a gradient the previous.

    Parameters
    ----------
    schedule : Schedule
        Gives the placement of stages on devices.

    Returns
    -------
    ndarray of int, shape (5, num_replicas, num_stages)
        By `OpKind`; the operation's own device where nothing is sent.

    Examples
    --------
    >>> from ppmodel import build
    >>> receivers(build("gpipe", 3, 3))[:, 0].tolist()
    [[1, 2, 2], [0, 0, 1], [0, 0, 1], [0, 1, 2], [0, 1, 2]]
    """
    device = np.tile(schedule.placement, (len(OpKind), 1, 1))
    device[OpKind.F, :, :-1] = schedule.placement[:, 1:]
    device[[OpKind.B, OpKind.I], :, 1:] = schedule.placement[:, :-1]
    return device


def slowest_transfer_s(costs):
    """Seconds from sending a message to its arrival, of the transfer that takes longest.

    Parameters
    ----------
    costs : OpCosts
        Without nodes all transfers take as long.

    Returns
    -------
    float
        In seconds.

    Examples
    --------
    >>> from ppmodel import build
    >>> slowest_transfer_s(uniform_costs(build("gpipe", 4, 4), 1, 2, comm=0.5, nodes=[0, 0, 1, 1], node_comm=0.1))
    0.5
    """
    return float((costs.occupancy_s + costs.latency_s).max())


# ---- a transformer -------------------------------------------------------------------------------


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


def _linear(name, model, tokens, inputs, outputs):
    """A dense layer: one matrix product forward, one for each gradient; that of its weights needs input and gradient.

    Normalisations have weights as well, but so few that their gradients are held to be computed with the input's.
    """
    width = model.element_bytes
    flops = 2.0 * tokens * inputs * outputs
    moved = width * (tokens * inputs + inputs * outputs + tokens * outputs)
    return BlockOperation(
        name, Work(flops, moved), Work(flops, moved), Work(flops, moved),
        saved_bytes=width * tokens * inputs,
        weight_grad_bytes=width * tokens * (inputs + outputs),
        parameters=inputs * outputs + (outputs if model.bias else 0),
    )  # fmt: skip


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
    return BlockOperation(
        name,
        Work(5.0 * elements, 2.0 * width * elements),
        Work(8.0 * elements, 3.0 * width * elements),
        Work(2.0 * vectors * elements, 2.0 * width * elements),
        saved_bytes=width * elements,
        parameters=vectors * model.hidden,
    )


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
    moved = Work(elements, 2.0 * model.element_bytes * elements)
    positions = model.sequence if model.learned_positions else 0
    return [
        BlockOperation(
            "embedding",
            moved,
            NO_WORK,
            moved,
            weight_grad_bytes=model.element_bytes * elements,
            parameters=(model.vocabulary + positions) * model.hidden,
        )
    ]


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


def roofline_s(work, system):
    """Seconds of one kernel: the longer of its arithmetic and its memory traffic.

    Parameters
    ----------
    work : Work
        FLOP and bytes of the kernel.
    system : SystemSpec
        Gives peaks, efficiencies and the fixed cost on either side of the roofline.

    Returns
    -------
    float
        In seconds; 0 where there is no work.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> roofline_s(Work(1e15, 0), load_system("mid_cp_mid_nw"))
    1.0
    """
    if work == NO_WORK:
        return 0.0
    arithmetic = work.flops / (system.peak_compute_flops * system.compute_efficiency) + system.compute_latency_s
    traffic = work.bytes / (system.memory_bandwidth_bytes_per_s * system.memory_efficiency) + system.memory_latency_s
    return max(arithmetic, traffic)


def hockney_s(num_bytes, system, inside=False):
    """Occupancy and latency of one transfer: (V / BW, L).

    Parameters
    ----------
    num_bytes : float
        Bytes of the transfer, V.
    system : SystemSpec
        Gives bandwidth BW and latency L of one directed link.
    inside : bool
        Whether the link is one inside a node, of a system that has nodes.

    Returns
    -------
    occupancy_s, latency_s : float
        In seconds.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> hockney_s(50e9, load_system("mid_cp_mid_nw"))[0]
    1.0
    """
    if inside:
        return num_bytes / system.nodes.node_bandwidth_bytes_per_s, system.nodes.node_latency_s
    return num_bytes / system.network_bandwidth_bytes_per_s, system.network_latency_s


class Stage(NamedTuple):
    """What one stage of the model takes on one microbatch of the table.

    Parameters
    ----------
    blocks : int
        Transformer blocks of the stage.
    forward_s, input_grad_s, weight_grad_s : float
        Seconds; the input gradient's include the forward that recomputation runs again.
    activation_bytes : float
        Bytes kept from forward to backward.
    weight_grad_bytes : float
        Bytes kept from the input-gradient half of a backward to its weight-gradient half: the inputs of the dense
        layers and the gradients of their outputs, 32 sbh of a block (Qi et al., 2024, Table 1).
    parameters : float
        Number of parameters of the stage.
    """

    blocks: int
    forward_s: float
    input_grad_s: float
    weight_grad_s: float
    activation_bytes: float
    weight_grad_bytes: float
    parameters: float


def stage_blocks(schedule, model, blocks=None):
    """How many blocks each stage holds: its share of them, whole blocks, in order.

    Stage boundaries are the cumulative shares rounded to whole blocks (half up).

    Parameters
    ----------
    schedule : Schedule
        Gives the stages and their shares of the model.
    model : ModelSpec
        Gives the number of blocks.
    blocks : sequence of int, optional
        The blocks of each stage, where they are not to follow the schedule's shares.

    Returns
    -------
    ndarray of int, shape (num_stages,)
        Transformer blocks, stage by stage.

    Raises
    ------
    CostError
        If a stage would be left without a block, or given blocks are not the model's.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model
    >>> stage_blocks(build("asymmetric-chimera", 4, 4), load_model("paper")).tolist()
    [21, 22, 42, 43]
    """
    if blocks is not None:
        blocks = np.asarray(blocks)
        whole = np.issubdtype(blocks.dtype, np.integer) and blocks.shape == (schedule.num_stages,)
        if not whole or blocks.min() < 1 or blocks.sum() != model.blocks:
            rule = f"must be {schedule.num_stages} whole numbers of at least 1 that sum to {model.blocks}"
            raise CostError("blocks", blocks.tolist(), rule, "give one number for each stage")
        return blocks
    return _shared_blocks(schedule.name, schedule.stage_shares.tobytes(), model.blocks)


@lru_cache(_PARTS_KEPT)
def _shared_blocks(name, shares, num_blocks):
    """Whole blocks by the shares, as bytes; of the schedule itself, with its table, none is kept alive."""
    shares = np.frombuffer(shares)
    blocks = np.diff(np.floor(np.cumsum(shares) / len(shares) * num_blocks + 0.5 + 1e-9).astype(int), prepend=0)
    if blocks.min() < 1:
        rule = f"are too few for the {len(shares)} stages of {name}"
        raise CostError("blocks", num_blocks, rule, "choose fewer devices, chunks or waves, or a milder split")
    blocks.flags.writeable = False
    return blocks


def stages(schedule, model, system, blocks=None):
    """Times and bytes of every stage of a model on a schedule.

    Parameters
    ----------
    schedule : Schedule
        Gives the stages and the microbatches of the table.
    model : ModelSpec
        The first stage also holds its embedding, the last its head.
    system : SystemSpec
        One device, by its roofline.
    blocks : sequence of int, optional
        See `stage_blocks`.

    Returns
    -------
    list of Stage, length num_stages
        In seconds and bytes, for one microbatch of the table.

    Raises
    ------
    CostError
        If the model does not fit the schedule: too few blocks, or a batch that does not divide.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model, load_system
    >>> [stage.blocks for stage in stages(build("gpipe", 4, 4), load_model("paper"), load_system("mid_cp_mid_nw"))]
    [32, 32, 32, 32]
    """
    held = stage_blocks(schedule, model, blocks)
    columns = _stage_columns(schedule, model, system, held)
    return [Stage(*row) for row in zip(held.tolist(), *columns.tolist(), strict=True)]


def _stage_columns(schedule, model, system, held):
    """Times, activation bytes and parameters of the stages, one row for each field of `Stage` after the first."""
    block, first, last = (part[1:] for part in _parts(model, microbatch_sequences(schedule, model), system))
    columns = np.outer(block, held)
    columns[:, 0] += first
    columns[:, -1] += last
    return columns


def microbatch_sequences(schedule, model):
    """Sequences in one microbatch of the table; the global batch is fixed, so they shrink as B grows.

    Parameters
    ----------
    schedule : Schedule
        Gives B, as the table counts microbatches.
    model : ModelSpec
        Gives the global batch.

    Returns
    -------
    int
        Sequences, b.

    Raises
    ------
    CostError
        If the global batch does not divide into B microbatches of whole sequences.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model
    >>> model = load_model("paper")
    >>> model.global_batch // microbatch_sequences(build("gpipe", 4, 8), model)
    8
    """
    if model.global_batch % schedule.table_microbatches:
        rule = f"must divide into {schedule.table_microbatches} microbatches of whole sequences"
        remedy = "choose microbatches that divide it, or another global_batch"
        raise CostError("global_batch", model.global_batch, rule, remedy)
    return model.global_batch // schedule.table_microbatches


@lru_cache(_PARTS_KEPT)
def _parts(model, sequences, system):
    """What a block, the embedding and the head take on a microbatch; the same for all schedules."""
    return (
        _total(block_operations(model, sequences), model, system),
        _total(embedding_operations(model, sequences), model, system, recompute="none"),
        _total(head_operations(model, sequences), model, system, recompute="none"),
    )


def _total(operations, model, system, recompute=None):
    """The sum over operations, with what recomputation adds to the backward and takes from memory."""
    recompute = recompute or model.recompute
    forward, input_grad, weight_grad = (
        [roofline_s(getattr(operation, phase), system) for operation in operations]
        for phase in ("forward", "input_grad", "weight_grad")
    )
    again = sum(
        seconds
        for operation, seconds in zip(operations, forward, strict=True)
        if recompute == "full" or (recompute == "selective" and operation.core)
    )
    saved = sum(operation.saved_bytes for operation in operations)
    core = sum(operation.core_bytes for operation in operations)
    if recompute == "none":
        saved += core
    elif recompute == "full":
        saved = operations[0].saved_bytes  # the block's input alone
    held = sum(operation.weight_grad_bytes for operation in operations)
    parameters = sum(operation.parameters for operation in operations)
    return Stage(1, sum(forward), sum(input_grad) + again, sum(weight_grad), saved, held, parameters)


def message_bytes(schedule, model):
    """Bytes of one transfer: the activations, or their gradient, between two stages.

    Parameters
    ----------
    schedule : Schedule
        Gives the microbatches of the table.
    model : ModelSpec
        Gives global batch, sequence, hidden size and bytes of an element.

    Returns
    -------
    int
        Bytes for one microbatch of the table, b s h times those of an element.

    Raises
    ------
    CostError
        If the global batch does not divide into B microbatches of whole sequences.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model
    >>> model = load_model("paper")
    >>> message_bytes(build("gpipe", 4, 8), model) / message_bytes(build("gpipe", 4, 16), model)
    2.0
    """
    return microbatch_sequences(schedule, model) * model.sequence * model.hidden * model.element_bytes


def model_costs(schedule, model, system, blocks=None):
    """Costs of a model on a system, by roofline and Hockney.

    Parameters
    ----------
    schedule : Schedule
        Gives the stages, the microbatches of the table and the replicas.
    model : ModelSpec
        The first stage also holds its embedding, the last its head.
    system : SystemSpec
        One device and its network link; where it has nodes, two devices of one node use the link inside it.
    blocks : sequence of int, optional
        See `stage_blocks`.

    Returns
    -------
    OpCosts
        In seconds; with nodes, transfers also by replica. The all-reduce of a stage's gradients over r replicas is
        a ring: 2 (r-1)/r of their bytes at the bandwidth of its slowest link, and 2 (r-1) of its latencies.

    Raises
    ------
    CostError
        If the model does not fit the schedule: too few blocks, or a batch that does not divide.
    SpecificationError
        If the system lists the nodes of another number of devices.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model, load_system
    >>> costs = model_costs(build("1f1b", 8, 64), load_model("paper"), load_system("mid_cp_slow_nw"))
    >>> bool(0.1 < costs.occupancy_s[0, 0] / costs.compute_s[0, 0] < 0.3)
    True
    """
    forward, input_grad, weight_grad, _, _, parameters = _stage_columns(
        schedule, model, system, stage_blocks(schedule, model, blocks)
    )
    nodes = system.nodes and system.nodes.of_devices(schedule.num_devices)
    num_bytes = message_bytes(schedule, model)
    between = hockney_s(num_bytes, system)
    inside = between if nodes is None else hockney_s(num_bytes, system, inside=True)
    others = schedule.num_replicas - 1
    volumes = 2 * others / schedule.num_replicas * parameters * model.gradient_bytes
    ring = _ring_s(volumes, schedule, system, nodes)
    compute = np.array([forward, input_grad + weight_grad, input_grad, weight_grad, ring])
    return OpCosts(compute, *_transfers(schedule, nodes, between, inside))


def _ring_s(volumes, schedule, system, nodes):
    """Seconds of every stage's all-reduce over its replicas: all links of the ring wait for its slowest."""

    def over(inside):
        occupancy, latency = hockney_s(volumes, system, inside)
        return occupancy + 2 * (schedule.num_replicas - 1) * latency

    if nodes is None:
        return over(inside=False)
    at = nodes[schedule.placement]
    inside = at == np.roll(at, 1, axis=0)
    return np.maximum(np.where(inside.any(axis=0), over(True), 0), np.where(inside.all(axis=0), 0, over(False)))
