"""A system: one device, its network link, and nodes if ranks share them."""

from __future__ import annotations  # help() shows a field's type by its name

import os
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ppmodel.clusters.specs import entries
from ppmodel.clusters.specs.entries import Checked, Entry, Provenance, load_specification
from ppmodel.clusters.specs.files import packaged
from ppmodel.clusters.specs.formats import FORMATS
from ppmodel.clusters.specs.framework import FrameworkSpec
from ppmodel.clusters.specs.kernels import CollectiveSpec, KernelSpec, MemorySpec
from ppmodel.clusters.specs.layout import LARGEST
from ppmodel.clusters.specs.links import Link, as_links
from ppmodel.clusters.specs.model import ModelSpec
from ppmodel.errors import Rules, SpecificationError

PLACEMENTS = ("blocked", "round-robin", "folded")
"""Ranks that share a node: neighbours; every n-th rank, on n nodes; or ranks d and S-1-d."""

_PAIR = 2
_NEAR = 0.1


@dataclass(frozen=True)
class NodeSpec(Checked):
    """Ranks that share a node, and what connects them, in SI units.

    Parameters
    ----------
    devices_per_node : int
        Number of devices in a node.
    node_bandwidth_bytes_per_s, node_latency_s : float
        One directed link between two ranks on the same node, in bytes per second and seconds.
    shared_nic : bool
        Whether all messages leaving a node queue at its one NIC, as do all messages entering it;
        otherwise each directed pair of ranks has its own link.
    placement : str or tuple of int
        ``blocked``: rank d is on node d // devices_per_node; ``round-robin``: on node d modulo the number
        of nodes, with as few nodes as possible; ``folded``: ranks d and S-1-d share a node, together with
        neighbouring pairs as long as whole pairs fit; or a tuple: the node of each rank.

    Raises
    ------
    SpecificationError
        If the placement is none of these, or puts more ranks on a node than it has devices.

    Examples
    --------
    >>> NodeSpec(4, 450e9, 2e-6, shared_nic=False, placement="round-robin").of_ranks(6)
    array([0, 1, 0, 1, 0, 1])
    >>> NodeSpec(4, 450e9, 2e-6, shared_nic=False, placement="folded").of_ranks(8)
    array([0, 0, 1, 1, 1, 1, 0, 0])
    """

    devices_per_node: entries.Whole
    node_bandwidth_bytes_per_s: entries.Bandwidth
    node_latency_s: entries.Time
    shared_nic: entries.Switch
    placement: Annotated[str | tuple[int, ...], Entry(Any)]  # checked below, for files and callers alike

    def rules(self) -> Rules:
        """The placement is one, and has room on each node."""
        nodes, gpus_per_node = self.placement, self.devices_per_node
        are_numbers = type(nodes) is tuple and all(type(node) is int and 0 <= node <= LARGEST for node in nodes)
        is_legal = nodes in PLACEMENTS or (are_numbers and nodes)
        rule = f"must be {', '.join(PLACEMENTS)} or a list of whole numbers: the node of each rank"
        yield "nodes.placement", nodes, is_legal, rule, "write, for example, [0, 0, 1, 1]"
        most = max(Counter(nodes).values()) if are_numbers else _PAIR if nodes == "folded" else 1
        rule = f"puts {most} ranks on a node, but devices_per_node = {gpus_per_node}"
        yield "nodes.placement", nodes, most <= gpus_per_node, rule, "spread them, or increase devices_per_node"

    def of_ranks(self, num_ranks: int) -> NDArray[np.int64]:
        """The node of each rank; nodes are numbered in order of first use.

        Parameters
        ----------
        num_ranks : int
            Ranks of the pipeline, S.

        Returns
        -------
        ndarray of int, shape (num_ranks,)
            Counted from 0.

        Raises
        ------
        SpecificationError
            If the placement is a list for a different number of ranks.
        """
        ranks = np.arange(num_ranks)
        if self.placement == "blocked":
            return ranks // self.devices_per_node
        if self.placement == "round-robin":
            return ranks % -(-num_ranks // self.devices_per_node)
        if self.placement == "folded":
            return np.minimum(ranks, ranks[::-1]) // (self.devices_per_node // _PAIR)
        if len(self.placement) != num_ranks:
            rule = f"gives the nodes of {len(self.placement)} ranks, but the pipeline has {num_ranks}"
            remedy = f"use {len(self.placement)} ranks, or write {' or '.join(PLACEMENTS)}"
            raise SpecificationError("nodes.placement", list(self.placement), rule, remedy)
        number = {node: index for index, node in enumerate(dict.fromkeys(self.placement))}
        return np.array([number[node] for node in self.placement])


@dataclass(frozen=True)
class ErrorSpec(Checked):
    """Errors of a fitted system, on measured runs that a fit to the other runs had not seen.

    `ppmodel calibrate` writes these entries; their sources have the errors on each file of runs. Of several files, the
    mean counts: all weigh the same.

    Parameters
    ----------
    time, memory : float, optional
        Mean of |predicted / measured - 1|: 0.05 is 5 %.
    memory_nine_tenths : float, optional
        The same of memory, but what nine of ten runs stayed below; less than 1.
    fits : float, optional
        Of runs that are only known to fit in memory or not, the share predicted wrongly.
    """

    time: entries.NumberOrZero | None = None
    memory: entries.NumberOrZero | None = None
    memory_nine_tenths: entries.PartialShare | None = None
    fits: entries.Share | None = None


@dataclass(frozen=True)
class SystemSpec(Checked):
    """One device and its network link, in SI units, and nodes if ranks share them.

    Parameters
    ----------
    name, title : str
        The name is the file's.
    peak_compute_flops : float
        Peak FLOP/s of the matrix units.
    compute_efficiency, memory_efficiency : float
        Attainable fraction of the peak, e_c and e_m of the roofline.
    compute_latency_s, memory_latency_s : float
        Fixed cost per operation in seconds, on the compute side and on the memory side of the roofline.
    memory_bandwidth_bytes_per_s, memory_capacity_bytes : float
        Memory of one device: bandwidth in bytes per second, capacity in bytes.
    network_bandwidth_bytes_per_s, network_latency_s : float
        One directed link between two ranks (with nodes: two ranks on different nodes), in bytes per second and
        seconds.
    nodes : NodeSpec, optional
        Which ranks share a node, and what connects them; without it, all links are alike.
    links : tuple of Link
        Links between two ranks that differ from these, or what `as_links` takes.
    framework : FrameworkSpec, optional
        What the training framework does that neither model nor layout says; for rows of measured runs.
    kernels : KernelSpec, optional
        What kernels attain, by kind and shape, if more is known than the roofline.
    collectives : CollectiveSpec, optional
        What collectives attain on the links.
    memory : MemorySpec, optional
        How the memory that frameworks use differs from what a model needs; used only with a layout.
    fp8_peak_compute_flops, fp4_peak_compute_flops : float, optional
        FLOP/s of the matrix units in matrix multiplications of 8-bit numbers, and of 4-bit ones.
    reserve_bytes : float
        Device memory that a run cannot use: context, libraries, fragmentation.
    host_bandwidth_bytes_per_s : float, optional
        Bandwidth between one device's memory and its host's, in each direction, in bytes per second; used to offload
        activations.
    gpu_hour_price : float, optional
        Price of one device for an hour, in any currency, for the money that `plan` names.
    time_factor : float
        Factor on all predicted times but the delays of `links`, by which a system is scaled to few measured runs.
    errors : ErrorSpec, optional
        How far off the system is, if it is fitted; no result depends on it.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str
    title: str
    peak_compute_flops: entries.Rate
    compute_efficiency: entries.Efficiency
    compute_latency_s: entries.Time
    memory_bandwidth_bytes_per_s: entries.Bandwidth
    memory_efficiency: entries.Efficiency
    memory_latency_s: entries.Time
    memory_capacity_bytes: entries.Size
    network_bandwidth_bytes_per_s: entries.Bandwidth
    network_latency_s: entries.Time
    nodes: NodeSpec | None = None
    links: Annotated[tuple[Link, ...], Entry(Any, is_bare=True)] = ()
    framework: FrameworkSpec | None = None
    kernels: KernelSpec | None = None
    collectives: CollectiveSpec | None = None
    memory: MemorySpec | None = None
    fp8_peak_compute_flops: entries.Rate | None = None
    fp4_peak_compute_flops: entries.Rate | None = None
    reserve_bytes: entries.Size = 0.0
    host_bandwidth_bytes_per_s: entries.Bandwidth | None = None
    gpu_hour_price: entries.Number | None = field(default=None, compare=False)
    time_factor: entries.Number = 1.0
    errors: ErrorSpec | None = field(default=None, compare=False)
    provenance: tuple[Provenance, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "links", as_links(self.links))

    def with_links(self, links: object) -> SystemSpec:
        """The system with other links, from what `as_links` takes; None keeps its own."""
        return self if links is None else replace(self, links=as_links(links))

    @property
    def timed(self) -> SystemSpec:
        """The system on which everything takes its time factor longer; costs are computed on it.

        >>> from dataclasses import replace
        >>> replace(load_system("mid_cp_mid_nw"), time_factor=2.0).timed.network_bandwidth_bytes_per_s
        25000000000.0
        """
        if (factor := self.time_factor) == 1.0:
            return self
        names = {value.name for spec in (SystemSpec, NodeSpec, KernelSpec, CollectiveSpec) for value in fields(spec)}
        times = {name: 1 / factor if name.endswith("_per_s") else factor for name in names if name.endswith("_s")}
        system = self if self.kernels else replace(self, kernels=KernelSpec())
        return replace(scaled(system, times | {"sustained_clock": 1 / factor}), time_factor=1.0)

    def peak_flops(self, precision: str | None) -> float | None:
        """Peak FLOP/s of matrix products in a number format; None if the system gives none.

        GPUs that multiply in 4 bits, and no others, multiply in MXFP8.

        >>> [load_system("h100").peak_flops(name) for name in ("fp8", "mxfp8", "nvfp4")]
        [1979000000000000.0, None, None]
        """
        if precision == "mxfp8" and self.fp4_peak_compute_flops is None:
            return None
        peaks = {16: self.peak_compute_flops, 8: self.fp8_peak_compute_flops, 4: self.fp4_peak_compute_flops}
        return peaks[FORMATS[precision or "bf16"].bits]

    @property
    def range(self) -> tuple[float, float] | None:
        """The multiples of a predicted time that nine of ten measured runs fall between, of those known to it.

        They are those of its framework, or of a fit; None where nothing is known: without what kernels and collectives
        attain, unless it was fitted to runs, or under a framework whose runs nobody compared.

        >>> from ppmodel.clusters.specs import with_framework
        >>> with_framework(load_system("mid_cp_mid_nw")).range is None
        True
        """
        return None if self.framework is None or self._is_plain else self.framework.ends()

    @property
    def _is_plain(self):
        is_fitted = self.framework is not None and not self.framework.name
        return not (is_fitted or (self.kernels and self.collectives))

    def range_of(self, model: ModelSpec, gpus: int, precision: str) -> tuple[tuple[float, float] | None, str]:
        """The range of a run, if such runs were measured, and the runs that it is from, or why there is none.

        >>> from ppmodel.clusters.specs import load_model, with_framework
        >>> system = with_framework(load_system("h100"), "fsdp")
        >>> system.range_of(load_model("llama3_8b"), 4096, "bf16")
        (None, 'no run under fsdp on more than 512 GPUs was measured')
        >>> load_system("h100_playbook").range_of(load_model("llama3_8b"), 8, "fp8")
        (None, 'no run in fp8 is among those that h100_playbook was fitted to')
        """
        framework, with_experts = self.framework or FrameworkSpec(), model.experts is not None
        ends = None if self._is_plain else framework.ends(with_experts)
        of = f"under {framework.label}" if framework.name else f"that {self.name} was fitted to"
        if ends is None and not framework.name:
            return None, f"{self.name} states none"
        reasons = {
            "on a system without kernels and collectives": self._is_plain,
            "of a model with experts": with_experts and ends is None, "": ends is None,
            f"in {precision}": FORMATS[precision].bits not in (
                FORMATS[name].bits for name in (framework.range_precisions or precision).split()
            ),
            f"on more than {framework.range_gpus} GPUs": gpus > (framework.range_gpus or gpus),
            "with a slow link": any(link.is_slow for link in self.links),
        }  # fmt: skip
        if missing := [kind for kind, is_missing in reasons.items() if is_missing]:
            if not framework.name:
                return None, f"no run {missing[0]} is among those {of}"
            return None, f"no run {of} {missing[0]}".rstrip() + " was measured"
        count = f"{framework.range_runs} runs" if framework.range_runs else "runs"
        sources = f" ({framework.range_sources})" * bool(framework.range_sources)
        runs = f"{framework.experts_runs} {of}" if with_experts else f"{count} {of}{sources}"
        unknown = f"; release {framework.release} is not known, and taken as {framework.as_release}"
        return ends, runs + unknown * bool(framework.as_release)


def scaled(block, factors):
    """A system, a block of it or a link, with those of its values multiplied that have a factor; open ones stay open.

    A system's links and memory stay as they are.

    >>> scaled(Link(0, 1, True, delay_s=0.5), {"delay_s": 2.0, "node_latency_s": 3.0}).delay_s
    1.0
    """
    values = {name: getattr(block, name) * factor for name, factor in factors.items() if getattr(block, name, None)}
    if isinstance(block, SystemSpec):
        values |= {name: scaled(getattr(block, name), factors) for name in ("nodes", "kernels", "collectives")}
    return block._replace(**values) if isinstance(block, Link) else block and replace(block, **values)


def load_system(name: str | os.PathLike[str] | SystemSpec) -> SystemSpec:
    """Read a system by name or from a file.

    Parameters
    ----------
    name : str, Path or SystemSpec
        A name in `packaged`, or the path of a ``.yaml`` or ``.yml`` file; a specification stays as it is.

    Returns
    -------
    SystemSpec
        In SI units.

    Raises
    ------
    SpecificationError
        In one line: file, line, field, value, rule and remedy.

    Examples
    --------
    >>> load_system("mid_cp_mid_nw").network_bandwidth_bytes_per_s
    50000000000.0
    """
    return load_specification(name, "systems", SystemSpec)


def similar_system(system: SystemSpec) -> str | None:
    """Name of the packaged GPU, not fitted to runs, with the nearest peaks; None if they are more than a tenth away.

    >>> similar_system(load_system("dgx_h100_nodes")), similar_system(load_system("mid_cp_mid_nw"))
    ('h100', None)
    """

    def sizes(system):
        return np.log([system.peak_compute_flops, system.memory_bandwidth_bytes_per_s, system.memory_capacity_bytes])

    texts = {name: path.read_text(encoding="utf-8") for name, path in packaged("systems").items()}
    known = [name for name, text in texts.items() if "\nkernels:" in text and "\nframework:" not in text]
    apart = {name: np.abs(sizes(load_system(name)) - sizes(system)) for name in known}
    near = [name for name in known if apart[name][:2].max() < _NEAR]
    return min(near, key=lambda name: apart[name].sum(), default=None)
