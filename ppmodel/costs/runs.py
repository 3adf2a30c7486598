"""Many runs laid side by side, so that a system's costs of all of them take a few array operations.

What runs do does not depend on the system: their layers, then their stages, are laid next to each other once, and
priced by the functions that price a single run.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ppmodel.costs import transfers
from ppmodel.costs.collectives import DATA_GROUPS, group_of
from ppmodel.costs.data_parallel import sharded_bytes
from ppmodel.costs.layers import NOTHING, layer_bytes, layer_costs, layer_work
from ppmodel.costs.partition import check_layout, stage_layers
from ppmodel.costs.stages import (
    compute_seconds,
    layer_counts,
    stage_bytes,
    stage_parts_s,
    step_seconds,
    step_work,
    summed,
)
from ppmodel.costs.work import NUM_PHASES, PARTS


class RunWork(NamedTuple):
    """What a run does, the same on all systems with the same nodes.

    Parameters
    ----------
    table : Schedule
        With one replica.
    layout : LayoutSpec
        Complete.
    layers : LayerWork
    counts : ndarray of float, shape (num_stages, num_layers)
        How often each layer occurs in each stage.
    step : StepWork
    leaves, within : ndarray of bool, shape (6, num_stages)
        Whether a transfer leaves its rank, and whether it stays within a node.
    links : ndarray of float, shape (2, 6, num_stages)
        Delay and own bandwidth of the link that it crosses, from `transfers.link_values`.
    message_bytes, buffer_bytes : float
        Bytes of a message as it is sent, and of a GPU's communication buffers.
    """

    table: object
    layout: object
    layers: object
    counts: np.ndarray
    step: object
    leaves: np.ndarray
    within: np.ndarray
    links: np.ndarray
    message_bytes: float
    buffer_bytes: float


def run_work(schedule, model, system, layout, without=()):
    """Determine what a run does.

    Parameters
    ----------
    schedule : Schedule
        With one replica.
    model : ModelSpec
    system : SystemSpec
        Provides the nodes and links.
    layout : LayoutSpec
        Its layers must not be balanced, which depends on their times.
    without : collection of str
        Parts of an iteration to leave out, of recomputation, tensor, data and transfers.

    Returns
    -------
    RunWork

    Raises
    ------
    PPModelError
        If the layout does not suit model, system or schedule.
    """
    layout = check_layout(layout, model, system, schedule)
    layout = replace(layout, recompute="none") if "recomputation" in without else layout
    layers, cut = layer_work(model, layout.microbatch_size, layout), stage_layers(schedule, model, layout)
    nodes = transfers.pipeline_links(schedule, model, system, layout).nodes
    apart = np.arange(schedule.num_ranks) if nodes is None else nodes
    leaves, within = (mask[:, 0] for mask in transfers.link_kinds(schedule, apart))
    leaves = leaves & ("transfers" not in without)
    links = np.array(transfers.link_values(system.links, schedule.placement, transfers.receivers(schedule)))[:, :, 0]
    return RunWork(
        schedule, layout, layers, layer_counts(layers, cut, layout.recompute),
        step_work(schedule, model, layout, cut, nodes), leaves, within, links,
        transfers.sent_bytes(schedule, model, system, layout), transfers.buffer_bytes(schedule, model, layout),
    )  # fmt: skip


class Runs:
    """Runs of one precision side by side, whose backwards hide no collectives.

    Parameters
    ----------
    runs : list of RunWork
    system : SystemSpec
        Provides the nodes.
    without : collection of str
        As in `run_work`.

    Attributes
    ----------
    stages : list of slice
        The stages of each run among those of all.
    """

    def __init__(self, runs, system, without=()):
        self.layers = _joined_layers([run.layers for run in runs], system, without)
        sizes = [run.table.num_stages for run in runs]
        bounds, of_run = np.cumsum([0, *sizes]).tolist(), np.repeat(np.arange(len(runs)), sizes)
        self.stages = list(map(slice, bounds, bounds[1:]))
        self.counts = np.concatenate([run.counts for run in runs])
        self.index = of_run[:, None] * self.counts.shape[1] + np.arange(self.counts.shape[1])
        self.parameters = summed(self.layers.sizes.parameters, self.counts, self.index).T
        steps = _concatenated([run.step._replace(chunks=np.full(len(run.counts), run.step.chunks)) for run in runs], 4)
        sharing = self.layers.sharing
        self.step = runs[0].step._make([*steps, type(sharing)(*(column[self.index[:, 0]] for column in sharing))])
        self.message_bytes = np.array([run.message_bytes for run in runs])[of_run]
        self.leaves, self.within, (self.delay_s, self.own_bandwidth) = (
            np.concatenate([getattr(run, name) for run in runs], axis=-1) for name in ("leaves", "within", "links")
        )

    def tables(self, system):
        """Compute, occupancy and latency of every stage on a system, shape (3, 6, num_stages); see `OpCosts`."""
        system = system.timed
        layers = layer_costs(self.layers, system)
        parts_s = stage_parts_s(layers, self.counts, self.index)
        step_s = step_seconds(parts_s, self.parameters, self.step, layers)
        bandwidths = self.own_bandwidth if system.links else None
        between = inside = transfers.hockney_s(self.message_bytes, system, bandwidths=bandwidths)
        if system.nodes is not None:
            inside = transfers.hockney_s(self.message_bytes, system, inside=True, bandwidths=bandwidths)
        occupancy, latency = transfers.over_links(self.leaves, self.within, between, inside)
        latency = latency + np.where(self.leaves, self.delay_s, 0.0)
        return np.array([compute_seconds(parts_s.sum(axis=2).T, step_s), occupancy, latency])

    def bytes(self, system):
        """Bytes of every stage on a system, as `stage_bytes`."""
        return stage_bytes(layer_bytes(self.layers.sizes, self.layers.sharing, system), self.counts, self.index)

    def persistent_bytes(self):
        """Bytes of weights, gradients and optimizer state of every stage; see `costs.persistent_bytes`."""
        return sharded_bytes(self.parameters, self.step.sharing)


def _joined_layers(works, system, without):
    """The layers of several runs as those of one; collectives that take equally long share a line."""
    num_kernels = np.cumsum([0, *(len(work.kernel_slot) for work in works)])
    num_layers = np.cumsum([0, *(len(work.layers) for work in works)])
    numbers, lines, exchanges, sharing = {}, {}, [], []
    for work, kernel, layer in zip(works, num_kernels, num_layers, strict=False):
        line = []  # one for all collectives that do the same in groups placed alike
        for kind, group, copies, layout in work.lines:
            nodes = (copies, layout.expert_nodes) if group == "expert" else None
            key = kind, group in DATA_GROUPS, group_of(group, layout, system), layout.tp, nodes
            lines.setdefault(key, (kind, group, copies, layout))
            line.append(numbers.setdefault(key, len(numbers)))
        line = np.array(line)
        columns = work.exchanges
        slot = columns.slot + layer * NUM_PHASES * len(PARTS)
        beside = np.where(columns.beside == NOTHING, NOTHING, columns.beside + kernel)
        exchanges.append(columns._replace(line=line[columns.line], slot=slot, beside=beside))
        gives = work.sharing._replace(reduction=line[work.sharing.reduction], gathering=line[work.sharing.gathering])
        sharing += [gives] * len(work.layers)
    left_out = ("tensor",) * ("tensor" in without) + DATA_GROUPS * ("data" in without)
    first = works[0]
    return first._replace(
        layers=[layer for work in works for layer in work.layers], units=[],
        lines=[None if line[1] in left_out else line for line in lines.values()],
        kernels=_tuple_of(works, "kernels"), sizes=_tuple_of(works, "sizes"),
        kernel_slot=np.concatenate(
            [work.kernel_slot + layer * NUM_PHASES for work, layer in zip(works, num_layers, strict=False)]
        ),
        exchanges=first.exchanges._make(_concatenated(exchanges)),
        sharing=first.sharing._make(map(np.array, zip(*sharing, strict=True))),
    )  # fmt: skip


def _tuple_of(works, name):
    return getattr(works[0], name)._make(_concatenated([getattr(work, name) for work in works]))


def _concatenated(tuples, num_columns=None):
    """The columns of several tuples of arrays, one after another."""
    return [np.concatenate(column) for column in list(zip(*tuples, strict=True))[:num_columns]]
