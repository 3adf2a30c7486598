"""Cells that hold a forward and a backward: the units of each stage, and how long its pairs take."""

from functools import cache
from itertools import chain

import numpy as np

from ppmodel.clusters.costs.units import CellStreams, Interval, Unit, cell_duration, cell_streams, ready_shares
from ppmodel.clusters.costs.work import PARTS, Phase
from ppmodel.ops import OpKind

_COMPUTE, _COMM, _WEIGHT, _WEIGHT_COMM = range(len(Unit._fields))


def layer_units(layers):
    """The units of each layer, forward and backward.

    Each collective of a half ends a unit; a half is the forward, or the input gradient together with the forward
    recomputed before it. Weight gradients belong to the same unit as their operation's input gradient. Kernels that
    wait for the host are stretched to its time; what data parallelism exchanges for each microbatch comes at the end of
    a layer.

    Parameters
    ----------
    layers : LayerCosts

    Returns
    -------
    list of (ndarray, ndarray), length num_layers
        The fields of `Unit` in columns; units in the order in which they run.
    """
    work, exchanges = layers.work, layers.work.exchanges
    is_weight, is_gathered = work.kernels.slot % len(Phase) == Phase.WEIGHT_GRAD, exchanges.phase == Phase.WEIGHT_GRAD
    units = np.zeros((work.units[-1], len(Unit._fields)))
    np.add.at(units, (work.kernels.unit, np.where(is_weight, _WEIGHT, _COMPUTE)), layers.kernel_s)
    np.add.at(units, (exchanges.unit, np.where(is_gathered, _WEIGHT_COMM, _COMM)), layers.exposed_s)
    halves = []
    for index, seconds in enumerate(layers.seconds):
        first, middle, last = work.units[2 * index : 2 * index + 3]
        forward, backward = units[first:middle], units[middle:last]
        stretched = (forward, _COMPUTE), (backward, _COMPUTE), (backward, _WEIGHT)
        for (half, column), computing_s in zip(stretched, seconds[:, PARTS.index("computing")], strict=True):
            half[:, column] *= computing_s / (half[:, column].sum() or 1.0)
        data_s = seconds[:, PARTS.index("data")]
        forward[-1, _COMM] += data_s[Phase.FORWARD]
        backward[-1, _COMM] += data_s[Phase.INPUT_GRAD]
        backward[0, _WEIGHT_COMM] += data_s[Phase.WEIGHT_GRAD]
        halves.append((forward, backward))
    return halves


def contention(system):
    """Factor by which a system's kernels and collectives slow each other down."""
    return system.collectives.contention if system.collectives else 1.0


def hidden_in_backward_s(layers):
    """Seconds of tensor-parallel collectives that a backward on its own hides, layer by layer.

    As in Megatron-LM (``LinearWithGradAccumulationAndAsyncCommunication``): the sum of an input gradient runs under the
    weight gradients of its unit, and input that is gathered for a weight gradient under the input gradient of the same
    product. While they share the device, the system's contention slows both down.

    Parameters
    ----------
    layers : LayerCosts

    Returns
    -------
    ndarray of float, shape (num_layers, 2)
        In seconds, of the collectives of input gradients and of weight gradients.
    """
    work, exchanges = layers.work, layers.work.exchanges
    is_weight = work.kernels.slot % len(Phase) == Phase.WEIGHT_GRAD
    weights_s = np.bincount(work.kernels.unit[is_weight], layers.kernel_s[is_weight], work.units[-1])
    gradient_s = np.append(layers.kernel_s, 0.0)[exchanges.gradient]
    under_s = np.where(exchanges.phase == Phase.WEIGHT_GRAD, gradient_s, weights_s[exchanges.unit])
    hidden_s = (2 - contention(layers.system)) * np.minimum(layers.exposed_s, under_s)
    by_slot = np.bincount(exchanges.slot, hidden_s, np.prod(work.shape)).reshape(work.shape)
    return by_slot[:, [Phase.INPUT_GRAD, Phase.WEIGHT_GRAD], PARTS.index("tensor")]


