"""A system: one device, its network link, and the nodes, where ranks share them."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass, field

from ppmodel.specs.entries import Bandwidth, Efficiency, Rate, Size, Time, load_specification
from ppmodel.specs.framework import Framework
from ppmodel.specs.kernels import Collectives, Kernels, Memory
from ppmodel.specs.topology import Nodes


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
    framework : FrameworkSpec, optional
        What the training framework does that neither model nor layout say; for rows of measured runs.
    kernels : KernelSpec, optional
        What kernels attain by their kind and shape, where that is known better than by the roofline alone.
    collectives : CollectiveSpec, optional
        What collectives attain on the links.
    memory : MemorySpec, optional
        What frameworks make of the memory that a model needs; counts with a layout.
    fp8_peak_compute_flops : float, optional
        FLOP/s of the matrix units in matrix multiplications of 8-bit numbers.
    reserve_bytes : float
        Memory of a device that a run cannot use: context, libraries, fragmentation.
    host_bandwidth_bytes_per_s : float, optional
        Between the memory of a device and that of its host, of one device in each direction, in bytes per second; for
        activations that are offloaded.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str
    title: str
    peak_compute_flops: Rate
    compute_efficiency: Efficiency
    compute_latency_s: Time
    memory_bandwidth_bytes_per_s: Bandwidth
    memory_efficiency: Efficiency
    memory_latency_s: Time
    memory_capacity_bytes: Size
    network_bandwidth_bytes_per_s: Bandwidth
    network_latency_s: Time
    nodes: Nodes = None
    framework: Framework = None
    kernels: Kernels = None
    collectives: Collectives = None
    memory: Memory = None
    fp8_peak_compute_flops: Rate = None
    reserve_bytes: Size = 0.0
    host_bandwidth_bytes_per_s: Bandwidth = None
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
    return load_specification(name, "systems", SystemSpec)
