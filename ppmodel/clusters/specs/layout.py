"""A run layout: how a training run is spread over GPUs. Its fields are declared here, and nowhere else.

The form of its file, its checks, the command line's options, the columns of frames and the types of a sweep follow from
the declaration. Help, sections and what else is text are in ``data/options.csv``.
"""

from __future__ import annotations  # help() shows a field's type by its name

from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ppmodel.clusters.specs.entries import Checked, Entry
from ppmodel.clusters.specs.formats import FORMATS
from ppmodel.clusters.specs.layers import parse_layers
from ppmodel.clusters.specs.lengths import ARRANGEMENTS, SLICINGS, lengths_of
from ppmodel.clusters.specs.recompute import MODES, MODULES, OFFLOADED, Module, again_of
from ppmodel.errors import SpecificationError
from ppmodel.files import data_rows
from ppmodel.given import to_builtin

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppmodel.clusters.specs.framework import FrameworkSpec

LARGEST = 10**9
RECOMPUTE = tuple(MODES)
_RECOMPUTED = ", ".join(f"{name} ({way})" for name, way in MODES.items() if way.again and name not in MODULES)

STAGE_GROUPS = {"tp": "tensor", "cp": "context"}
"""The dimensions over which a stage is spread, innermost first, and their groups; all but tp divide its tokens."""

MULTIPLIED = (*STAGE_GROUPS, "dp")
"""Those whose product is the number of GPUs of a rank."""

DIMENSIONS = (*STAGE_GROUPS, "ep", "etp", "dp")
"""All parallel dimensions besides the pipeline."""

ORDERS = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"
"""Orders of the dimensions over the GPUs, from the innermost; Megatron-LM has both."""

SEARCHED_FOR = "gpus", "global_batch", "sequence"
"""Values that a plan is asked for, and does not search."""

DISPATCHERS = "all-to-all", "deepep", "hybridep"
"""How tokens reach experts: every copy by itself; or once per node over the network, and from there once per GPU."""

QUANTISED = "none", "beside", "alone"
"""Whether weights are kept in the number format of products: converted each time; beside the model's; or alone."""

GRAPHS = "none", "modules", "full"
"""What CUDA graphs may capture."""

_OF_FRAMEWORK: dict[str, Any] = {
    "precision": "bf16", "quantised_weights": QUANTISED[0], "cuda_graphs": GRAPHS[0], "overlap_tensor": False,
    "overlap_gradients": False, "overlap_parameters": False, "dispatcher": DISPATCHERS[0],
}  # fmt: skip
"""Values that a framework decides where a layout leaves them open, and those without a framework."""

LAYER_WORDS = ("balanced", "even")
"""Ways to divide layers among stages without listing them or giving a layout string."""


class Declared(NamedTuple):
    """The declaration of a layout's value.

    Parameters
    ----------
    entry : Entry
        The entry of a file: its type, and what is legal.
    most : str
        The size that it must not exceed, if any; candidates of `plan` with a smaller one have as much as that.
    usual : str
        What applies without it, for the command line.
    needs : callable, optional
        Whether a value other than the default has an effect, from a run's ``layout``, ``model``, ``system`` and
        ``table``; without it, always. Where it is false, no number of the run depends on the value.
    section : str
        The section of the command line's help in which it stands; this and what follows is in ``data/options.csv``.
    column : bool
        Whether frames have a column for it.
    of_schedule : bool
        Whether the schedule has it, as an argument or an option: it is then no keyword and no option of a run.
    of_runs : bool
        Whether rows of measured runs state it.
    help : str
        For the command line.
    """

    entry: Entry
    most: str = ""
    usual: str = ""
    needs: Callable[[Any], Any] | None = None
    section: str = ""
    column: bool = False
    of_schedule: bool = False
    of_runs: bool = False
    help: str = ""

    @property
    def described(self):
        """The help text, with the default."""
        return f"{self.help.removesuffix('.')} (default: {self.usual})." if self.usual else self.help

    @property
    def texts(self):
        """The legal values by what people write, if they are few: words, switches, or digits; otherwise None."""
        entry = self.entry
        if entry.type is bool:
            return {"true": True, "false": False}
        if not entry.words and (entry.type is not int or entry.le >= 10):
            return None
        return {str(value): value for value in entry.words or range(entry.ge, entry.le + 1)}

    @property
    def form(self):
        """Placeholder for the value in help texts."""
        if self.entry.type is Any:
            return "WORD|N,N,...|STRING"
        number = "0..1" if self.entry.type is float and self.entry.le < 10 else "N"
        if self.texts is None:
            return number
        texts = "|".join(self.texts)
        return f"{texts}|{number}" if self.entry.words and self.entry.type in (int, float) else f"[{texts}]"