class PairTimes:
    """Durations of pairs, by how often each layer occurs in their stages; each is computed once.

    Parameters
    ----------
    layers : LayerCosts
        With a layout, which says how pairs run.
    """

    def __init__(self, layers):
        self.units = layer_units(layers)
        overhead_s = layers.system.kernels.stage_overhead_s if layers.system.kernels else 0.0
        self.overhead = np.reshape([Unit(overhead_s)] if overhead_s else [], (-1, len(Unit._fields)))
        framework, (forward, *backward) = layers.system.framework, layers.host_s.T
        self.host_s = (framework.paired_host if framework else 0.0) * np.array([forward, sum(backward)])
        self.hides = layers.work.layout.overlap_backward
        self.how = layers.work.layout.pairing, contention(layers.system)
        self.exposes = any(half[:, [_COMM, _WEIGHT_COMM]].any() for half in chain(*self.units))
        for method in ("seconds", "ready_shares", "operation"):
            setattr(self, method, cache(getattr(self, method)))

    def seconds(self, forward, kind, backward):
        """Seconds of a forward with another kind of operation; both by how often each layer occurs in their stage.

        With a whole backward, it takes no less than the host does, which launches the two in small pieces.
        """
        cell_s = cell_duration(self.operation(OpKind.F, forward), self.operation(kind, backward), *self.how)
        return max(cell_s, (self.host_s * [forward, backward]).sum() if kind == OpKind.B else 0.0)

    def ready_shares(self, forward, kind, backward):
        """Times at which their results are available, as shares of the cell; see `units.ready_shares`."""
        return ready_shares(self.operation(OpKind.F, forward), self.operation(kind, backward), *self.how)

    def operation(self, kind, counts):
        """The units of an operation of a stage: from one collective to the next, across layers."""
        half, layers = int(kind != OpKind.F), [*zip(self.units, counts, strict=True)]
        runs = [[halves[half]] * count for halves, count in (layers[::-1] if half else layers)]
        return operation_units(np.concatenate([self.overhead, *chain(*runs)]), kind)

    def streams(self, operations):
        """Intervals of the two streams of a cell.

        Parameters
        ----------
        operations : list of (OpKind, tuple of int)
            In the order of the cell: each operation's kind, and how often each layer occurs in its stage.

        Returns
        -------
        CellStreams
            A forward and a backward run as a pair; other operations run one after the other.
        """
        kinds = [kind for kind, _ in operations]
        is_pair = len(kinds) == 2 and kinds.count(OpKind.F) == 1
        forward_first = sorted(range(len(kinds)), key=lambda place: kinds[place] != OpKind.F)
        streams = CellStreams([], [])
        for places in [forward_first] if is_pair else [[place] for place in range(len(kinds))]:
            units, begin_s = [self.operation(*operations[place]) for place in places], streams.end_s
            if self.hides and kinds[places[0]] == OpKind.B:  # on its own, it hides collectives of its own
                units, places = [[Unit()], *units], places * 2
            cell = cell_streams(units[0], units[-1] if len(units) > 1 else (), *self.how)
            for stream, intervals in zip(streams, cell, strict=True):
                for operation, unit, field, start_s, end_s in intervals:
                    stream.append(Interval(places[operation], unit, field, begin_s + start_s, begin_s + end_s))
        return streams


def operation_units(units, kind):
    """The units of one kind of operation, merged up to each collective; for a backward one half or both.

    Parameters
    ----------
    units : sequence of Unit
        Of a forward or of a whole backward.
    kind : OpKind
        F, B, I or W.

    Returns
    -------
    ndarray of float, shape (num_units, 4)
        The fields of `Unit` in columns.

    Examples
    --------
    >>> from ppmodel.clusters.costs.units import Unit
    >>> units = [Unit(1.0, 0.0, 1.0), Unit(2.0, 3.0, 2.0), Unit(1.0)]
    >>> operation_units(units, OpKind.I).tolist()
    [[3.0, 3.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    """
    units = np.asarray(units)
    ends = units[:, _COMM] > 0
    place = np.cumsum(ends) - ends
    merged = np.zeros((place.max(initial=-1) + 1, units.shape[1]))
    np.add.at(merged, place, units)
    halves = {OpKind.I: (1.0, 1.0, 0.0, 0.0), OpKind.W: (0.0, 0.0, 1.0, 1.0)}
    return merged * halves.get(kind, 1.0)


def pair_costs(schedule, counts, seconds, times, early):
    """Factors of a table's pairs over the sum of their operations, and when their results are ready.

    Parameters
    ----------
    schedule : Schedule
        With pairs.
    counts : list of tuple of int
        As `Stages.counts`.
    seconds : list of list of float
        Of each kind of operation, by stage.
    times : PairTimes
    early : bool
        Whether results are handed on as soon as they are ready, rather than at the end of a cell.

    Returns
    -------
    factors : dict or None
        As `OpCosts.pairs`; None if there is nothing to hide.
    ready : dict or None
        As `OpCosts.ready`.
    """
    if not (times.exposes or early):
        return None, None
    factors, ready = {}, {}
    for key in schedule.pairs.keys:
        _, first, kind, second = key
        alone = seconds[OpKind.F][first] + seconds[kind][second]
        if times.exposes:
            factors[key] = times.seconds(counts[first], kind, counts[second]) / alone if alone else 1.0
        if early:
            ready[key] = times.ready_shares(counts[first], kind, counts[second])
    return factors or None, ready or None
