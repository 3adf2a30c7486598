"""Cells that hold a forward and a backward: the units of each stage, and how long its pairs take."""

from itertools import groupby

import numpy as np

from ppmodel.costs.phases import AGAIN, FORWARD, INPUT_GRAD, NOTHING, PARTS, WEIGHT_GRAD, taken_s
from ppmodel.costs.units import CellStreams, Unit, cell_duration, cell_streams, handed_on
from ppmodel.ops import OpKind

_COMPUTE, _COMM, _WEIGHT, _WEIGHT_COMM = range(len(Unit._fields))


def list_units(phases, seconds, system, layout):
    """The units of each list of operations, forward and backward.

    Each collective of a half ends a unit; a half is the forward, or the input gradient together with the forward
    recomputed before it. Weight gradients belong to the same unit as their operation's input gradient.

    Parameters
    ----------
    phases : Phases
        Phases of the lists.
    seconds : ndarray of float, shape (num_lists, 3, 5)
        Time of each list, by forward, input gradient and weight gradient and by part. Kernels that wait for the host
        are stretched to its time; what data parallelism exchanges for each microbatch comes at the end of a list.
    system : SystemSpec
    layout : LayoutSpec

    Returns
    -------
    list of (list of Unit, list of Unit), length num_lists
        In the order in which they run.
    """
    place, bounds = _places(phases)
    taken = np.concatenate(taken_s(phases, system, layout))
    units = np.bincount(place, taken, bounds[-1] * len(Unit._fields)).reshape(-1, len(Unit._fields))
    data, computing = seconds[..., PARTS.index("data")], seconds[..., 0]
    found = []
    for index in range(len(seconds)):
        first, middle, last = bounds[2 * index : 2 * index + 3]
        forward, backward = units[first:middle], units[middle:last]
        _stretch(forward, _COMPUTE, computing[index, FORWARD])
        _stretch(backward, _COMPUTE, computing[index, INPUT_GRAD])
        _stretch(backward, _WEIGHT, computing[index, WEIGHT_GRAD])
        forward[-1, _COMM] += data[index, FORWARD]
        backward[-1, _COMM] += data[index, INPUT_GRAD]
        backward[0, _WEIGHT_COMM] += data[index, WEIGHT_GRAD]
        found.append(tuple([Unit(*unit) for unit in half.tolist()] for half in (forward, backward)))
    return found


def _stretch(units, column, whole):
    total = units[:, column].sum()
    if total:
        units[:, column] *= whole / total


def _places(phases):
    """The place of each kernel, then of each collective: unit and field as one number; and where the halves begin."""
    kernels, collectives = _by_list(phases)
    place = np.zeros(len(phases.kernel_of) + len(phases.collective_of), dtype=np.intp)
    bounds, unit = [0], 0

    def put(column, entries, operation):
        if operation in entries:
            place[entries[operation]] = unit * len(Unit._fields) + column
            return True
        return False

    for own, comm in zip(kernels, collectives, strict=True):
        for half in (FORWARD, INPUT_GRAD):
            for phase, operation in _steps(own, comm, half):
                put(_COMPUTE, own[phase], operation)
                if phase == INPUT_GRAD:
                    put(_WEIGHT, own[WEIGHT_GRAD], operation)
                    put(_WEIGHT_COMM, comm[WEIGHT_GRAD], operation)
                unit += put(_COMM, comm[phase], operation)
            unit += 1
            bounds.append(unit)
    return place, bounds


