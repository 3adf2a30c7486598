"""A model: a transformer, its training batch and its precision."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass, field
from typing import Literal

from ppmodel.errors import SpecificationError
from ppmodel.specs.entries import Number, Switch, Whole, WholeOrZero, entry_type, load_specification

Recompute = Literal["none", "selective", "full"]
"""Activations computed again in the backward: none, the attention's scores, or all of a block."""


@dataclass(frozen=True)
class ModelSpec:
    """A transformer, its training batch and its precision.

    Parameters
    ----------
    name, title : str
        The name is that of the file.
    blocks, hidden, heads, kv_heads : int
        Transformer blocks l, hidden size h, attention heads a, key-value heads (a without grouping).
    head_size : float
        Width of one head. Need not be whole: the paper's 4096/80 is not.
    mlp_hidden : int
        Width of the MLP between its projections.
    gated_mlp : bool
        Whether the MLP has a gate beside its first projection (SwiGLU).
    norm : {"layernorm", "rmsnorm"}
        The normalisation.
    bias, dropout : bool
        Whether dense layers have a bias, and whether there is dropout.
    attention : {"materialised", "fused"}
        Whether the scores are written to memory, or the attention runs as one kernel.
    recompute : {"none", "selective", "full"}
        Activations computed again in the backward: none, the attention's scores, or all of a block.
    sequence : int
        Tokens of a sequence, s.
    vocabulary : int
        0 where embedding and loss head are not modelled.
    learned_positions : bool
        Whether the embedding has parameters for each position of the sequence.
    global_batch : int
        Sequences of one iteration, divided into microbatches.
    element_bytes, gradient_bytes, optimizer_bytes : int
        Bytes of an activation or weight, and per parameter of its gradient and optimizer state.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str
    title: str
    blocks: Whole
    hidden: Whole
    heads: Whole
    kv_heads: Whole
    head_size: Number
    mlp_hidden: Whole
    gated_mlp: Switch
    norm: entry_type(str, Literal["layernorm", "rmsnorm"])
    bias: Switch
    dropout: Switch
    attention: entry_type(str, Literal["materialised", "fused"])
    recompute: entry_type(str, Recompute)
    sequence: Whole
    vocabulary: WholeOrZero
    learned_positions: Switch
    global_batch: Whole
    element_bytes: Whole
    gradient_bytes: Whole
    optimizer_bytes: Whole
    provenance: tuple = field(default=(), compare=False, repr=False)


def load_model(name):
    """Read a model by name, or from a file; see `load_system`.

    Parameters
    ----------
    name : str or Path
        One of `model_names`, or a path that ends in ``.yaml`` or ``.yml``.

    Returns
    -------
    ModelSpec
        Checked; its sizes are numbers of elements, its precision is in bytes.

    Raises
    ------
    SpecificationError
        As `load_system`, and if the key-value heads do not divide the heads.

    Examples
    --------
    >>> load_model("paper").blocks
    128
    """
    model = load_specification(name, "models", ModelSpec)
    if model.heads % model.kv_heads:
        rule = f"must divide heads ({model.heads})"
        raise SpecificationError(
            "kv_heads", model.kv_heads, rule, "write heads for ungrouped attention", where=str(name)
        )
    return model
