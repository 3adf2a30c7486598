"""A system: one device, its network link, and the nodes, where ranks share them."""

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from ppmodel.specs.entries import Bandwidth, Efficiency, Rate, Size, Time, load_specification
from ppmodel.specs.topology import NodesFile, NodeSpec


class _SystemFile(BaseModel):
    """Keys of a system file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    title: str
    peak_compute: Rate
    compute_efficiency: Efficiency
    compute_latency: Time
    memory_bandwidth: Bandwidth
    memory_efficiency: Efficiency
    memory_latency: Time
    memory_capacity: Size
    network_bandwidth: Bandwidth
    network_latency: Time
    nodes: NodesFile = None


@dataclass(frozen=True)
class SystemSpec:
    """One device and its network link, in SI units; and the nodes, where ranks share them.

    Parameters
    ----------
    name, title : str
        The name is that of the file.
    peak_compute_flops : float
        FLOP/s of the matrix units.
    compute_efficiency, memory_efficiency : float
        Attainable fraction of the peak, e_c and e_m of the roofline.
    compute_latency_s, memory_latency_s : float
        Fixed cost in seconds of each operation on either side of the roofline.
    memory_bandwidth_bytes_per_s, memory_capacity_bytes : float
        Of the memory of one device, in bytes per second and bytes.
    network_bandwidth_bytes_per_s, network_latency_s : float
        Of one directed link between two ranks, in bytes per second and seconds; with nodes, between ranks of
        two nodes.
    nodes : NodeSpec, optional
        Which ranks share a node, and what connects them; without it all links are alike.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str
    title: str
    peak_compute_flops: float
    compute_efficiency: float
    compute_latency_s: float
    memory_bandwidth_bytes_per_s: float
    memory_efficiency: float
    memory_latency_s: float
    memory_capacity_bytes: float
    network_bandwidth_bytes_per_s: float
    network_latency_s: float
    nodes: NodeSpec | None = None
    provenance: tuple = field(default=(), compare=False, repr=False)


def load_system(name):
    """Read a system by name, or from a file.

    Parameters
    ----------
    name : str or Path
        One of `system_names`, or a path that ends in ``.yaml`` or ``.yml``.

    Returns
    -------
    SystemSpec
        In SI units.

    Raises
    ------
    SpecificationError
        One line with file, line, field, value, rule and remedy.

    Examples
    --------
    >>> load_system("mid_cp_mid_nw").network_bandwidth_bytes_per_s
    50000000000.0
    """
    return load_specification(name, "systems", _SystemFile, SystemSpec)