def declared(default, type, low=1, high=LARGEST, *, needs=None, most="", **rules):
    """A field, with the rules of an `Entry`; for `needs`, the name of a size stands for more than one GPU."""
    usual = "" if default is None or type is bool else f"{default:g}" if type is float else str(default)
    has_effect = (lambda run: getattr(run.layout, needs) > 1) if isinstance(needs, str) else needs
    entry = Entry(type, ge=low, le=high, **rules)
    return field(default=default, metadata={"option": Declared(entry, most, usual, has_effect)})


def worded(*words, needs):
    """A field that is one of some words, by default the first."""
    return declared(words[0], str, words=words, needs=needs)


_PRECISIONS = "bf16", "fp8"


def _shares(run):
    """Whether several GPUs hold the same parameters."""
    return run.layout.data_gpus > 1 or (run.model.experts and run.layout.expert_replicas > 1)


def _reduces(run):
    """Whether gradients are summed while a rank may compute: of replicas, or of an embedding that two stages share."""
    is_tied = run.model.tied_embeddings and run.table.num_stages > run.table.num_ranks > 1
    return _shares(run) or is_tied or run.table.num_replicas > 1


def _on_nodes(run):
    """GPUs per node of a run on several nodes; 0 if it has only one."""
    per_node = run.system.nodes.devices_per_node if run.system.nodes else 1
    return per_node if run.layout.gpus > per_node else 0


def _has_orders(run):
    """Whether replicas and ranks share nodes, so that their order counts."""
    return min(run.layout.dp, run.layout.pp) > 1 and run.layout.stage_gpus % (_on_nodes(run) or 1) > 0


def _offloads_chunks(run):
    """Whether ranks offload a share of activations, and have several chunks."""
    by_share = run.layout.offloads and not run.layout.offloads_by_layer
    return by_share and run.table.num_stages > run.table.num_ranks


def _limits_nodes(run):
    """Whether a token is sent once to each node, and experts are on several."""
    layout, gpus = run.layout, run.layout.ep * run.layout.expert_tp
    return layout.dispatcher in DISPATCHERS[1:] and layout.ep > 1 and _on_nodes(run) % gpus > 0


def _recomputes(run):
    """Whether other modules run again than the model says, of those that it has."""
    ways, experts = (run.layout.recompute or "none", run.model.recompute), run.model.experts
    if isinstance(ways[0], int):
        return True
    lacking = {Module.EXPERTS, Module.EXPERT_ACTIVATION} if experts is None else set()
    lacking |= set() if experts and experts.shared else {Module.SHARED, Module.SHARED_ACTIVATION}
    lacking |= set() if run.model.latent_attention else {Module.LATENT}
    lacking |= set() if run.model.dropout else {Module.DROPOUT}
    again, usual = ({*again_of(way)} - lacking for way in ways)
    return again != usual


def product_text(factors):
    """Write a product, as messages do.

    >>> product_text(["tp", 8])
    'tp x 8'
    """
    return " x ".join(map(str, factors))


