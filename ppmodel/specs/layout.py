"""A run layout: how a training run is spread over GPUs."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from ppmodel.specs.entries import Switch, Whole, entry_type, load_specification

_Zero = entry_type(int, Annotated[int, Field(ge=0, le=3, strict=True)])


@dataclass(frozen=True)
class LayoutSpec:
    """How a training run is spread over GPUs: beside the model, which says what is trained, and the system.

    GPUs are numbered as Megatron-LM does, tensor-parallel ranks innermost, then context, data and pipeline parallelism;
    experts are spread over the ranks of `cp` and `dp`.

    Parameters
    ----------
    name, title : str
        The name is that of the file.
    pp, tp, cp, ep, dp : int
        Pipeline, tensor, context, expert and data parallelism; a run has pp x tp x cp x dp GPUs.
    chunks : int
        Model chunks of a rank, where the schedule has the option.
    microbatch_size : int
        Sequences of a microbatch.
    global_batch : int, optional
        Sequences of one iteration over all replicas, dp x microbatch_size x B. Without it the number of microbatches
        decides.
    sequence_parallel : bool
        Whether norms and dropout are split over tp, too (Korthikanti et al., 2022).
    zero : {0, 1, 2, 3}
        What data-parallel ranks share: nothing; the optimizer's state; gradients, too; weights, too.
    recompute : {"none", "selective", "full"} or int, optional
        Activations computed again in the backward; a number is that of the layers of a stage that are recomputed in
        full. Without it that of the model.
    precision : {"bf16", "fp8"}
        Of matrix products.
    causal : bool
        Whether fused attention skips the masked half of the scores.
    context_exchange : {"ring", "all-gather"}
        How keys and values get to the other GPUs of a context-parallel group.
    overlap_tensor, overlap_gradients, overlap_parameters : bool
        Whether a framework hides tensor-parallel collectives under products, the gradients' reduction under the
        backward, and the gathering of parameters under the forward.
    layers : {"balanced", "even"}, str or tuple of int
        Transformer blocks of each stage: balanced with embedding and loss head; an even share; one number for each
        stage; or a layout string of Megatron-LM.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str = ""
    title: str = ""
    pp: Whole = 1
    tp: Whole = 1
    cp: Whole = 1
    ep: Whole = 1
    dp: Whole = 1
    chunks: Whole = 1
    microbatch_size: Whole = 1
    global_batch: Whole | None = None
    sequence_parallel: Switch = False
    zero: _Zero = 0
    recompute: entry_type(str, Any) | None = None
    precision: entry_type(str, Literal["bf16", "fp8"]) = "bf16"
    causal: Switch = True
    context_exchange: entry_type(str, Literal["ring", "all-gather"]) = "ring"
    overlap_tensor: Switch = False
    overlap_gradients: Switch = False
    overlap_parameters: Switch = False
    layers: entry_type(str, Any) = "balanced"
    provenance: tuple = field(default=(), compare=False, repr=False)


def load_layout(name):
    """Read a layout by name, or from a file; see `load_system`.

    Parameters
    ----------
    name : str or Path
        The stem of a file in ``data/layouts``, or a path that ends in ``.yaml`` or ``.yml``.

    Returns
    -------
    LayoutSpec

    Raises
    ------
    SpecificationError
        As `load_system`.
    """
    return load_specification(name, "layouts", LayoutSpec)
