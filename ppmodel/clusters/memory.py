"""Bytes on each rank's GPUs: weights, gradients, optimizer state, activations, buffers."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs import buffer_bytes, persistent_bytes
from ppmodel.clusters.costs.data_parallel import as_stages_compute
from ppmodel.metrics.activations import gathered_peaks, offloaded_peaks, peak_activations


def activation_bytes(stages):
    """Activations that a stage keeps of a microbatch, and the fraction held between the halves of its backward.

    Parameters
    ----------
    stages : Stages
        From `costs.stages`.

    Returns
    -------
    stage_weights, held_for_weight_grad : ndarray of float, shape (num_stages,)
        Bytes, and fraction of these; for `peak_activations` and `activations_in_use`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.costs import stages
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> kept, held = activation_bytes(stages(build("zb-h1", 4, 8), load_model("paper"), load_system("mid_cp_mid_nw")))
    >>> kept.shape, bool((held < 1).all())
    ((4,), True)
    """
    return stages.activation_bytes, held_share(stages.activation_bytes, stages.weight_grad_bytes)


def held_share(kept, between):
    """The fraction of what stages keep of a microbatch that they keep between the halves of its backward."""
    return np.divide(between, kept, out=np.zeros_like(kept), where=kept > 0)  # a stage may be empty


class Memory(NamedTuple):
    """Bytes on one GPU of each rank, by part.

    Parameters
    ----------
    activations : ndarray of float, shape (num_ranks,)
        Peak bytes of activations kept for the backward.
    weights, gradients, optimizer : ndarray of float, shape (num_ranks,)
        Bytes of the rank's parameters, also in the number format of products, their gradients and the optimizer state;
        with gathers in the table, also of the most weights that are gathered at a time, while gradients stay whole.
    working : ndarray of float, shape (num_ranks,)
        Activations of one block while it is recomputed; with ZeRO 3, its gathered weights; with ZeRO 2 and 3, its
        gradients before they are reduced and scattered.
    logits : ndarray of float, shape (num_ranks,)
        Logits of one microbatch, except what the backward needs of them.
    buffers : ndarray of float, shape (num_ranks,)
        Communication buffers: a received message in each direction, and the largest tensor that a tensor-parallel
        collective gathers.
    reserve : ndarray of float, shape (num_ranks,)
        Memory that, according to the system, a run cannot use.

    Without a layout, the last four are 0.
    """

    activations: np.ndarray
    weights: np.ndarray
    gradients: np.ndarray
    optimizer: np.ndarray
    working: np.ndarray | float = 0.0
    logits: np.ndarray | float = 0.0
    buffers: np.ndarray | float = 0.0
    reserve: np.ndarray | float = 0.0

    @property
    def persistent(self):
        """Weights, gradients and optimizer state, which persist between iterations."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self):
        """The sum of all parts."""
        return self.persistent + self.activations + self.working + self.logits + self.buffers + self.reserve

    @property
    def columns(self):
        """The sum and all parts by the names of their columns."""
        return {"peak_memory_bytes": self.total} | {f"{name}_bytes": sizes for name, sizes in self._asdict().items()}

    def fits(self, system):
        """True if every rank fits in the memory of a device.

        Parameters
        ----------
        system : SystemSpec
            Gives its capacity.

        Returns
        -------
        bool
        """
        return bool(self.total.max() <= system.memory_capacity_bytes)


