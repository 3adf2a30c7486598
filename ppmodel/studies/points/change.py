"""Changes to a system and its costs, to see what a result depends on."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from ppmodel.clusters.specs.system import SystemSpec, scaled
from ppmodel.errors import CostError, PPModelError
from ppmodel.given import as_list, is_number, to_builtin
from ppmodel.ops import OpKind
from ppmodel.simulation import OpCosts
from ppmodel.tables import Schedule

_REFERENCE_FLOPS = 1e15
_RULES = {
    **dict.fromkeys(("latency", "collectives"), ("must be finite and at least 0", 0.0, math.inf)),
    "straggling": ("must be from 0 to 1", 0.0, 1.0),
}
_FACTOR = "must be finite and above 0", math.nextafter(0, 1), math.inf
_BANDWIDTHS = "network_bandwidth_bytes_per_s", "node_bandwidth_bytes_per_s", "bandwidth_bytes_per_s"
_LATENCIES = "network_latency_s", "node_latency_s", "delay_s"
_PEAKS = "peak_compute_flops", "fp8_peak_compute_flops", "fp4_peak_compute_flops"
_EFFICIENCIES = (
    "compute_efficiency", "fp8_efficiency", "fp4_efficiency", "attention_efficiency", "attention_backward_efficiency",
    "batched_efficiency",
)  # fmt: skip
_OF_SYSTEM = ("bandwidth", "latency", "compute", "memory", "memory_follows", "efficiency")


@dataclass(frozen=True)
class Change:
    """Changes to a system and its costs, to see what a result depends on.

    Parameters
    ----------
    bandwidth, latency : float
        Factors on the bandwidth and latency of all links, within and between nodes; a link's delay is latency, too.
    compute : float
        Factor on the speed of a device: both its peak and its memory bandwidth.
    memory : float
        Factor on the memory bandwidth alone.
    memory_follows : bool
        Whether memory bandwidth grows with the peak. If not, every device has the memory bandwidth of a 1 PFLOP/s
        device; meant for the paper's nine systems, for which memory is not published.
    efficiency : float
        Factor on the attainable fraction of the peak.
    collectives : float
        Factor on the time of the gradient all-reduce.
    backward : float or None
        Time of a backward over that of a forward, on every stage; None keeps the model's ratio.
    overlap : float
        Factor on the time of a cell with a forward and a backward, F&B; below 1 if they fill each other's gaps. Other
        operations that share a cell, such as Chimera's doubled forwards, keep their times.
    straggler : float
        Factor on the time of every operation on a slow S-th of the model.
    straggling : float
        Position of that S-th: from 0 for the first to 1 for the last.
    network : bool
        Whether transfers and all-reduces take any time.

    Raises
    ------
    PPModelError
        If a value is of the wrong type, a factor or `backward` is not positive (latency and collectives may be 0), or
        `straggling` is not between 0 and 1.

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

    def __post_init__(self):
        for name, default in ((entry.name, entry.default) for entry in fields(self)):
            value = self.__dict__[name] = to_builtin(getattr(self, name))
            if isinstance(default, bool):
                rule, is_legal = "must be True or False", isinstance(value, bool)
            else:
                rule, low, high = _RULES.get(name, _FACTOR)
                is_legal = value is default is None or (is_number(value) and low <= value <= high)
            if not is_legal:
                raise PPModelError(name, repr(value), rule, f"write, for example, {default}; compare takes several")

    def __repr__(self):
        return f"Change({', '.join(f'{key}={value!r}' for key, value in self.given().items())})"

    def given(self) -> dict[str, Any]:
        """The fields that differ from their defaults.

        Returns
        -------
        dict
            From name to value.
        """
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(Change, name)}

    @property
    def of_system(self) -> tuple[Any, ...]:
        """The values that change a system, and not the costs on it alone."""
        return tuple(getattr(self, name) for name in _OF_SYSTEM)

    def system(self, system: SystemSpec) -> SystemSpec:
        """Apply the change to a system.

        Parameters
        ----------
        system : SystemSpec
            The original system.

        Returns
        -------
        SystemSpec
            The changed system, under the same name.
        """
        if self == UNCHANGED:
            return system
        follows = 1.0 if self.memory_follows else _REFERENCE_FLOPS / system.peak_compute_flops
        factors = {
            **dict.fromkeys(_BANDWIDTHS, self.bandwidth), **dict.fromkeys(_LATENCIES, self.latency),
            **dict.fromkeys(_PEAKS, self.compute), **dict.fromkeys(_EFFICIENCIES, self.efficiency),
            "memory_bandwidth_bytes_per_s": self.memory * follows * self.compute,
        }  # fmt: skip
        return replace(scaled(system, factors), links=tuple(scaled(link, factors) for link in system.links))

    def costs(self, costs: OpCosts, schedule: Schedule) -> OpCosts:
        """Apply the change to costs.

        Parameters
        ----------
        costs : OpCosts
            Costs on the changed system.
        schedule : Schedule
            Provides each stage's share of the model.

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
            stages_per_rank = schedule.num_stages // schedule.num_ranks
            first = round(self.straggling * (schedule.num_ranks - 1)) * stages_per_rank
            slow = slice(first, first + stages_per_rank)  # one S-th of the model
            compute[: OpKind.R, slow] *= self.straggler
            compute[OpKind.O, slow] *= self.straggler
        compute[[OpKind.R, OpKind.G]] *= self.collectives * self.network
        return replace(
            costs, compute_s=compute, occupancy_s=costs.occupancy_s * self.network,
            latency_s=costs.latency_s * self.network, delay_s=costs.delay_s if self.network else None,
            overlap_factor=costs.overlap_factor * self.overlap,
        )  # fmt: skip


def as_changes(changes, in_seconds=False):
    """List the changes that a caller asks for; None is no change.

    Parameters
    ----------
    changes : Change, None or list of them
    in_seconds : bool
        Whether costs are given in seconds, which do not depend on a system.

    Returns
    -------
    list of Change

    Raises
    ------
    CostError
        If one is something else, or has no effect on costs in seconds.

    Examples
    --------
    >>> as_changes([None, Change(network=False)])
    [Change(), Change(network=False)]
    """
    changes = [UNCHANGED if change is None else change for change in as_list(changes)]
    if not changes:
        raise CostError("changes", "[]", "must have an entry", "list at least one change, or leave it out")
    for change in changes:
        if not isinstance(change, Change):
            remedy = "write, for example, ppmodel.Change(bandwidth=0.5)"
            raise CostError("changes", repr(change), "is not a Change", remedy)
        given = change.given() if in_seconds and change is not UNCHANGED else ()
        if without_effect := [name for name in _OF_SYSTEM if name in given]:
            rule = f"changes the system's {without_effect[0]}, which costs in seconds do not depend on"
            remedy = "give {model} and {system}, or vary the seconds"
            raise CostError("changes", change, rule, remedy, names_fields=True)
    return changes


UNCHANGED = Change()
WITHOUT_NETWORK = Change(network=False)
