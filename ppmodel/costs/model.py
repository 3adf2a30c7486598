"""Costs of a model on a system: its stages, the transfers between them, and what pairs of operations gain."""

from functools import cache

from ppmodel.costs.layers import layers_of
from ppmodel.costs.offload import offload_of
from ppmodel.costs.pairs import pair_costs
from ppmodel.costs.partition import microbatch_sequences
from ppmodel.costs.stages import compute_seconds, stages
from ppmodel.costs.table import OpCosts
from ppmodel.costs.transfers import pipeline_links, ring_s, transfer_costs
from ppmodel.ops import OpKind


def model_costs(schedule, model, system, layout=None):
    """Compute the costs of a model on a system.

    Parameters
    ----------
    schedule : Schedule
        Provides the stages, the microbatches of the table and the replicas.
    model : ModelSpec
        The first stage also has the embedding, and the last the loss head.
    system : SystemSpec
        One rank and its network link; if it has nodes, two ranks of one node use the link within it.
    layout : LayoutSpec, optional
        Complete, from `check_layout`, which nothing here repeats; see `stages`.

    Returns
    -------
    OpCosts
        In seconds, with the `Stages` they come from; with nodes, transfers also by replica. The all-reduce of a stage's
        gradients over r replicas is a ring: 2 (r-1)/r of their bytes at the bandwidth of its slowest link, plus 2 (r-1)
        of its latencies. With a layout, the collectives of data-parallel ranks follow, and the optimizer step with the
        gathering of parameters.

    Raises
    ------
    CostError
        If the model does not fit the schedule: too few blocks, or a batch that does not divide.
    SpecificationError
        If the system lists nodes for a different number of ranks.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model, load_system
    >>> costs = model_costs(build("1f1b", 8, 64), load_model("paper"), load_system("mid_cp_slow_nw"))
    >>> bool(0.1 < costs.occupancy_s[0, 0] / costs.compute_s[0, 0] < 0.3), costs.stages.blocks[0]
    (True, np.int64(16))
    """
    system = system.timed
    of_stages = stages(schedule, model, system, layout)
    links = pipeline_links(schedule, model, system, layout)
    halves_s = of_stages.forward_s, of_stages.input_grad_s, of_stages.weight_grad_s
    compute = compute_seconds(halves_s, (of_stages.reduction_s, of_stages.gather_s, of_stages.optimizer_s))
    if others := schedule.num_replicas - 1:
        volumes = 2 * others / schedule.num_replicas * of_stages.parameters * model.gradient_bytes
        compute[OpKind.R] += ring_s(volumes, schedule, system, links.nodes)
    transfers = transfer_costs(schedule, links)
    pairs = handed = offload = None
    if layout is not None:
        offload = offload_of(schedule, of_stages.activation_bytes, layout, system)
        if schedule.joined.any() and schedule.pairs.keys:
            times = layers_of(model, microbatch_sequences(schedule, model, layout), system, layout).pair_times
            pairs, handed = pair_costs(schedule, of_stages, times, early=layout.hand_on == "when_ready")
    return OpCosts(
        compute, *transfers, nics=links.nics, pairs=pairs, handed=handed, offload=offload, stages=of_stages,
        delay_s=links.delay_s,
    )  # fmt: skip


def cell_streams_of(schedule, model, system, layout):
    """Prepare what runs when on the two streams of a rank, for the cells of a table.

    Parameters
    ----------
    schedule, model, system, layout
        As in `model_costs`; with a layout.

    Returns
    -------
    callable or None
        Maps the operations of a cell, a tuple of (OpKind, stage) in order, to `units.CellStreams`; None if the layout
        has no collectives.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.ops import OpKind
    >>> from ppmodel.specs import LayoutSpec, load_model, load_system
    >>> run = build("stp", 2, 8), load_model("llama3_70b"), load_system("h100"), LayoutSpec(tp=8)
    >>> streams = cell_streams_of(*run)(((OpKind.F, 0),))
    >>> len(streams.compute), len(streams.comm)
    (42, 41)
    """
    times = layers_of(model, microbatch_sequences(schedule, model, layout), system, layout).pair_times
    if not times.exposes:
        return None
    counts = stages(schedule, model, system, layout=layout).counts
    return cache(lambda cell: times.streams([(kind, counts[stage]) for kind, stage in cell]))