def _by_list(phases):
    """For each list and phase, from an operation to its kernel, and to its collective, numbered after all kernels."""
    num_lists = len(phases.ends) // 4
    kernels, collectives = ([[{} for _ in range(4)] for _ in range(num_lists)] for _ in range(2))
    first = 0
    for row, end in enumerate(phases.ends):
        kernels[row // 4][row % 4] = {phases.kernel_of[number]: number for number in range(first, end)}
        first = end
    for number, (slot, operation) in enumerate(zip(phases.slot.tolist(), phases.collective_of, strict=True), first):
        row = slot // len(PARTS)
        collectives[row // 4][row % 4][operation] = number
    return kernels, collectives


def _steps(kernels, collectives, half):
    """Phase and operation, in the order in which they run; recomputation runs before its last operation's gradient."""
    count = 1 + max((one for phases in (kernels, collectives) for phase in phases for one in phase), default=-1)
    if half == FORWARD:
        return [(FORWARD, one) for one in range(count)]
    again = sorted({*kernels[AGAIN], *collectives[AGAIN]})
    steps = []
    for operation in reversed(range(count)):
        if again and operation == again[-1]:
            steps += [(AGAIN, one) for one in again]
        steps.append((INPUT_GRAD, operation))
    return steps


def contention(system):
    """How much slower a system's kernels and collectives run when they run at the same time."""
    return system.collectives.contention if system.collectives else 1.0


def hidden_in_backward_s(phases, system, layout):
    """Seconds of tensor-parallel collectives that a backward on its own hides, list by list.

    As in Megatron-LM (``LinearWithGradAccumulationAndAsyncCommunication``): the sum of an input gradient runs under the
    weight gradients of its unit, and input that is gathered for a weight gradient under the input gradient of the same
    product. While they share the device, the system's contention slows both down.

    Parameters
    ----------
    phases, system, layout
        As in `list_units`.

    Returns
    -------
    ndarray of float, shape (num_lists, 2)
        In seconds, of the collectives of input gradients and of weight gradients.
    """
    taken, exposed = taken_s(phases, system, layout)
    row, part = np.divmod(phases.slot, len(PARTS))
    hidden = np.zeros((len(phases.ends) // 4, 2))
    shared = 2 - contention(system)
    for half, under in enumerate((_weights_of_units(phases, taken), _input_gradients_beside(phases, taken))):
        counted = (row % 4 == (INPUT_GRAD, WEIGHT_GRAD)[half]) & (part == PARTS.index("tensor"))
        hidden[:, half] = np.bincount(row // 4, shared * np.minimum(exposed, under) * counted, len(hidden))
    return hidden


def _weights_of_units(phases, taken):
    """For each collective, the seconds of the weight gradients of its unit."""
    place, bounds = _places(phases)
    fields = len(Unit._fields)
    units = np.bincount(place[: len(taken)], taken, bounds[-1] * fields).reshape(-1, fields)
    return units[place[len(taken) :] // fields, _WEIGHT]


def _input_gradients_beside(phases, taken):
    """For each collective of a weight gradient, the seconds of the input gradient of its product; 0 for others."""
    row_of = np.searchsorted(phases.ends, np.arange(len(taken)), side="right")
    number = {of: kernel for kernel, of in enumerate(zip(row_of, phases.kernel_of, strict=True))}
    seconds = np.zeros(len(phases.slot))
    for collective, kernel in enumerate(phases.beside):
        if kernel != NOTHING and row_of[kernel] % 4 == WEIGHT_GRAD:
            beside = number.get((row_of[kernel] - WEIGHT_GRAD + INPUT_GRAD, phases.kernel_of[kernel]))
            seconds[collective] = 0.0 if beside is None else taken[beside]
    return seconds


class PairTimes:
    """Durations of pairs, by what their stages hold; each is computed once.

    Parameters
    ----------
    units : list
        From `list_units`.
    forward_order : list of int
        The lists in the order in which they occur in a stage.
    order, contention
        As in `units.cell_duration`.
    overhead_s : float
        Fixed cost of a forward or a backward of a stage.
    hides : bool
        Whether a backward on its own hides its collectives under its weight gradients.
    """

    def __init__(self, units, forward_order, order, contention, overhead_s=0.0, hides=False):
        self.units, self.forward_order, self.overhead_s = units, forward_order, overhead_s
        self.how, self.hides = (order, contention), hides
        self.exposes = any(unit.comm_s or unit.weight_comm_s for both in units for half in both for unit in half)
        self._known, self._handed, self._operations = {}, {}, {}

    def seconds(self, forward, kind, backward):
        """Seconds of a forward paired with another kind; each is given by how often each list occurs in its stage."""
        key = forward, kind, backward
        if key not in self._known:
            both = self._operation(OpKind.F, forward), self._operation(kind, backward)
            self._known[key] = cell_duration(*both, *self.how)
        return self._known[key]

    def handed_on(self, forward, kind, backward):
        """When their results are available, as shares of the cell; see `units.handed_on`."""
        key = forward, kind, backward
        if key not in self._handed:
            both = self._operation(OpKind.F, forward), self._operation(kind, backward)
            self._handed[key] = handed_on(*both, *self.how)
        return self._handed[key]

    def streams(self, operations):
        """What the two streams of a cell run, and when.

        Parameters
        ----------
        operations : list of (OpKind, tuple of int)
            In the order of the cell: each operation's kind, and how often each list occurs in its stage.

        Returns
        -------
        CellStreams
            A forward and a backward run as a pair; other operations run one after the other.
        """
        kinds = [kind for kind, _ in operations]
        if len(kinds) != 2 or kinds.count(OpKind.F) != 1:
            return _one_after_the_other([self._alone(*one) for one in operations])
        pair = sorted(range(2), key=lambda place: kinds[place] != OpKind.F)
        return _renumbered(cell_streams(*(self._operation(*operations[place]) for place in pair), *self.how), pair)

    def _alone(self, kind, counts):
        units = self._operation(kind, counts)
        if self.hides and kind == OpKind.B:
            return _renumbered(cell_streams([Unit()], units, *self.how), (0, 0))
        return cell_streams(units)

    def _operation(self, kind, counts):
        """The units of an operation of a stage: from one collective to the next, across lists."""
        key = kind, counts
        if key not in self._operations:
            self._operations[key] = operation_units(self._all(counts, kind), kind)
        return self._operations[key]

    def _all(self, counts, kind):
        half = kind != OpKind.F
        order = reversed(self.forward_order) if half else self.forward_order
        start = [Unit(self.overhead_s)] if self.overhead_s else []
        return start + [unit for one in order for unit in self.units[one][half] * counts[one]]


def _renumbered(streams, places):
    """The streams with their operations renumbered to other places in their cell."""
    return CellStreams(*([one._replace(operation=places[one.operation]) for one in stream] for stream in streams))


def _one_after_the_other(cells):
    """The streams of consecutive cells, joined into one."""
    found, end_s = CellStreams([], []), 0.0
    for place, streams in enumerate(cells):
        for stream, more in zip(found, _renumbered(streams, (place,)), strict=True):
            stream += [one._replace(start_s=one.start_s + end_s, end_s=one.end_s + end_s) for one in more]
        end_s = found.end_s
    return found


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
    number, whole = 0, []
    for unit in units:
        whole.append((number, unit))
        number += bool(unit.comm_s)
    merged = [Unit(*map(sum, zip(*(unit for _, unit in group), strict=True))) for _, group in groupby(whole, _first)]
    if kind == OpKind.I:
        return [unit._replace(weight_s=0.0, weight_comm_s=0.0) for unit in merged]
    return [unit._replace(compute_s=0.0, comm_s=0.0) for unit in merged] if kind == OpKind.W else merged


def _first(pair):
    return pair[0]
