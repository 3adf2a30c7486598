"""A training framework: what software does that neither model nor layout nor hardware says."""

from __future__ import annotations  # help() shows a field's type by its name

import os
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated

from ppmodel.clusters.specs import entries
from ppmodel.clusters.specs.entries import Checked, Entry, Provenance, load_specification
from ppmodel.clusters.specs.files import RENAMED_FRAMEWORKS, packaged
from ppmodel.clusters.specs.formats import FORMATS
from ppmodel.clusters.specs.kernels import MemorySpec
from ppmodel.clusters.specs.layout import DISPATCHERS, GRAPHS, QUANTISED
from ppmodel.errors import Rules, SpecificationError

if TYPE_CHECKING:
    from ppmodel.clusters.specs.links import Link
    from ppmodel.clusters.specs.model import ModelSpec
    from ppmodel.clusters.specs.system import SystemSpec

DEFAULT = "megatron"
"""The framework of a run that names none, unless its system was fitted together with one."""

_PASSES = "stream_efficiency", "activation_efficiency", "softmax_efficiency", "loss_efficiency"
_OF_MODEL = "gradient_bytes", "optimizer_bytes"
_UNFUSED = "rotary", "search"  # passes that later releases fuse or shorten


@dataclass(frozen=True)
class FrameworkSpec(Checked):
    """The behaviour of a training framework.

    Parameters
    ----------
    p2p : str
        What a transfer between stages occupies, as in `simulation.compile_graph`.
    slow_link_p2p : str, optional
        The same where a link is slow, by the framework's calls: there it matters. `p2p` if not given.
    batched : str
        Names of schedules, separated by spaces, whose transfers are batched: where a link is slow, ``rendezvous``.
    precision : {"bf16", "fp8", "fp8-blockwise", "mxfp8", "nvfp4"}
        Of matrix multiplications.
    dispatcher : {"all-to-all", "deepep", "hybridep"}
        How tokens reach experts, as in `LayoutSpec`, where a layout leaves it open.
    wide_dispatcher : str, optional
        The same where more than eight GPUs share an NVLink domain.
    quantised_weights : {"none", "beside", "alone"}
    cuda_graphs : {"none", "modules", "full"}
        As in `LayoutSpec`; where a layout leaves them open.
    beside_formats : str
        Number formats, joined by ``+``, for which `quantised_weights` is ``beside`` instead; or ``none``.
    dropout : bool
        Whether GPT blocks have dropout; for rows of measured runs.
    overlap_tensor, overlap_backward, overlap_gradients, overlap_parameters : bool
        As in `LayoutSpec`; they hold where a layout leaves them open.
    overlap_plain_gradients : bool
        Whether gradients are reduced under the backward at least without a pipeline and without ZeRO.
    scatter_messages : bool
        Whether each tensor-parallel rank sends only its part of the message to the next stage, not all of it
        (Narayanan et al., 2021, section 4.1).
    gathered_logits : bool
        Whether every tensor-parallel rank keeps all logits in memory.
    tied_embeddings : bool
        Whether models with a gated MLP also tie the loss head to the embedding, in rows of measured runs; models
        without one always do.
    least_zero : int
        What replicas shard at least, as `LayoutSpec` has it in ``zero``, whatever a layout says.
    gradient_bytes, optimizer_bytes : float, optional
        Bytes per parameter; the model's if not given.
    flash_attention : bool
        Whether fused attention is FlashAttention's, as in `KernelSpec.flash_attention_factor`.
    attention_factor, pass_factor : float
        Factors on what a system's fused attention attains, and on what its passes over memory attain (norms, residual
        sums, activation functions, softmax, loss): below 1 where a framework uses older kernels, or fuses less. These
        and the times of the host need a system with kernel constants: one without them stays a plain roofline.
    loss_passes : float
        Bytes that the loss moves over those of a fused one. Where a system states no efficiency of its loss, they move
        at its ``memory_efficiency``, without `pass_factor`.
    data_factor : float
        Factor on what data-parallel collectives attain between nodes: below 1 where a framework sends small buckets.
    blackwell_factor : float
        A further factor on fused attention on GPUs that multiply FP8 in any layout.
    overlap_shared : bool
        Whether shared experts run while an all-to-all takes tokens to the other experts, and back.
    passes : str
        Passes that later releases fuse or shorten, ``none`` or several joined by ``+``: ``rotary``, PyTorch's rotary
        embeddings of latent attention, and ``search``, for each token's experts, as it is sent and as it comes back.
    block_host_s, tensor_host_s, piped_tensor_host_s, expert_host_s, cast_host_s, module_host_s : float, optional
    stage_overhead_s, iteration_overhead_s : float, optional
        As in `KernelSpec`; the system's if not given, or if that is longer.
    paired_host : float
        Factor on the host's time in cells of a forward and a backward with experts, which it launches in pieces.
    host_exponent : float, optional
        As in `KernelSpec`: 1 where every launch waits for its kernel; the system's if not given.
    activation_factor, working_factor : float
        Factors on a block's activations and on the memory of one while it is recomputed, times those of `MemorySpec`.
    slow_above_memory_share : float, optional
        Share of a GPU's memory from which a run may go on, several times slower, instead of failing.
    fastest, slowest : float, optional
        Of measured runs of kinds that nobody has seen, nine of ten take between these multiples of the predicted time;
        both, or neither. They hold for models without experts.
    experts_fastest, experts_slowest, experts_runs : float, float and str, optional
        The same for models with experts, and the runs behind it.
    range_runs, range_gpus, range_precisions, range_sources : int, int, str and str, optional
        The runs behind that range: their number, the most GPUs of one, their precisions, and where they are from.
        Beyond these GPUs, or in another precision, there is no range.
    profile : str
        In a fitted system, the name of the framework under which it was fitted; empty if that is not known.
    release, as_release : str
        The release, if the framework has any; and, if that one is not known, the one whose values it has.
    name, title : str
        The name is the file's; empty for one that belongs to a fitted system.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    p2p: entries.Transfers = "overlapped"
    slow_link_p2p: entries.Transfers | None = None
    batched: entries.Name = ""
    precision: Annotated[str, Entry(str, words=tuple(FORMATS))] = "bf16"
    dispatcher: Annotated[str, Entry(str, words=DISPATCHERS)] = DISPATCHERS[0]
    wide_dispatcher: Annotated[str | None, Entry(str, words=DISPATCHERS)] = None
    quantised_weights: Annotated[str, Entry(str, words=QUANTISED)] = QUANTISED[0]
    beside_formats: Annotated[str, Entry(str, words=("none", *FORMATS), joined=tuple(FORMATS))] = "none"
    cuda_graphs: Annotated[str, Entry(str, words=GRAPHS)] = "none"
    dropout: entries.Switch = False
    overlap_tensor: entries.Switch = False
    overlap_backward: entries.Switch = False
    overlap_gradients: entries.Switch = False
    overlap_plain_gradients: entries.Switch = False
    overlap_parameters: entries.Switch = False
    scatter_messages: entries.Switch = False
    gathered_logits: entries.Switch = False
    tied_embeddings: entries.Switch = False
    least_zero: entries.WholeOrZero = 0
    gradient_bytes: entries.Number | None = None
    optimizer_bytes: entries.Number | None = None
    flash_attention: entries.Switch = False
    attention_factor: entries.Number = 1.0
    pass_factor: entries.Number = 1.0
    loss_passes: entries.Number = 1.0
    data_factor: entries.Number = 1.0
    blackwell_factor: entries.Number = 1.0
    overlap_shared: entries.Switch = False
    passes: Annotated[str, Entry(str, words=("none", *_UNFUSED), joined=_UNFUSED)] = "none"
    block_host_s: entries.Time | None = None
    tensor_host_s: entries.Time | None = None
    piped_tensor_host_s: entries.Time | None = None
    expert_host_s: entries.Time | None = None
    cast_host_s: entries.Time | None = None
    module_host_s: entries.Time | None = None
    stage_overhead_s: entries.Time | None = None
    iteration_overhead_s: entries.Time | None = None
    paired_host: entries.NumberOrZero = 0.0
    host_exponent: entries.Exponent | None = None
    activation_factor: entries.Number = 1.0
    working_factor: entries.Number = 1.0
    slow_above_memory_share: entries.Efficiency | None = None
    fastest: entries.Number | None = field(default=None, compare=False)
    slowest: entries.Number | None = field(default=None, compare=False)
    experts_fastest: entries.Number | None = field(default=None, compare=False)
    experts_slowest: entries.Number | None = field(default=None, compare=False)
    experts_runs: entries.Name = field(default="", compare=False)
    range_runs: entries.Whole | None = field(default=None, compare=False)
    range_gpus: entries.Whole | None = field(default=None, compare=False)
    range_precisions: entries.Name = field(default="", compare=False)
    range_sources: entries.Name = field(default="", compare=False)
    profile: entries.Name = field(default="", compare=False)
    release: entries.Name = ""
    as_release: entries.Name = ""
    name: str = ""
    title: str = ""
    provenance: tuple[Provenance, ...] = field(default=(), compare=False, repr=False)

    def rules(self) -> Rules:
        """Both ends of the range are there, in order, or neither is."""
        for least, most in (("fastest", "slowest"), ("experts_fastest", "experts_slowest")):
            fastest, slowest, remedy = getattr(self, least), getattr(self, most), "give both, or neither"
            yield least, None, slowest is None or fastest is not None, f"is missing beside {most}", remedy
            yield most, None, fastest is None or slowest is not None, f"is missing beside {least}", remedy
            if fastest is not None:
                yield least, fastest, fastest <= slowest, f"is above {most} ({slowest:g})", "swap the two"

    @property
    def packaged(self) -> str:
        """Name of the packaged framework that it is, or was fitted from; empty if that is not known."""
        name = self.name or self.profile
        return RENAMED_FRAMEWORKS.get(name, name)

    def ends(self, experts: bool = False) -> tuple[float, float] | None:
        """The ends of the range of models without experts, or with them; None if it states none."""
        fastest, slowest = (self.experts_fastest, self.experts_slowest) if experts else (self.fastest, self.slowest)
        return None if fastest is None or slowest is None else (fastest, slowest)

    @property
    def label(self) -> str:
        """The name and, behind an @, the release.

        >>> load_framework("nemo@26.02").label, load_framework("megatron").label
        ('nemo@26.02', 'megatron')
        """
        return self.packaged + f"@{self.release}" * bool(self.release)

    def sends(self, schedule: str, links: tuple[Link, ...] = ()) -> str:
        """What a transfer of a schedule occupies if nothing is asked: `p2p`, or with a slow link, as it is sent.

        A fitted system's framework sends as its profile. A link is slow as `Link.is_slow` has it.

        >>> from ppmodel.clusters.specs import as_links
        >>> megatron, slow = load_framework("megatron"), as_links("0-1:delay=60ms")
        >>> megatron.sends("1f1b"), megatron.sends("1f1b", slow), megatron.sends("zb-2p", slow)
        ('overlapped', 'rendezvous', 'streams')
        """
        if not any(link.is_slow for link in links):
            return self.p2p
        if self.slow_link_p2p is None and self.profile:
            return load_framework(self.profile).sends(schedule, links)
        return "rendezvous" if schedule in self.batched.split() else self.slow_link_p2p or self.p2p

    def model(self, model: ModelSpec) -> ModelSpec:
        """The model with the framework's bytes per parameter."""
        return replace(model, **{name: value for name in _OF_MODEL if (value := getattr(self, name)) is not None})

    def system(self, system: SystemSpec) -> SystemSpec:
        """The system under this framework: a copy that has it, with its kernels, links and memory changed as it says.

        A system without kernel constants stays a plain roofline. What a fit says of its errors holds for the framework
        of the fit alone, and is left out.

        >>> from ppmodel.clusters.specs import load_system
        >>> load_framework("fsdp").system(load_system("h100")).framework.name
        'fsdp'
        """
        if self.wide_dispatcher and system.nodes and system.nodes.devices_per_node > 8:
            return replace(self, dispatcher=self.wide_dispatcher, wide_dispatcher=None).system(system)
        kernels, memory, links = system.kernels, system.memory, system.collectives
        if kernels is not None:
            host = {name: max(getattr(self, name) or 0.0, getattr(kernels, name)) for name in HOST}
            host["host_exponent"] = self.host_exponent or kernels.host_exponent
            factor = self.attention_factor * (self.blackwell_factor if kernels.any_layout else 1.0)
            factor *= kernels.flash_attention_factor if self.flash_attention else 1.0
            if factor != 1.0:
                host |= kernels.attention_times(factor, system.compute_efficiency)
            if self.pass_factor != 1.0:
                plain = system.memory_efficiency
                host |= {name: self.pass_factor * (getattr(kernels, name) or plain) for name in _PASSES}
            if self.loss_passes != 1.0 and kernels.loss_efficiency is None:
                host["loss_efficiency"] = system.memory_efficiency / self.loss_passes
            kernels = replace(kernels, **host)
        if self.data_factor != 1.0 and links is not None:
            attained = links.data_efficiency or links.network_efficiency
            links = replace(links, data_efficiency=self.data_factor * attained)
        if (self.activation_factor, self.working_factor) != (1.0, 1.0):
            memory = memory or MemorySpec()
            names = "activation_factor", "working_factor"
            memory = replace(memory, **{name: getattr(memory, name) * getattr(self, name) for name in names})
        return replace(system, framework=self, kernels=kernels, memory=memory, collectives=links, errors=None)


