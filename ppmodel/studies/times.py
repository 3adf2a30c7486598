"""Simulated times of a schedule on many systems, and under many changes of them, in one pass each."""

from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.costs import model_costs
from ppmodel.simulation import makespans
from ppmodel.errors import PPModelError
from ppmodel.metrics import computing_s
from ppmodel.ops import OpKind
from ppmodel.specs import by_nics
from ppmodel.studies.cases import built, compiled

_REFERENCE_FLOPS = 1e15
_COSTS_KEPT = 2**17  # the costs of the largest study, the search of `implied`, stay: 65,000 of them take 0.2 GB
_LEAST = dict.fromkeys(("bandwidth", "compute", "memory", "efficiency", "straggler", "backward", "overlap")) | {
    "latency": 0, "collectives": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """What is changed of a system and of the costs on it, to see what a result depends on.

    Parameters
    ----------
    bandwidth, latency : float
        Factors on the network's bandwidth and on its latency, of links inside and between nodes alike.
    compute : float
        Factor on the rank's speed: its peak and its memory bandwidth.
    memory : float
        Factor on the memory bandwidth alone.
    memory_follows : bool
        Whether a rank of ten times the peak has ten times the memory bandwidth, too. Where it does not, every
        rank has that of one of 1 PFLOP/s; meant for the paper's nine systems, where that is not known.
    efficiency : float
        Factor on the attainable fraction of the peak.
    collectives : float
        Factor on the time of the gradient all-reduce.
    backward : float or None
        Time of a backward in forwards, on every stage; None keeps the model's own.
    overlap : float
        Factor on the time of a cell in which a forward meets a backward, F&B; below 1 where the two fill each other's
        gaps. Other operations that share a cell, such as two forwards that are doubled, keep their times.
    straggler : float
        Factor on the time of every operation on one S-th of the model.
    straggling : float
        Where that S-th lies: 0 for the first, 1 for the last.
    network : bool
        Whether transfers and all-reduces take any time at all.

    Raises
    ------
    PPModelError
        If a factor, or a backward that is given, is not positive (latency and collectives may be 0), or `straggling`
        does not lie between 0 and 1.

    Examples
    --------
    >>> Change(bandwidth=0.5)
    Change(bandwidth=0.5)
    """

    bandwidth: float = 1.0
    latency: float = 1.0
    compute: float = 1.0
    memory: float = 1.0
    memory_follows: bool = True
    efficiency: float = 1.0
    collectives: float = 1.0
    backward: float | None = None
    overlap: float = 1.0
    straggler: float = 1.0
    straggling: float = 1.0
    network: bool = True

    def __hash__(self):
        return self._hash  # looked up far more often than made

    def __post_init__(self):
        object.__setattr__(self, "_hash", hash(tuple(getattr(self, one.name) for one in fields(self))))
        for name, least in _LEAST.items():
            value = getattr(self, name)
            above = least is None
            good = value is None and name == "backward"
            if not good and not (np.isfinite(value) and (value > 0 if above else value >= least)):
                rule = f"must be finite and {'above 0' if above else f'at least {least}'}"
                raise PPModelError(name, value, rule, "write 1 for no change")
        if not 0 <= self.straggling <= 1:
            raise PPModelError("straggling", self.straggling, "must be from 0 to 1", "write 1 for the last stage")

    def __repr__(self):
        return f"Change({', '.join(f'{key}={value!r}' for key, value in self.given().items())})"

    def given(self):
        """What is changed: the fields that are not at their default.

        Returns
        -------
        dict
            From name to value.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(Change, name)}

    def system(self, system):
        """The changed system.

        Parameters
        ----------
        system : SystemSpec
            As specified.

        Returns
        -------
        SystemSpec
            With the same name.
        """
        follows = 1.0 if self.memory_follows else _REFERENCE_FLOPS / system.peak_compute_flops
        memory = system.memory_bandwidth_bytes_per_s * self.memory * follows
        return replace(
            system,
            peak_compute_flops=system.peak_compute_flops * self.compute,
            compute_efficiency=system.compute_efficiency * self.efficiency,
            memory_bandwidth_bytes_per_s=memory * self.compute,
            network_bandwidth_bytes_per_s=system.network_bandwidth_bytes_per_s * self.bandwidth,
            network_latency_s=system.network_latency_s * self.latency,
            nodes=self._nodes(system.nodes),
        )

    def _nodes(self, nodes):
        return nodes and replace(
            nodes,
            node_bandwidth_bytes_per_s=nodes.node_bandwidth_bytes_per_s * self.bandwidth,
            node_latency_s=nodes.node_latency_s * self.latency,
        )

    def costs(self, costs, schedule):
        """The changed costs.

        Parameters
        ----------
        costs : OpCosts
            On the changed system.
        schedule : Schedule
            Gives the stages' shares of the model.

        Returns
        -------
        OpCosts
            In seconds.
        """
        if self.backward is None and self.straggler == self.collectives == self.overlap == 1 and self.network:
            return costs
        compute = costs.compute_s.copy()
        if self.backward is not None:
            whole = compute[OpKind.B].copy()
            compute[OpKind.B] = self.backward * compute[OpKind.F]
            for half in (OpKind.I, OpKind.W):
                compute[half] *= compute[OpKind.B] / whole
        if self.straggler != 1:
            compute[: OpKind.R, _slow_stages(schedule, self.straggling)] *= self.straggler
        compute[OpKind.R] *= self.collectives * self.network
        transfers = {"occupancy_s": costs.occupancy_s * self.network, "latency_s": costs.latency_s * self.network}
        return replace(costs, compute_s=compute, overlap_factor=costs.overlap_factor * self.overlap, **transfers)


UNCHANGED = Change()
WITHOUT_NETWORK = Change(network=False)


def _slow_stages(schedule, where):
    """The stages that make up one S-th of the model, the first where 0 and the last where 1."""
    stages, ranks = schedule.num_stages, schedule.num_ranks
    each = stages // ranks
    first = round(where * (ranks - 1)) * each
    return slice(first, first + each)


class Times(NamedTuple):
    """Simulated and computing time, each of one entry for every change and system.

    Parameters
    ----------
    t_sim_s : ndarray of float, shape (num_changes, num_systems)
        From the start of the first operation to the end of the last, in seconds.
    idle_ratio : ndarray of float, shape (num_changes, num_systems)
        Share of all ranks' time in which they do not compute.
    """

    t_sim_s: np.ndarray
    idle_ratio: np.ndarray


def times(case, num_ranks, num_microbatches, model, systems, p2p, allreduce="excluded", changes=(UNCHANGED,)):
    """Simulated times of one schedule on some systems under some changes.

    What has been simulated before in this process is not simulated again; values decide, not names or files.

    Parameters
    ----------
    case : tuple (str, tuple of pairs)
        Name and options of the schedule.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems; those whose ranks share NICs are simulated with them.
    p2p, allreduce : str
        Communication semantics, as in `graph.compile`.
    changes : sequence of Change
        Each is applied to every system.

    Returns
    -------
    Times
        Arrays of shape (len(changes), len(systems)).

    Raises
    ------
    ScheduleError
        If the schedule is not defined at the size.
    CostError
        If the model does not fit the schedule.
    SpecificationError
        If a system lists the nodes of another number of ranks.
    PPModelError
        If a semantics is unknown.

    Examples
    --------
    >>> from ppmodel.specs import load_model, load_system
    >>> systems = [load_system("mid_cp_mid_nw"), load_system("mid_cp_slow_nw")]
    >>> changes = [UNCHANGED, WITHOUT_NETWORK]
    >>> both = times(("1f1b", ()), 4, 8, load_model("paper"), systems, "overlapped", changes=changes)
    >>> both.t_sim_s.shape, bool(both.t_sim_s[1, 0] == both.t_sim_s[1, 1])
    ((2, 2), True)
    """
    name, options = case
    schedule = built(name, num_ranks, num_microbatches, options)
    if schedule.num_replicas == 1:
        allreduce = "excluded"  # there is nothing to sum
    known = _known(name, options, num_ranks, num_microbatches, p2p, allreduce, model)
    of_systems = [known.setdefault(system, {}) for system in systems]
    missing = [(change, n) for change in dict.fromkeys(changes) for n, of in enumerate(of_systems) if change not in of]
    for nics, places in by_nics([systems[n] for _, n in missing], num_ranks, p2p).items():
        some = [missing[place] for place in places]
        graph = compiled(name, num_ranks, num_microbatches, options, p2p, allreduce, nics)
        size = (name, options, num_ranks, num_microbatches)
        many = [_costs(*size, model, change, systems[n]) for change, n in some]
        spans = makespans(graph, many)
        idle = 1 - computing_s(schedule, many) / (num_ranks * spans)
        for (change, n), *numbers in zip(some, spans.tolist(), idle.tolist(), strict=True):
            of_systems[n][change] = numbers
    table = np.array([[of[change] for of in of_systems] for change in changes])
    return Times(table[..., 0], table[..., 1])


@lru_cache(_COSTS_KEPT)
def _costs(name, options, num_ranks, num_microbatches, model, change, system):
    """Costs of a schedule on a changed system: the same for all semantics."""
    schedule = built(name, num_ranks, num_microbatches, options)
    return change.costs(model_costs(schedule, model, change.system(system)), schedule)


@cache
def _known(*_):
    """What is known of one schedule, semantics and model: from system to change to (time, idle ratio)."""
    return {}