def memory(schedule, model, stages, layout=None, system=None, timeline=None, units=None):
    """Memory of each rank in bytes, by part.

    Parameters
    ----------
    schedule : Schedule
        Provides the placement of stages and the order of operations.
    model : ModelSpec
        Provides the bytes per parameter of weight, gradient and optimizer state.
    stages : Stages
        From `costs.stages`, with the same layout.
    layout : LayoutSpec, optional
        How a rank is spread over GPUs; the memory is that of one GPU.
    system : SystemSpec, optional
        Provides the reserve, which counts only with a layout.
    timeline : Timeline, optional
        A run; needed if activations are offloaded, because their peak depends on it.
    units : Units, optional
        How units of work differ in size; not regarded where activations are offloaded.

    Returns
    -------
    Memory
        In bytes; a rank has the parameters of its stages in all replicas.

    Notes
    -----
    With the same layers on each stage, neither ZeRO 1 nor context parallelism adds memory; ZeRO 2 and 3 add at most
    what they gather of one layer. Recomputing in full may add memory where the backward is split: between its halves, a
    stage holds the inputs of its dense layers and the gradients of their outputs whether they are recomputed or not,
    and now also a block that is being recomputed. Layers that are balanced depend on times: what changes these may move
    a layer, and its memory, to another rank.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.costs import stages
    >>> from ppmodel.clusters.specs import load_model, load_system
    >>> schedule, model = build("gpipe", 4, 8), load_model("paper")
    >>> held = memory(schedule, model, stages(schedule, model, load_system("mid_cp_mid_nw")))
    >>> held.total.shape
    (4,)
    """
    is_copied, of_stages = timeline is not None and timeline.copies, activation_bytes(stages)
    tokens = None if units is None else units.tokens
    if is_copied:
        peak = offloaded_peaks(timeline, *of_stages, stages.shard_bytes)
    else:
        peak = peak_activations(schedule, *of_stages, tokens, stages.shard_bytes)
    if layout is None:
        parameters = on_ranks(schedule.placement, stages.parameters)
        widths = model.element_bytes, model.gradient_bytes, model.optimizer_bytes
        return Memory(peak, *(parameters * width for width in widths))
    everywhere = buffer_bytes(schedule, model, layout), system.reserve_bytes if system else 0.0
    persistent = persistent_bytes(stages, model, layout)
    if not schedule.gathers:
        return held_on_ranks(schedule.placement, stages, peak, persistent, *everywhere)
    whole, persistent[1], _ = persistent_bytes(stages, model, as_stages_compute(layout, schedule))
    of_ranks = held_on_ranks(schedule.placement, stages, peak, persistent, *everywhere)
    return of_ranks._replace(weights=of_ranks.weights + gathered_peaks(schedule, whole))


def held_on_ranks(placement, stages, peak, persistent, buffers, reserve):
    """The `Memory` of ranks, of one or many runs, from the peak of their activations and what their stages keep.

    Parameters
    ----------
    placement : ndarray of int, shape (num_replicas, num_stages), or Homes
    stages : Stages
    peak : ndarray of float, shape (..., num_ranks)
    persistent : list of ndarray of float, shape (..., num_stages)
        From `costs.persistent_bytes`.
    buffers, reserve : float or ndarray of float, shape (..., 1)
    """
    kept = [on_ranks(placement, column) for column in persistent]
    kept[0] = kept[0] + on_ranks(placement, stages.copied_bytes)
    largest = stages.working_bytes, stages.logits_bytes
    working, logits = (on_ranks(placement, column, np.maximum) for column in largest)
    return Memory(peak, *kept, working, logits, *(np.full(peak.shape, size) for size in (buffers, reserve)))


class Homes(NamedTuple):
    """The stages of each rank, of one run or of many one after another.

    Parameters
    ----------
    stages : ndarray of int, shape (n,)
        Those of all ranks, in all replicas, one rank after another.
    first : ndarray of int, shape (num_ranks,)
        Where those of each begin.
    """

    stages: np.ndarray
    first: np.ndarray


def on_ranks(placement, of_stages, combine=np.add):
    """Values of stages, the last axis, summed or otherwise combined on the ranks that have them, in all replicas.

    >>> on_ranks(np.array([[0, 1, 0]]), np.array([1.0, 2.0, 4.0])).tolist()
    [5.0, 2.0]
    """
    stages, first = placement if isinstance(placement, Homes) else homes_of(placement)
    return combine.reduceat(of_stages[..., stages], first, axis=-1)


def homes_of(placement):
    """The `Homes` of a table's placement."""
    return _homes_of(placement.tobytes(), placement.dtype, placement.shape[1])


@lru_cache(2**12)
def _homes_of(placement, dtype, num_stages):
    homes = np.frombuffer(placement, dtype)
    order = homes.argsort(kind="stable")
    return Homes(order % num_stages, np.flatnonzero(np.diff(homes[order], prepend=-1)))
