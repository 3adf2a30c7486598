"""Cells that hold a forward and a backward: the units of each stage, and how long its pairs take."""

from functools import cache

import numpy as np

from ppmodel.costs.units import CellStreams, Unit, cell_duration, cell_streams, handed_on
from ppmodel.costs.work import AGAIN, FORWARD, INPUT_GRAD, PARTS, WEIGHT_GRAD
from ppmodel.ops import OpKind

_COMPUTE, _COMM, _WEIGHT, _WEIGHT_COMM = _FIELDS = range(len(Unit._fields))


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
    list of (list of Unit, list of Unit), length num_layers
        In the order in which they run.
    """
    place, bounds = _places(layers.work)
    item_s = np.concatenate([layers.kernel_s, layers.exposed_s])
    units = np.bincount(place, item_s, bounds[-1] * len(_FIELDS)).reshape(-1, len(_FIELDS))
    halves = []
    for index, seconds in enumerate(layers.seconds):
        first, middle, last = bounds[2 * index : 2 * index + 3]
        forward, backward = units[first:middle], units[middle:last]
        stretched = (forward, _COMPUTE), (backward, _COMPUTE), (backward, _WEIGHT)
        for (half, column), computing_s in zip(stretched, seconds[:, PARTS.index("computing")], strict=True):
            half[:, column] *= computing_s / (half[:, column].sum() or 1.0)
        data_s = seconds[:, PARTS.index("data")]
        forward[-1, _COMM] += data_s[FORWARD]
        backward[-1, _COMM] += data_s[INPUT_GRAD]
        backward[0, _WEIGHT_COMM] += data_s[WEIGHT_GRAD]
        halves.append(tuple([Unit(*unit) for unit in half.tolist()] for half in (forward, backward)))
    return halves


def _places(work):
    """The place of each kernel, then of each collective: unit and field as one number; and where the halves begin."""
    items, num_kernels = {place: item for item, place in enumerate(work.places)}, len(work.kernel_slot)
    place, bounds, unit = np.zeros(len(items), dtype=np.intp), [0], 0
    for layer in range(len(work.layers)):
        count = 1 + max((operation for item_layer, _, operation in items if item_layer == layer), default=-1)
        again = [operation for operation in range(count) if (layer, AGAIN, operation) in items]
        backward = []
        for operation in reversed(range(count)):  # what runs again does so before the gradient of its last operation
            backward += [(AGAIN, other) for other in again] if again and operation == again[-1] else []
            backward.append((INPUT_GRAD, operation))
        for steps in ([(FORWARD, operation) for operation in range(count)], backward):
            for phase, operation in steps:
                item = items.get((layer, phase, operation))
                weights = items.get((layer, WEIGHT_GRAD, operation)) if phase == INPUT_GRAD else None
                if weights is not None:
                    place[weights] = unit * len(_FIELDS) + (_WEIGHT if weights < num_kernels else _WEIGHT_COMM)
                if item is not None:
                    place[item] = unit * len(_FIELDS) + (_COMPUTE if item < num_kernels else _COMM)
                    unit += item >= num_kernels
            unit += 1
            bounds.append(unit)
    return place, bounds


def contention(system):
    """How much slower a system's kernels and collectives run when they run at the same time."""
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
    work, kernel_s = layers.work, layers.kernel_s
    items, (place, bounds) = {place: item for item, place in enumerate(work.places)}, _places(work)
    weights_s = np.zeros(bounds[-1])
    is_weight = place[: len(kernel_s)] % len(_FIELDS) == _WEIGHT
    np.add.at(weights_s, place[: len(kernel_s)][is_weight] // len(_FIELDS), kernel_s[is_weight])
    hidden = np.zeros((len(work.layers), 2))
    for number, (layer, phase, _) in enumerate(work.places[len(kernel_s) :]):
        beside = work.exchanges.beside[number]
        if phase == INPUT_GRAD:
            under = weights_s[place[len(kernel_s) + number] // len(_FIELDS)]
        elif phase == WEIGHT_GRAD and beside >= 0:
            gradient = items.get((layer, INPUT_GRAD, work.places[beside][2]))
            under = 0.0 if gradient is None else kernel_s[gradient]
        else:
            continue
        if work.exchanges.slot[number] % len(PARTS) == PARTS.index("tensor"):
            seconds = (2 - contention(layers.system)) * min(layers.exposed_s[number], under)
            hidden[layer, phase - INPUT_GRAD] += seconds
    return hidden


class PairTimes:
    """Durations of pairs, by how often each layer occurs in their stages; each is computed once.

    Parameters
    ----------
    layers : LayerCosts
        With a layout, which says how pairs run.
    """

    def __init__(self, layers):
        self.units = layer_units(layers)
        self.overhead_s = layers.system.kernels.stage_overhead_s if layers.system.kernels else 0.0
        self.hides = layers.work.layout.overlap_backward
        self.how = layers.work.layout.pairing, contention(layers.system)
        self.exposes = any(
            unit.comm_s or unit.weight_comm_s for halves in self.units for half in halves for unit in half
        )
        for method in ("seconds", "handed_on", "operation"):
            setattr(self, method, cache(getattr(self, method)))

    def seconds(self, forward, kind, backward):
        """Seconds of a forward with another kind of operation; both by how often each layer occurs in their stage."""
        return cell_duration(self.operation(OpKind.F, forward), self.operation(kind, backward), *self.how)

    def handed_on(self, forward, kind, backward):
        """When their results are available, as shares of the cell; see `units.handed_on`."""
        return handed_on(self.operation(OpKind.F, forward), self.operation(kind, backward), *self.how)

    def operation(self, kind, counts):
        """The units of an operation of a stage: from one collective to the next, across layers."""
        units = [Unit(self.overhead_s)] if self.overhead_s else []
        layers = list(zip(self.units, counts, strict=True))
        for (forward, backward), count in layers if kind == OpKind.F else reversed(layers):
            units += (forward if kind == OpKind.F else backward) * count
        return operation_units(units, kind)

    def streams(self, operations):
        """What the two streams of a cell run, and when.

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
        if len(kinds) != 2 or kinds.count(OpKind.F) != 1:
            streams, end_s = CellStreams([], []), 0.0  # one after the other
            for place, operation in enumerate(operations):
                units, waits = self.operation(*operation), self.hides and operation[0] == OpKind.B
                alone = cell_streams([Unit()], units, *self.how) if waits else cell_streams(units)
                for stream, intervals in zip(streams, _renumbered(alone, (place, place)), strict=True):
                    stream += [
                        piece._replace(start_s=piece.start_s + end_s, end_s=piece.end_s + end_s) for piece in intervals
                    ]
                end_s = streams.end_s
            return streams
        pair = sorted(range(2), key=lambda place: kinds[place] != OpKind.F)
        return _renumbered(cell_streams(*(self.operation(*operations[place]) for place in pair), *self.how), pair)


def _renumbered(streams, places):
    """The streams with their operations renumbered to other places in their cell."""
    return CellStreams(*([piece._replace(operation=places[piece.operation]) for piece in part] for part in streams))


def operation_units(units, kind):
    """The units of one kind of operation, merged up to each collective; for a backward one half or both.

    Parameters
    ----------
    units : list of Unit
        Units of a forward or of a whole backward.
    kind : OpKind
        F, B, I or W.

    Returns
    -------
    list of Unit

    Examples
    --------
    >>> from ppmodel.costs.units import Unit
    >>> units = [Unit(1.0, 0.0, 1.0), Unit(2.0, 3.0, 2.0), Unit(1.0)]
    >>> [tuple(unit) for unit in operation_units(units, OpKind.I)]
    [(3.0, 3.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)]
    """
    merged, open_unit = [], False
    for unit in units:
        if open_unit:
            merged[-1] = Unit(*map(sum, zip(merged[-1], unit, strict=True)))
        else:
            merged.append(unit)
        open_unit = not unit.comm_s
    if kind == OpKind.I:
        return [unit._replace(weight_s=0.0, weight_comm_s=0.0) for unit in merged]
    return [unit._replace(compute_s=0.0, comm_s=0.0) for unit in merged] if kind == OpKind.W else merged


def pair_costs(schedule, stages, times, early):
    """Factors of a table's pairs over the sum of their operations, and when their results are ready.

    Parameters
    ----------
    schedule : Schedule
        With pairs.
    stages : Stages
    times : PairTimes
    early : bool
        Whether results are handed on as soon as they are ready, rather than at the end of a cell.

    Returns
    -------
    factors : dict or None
        As `OpCosts.pairs`; None if there is nothing to hide.
    handed : dict or None
        As `OpCosts.handed`.
    """
    if not (times.exposes or early):
        return None, None
    counts, halves = stages.counts, (stages.input_grad_s, stages.weight_grad_s)
    seconds = [column.tolist() for column in (stages.forward_s, sum(halves), *halves)]
    factors, handed = {}, {}
    for key in schedule.pairs.keys:
        _, first, kind, second = key
        alone = seconds[OpKind.F][first] + seconds[kind][second]
        if times.exposes:
            factors[key] = times.seconds(counts[first], kind, counts[second]) / alone if alone else 1.0
        if early:
            handed[key] = times.handed_on(counts[first], kind, counts[second])
    return factors or None, handed or None