class Groups:
    """The GPUs of groups, for whatever has the sizes of the parallel dimensions as attributes."""

    pp: int | None
    tp: int

    def sizes(self, names: tuple[str, ...] | dict[str, str]) -> list[int]:
        """The sizes of some dimensions."""
        return [getattr(self, name) for name in names]

    @property
    def stage_gpus(self) -> int:
        """GPUs that share a stage of a replica of the model, tp x cp."""
        return prod(self.sizes(STAGE_GROUPS))

    @property
    def rank_gpus(self) -> int:
        """GPUs of a rank of the pipeline, over all replicas of the model, tp x cp x dp."""
        return prod(self.sizes(MULTIPLIED))

    @property
    def data_gpus(self) -> int:
        """GPUs of a rank that hold the same part of the weights, cp x dp."""
        return self.rank_gpus // self.tp

    @property
    def replica_gpus(self) -> int:
        """GPUs per replica of the model, tp x cp x pp; per rank if `pp` is open."""
        return self.stage_gpus * (self.pp or 1)


@dataclass(frozen=True)
class LayoutSpec(Groups, Checked):
    """The spread of a training run over GPUs.

    The model says what is trained, and the system on which hardware. GPUs are numbered as in Megatron-LM:
    tensor-parallel ranks innermost, then context, data and pipeline parallelism, unless ``order`` differs. In blocks
    with experts, the GPUs of a rank of the pipeline are numbered anew: expert-tensor-parallel ranks innermost, then
    expert and expert-data parallelism (MoE Parallel Folding; Liu et al., 2025, arXiv:2504.14960). Values are checked
    for consistency here, and against model, system and schedule by `costs.check_layout`.

    Parameters
    ----------
    name, title : str
        The name is the file's.
    gpus : int, optional
        GPUs in the run; only checked against pp x tp x cp x dp.
    pp, tp, cp, ep, dp : int
        Pipeline, tensor, context, expert and data parallelism; a run has pp x tp x cp x dp GPUs. Without `pp`, it is
        the schedule's.
    etp : int, optional
        Expert tensor parallelism: GPUs that share each expert; without it, tp. Experts' groups fill the tp x cp x dp
        GPUs of a rank, so a run has at least pp x max(tp x cp, etp x ep), and tp x cp x dp / (etp x ep) GPUs hold the
        same part of the same experts.
    expert_imbalance : float
        Tokens on the most loaded GPU with experts over their mean; its work, its activations and the exchange grow.
    expert_nodes : int, optional
        Nodes on which a token's experts are at most (DeepSeek-V3: 4), for dispatchers that send it once to each.
    dispatcher : {"all-to-all", "deepep", "hybridep"}, optional
        How tokens reach experts. All-to-all sends every copy by itself, and sorts copies before it sends them. DeepEP
        and HybridEP send a token once to each node (or NVLink domain) that has any of its experts, and from there once
        to each GPU that does. All sort by expert what has arrived. Without it, as the framework says.
    dispatch_precision : {"bf16", "fp8"}
        The precision in which tokens, and gradients of experts' outputs, are sent to experts; bf16 is the model's.
    kept_precision : {"bf16", "fp8"}, optional
        The precision in which products and activation functions of blocks keep their inputs, and products the
        gradients of their outputs until weight gradients need them; bf16 is the model's. Without it, products keep what
        they compute with, as in Transformer Engine, but for attention's output, which Megatron-LM keeps as it is, and
        activation functions keep the model's.
    chunks : int, optional
        Model chunks per rank, if the schedule has this option.
    microbatch_size : int
        Sequences per microbatch.
    global_batch : int, optional
        Sequences per iteration over all replicas, dp x microbatch_size x B. Without it, it follows from the number of
        microbatches.
    sequence : int, optional
        Tokens of a sequence. Without it, as the model says.
    sequence_parallel : bool
        Whether norms and dropout are also split over tp (Korthikanti et al., 2022); has no effect if tp is 1.
    zero : {0, 1, 2, 3}
        What data-parallel ranks shard (ZeRO): nothing; the optimizer state; also gradients; also weights.
    recompute : str or int, optional
        What is recomputed in the backward, a key of `recompute.MODES` or several joined by ``+``; a number means that
        many layers of each stage in full. Without it, as the model says.
    precision : {"bf16", "fp8", "fp8-blockwise", "mxfp8", "nvfp4"}, optional
        The number format of matrix multiplications; see `specs.formats`. Without it, as the framework says.
    quantised_weights : {"none", "beside", "alone"}, optional
        Whether products keep their weights in the number format, once by rows and once by columns (Transformer Engine):
        not, so that they are converted each time; beside those of the model's precision; or alone, which Megatron-LM
        calls ``--fp8-param-gather``. Without it, as the framework says.
    cuda_graphs : {"none", "modules", "full"}, optional
        What CUDA graphs capture: nothing; single modules of layers, such as attention and router; or forward and
        backward of an iteration. Kernels of a captured layer do not wait for the host. Without it, as the framework
        says.
    causal : bool
        Whether fused attention skips the masked half of the scores.
    context_exchange : {"ring", "all-gather"}
        How keys and values reach the other GPUs of a context-parallel group.
    overlap_tensor, overlap_backward, overlap_gradients, overlap_parameters : bool, optional
        Whether the framework hides, respectively: tensor-parallel collectives under adjacent GEMMs; those of the
        backward as Megatron-LM does, sums of input gradients under the weight gradients of the same layers, and input
        gathered for weight gradients under input gradients; gradient reduction under the backward; and the gathering of
        parameters under the forward. Without them, as the framework does by itself; split backwards, whose halves run
        at different times, then hide nothing. Hiding tensor-parallel collectives can cost some percent in cells of
        two operations, whose collectives run under each other's kernels anyway.
    pairing : {"alternating", "best"}
        The order in which the units of two operations in one cell run; see `costs.units.cell_duration`.
    send_results : {"at_end", "when_ready"}
        When the results of two operations in one cell are sent: at the end of the cell, as papers draw it, or each as
        soon as it is ready; see `costs.units.ready_shares`.
    offload : float or str
        Fraction of a microbatch's activations copied to host memory after its forward, and back before its backward,
        see `simulation.copies`; or from 2 on, that many layers of each stage; or whose inputs are, a key of
        `recompute.OFFLOADED` or several joined by ``+``. Layers and modules are copied in all chunks, layer by layer.
    offload_warm_up : float, optional
        The fraction for forwards before their rank's first backward.
    offload_chunks : {"first", "half", "fitting", "all"}
        Which activations: those of each rank's first chunk, as in STP; of the first half of its chunks, which wait
        longest for their backwards (PipeOffload's PO-H); of all chunks that wait as long as a copy out and back takes
        (its PO-F); or all.
    slicing : {"tokens", "work"}
        Whether the slices of a sequence, in schedules that have them, are equally long or take equally long.
    lengths : str
        Lengths of the sequences of microbatches relative to their mean, which is `sequence`; "equal", numbers, or a
        distribution. See `specs.lengths`.
    arrangement : {"given", "longest-first", "paired"}
        Order of sequences of unequal length: as given, from long to short, or long and short ones in turn.
    layers : {"balanced", "even"}, str or tuple of int
        Transformer blocks of each stage: balanced, counting embedding and loss head; an even split; one number for each
        stage; or a string as for Megatron-LM's ``--pipeline-model-parallel-layout``. See `costs.stage_layers`.
    order : {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"}
        Which dimension is inside which on the GPUs of all nodes: replicas inside ranks of the pipeline, or, as with
        Megatron-LM's ``--use-tp-pp-dp-mapping``, ranks inside replicas; experts' groups then have tp x cp GPUs.
    provenance : tuple of Provenance
        One entry for each value of the file.

    Raises
    ------
    SpecificationError
        If a value is illegal, or values contradict each other.

    Examples
    --------
    >>> LayoutSpec(tp=8, dp=2, pp=4, global_batch=1024).microbatches
    512
    """

    name: str = ""
    title: str = ""
    pp: int | None = declared(None, int)
    chunks: int | None = declared(None, int)
    tp: int = declared(1, int)
    cp: int = declared(1, int)
    ep: int = declared(1, int)
    etp: int | None = declared(None, int)
    dp: int = declared(1, int)
    gpus: int | None = declared(None, int)
    microbatch_size: int = declared(1, int)
    global_batch: int | None = declared(None, int)
    sequence: int | None = declared(None, int)
    sequence_parallel: bool = declared(False, bool, needs="tp")
    zero: int = declared(0, int, 0, 3, needs=_shares)
    recompute: str | int | None = declared(None, int, 0, words=RECOMPUTE, joined=tuple(MODULES), needs=_recomputes)
    precision: str | None = declared(None, str, words=tuple(FORMATS))
    quantised_weights: str | None = declared(
        None, str, words=QUANTISED, needs=lambda run: FORMATS[run.layout.precision or "bf16"].kept_bytes
    )
    cuda_graphs: str | None = declared(None, str, words=GRAPHS, needs=lambda run: run.system.kernels)
    expert_imbalance: float = declared(1.0, float, most="ep")
    expert_nodes: int | None = declared(None, int, needs=_limits_nodes)
    dispatcher: str | None = declared(None, str, words=DISPATCHERS, needs="ep")
    dispatch_precision: str = declared("bf16", str, words=_PRECISIONS, needs="ep")
    kept_precision: str | None = declared(
        None, str, words=_PRECISIONS,
        needs=lambda run: {"bf16"} != {run.layout.kept_precision or "bf16", run.layout.precision},
    )  # fmt: skip
    causal: bool = declared(True, bool, needs=lambda run: run.model.attention == "fused")
    context_exchange: str = worded("ring", "all-gather", needs="cp")
    overlap_tensor: bool | None = declared(None, bool, needs="tp")
    overlap_backward: bool | None = declared(None, bool, needs="tp")
    overlap_gradients: bool | None = declared(None, bool, needs=_reduces)
    overlap_parameters: bool | None = declared(None, bool, needs=lambda run: run.layout.zero and _shares(run))
    pairing: str = worded("alternating", "best", needs=lambda run: run.layout.rank_gpus > 1 and run.table.pairs.keys)
    send_results: str = worded(
        "at_end", "when_ready", needs=lambda run: run.table.num_ranks > 1 and run.table.pairs.keys
    )
    offload: float | str = declared(0.0, float, 0, words=tuple(OFFLOADED), joined=tuple(OFFLOADED))
    offload_warm_up: float | None = declared(
        None, float, 0, 1, needs=lambda run: run.layout.offload_warm_up != run.layout.offload
    )
    offload_chunks: str = worded("first", "half", "fitting", "all", needs=_offloads_chunks)
    slicing: str = worded(*SLICINGS, needs=lambda run: run.table.slices > 1)
    lengths: str = declared("equal", str)
    arrangement: str = worded(*ARRANGEMENTS, needs=lambda run: run.layout.lengths != "equal")
    layers: str | tuple[int, ...] = declared("balanced", Any)
    order: str = worded(*ORDERS, needs=_has_orders)
    provenance: tuple = field(default=(), compare=False, repr=False)

    def __post_init__(self):
        recompute = str(to_builtin(self.recompute))
        if recompute.isascii() and recompute.isdecimal():  # text, as in frames
            self.__dict__["recompute"] = int(recompute)
        super().__post_init__()
        layers = self.layers
        if isinstance(layers, str) and set(layers) & set("E|L"):
            parse_layers(layers)
        elif layers not in LAYER_WORDS:  # a list becomes a tuple
            counts = tuple(layers) if isinstance(layers, list | tuple) else ()
            are_counts = counts and all(type(count) is int and count >= 0 for count in counts)
            if not (are_counts and 0 < sum(counts) <= LARGEST):
                rule = f"must be {', '.join(LAYER_WORDS)}, a list of whole numbers, or a Megatron-LM layout string"
                self._refuse("layers", rule, "write, for example, [20, 20, 20, 20] or Et*20|t*20|t*20|t*20L")
            self.__dict__["layers"] = counts
        fits = self.lengths == "equal"
        with suppress(ValueError, IndexError):
            fits = fits or min(lengths_of(self.lengths, 1000)) > 0
        if not fits:
            rule = "must be the word equal, numbers above 0, or lognormal:SIGMA:SEED"
            self._refuse("lengths", rule, "write, for example, 4096,8192")
        if not self.offloaded and self.offload > 1 and self.offload % 1:
            rule = "must be a share from 0 to 1, a whole number of layers, or modules"
            self._refuse("offload", rule, f"write {self.offload / 100:g}, 2 or core_attn")
        gpus = self.replica_gpus * self.dp
        is_read = self.name and self.provenance  # without pp the schedule decides; a file's gpus must suit some pp
        if self.gpus is not None and (self.gpus != gpus if self.pp else is_read and self.gpus % gpus):
            sizes = {name: size for name in (*STAGE_GROUPS, "pp", "dp") if (size := getattr(self, name))}
            product = product_text(f"{name} ({size})" for name, size in sizes.items())
            rule = f"must be {'' if self.pp else 'a multiple of '}{product} = {gpus}"
            self._refuse("gpus", rule, "correct one of them, or omit gpus")
        if self.name:  # of a file
            self.require_shares()

    def require_shares(self) -> None:
        """Refuse experts and batches that do not divide; points do, so that others with this layout's values go on.

        Raises
        ------
        SpecificationError
        """
        if self.rank_gpus % (self.expert_tp * self.ep):
            sizes = product_text(self.sizes(MULTIPLIED))
            rule = f"must divide {product_text(MULTIPLIED)} / etp ({sizes} / {self.expert_tp})"
            self._refuse("ep", rule, "choose a divisor, a smaller etp, or a larger dp")
        if self.global_batch is not None and self.global_batch % (self.dp * self.microbatch_size):
            rule = f"must be a multiple of dp x microbatch_size ({self.dp} x {self.microbatch_size})"
            self._refuse("global_batch", rule, "choose another global_batch, dp or microbatch_size")

    def _refuse(self, name, rule, remedy):
        value = getattr(self, name)
        raise SpecificationError(name, list(value) if isinstance(value, tuple) else value, rule, remedy)

    @property
    def columns(self) -> dict[str, Any]:
        """The values of a layout that frames have as columns; ``recompute`` is text, None if the model decides.

        >>> [LayoutSpec(tp=8, recompute=2).columns[name] for name in ("tp", "recompute")]
        [8, '2']
        """
        columns = {name: getattr(self, name) for name, option in LAYOUT_OPTIONS.items() if option.column}
        return {"layout": self.name} | columns | {"recompute": None if self.recompute is None else str(self.recompute)}

    @property
    def expert_tp(self) -> int:
        """GPUs that share each expert: etp or, if that is open, tp."""
        return self.tp if self.etp is None else self.etp

    @property
    def expert_replicas(self) -> int:
        """GPUs that hold the same part of the same experts, tp x cp x dp / (etp x ep)."""
        return self.rank_gpus // (self.expert_tp * self.ep)

    @property
    def replicas_apart(self) -> bool:
        """True if each replica of the model has GPUs of its own, one after another, as where the order ends in dp."""
        return self.order != ORDERS[0] and self.dp > 1

    @property
    def offloads(self) -> bool:
        """True if any activations are copied to the host."""
        return bool(self.offload or self.offload_warm_up)

    @property
    def offloaded(self) -> list[str]:
        """The modules whose inputs are copied to the host, keys of `recompute.OFFLOADED`; none if `offload` is a share.

        >>> LayoutSpec(offload="moe_act+core_attn").offloaded
        ['moe_act', 'core_attn']
        """
        return self.offload.split("+") if isinstance(self.offload, str) else []

    @property
    def offloads_by_layer(self) -> bool:
        """True if modules or whole layers are copied to the host, each while others run."""
        return isinstance(self.offload, str) or self.offload > 1

    @property
    def microbatches(self) -> int | None:
        """Microbatches per replica, B, as the global batch implies; None if that is open."""
        return self.global_batch and max(1, self.global_batch // (self.dp * self.microbatch_size))

    def under(self, framework: FrameworkSpec | None = None, num_ranks: int | None = None) -> LayoutSpec:
        """Fill in what a framework decides, but for ``overlap_backward``, which also depends on the schedule.

        Parameters
        ----------
        framework : FrameworkSpec, optional
            Without one, nothing is hidden, and matrix multiplications are in bf16.
        num_ranks : int, optional
            Ranks of the pipeline, if the layout leaves them open.

        Returns
        -------
        LayoutSpec

        Examples
        --------
        >>> from ppmodel.clusters.specs import load_framework
        >>> layout = LayoutSpec(overlap_tensor=False).under(load_framework("nemo"))
        >>> layout.precision, layout.overlap_tensor, layout.overlap_gradients
        ('bf16', False, True)
        """
        usual = _OF_FRAMEWORK.items()
        decided = {name: getattr(framework, name, value) for name, value in usual if getattr(self, name) is None}
        if framework and "overlap_gradients" in decided and (self.pp or num_ranks) == 1 and not self.zero:
            decided["overlap_gradients"] |= framework.overlap_plain_gradients
        if framework and framework.least_zero > self.zero:
            decided["zero"] = framework.least_zero
        precision = decided.get("precision", self.precision)
        if framework and "quantised_weights" in decided and precision in framework.beside_formats.split("+"):
            decided["quantised_weights"] = QUANTISED[1]
        return replace(self, **decided) if decided else self

    def at(self, num_ranks: int, num_microbatches: int, chunks: int | None = None) -> LayoutSpec:
        """Fill in the open values of the layout: the numbers of ranks and GPUs, and the global batch.

        Parameters
        ----------
        num_ranks, num_microbatches : int
            Size of the schedule.
        chunks : int, optional
            Stages per rank; unchecked if not given.

        Returns
        -------
        LayoutSpec

        Raises
        ------
        SpecificationError
            If the size of the schedule differs from the layout's.

        Examples
        --------
        >>> run = LayoutSpec(tp=8, dp=2).at(4, 512)
        >>> run.gpus, run.global_batch
        (64, 1024)
        """
        for name, size in (("pp", num_ranks), ("chunks", chunks)):
            if None not in (getattr(self, name), size) and getattr(self, name) != size:
                self._refuse(name, f"is the layout's; the schedule's is {size}", "choose one of the two")
        if self.microbatches not in (None, num_microbatches):
            shares = f"dp ({self.dp}) x microbatch_size ({self.microbatch_size})"
            rule = f"must be {shares} x the schedule's microbatches ({num_microbatches})"
            self._refuse("global_batch", rule, f"choose {self.microbatches} microbatches, or another global_batch")
        gpus = self.gpus or self.rank_gpus * num_ranks
        if gpus > LARGEST:
            product = product_text([*self.sizes(MULTIPLIED), num_ranks])
            rule = f"gives {product} = {gpus} GPUs with {', '.join(STAGE_GROUPS)} and pp, more than {LARGEST}"
            self._refuse("dp", rule, "choose smaller groups")
        batch = self.dp * self.microbatch_size * num_microbatches
        return replace(self.under(), pp=num_ranks, chunks=self.chunks or chunks, gpus=gpus, global_batch=batch)


def _with_texts(row):
    """The declaration of a value, from its field and its row of ``data/options.csv``."""
    option = LayoutSpec.__dataclass_fields__[row.pop("name")].metadata["option"]
    help, usual = row.pop("help").format(recomputed=_RECOMPUTED), row.pop("usual") or option.usual
    flags = {name: bool(row[name]) for name in ("column", "of_schedule", "of_runs")}
    return option._replace(**row | flags, help=help, usual=usual)


LAYOUT_OPTIONS = {row["name"]: _with_texts(row) for row in data_rows("options.csv")}
"""The declared values of a layout, in order."""

LAYOUT_KEYWORDS = tuple(name for name, option in LAYOUT_OPTIONS.items() if not option.of_schedule)
"""The names of the values that may be given as keywords: all but those of the schedule and the model."""

LAYOUT_BOUNDS = {name: option.most for name, option in LAYOUT_OPTIONS.items() if option.most}
"""The values that must not exceed a size, each with the name of that size."""
