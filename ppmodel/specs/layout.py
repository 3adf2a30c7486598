"""A run layout: how a training run is spread over GPUs."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from ppmodel.errors import SpecificationError
from ppmodel.specs.document import place_in
from ppmodel.specs.entries import Share, Switch, Whole, entry_type, load_specification
from ppmodel.specs.files import specification_path
from ppmodel.specs.layers import parse_layers
from ppmodel.specs.model import Recompute

_Zero = entry_type(int, Annotated[int, Field(ge=0, le=3, strict=True)])
_Precision = Literal["bf16", "fp8"]
_Exchange = Literal["ring", "all-gather"]
_Pairing = Literal["alternating", "best"]
_HandOn = Literal["at_end", "when_ready"]
_Chunks = Literal["first", "all"]
_WORDS = {
    "precision": get_args(_Precision), "context_exchange": get_args(_Exchange), "pairing": get_args(_Pairing),
    "hand_on": get_args(_HandOn), "offload_chunks": get_args(_Chunks),
}  # fmt: skip
_SHARES = ("offload", "offload_warm_up")
_LARGEST = 10**9
_COUNTS = ("gpus", "pp", "tp", "cp", "ep", "dp", "chunks", "microbatch_size", "global_batch")
_SWITCHES = (
    "sequence_parallel", "causal", "overlap_tensor", "overlap_backward", "overlap_gradients", "overlap_parameters",
)  # fmt: skip
_OPEN = ("gpus", "pp", "chunks", "global_batch")

LAYER_WORDS = ("balanced", "even")
"""Ways to divide layers among stages without listing them or giving a layout string."""


@dataclass(frozen=True)
class LayoutSpec:
    """How a training run is spread over GPUs.

    The model says what is trained, and the system on which hardware. GPUs are numbered as in Megatron-LM:
    tensor-parallel ranks innermost, then context, data and pipeline parallelism; experts are spread over the ranks of
    `cp` and `dp`. Values are checked for consistency here, and against model, system and schedule by
    `costs.check_layout`.

    Parameters
    ----------
    name, title : str
        The name is the file's.
    gpus : int, optional
        GPUs in the run; only checked against pp x tp x cp x dp.
    pp, tp, cp, ep, dp : int
        Pipeline, tensor, context, expert and data parallelism; a run has pp x tp x cp x dp GPUs. Without `pp`, it is
        the schedule's.
    chunks : int, optional
        Model chunks per rank, if the schedule has this option.
    microbatch_size : int
        Sequences per microbatch.
    global_batch : int, optional
        Sequences per iteration over all replicas, dp x microbatch_size x B. Without it, it follows from the number of
        microbatches.
    sequence_parallel : bool
        Whether norms and dropout are also split over tp (Korthikanti et al., 2022); has no effect if tp is 1.
    zero : {0, 1, 2, 3}
        What data-parallel ranks shard (ZeRO): nothing; the optimizer state; also gradients; also weights.
    recompute : {"none", "selective", "full"} or int, optional
        Activations recomputed in the backward; a number means that many layers of each stage in full. Without it, as
        the model says.
    precision : {"bf16", "fp8"}
        The precision of matrix multiplications.
    causal : bool
        Whether fused attention skips the masked half of the scores.
    context_exchange : {"ring", "all-gather"}
        How keys and values reach the other GPUs of a context-parallel group.
    overlap_tensor, overlap_backward, overlap_gradients, overlap_parameters : bool
        Whether the framework hides, respectively: tensor-parallel collectives under adjacent GEMMs; those of the
        backward as Megatron-LM does, sums of input gradients under the weight gradients of the same layers, and input
        gathered for weight gradients under input gradients; gradient reduction under the backward; and the gathering of
        parameters under the forward.
    pairing : {"alternating", "best"}
        The order in which the units of two operations in one cell run; see `costs.units.cell_duration`.
    hand_on : {"at_end", "when_ready"}
        When the results of two operations in one cell are sent: at the end of the cell, as papers draw it, or each as
        soon as it is ready; see `costs.units.handed_on`.
    offload, offload_warm_up : float
        Fraction of a microbatch's activations copied to host memory after its forward, and back before its backward;
        the second, if given, applies to forwards before their rank's first backward. See `simulation.copies`.
    offload_chunks : {"first", "all"}
        Which activations: those of each rank's first chunk, as in STP, or all.
    layers : {"balanced", "even"}, str or tuple of int
        Transformer blocks of each stage: balanced, counting embedding and loss head; an even split; one number for each
        stage; or a string as for Megatron-LM's ``--pipeline-model-parallel-layout``. See `costs.stage_layers`.
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
    gpus: Whole | None = None
    pp: Whole | None = None
    tp: Whole = 1
    cp: Whole = 1
    ep: Whole = 1
    dp: Whole = 1
    chunks: Whole | None = None
    microbatch_size: Whole = 1
    global_batch: Whole | None = None
    sequence_parallel: Switch = False
    zero: _Zero = 0
    recompute: entry_type(str, Any) | None = None
    precision: entry_type(str, _Precision) = "bf16"
    causal: Switch = True
    context_exchange: entry_type(str, _Exchange) = "ring"
    overlap_tensor: Switch = False
    overlap_backward: Switch = False
    overlap_gradients: Switch = False
    overlap_parameters: Switch = False
    pairing: entry_type(str, _Pairing) = "alternating"
    hand_on: entry_type(str, _HandOn) = "at_end"
    offload: Share = 0.0
    offload_warm_up: Share | None = None
    offload_chunks: entry_type(str, _Chunks) = "first"
    layers: entry_type(str, Any) = "balanced"
    provenance: tuple = field(default=(), compare=False, repr=False)

    def __post_init__(self):
        for name in _COUNTS:
            self._require_count(name)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                self._refuse(name, "must be true or false", "write one of them")
        if isinstance(self.zero, bool) or not (isinstance(self.zero, Integral) and 0 <= self.zero <= 3):
            self._refuse("zero", "must be 0, 1, 2 or 3", "write the ZeRO stage")
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                self._refuse(name, f"must be one of {', '.join(words)}", "choose one of them")
        for name in _SHARES:
            self._require_share(name)
        self._require_recompute()
        self._require_layers()
        self._require_sizes()

    def _refuse(self, name, rule, remedy):
        value = getattr(self, name)
        shown = str(value).lower() if isinstance(value, bool) else list(value) if isinstance(value, tuple) else value
        raise SpecificationError(name, shown, rule, remedy)

    def _require_count(self, name):
        value = getattr(self, name)
        if value is None and name in _OPEN:
            return
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not (whole and 1 <= value <= _LARGEST):
            self._refuse(name, f"must be a whole number from 1 to {_LARGEST}", f"write, for example, {name}: 8")
        self.__dict__[name] = int(value)

    def _require_share(self, name):
        value = getattr(self, name)
        if value is None and name == "offload_warm_up":
            return
        if isinstance(value, bool) or not (isinstance(value, Real) and 0 <= value <= 1):
            self._refuse(name, "must be a number from 0 to 1", f"write, for example, {name}: 0.5")
        self.__dict__[name] = float(value)

    def _require_recompute(self):
        value = self.recompute
        layers = isinstance(value, Integral) and not isinstance(value, bool) and 0 <= value <= _LARGEST
        if not (value is None or layers or value in get_args(Recompute)):
            rule = f"must be one of {', '.join(get_args(Recompute))}, or a number of layers per stage"
            self._refuse("recompute", rule, "choose one of them")
        self.__dict__["recompute"] = int(value) if layers else value

    def _require_layers(self):
        value = self.layers
        if isinstance(value, str) and value in LAYER_WORDS:
            return
        if isinstance(value, str) and set(value) & set("E|L"):
            parse_layers(value)
            return
        if isinstance(value, list):
            self.__dict__["layers"] = value = tuple(value)
        whole = isinstance(value, tuple) and all(isinstance(n, Integral) and not isinstance(n, bool) for n in value)
        if not (whole and value and min(value) >= 0 and 0 < sum(value) <= _LARGEST):
            rule = f"must be {', '.join(LAYER_WORDS)}, a list of whole numbers, or a Megatron-LM layout string"
            self._refuse("layers", rule, "write, for example, [20, 20, 20, 20] or Et*20|t*20|t*20|t*20L")
        self.__dict__["layers"] = tuple(map(int, value))

    def _require_sizes(self):
        """Refuse numbers that contradict each other."""
        gpus = self.replica_gpus * self.dp
        if self.gpus is not None and self.pp is not None and self.gpus != gpus:  # else a schedule's ranks decide
            product = " x ".join(
                f"{name} ({getattr(self, name)})" for name in ("tp", "cp", "pp", "dp") if getattr(self, name)
            )
            self._refuse("gpus", f"must be {product} = {gpus}", "correct one of them, or omit gpus")
        if self.dp * self.cp % self.ep:
            rule = f"must divide dp x cp ({self.dp} x {self.cp}), the ranks that share the experts"
            self._refuse("ep", rule, "choose a divisor, or a larger dp")
        if self.global_batch is not None and self.global_batch % (self.dp * self.microbatch_size):
            rule = f"must be a multiple of dp x microbatch_size ({self.dp} x {self.microbatch_size})"
            self._refuse("global_batch", rule, "choose another global_batch, dp or microbatch_size")

    @property
    def text(self):
        """The values that differ from their defaults: ``tp=8 dp=2``."""
        own = [(one.name, getattr(self, one.name)) for one in fields(self) if one.compare and one.name != "title"]
        return " ".join(f"{name}={value}" for name, value in own if value != getattr(LayoutSpec, name))

    @property
    def replica_gpus(self):
        """GPUs per replica of the model, tp x cp x pp; per rank if `pp` is open."""
        return self.tp * self.cp * (self.pp or 1)

    @property
    def microbatches(self):
        """Microbatches per replica, B, as the global batch implies; None if that is open."""
        return self.global_batch and self.global_batch // (self.dp * self.microbatch_size)

    def at(self, num_ranks, num_microbatches, chunks=None):
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
        own = {"pp": num_ranks, "chunks": chunks, "microbatches": num_microbatches}
        for name, size in own.items():
            stated = getattr(self, name)
            if None not in (stated, size) and stated != size:
                if name == "microbatches":
                    shares = f"dp ({self.dp}) x microbatch_size ({self.microbatch_size})"
                    rule = f"must be {shares} x the schedule's microbatches ({size})"
                    self._refuse("global_batch", rule, f"choose {stated} microbatches, or another global_batch")
                self._refuse(name, f"is the layout's; the schedule's is {size}", "choose one of the two")
        gpus = self.gpus or self.tp * self.cp * self.dp * num_ranks
        if gpus > _LARGEST:
            product = f"{self.tp} x {self.cp} x {self.dp} x {num_ranks}"
            rule = f"gives {product} = {gpus} GPUs with tp, cp and pp, more than {_LARGEST}"
            self._refuse("dp", rule, "choose smaller groups")
        batch = self.dp * self.microbatch_size * num_microbatches
        return replace(self, pp=num_ranks, chunks=self.chunks or chunks, gpus=gpus, global_batch=batch)


def load_layout(name):
    """Read a layout by name or from a file; see `load_system`.

    Parameters
    ----------
    name : str or Path
        One of `layout_names`, or the path of a ``.yaml`` or ``.yml`` file.

    Returns
    -------
    LayoutSpec
        Checked for consistency.

    Raises
    ------
    SpecificationError
        As for `load_system` and for `LayoutSpec`.

    Examples
    --------
    >>> load_layout("bloom_176b").gpus
    384
    """
    layout = load_specification(name, "layouts", LayoutSpec)
    if layout.gpus and layout.gpus % (layout.replica_gpus * layout.dp):  # no number of ranks would do
        product = f"tp ({layout.tp}) x cp ({layout.cp}) x dp ({layout.dp})"
        rule = f"must be a multiple of {product} = {layout.replica_gpus * layout.dp}"
        where = place_in(specification_path(name, "layouts"), "gpus")
        raise SpecificationError("gpus", layout.gpus, rule, "correct one of them, or omit gpus", where=where)
    return layout
