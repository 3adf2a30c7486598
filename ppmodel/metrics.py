"""What is read off a table or a timeline: idle time, bubble ratios, memory, traffic."""

from typing import NamedTuple

import numpy as np

from ppmodel.costs import side_by_side
from ppmodel.ops import OpKind
from ppmodel.schedule import NO_OPERATION


def busy_s(timeline):
    """Computing time of each device, reductions and transfers left out.

    Operations that share a cell count once, for as long as the cell.

    Parameters
    ----------
    timeline : Timeline
        From `engine.simulate`.

    Returns
    -------
    ndarray of float, shape (num_devices,)
        In seconds.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.engine import simulate
    >>> from ppmodel.graph import compile
    >>> schedule = build("1f1b", 2, 4)
    >>> busy_s(simulate(compile(schedule), uniform_costs(schedule, 1, 2))).tolist()
    [12.0, 12.0]
    """
    schedule = timeline.graph.schedule
    return _busy(schedule, timeline.start_s, timeline.end_s)


def _busy(schedule, start, end):
    counted = (schedule.kind != OpKind.R) & ~schedule.joined
    return np.bincount(
        schedule.device[counted], (end - start)[counted].astype(float), minlength=schedule.num_devices
    )  # fmt: skip


def critical_path(timeline):
    """Operations that the makespan hangs on: each begins when what it waited for longest is there.

    Parameters
    ----------
    timeline : Timeline
        From `engine.simulate`.

    Returns
    -------
    list of int
        Operations in the order of the schedule's arrays, from the first to the last that ends. Of two things that are
        there at once, the message that came over the network counts.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.engine import simulate
    >>> from ppmodel.graph import compile
    >>> schedule = build("gpipe", 2, 1)
    >>> [str(schedule.op(op)) for op in critical_path(simulate(compile(schedule), uniform_costs(schedule, 1, 2)))]
    ['0F0', '1F0', '1B0', '0B0']
    """
    path = [int(np.nanargmax(timeline.end_s))]
    while (before := _waited_for(timeline, path[-1])) is not None:
        path.append(before)
    return path[::-1]


def _waited_for(timeline, op):
    """What was there last of an operation's input and its device's operation before; None for the first."""
    schedule, dependencies = timeline.graph.schedule, timeline.graph.schedule.dependencies
    there, first = [], schedule.device_start[schedule.device[op]]
    previous = op - 1
    while previous >= first and schedule.joined[previous + 1]:
        previous -= 1
    if previous >= first:
        there.append((timeline.end_s[previous], 0, previous))
    needed = int(dependencies.source[op])
    if needed != NO_OPERATION:
        remote = bool(dependencies.remote[op])
        there.append(((timeline.arrived_s if remote else timeline.end_s)[needed], 1 + remote, needed))
    return int(max(there)[2]) if there else None


def idle_ratio(timeline):
    """Share of all devices' time in which they do not compute: 1 - (summed computing time) / (S x makespan).

    Parameters
    ----------
    timeline : Timeline
        From `engine.simulate`.

    Returns
    -------
    float
        Ratio of the total time; transfers and reductions that occupy a device count as idle.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.engine import simulate
    >>> from ppmodel.graph import compile
    >>> schedule = build("1f1b", 8, 8)
    >>> round(idle_ratio(simulate(compile(schedule), uniform_costs(schedule, 1, 2))), 6)
    0.466667
    """
    return float(1.0 - busy_s(timeline).sum() / (timeline.graph.schedule.num_devices * timeline.makespan_s))


def table_slots(schedule, **slots):
    """Length of the idealised table in slots, reductions left out; see `Schedule.slots`.

    Parameters
    ----------
    schedule : Schedule
        The table.
    **slots : int
        Slots that an operation takes, as in `Schedule.slots`; a backward takes 2, a reduction none.

    Returns
    -------
    int
        Slots; by default a slot is the forward of one stage and one microbatch of the table.

    Raises
    ------
    TableError
        If operations wait for one another in a circle.

    Examples
    --------
    >>> from ppmodel import build
    >>> table_slots(build("1f1b", 8, 8)), table_slots(build("1f1b", 8, 8), backward=1)
    (45, 30)
    """
    return int(schedule.slots(**slots)[1].max())


