"""Costs of a model on a system: every stage by roofline, every transfer by Hockney."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.costs.block import block_operations, embedding_operations, head_operations
from ppmodel.costs.partition import microbatch_sequences, stage_blocks
from ppmodel.costs.roofline import roofline_s
from ppmodel.costs.table import OpCosts
from ppmodel.costs.transfers import hockney_s, message_bytes, ring_s, transfer_costs

_PARTS_KEPT = 2**12


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


def stages(schedule, model, system, blocks=None):
    """Times and bytes of every stage of a model on a schedule.

    Parameters
    ----------
    schedule : Schedule
        Gives the stages and the microbatches of the table.
    model : ModelSpec
        The first stage also holds its embedding, the last its head.
    system : SystemSpec
        One rank, by its roofline.
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


def model_costs(schedule, model, system, blocks=None):
    """Costs of a model on a system, by roofline and Hockney.

    Parameters
    ----------
    schedule : Schedule
        Gives the stages, the microbatches of the table and the replicas.
    model : ModelSpec
        The first stage also holds its embedding, the last its head.
    system : SystemSpec
        One rank and its network link; where it has nodes, two ranks of one node use the link inside it.
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
        If the system lists the nodes of another number of ranks.

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
    nodes = system.nodes and system.nodes.of_ranks(schedule.num_ranks)
    num_bytes = message_bytes(schedule, model)
    between = hockney_s(num_bytes, system)
    inside = between if nodes is None else hockney_s(num_bytes, system, inside=True)
    others = schedule.num_replicas - 1
    volumes = 2 * others / schedule.num_replicas * parameters * model.gradient_bytes
    ring = ring_s(volumes, schedule, system, nodes)
    compute = np.array([forward, input_grad + weight_grad, input_grad, weight_grad, ring])
    nics = system.nodes and system.nodes.nics(schedule.num_ranks)
    return OpCosts(compute, *transfer_costs(schedule, nodes, between, inside), nics=nics)
