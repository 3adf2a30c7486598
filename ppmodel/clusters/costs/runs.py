"""Many runs laid side by side, so that a system's costs of all of them take a few array operations.

What runs do does not depend on the system: their layers, then their stages, are laid next to each other once, and
priced by the functions that price a single run.
"""

import numpy as np

from ppmodel.clusters.costs import transfers
from ppmodel.clusters.costs.collectives import DATA_GROUPS, group_of
from ppmodel.clusters.costs.data_parallel import sharded_bytes
from ppmodel.clusters.costs.layers import NOTHING, LayerCosts, layer_bytes, layer_work
from ppmodel.clusters.costs.partition import check_layout, stage_layers
from ppmodel.clusters.costs.stage_costs import StageWork, compute_seconds, stage_work
from ppmodel.clusters.costs.work import PARTS, Phase
from ppmodel.simulation.transfers import link_kinds, link_values, over_links, receivers


class Runs:
    """Runs of one precision side by side, whose backwards hide no collectives.

    Parameters
    ----------
    tables : sequence of Schedule
        With one replica each.
    models : sequence of ModelSpec
    layouts : sequence of LayoutSpec
        Their layers must not be balanced, which depends on their times.
    system : SystemSpec
        Provides the nodes and links.

    Attributes
    ----------
    stages : list of slice
        The stages of each run among those of all.
    buffer_bytes : list of float
        Of each run, bytes of a GPU's communication buffers.

    Raises
    ------
    PPModelError
        If a layout does not suit model, system or schedule.
    """

    def __init__(self, tables, models, layouts, system):
        sizes = [table.num_stages for table in tables]
        bounds, of_run = np.cumsum([0, *sizes]).tolist(), np.repeat(np.arange(len(tables)), sizes)
        self.stages = list(map(slice, bounds, bounds[1:]))
        parts = (_work(*run, system) for run in zip(tables, models, layouts, strict=True))
        layers, works, sent, self.buffer_bytes, *crossings = zip(*parts, strict=True)
        self.layers = _joined_layers(layers, system)
        firsts = np.cumsum([0, *(len(work.layers) for work in layers)])[of_run]  # the first layer of each stage's run
        counts = np.zeros((len(of_run), max(len(work.layers) for work in layers)))  # 0 of what only other runs have
        for work, stages in zip(works, self.stages, strict=True):
            counts[stages, : work.counts.shape[1]] = work.counts
        index = np.minimum(firsts[:, None] + np.arange(counts.shape[1]), len(self.layers.layers) - 1)
        sharing = self.layers.sharing._make(column[firsts] for column in self.layers.sharing)
        columns = (np.concatenate(column) for column in zip(*(work[2:-1] for work in works), strict=True))
        self.work = StageWork(counts, index, *columns, sharing)
        self.message_bytes = np.array(sent)[of_run]
        crossings = (np.concatenate(crossing, axis=-1) for crossing in crossings)
        self.leaves, self.within, (self.delay_s, self.own_bandwidth) = crossings

    def tables(self, system):
        """Compute, occupancy and latency of every stage on a system, shape (3, 10, num_stages); see `OpCosts`."""
        system = system.timed
        parts_s, step_s = self.work.seconds(LayerCosts(self.layers, system))
        bandwidths = self.own_bandwidth if system.links else None
        both = (transfers.hockney_s(self.message_bytes, system, inside, bandwidths) for inside in (False, True))
        occupancy, latency = over_links(self.leaves, self.within, *both)
        latency = latency + np.where(self.leaves, self.delay_s, 0.0)
        return np.array([compute_seconds(parts_s.sum(axis=2).T, step_s), occupancy, latency])

    def bytes(self, system):
        """Bytes of every stage on a system, as `StageWork.bytes`."""
        return self.work.bytes(layer_bytes(self.layers.sizes, self.layers.sharing, system))

    def persistent_bytes(self):
        """Bytes of weights, gradients and optimizer state of every stage; see `costs.persistent_bytes`."""
        return sharded_bytes(self.work.parameters(self.layers.sizes.parameters), self.work.sharing)


def _work(schedule, model, layout, system):
    """The work of a run, the same on all systems with the same nodes.

    Its layers, its `StageWork`, bytes of a message as it is sent and of buffers; and of each kind of operation and
    stage, whether its transfer leaves its rank, whether it stays within a node, and delay and own bandwidth of the
    link.
    """
    layout = check_layout(layout, model, system, schedule)
    layers, cut = layer_work(model, layout.microbatch_size, layout), stage_layers(schedule, model, layout)
    nodes = transfers.pipeline_links(schedule, model, system, layout).nodes
    apart = np.arange(schedule.num_ranks) if nodes is None else nodes
    leaves, within = (mask[:, 0] for mask in link_kinds(schedule, apart))
    links = np.array(link_values(system.links, schedule.placement, receivers(schedule)))[:, :, 0]
    return (
        layers, stage_work(layers, schedule, model, layout, cut, nodes),
        transfers.sent_bytes(schedule, model, system, layout), transfers.buffer_bytes(schedule, model, layout),
        leaves, within, links,
    )  # fmt: skip


def _joined_layers(works, system):
    """The layers of several runs as those of one; collectives that take equally long share a line."""
    num_kernels = np.cumsum([0, *(len(work.kernels.slot) for work in works)])
    num_layers = np.cumsum([0, *(len(work.layers) for work in works)])
    lines, kernels, exchanges, sharing = {}, [], [], []
    for work, kernel, layer in zip(works, num_kernels, num_layers, strict=False):
        line = []  # equal collectives in groups placed alike share one
        for kind, group, drawn, layout in work.lines:
            nodes = (drawn, layout.expert_nodes, layout.dispatcher) if group == "expert" else None
            key = kind, group in DATA_GROUPS, group_of(group, layout, system), layout.tp, nodes
            line.append(lines.setdefault(key, (len(lines), (kind, group, drawn, layout)))[0])
        line = np.array(line)
        kernels.append(work.kernels._replace(slot=work.kernels.slot + layer * len(Phase)))
        columns = work.exchanges
        slot = columns.slot + layer * len(Phase) * len(PARTS)
        beside = np.where(columns.beside == NOTHING, NOTHING, columns.beside + kernel)
        exchanges.append(columns._replace(line=line[columns.line], slot=slot, beside=beside))
        gives = work.sharing._replace(reduction=line[work.sharing.reduction], gathering=line[work.sharing.gathering])
        sharing += [gives] * len(work.layers)
    first = works[0]
    return first._replace(
        layers=[layer for work in works for layer in work.layers], units=[], lines=[line for _, line in lines.values()],
        kernels=_joined(kernels), sizes=_joined([work.sizes for work in works]), exchanges=_joined(exchanges),
        sharing=first.sharing._make(map(np.array, zip(*sharing, strict=True))),
    )  # fmt: skip


def _joined(tuples):
    """The columns of several tuples of arrays, one after another."""
    return tuples[0]._make(map(np.concatenate, zip(*tuples, strict=True)))