def table_bubble_ratio(schedule, **slots):
    """Idle share of the idealised table, a backward of two forward slots unless set otherwise.

    Source: the table level of Barley et al., 2026. The denominator is the whole table.

    Parameters
    ----------
    schedule : Schedule
        The table.
    **slots : int
        Slots that an operation takes, as in `Schedule.slots`.

    Returns
    -------
    float
        Ratio of the whole table, devices times slots.

    Raises
    ------
    TableError
        If operations wait for one another in a circle.

    Examples
    --------
    >>> from ppmodel import build
    >>> round(table_bubble_ratio(build("chimera", 8, 16)), 4)
    0.2727
    """
    start, end = schedule.slots(**slots)
    return float(1.0 - _busy(schedule, start, end).sum() / (schedule.num_devices * end.max()))


def computing_s(schedule, many_costs):
    """Computing time of all devices together; it follows from the costs alone, whatever waits for whatever.

    Parameters
    ----------
    schedule : Schedule
        The table; a cell in which a forward meets a backward takes its `overlap_factor` of the sum of its operations.
    many_costs : sequence of OpCosts
        Durations by kind and stage, in seconds.

    Returns
    -------
    ndarray of float, shape (len(many_costs),)
        In seconds; reductions and transfers are left out.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> schedule = build("1f1b", 2, 4)
    >>> computing_s(schedule, [uniform_costs(schedule, 1, 2)]).tolist()
    [24.0]
    """
    classes = len(OpKind) * schedule.num_replicas * schedule.num_stages
    alone, together = (
        np.bincount(schedule.cost_class[where], minlength=classes) for where in _alone_and_together(schedule)
    )
    (compute,) = side_by_side(many_costs, schedule.num_replicas, ["compute_s"])
    overlap_factor = np.array([costs.overlap_factor for costs in many_costs])
    parts = (alone[:, None] + overlap_factor * together[:, None]) * compute
    return np.add.accumulate(parts, axis=0)[-1]  # in one order, however many systems stand side by side


def operations_s(schedule, costs):
    """What each operation adds to the computing time of all devices; `computing_s` is their sum.

    Parameters
    ----------
    schedule : Schedule
        The table; of a cell in which a forward meets a backward, `overlap_factor` of each operation's duration counts.
    costs : OpCosts
        Durations by kind and stage, in seconds.

    Returns
    -------
    ndarray of float, shape (num_operations,)
        In seconds, in the order of the schedule's arrays; 0 for reductions.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> schedule = build("gpipe", 2, 1)
    >>> operations_s(schedule, uniform_costs(schedule, 1, 2)).tolist()
    [1.0, 2.0, 1.0, 2.0]
    """
    alone, together = _alone_and_together(schedule)
    compute_s = costs.by_class(schedule.num_replicas)[0][schedule.cost_class]
    return compute_s * (alone + costs.overlap_factor * together)


def _alone_and_together(schedule):
    """Operations that compute: those that take their own time, and those of forwards and backwards that overlap."""
    return (schedule.kind != OpKind.R) & ~schedule.overlaps, schedule.overlaps


def messages_by_node(schedule, nodes):
    """Messages of one iteration that stay inside a node, and that go from one to another.

    Parameters
    ----------
    schedule : Schedule
        The table.
    nodes : ndarray of int, shape (num_devices,)
        The cluster's node of each device.

    Returns
    -------
    inside, between : int
        Transfers of activations and gradients; gradient sums of replicas are left out.

    Examples
    --------
    >>> from ppmodel import build
    >>> messages_by_node(build("gpipe", 4, 8), np.array([0, 0, 1, 1]))
    (32, 16)
    """
    dependencies = schedule.dependencies
    where = nodes[schedule.device]
    same = where[dependencies.source[dependencies.remote]] == where[dependencies.remote]
    return int(same.sum()), int((~same).sum())


class BubbleRatios(NamedTuple):
    """One idle time under the three denominators of the literature; they must never be mixed.

    Parameters
    ----------
    total : float
        Idle time over the makespan (Huang et al., 2019; Li and Hoefler, 2021).
    ideal : float
        Idle time over the computing time (Narayanan et al., 2021).
    span : float
        The same over the longest span from a device's first to its last operation (Qi et al., 2024).
    """

    total: float
    ideal: float
    span: float


