"""A model: a transformer, its training batch and its precision."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass, field
from typing import Annotated, Literal

from ppmodel.errors import SpecificationError
from ppmodel.specs.entries import Number, Switch, Whole, WholeOrZero, entry_type, file_form, load_specification

Recompute = Literal["none", "selective", "full"]
"""Activations computed again in the backward: none, the attention's scores, or all of a block."""


@dataclass(frozen=True)
class ExpertSpec:
    """A mixture of experts in place of the MLP.

    Parameters
    ----------
    number, experts_per_token : int
        Routed experts of a block, and how many of them see a token.
    shared : int
        Experts beside them that see every token.
    hidden : int
        Width of one expert between its projections.
    dense_layers : int
        How many of the first blocks have an MLP of width `mlp_hidden` instead.

    Examples
    --------
    >>> ExpertSpec(number=8, experts_per_token=2, shared=0, hidden=14336, dense_layers=0).number
    8
    """

    number: Whole
    experts_per_token: Whole
    shared: WholeOrZero
    hidden: Whole
    dense_layers: WholeOrZero

    def __post_init__(self):
        if self.experts_per_token > self.number:
            rule = f"must be at most experts.number ({self.number})"
            raise SpecificationError("experts.experts_per_token", self.experts_per_token, rule, "write fewer")


@dataclass(frozen=True)
class LatentAttentionSpec:
    """Multi-head latent attention (DeepSeek-AI, 2024): queries, keys and values through latents of low rank.

    Parameters
    ----------
    query_rank, key_value_rank : int
        Width of the latents; a query rank of 0 for queries without one.
    rope_head_size, nope_head_size : int
        Width of the part of a query or key that has a rotary embedding, and of the part that has none.
    value_head_size : int
        Width of a value.

    Examples
    --------
    >>> LatentAttentionSpec(1536, 512, rope_head_size=64, nope_head_size=128, value_head_size=128).query_rank
    1536
    """

    query_rank: WholeOrZero
    key_value_rank: Whole
    rope_head_size: WholeOrZero
    nope_head_size: Whole
    value_head_size: Whole


_Experts = Annotated[ExpertSpec | None, file_form(ExpertSpec)]
_LatentAttention = Annotated[LatentAttentionSpec | None, file_form(LatentAttentionSpec)]


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
    attention : {"materialised", "fused-softmax", "fused"}
        Whether the scores are written to memory, with softmax, mask and dropout passes of their own or one kernel, or
        the attention runs as one kernel.
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
    element_bytes : int
        Bytes of an activation or weight.
    gradient_bytes, optimizer_bytes : float
        Bytes per parameter of its gradient and optimizer state, which need not be whole.
    tied_embeddings : bool
        Whether the loss head uses the weights of the embedding, where there is one.
    experts : ExpertSpec, optional
        A mixture of experts in place of the MLP.
    latent_attention : LatentAttentionSpec, optional
        Latents in place of plain projections of queries, keys and values.
    provenance : tuple of Provenance
        One entry for each value of the file.

    Raises
    ------
    SpecificationError
        If sizes contradict each other.
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
    attention: entry_type(str, Literal["materialised", "fused-softmax", "fused"])
    recompute: entry_type(str, Recompute)
    sequence: Whole
    vocabulary: WholeOrZero
    learned_positions: Switch
    global_batch: Whole
    element_bytes: Whole
    gradient_bytes: Number
    optimizer_bytes: Number
    tied_embeddings: Switch = False
    experts: _Experts = None
    latent_attention: _LatentAttention = None
    provenance: tuple = field(default=(), compare=False, repr=False)

    def __post_init__(self):
        if self.heads % self.kv_heads:
            rule = f"must divide heads ({self.heads})"
            raise SpecificationError("kv_heads", self.kv_heads, rule, "write heads for ungrouped attention")
        if self.experts and self.experts.dense_layers >= self.blocks:
            rule = f"must be fewer than blocks ({self.blocks})"
            raise SpecificationError("experts.dense_layers", self.experts.dense_layers, rule, "write 0 for none")
        if self.latent_attention:
            _check_latent_attention(self)

    @property
    def dense_blocks(self):
        """How many of the first blocks have an MLP: all of them, where there are no experts."""
        return self.experts.dense_layers if self.experts else self.blocks


def _check_latent_attention(model):
    """A head is as wide as its two parts, and every head has its own key and value."""
    latent = model.latent_attention
    size = latent.rope_head_size + latent.nope_head_size
    if model.head_size != size:
        rule = f"must be rope_head_size + nope_head_size ({size})"
        raise SpecificationError("head_size", f"{model.head_size:g}", rule, "write their sum")
    if model.kv_heads != model.heads:
        rule = f"must be heads ({model.heads}) with latent_attention"
        raise SpecificationError("kv_heads", model.kv_heads, rule, "write heads; latents take the place of groups")


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
        As `load_system`, and as `ModelSpec`.

    Examples
    --------
    >>> load_model("paper").blocks
    128
    """
    return load_specification(name, "models", ModelSpec)