HOST = tuple(spec.name for spec in fields(FrameworkSpec) if spec.name.endswith("_s"))
"""Times of the host, of stages and iterations, each also in `KernelSpec`: they replace a system's shorter ones."""


def load_framework(name: str | os.PathLike[str] | FrameworkSpec) -> FrameworkSpec:
    """Read a framework by name or from a file.

    Parameters
    ----------
    name : str, Path or FrameworkSpec
        A name in `packaged`, or the path of a ``.yaml`` or ``.yml`` file; a specification stays as it is. A name
        may end with @ and a release, such as ``nemo@26.02``; a release that is not known has the values of the last one
        before it.

    Returns
    -------
    FrameworkSpec
        In SI units, of the newest release if none is named.

    Raises
    ------
    SpecificationError
        In one line: file, line, field, value, rule and remedy.

    Examples
    --------
    >>> load_framework("nemo").overlap_gradients
    True
    """
    release = None
    if isinstance(name, str):
        before, _, after = name.rpartition("@")
        name, release = (before, after) if before in packaged("frameworks") else (name, None)
        name = RENAMED_FRAMEWORKS.get(name, name)
    framework = load_specification(name, "frameworks", FrameworkSpec, release or "")
    if release is not None and not (release[:1].isdecimal() and framework.release):
        rule = "must be a release's number" if framework.release else f"is no release: {name} has none here"
        raise SpecificationError("framework", f"{name}@{release}", rule, f"write {framework.packaged}, or nemo@26.02")
    return framework


def with_framework(system: SystemSpec, framework: FrameworkSpec | str | os.PathLike[str] | None = None) -> SystemSpec:
    """The system under a framework: the one given, or the one it was fitted with, or the default.

    Parameters
    ----------
    system : SystemSpec
    framework : FrameworkSpec, str or Path, optional

    Returns
    -------
    SystemSpec

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_system
    >>> with_framework(load_system("h100")).framework.name, with_framework(load_system("a100_vtrain")).framework.name
    ('megatron', '')
    """
    if framework is None and system.framework is not None:
        return system
    return load_framework(DEFAULT if framework is None else framework).system(system)