def bubble_ratios(timeline):
    """The three bubble ratios of a timeline; computing time is the mean over the devices.

    Parameters
    ----------
    timeline : Timeline
        From `engine.simulate`.

    Returns
    -------
    BubbleRatios
        Three ratios, without a unit.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.engine import simulate
    >>> from ppmodel.graph import compile
    >>> schedule = build("gpipe", 4, 4)
    >>> [round(r, 4) for r in bubble_ratios(simulate(compile(schedule), uniform_costs(schedule, 1, 2)))]
    [0.4286, 0.75, 0.4286]
    """
    computing, span = busy_s(timeline).mean(), longest_span_s(timeline)
    total = timeline.makespan_s
    return BubbleRatios(float(1 - computing / total), float(total / computing - 1), float(1 - computing / span))


def longest_span_s(timeline):
    """The longest time of a device from its first operation to the end of its last, reductions left out.

    Source: the denominator of the bubble rate of Qi et al., 2024.

    Parameters
    ----------
    timeline : Timeline
        From `engine.simulate`.

    Returns
    -------
    float
        In seconds.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.engine import simulate
    >>> from ppmodel.graph import compile
    >>> schedule = build("gpipe", 2, 1)
    >>> longest_span_s(simulate(compile(schedule), uniform_costs(schedule, 1, 2, comm=1)))
    8.0
    """
    schedule = timeline.graph.schedule
    first, computing = schedule.device_start[:-1], schedule.kind != OpKind.R
    begun = np.minimum.reduceat(np.where(computing, timeline.start_s, np.inf), first)
    over = np.maximum.reduceat(np.where(computing, timeline.end_s, -np.inf), first)
    return float((over - begun).max())


def peak_activations(schedule, stage_weights=None, held_for_weight_grad=1.0):
    """Peak activations of each device; they depend on the order of its operations alone.

    A forward takes its stage's activations, the backward gives them back; of a backward in halves the
    input-gradient half leaves a share of them, which the weight-gradient half gives back. In a cell that holds
    several operations all are taken before any is given back.

    Parameters
    ----------
    schedule : Schedule
        The table.
    stage_weights : array of float, shape (num_stages,), optional
        Size of one microbatch's activations on each stage, as the table counts microbatches. By
        default in units of one microbatch on 1/S of the model.
    held_for_weight_grad : float or array of float, shape (num_stages,)
        What stays between the halves, relative to a stage's activations (M_W / M_B of Qi et al., 2024); more
        than 1 where gradients that are kept weigh more than activations that are recomputed.

    Returns
    -------
    ndarray of float, shape (num_devices,)
        In the unit of `stage_weights`.

    Examples
    --------
    >>> from ppmodel import build
    >>> peak_activations(build("1f1b", 4, 8)).tolist()
    [4.0, 3.0, 2.0, 1.0]
    """
    first_cell = schedule.cell[schedule.device_start[:-1]]
    return np.maximum.reduceat(activations_in_use(schedule, stage_weights, held_for_weight_grad)[0], first_cell)


def activations_in_use(schedule, stage_weights=None, held_for_weight_grad=1.0):
    """Activations that a device holds in each of its cells, and after it.

    Parameters
    ----------
    schedule, stage_weights, held_for_weight_grad
        As in `peak_activations`.

    Returns
    -------
    during, after : ndarray of float, shape (num_cells,)
        In the unit of `stage_weights`, in the order of `Schedule.cell`.

    Examples
    --------
    >>> from ppmodel import build
    >>> during, after = activations_in_use(build("1f1b", 1, 2))
    >>> during.tolist(), after.tolist()
    ([1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0])
    """
    if stage_weights is None:  # whole stages are added up before they are divided, so that units stay exact
        both = activations_in_use(schedule, schedule.stage_shares, held_for_weight_grad)
        return both[0] / schedule.pieces_per_unit, both[1] / schedule.pieces_per_unit
    change = _changes(np.asarray(stage_weights, dtype=float), held_for_weight_grad)[schedule.kind, schedule.stage]
    cell = schedule.cell
    taken = np.bincount(cell, np.maximum(change, 0))
    given = np.bincount(cell, np.minimum(change, 0))
    first_cell = cell[schedule.device_start[:-1]]
    level = np.cumsum(taken + given) - (taken + given)  # devices one after the other; each ends where it began
    before = level - np.repeat(level[first_cell], np.diff(first_cell, append=len(taken)))
    return before + taken, before + taken + given


def _changes(weights, held):
    """What an operation takes, or gives back where negative, by kind and stage."""
    changes = np.zeros((len(OpKind), len(weights)))
    changes[OpKind.F], changes[OpKind.B] = weights, -weights
    changes[OpKind.I], changes[OpKind.W] = held * weights - weights, -held * weights
    return changes


def activation_bytes(stages):
    """What a stage's forward keeps of a microbatch, and which share of it stays between the halves of its backward.

    Parameters
    ----------
    stages : list of Stage, length num_stages
        From `costs.stages`.

    Returns
    -------
    stage_weights, held_for_weight_grad : ndarray of float, shape (num_stages,)
        In bytes, and relative to them; for `peak_activations` and `activations_in_use`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import stages
    >>> from ppmodel.specs import load_model, load_system
    >>> kept, held = activation_bytes(stages(build("zb-h1", 4, 8), load_model("paper"), load_system("mid_cp_mid_nw")))
    >>> kept.shape, bool((held < 1).all())
    ((4,), True)
    """
    kept = np.array([stage.activation_bytes for stage in stages])
    return kept, np.array([stage.weight_grad_bytes for stage in stages]) / kept


class Memory(NamedTuple):
    """Bytes on each device, each of shape (num_devices,).

    Parameters
    ----------
    activations : ndarray of float, shape (num_devices,)
        Peak bytes of activations kept for the backward.
    weights, gradients, optimizer : ndarray of float, shape (num_devices,)
        Bytes of the parameters that the device holds, of their gradients and of the optimizer's state.
    """

    activations: np.ndarray
    weights: np.ndarray
    gradients: np.ndarray
    optimizer: np.ndarray

    @property
    def persistent(self):
        """Weights, gradients and optimizer state: what stays between iterations."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self):
        """Persistent state and peak activations."""
        return self.persistent + self.activations


def memory(schedule, model, stages):
    """Peak activations and persistent state of each device in bytes.

    Parameters
    ----------
    schedule : Schedule
        Gives the placement of the stages and the order of the operations.
    model : ModelSpec
        Gives the bytes per parameter of weight, gradient and optimizer state.
    stages : list of Stage, length num_stages
        From `costs.stages`.

    Returns
    -------
    Memory
        In bytes; a device holds the parameters of its stages in all replicas.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import stages
    >>> from ppmodel.specs import load_model, load_system
    >>> schedule, model = build("gpipe", 4, 8), load_model("paper")
    >>> held = memory(schedule, model, stages(schedule, model, load_system("mid_cp_mid_nw")))
    >>> held.total.shape
    (4,)
    """
    parameters = np.zeros(schedule.num_devices)
    for homes in schedule.placement:
        np.add.at(parameters, homes, [stage.parameters for stage in stages])
    return Memory(
        peak_activations(schedule, *activation_bytes(stages)),
        parameters * model.element_bytes,
        parameters * model.gradient_bytes,
        parameters * model.optimizer_bytes,
    )


def messages_sent(schedule):
    """Point-to-point messages that each device sends in one iteration.

    Parameters
    ----------
    schedule : Schedule
        The table.

    Returns
    -------
    ndarray of int, shape (num_devices,)
        Times `costs.message_bytes`, the bytes that it sends.

    Raises
    ------
    TableError
        If operations wait for one another in a circle.

    Examples
    --------
    >>> from ppmodel import build
    >>> messages_sent(build("gpipe", 3, 4)).tolist()
    [4, 8, 4]
    """
    source, remote = schedule.dependencies.source, schedule.dependencies.remote
    return np.bincount(schedule.device[source[remote]], minlength=schedule.num_devices)
