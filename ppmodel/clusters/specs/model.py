"""A model: a transformer, its training batch and its precision."""

from __future__ import annotations  # help() shows a field's type by its name

import os
from dataclasses import dataclass, field
from typing import Annotated

from ppmodel.clusters.specs import entries
from ppmodel.clusters.specs.entries import Checked, Entry, Provenance, load_specification
from ppmodel.clusters.specs.recompute import MODES, MODULES
from ppmodel.errors import Rules


@dataclass(frozen=True)
class ExpertSpec(Checked):
    """A mixture of experts that replaces the MLP.

    Parameters
    ----------
    number, experts_per_token : int
        Routed experts in a block, and how many of them process each token.
    shared : int
        Shared experts, which process every token.
    hidden : int
        Hidden width of one expert.
    dense_layers : int
        Number of leading blocks that have an MLP of width `mlp_hidden` instead.
    every : int
        Of the other blocks, every so many has experts, and the rest such an MLP.

    Examples
    --------
    >>> ExpertSpec(number=8, experts_per_token=2, shared=0, hidden=14336, dense_layers=0).number
    8
    """

    number: entries.Whole
    experts_per_token: entries.Whole
    shared: entries.WholeOrZero
    hidden: entries.Whole
    dense_layers: entries.WholeOrZero
    every: entries.Whole = 1

    def rules(self) -> Rules:
        """No token has more experts than there are."""
        used, rule = self.experts_per_token, f"must be at most experts.number ({self.number})"
        yield "experts.experts_per_token", used, used <= self.number, rule, "write a smaller one"


@dataclass(frozen=True)
class LatentAttentionSpec(Checked):
    """Multi-head latent attention (DeepSeek-AI, 2024): queries, keys and values pass through low-rank latents.

    Parameters
    ----------
    query_rank, key_value_rank : int
        Width of the latents; a query rank of 0 means that queries have none.
    rope_head_size, nope_head_size : int
        Width of the part of a query or key with a rotary embedding, and of the part without.
    value_head_size : int
        Width of a value.

    Examples
    --------
    >>> LatentAttentionSpec(1536, 512, rope_head_size=64, nope_head_size=128, value_head_size=128).query_rank
    1536
    """

    query_rank: entries.WholeOrZero
    key_value_rank: entries.Whole
    rope_head_size: entries.WholeOrZero
    nope_head_size: entries.Whole
    value_head_size: entries.Whole


@dataclass(frozen=True)
class ModelSpec(Checked):
    """A transformer, its training batch and its precision.

    Parameters
    ----------
    name, title : str
        The name is the file's.
    blocks, hidden, heads, kv_heads : int
        Transformer blocks l, hidden size h, attention heads a, key-value heads (a if they are not grouped).
    head_size : float
        Width of one head; need not be an integer (the paper's is 4096/80).
    mlp_hidden : int
        Hidden width of the MLP.
    gated_mlp : bool
        Whether the MLP is gated (SwiGLU).
    norm : {"layernorm", "rmsnorm"}
        The normalisation.
    bias, dropout : bool
        Whether dense layers have a bias, and whether there is dropout.
    attention : {"materialised", "fused-softmax", "fused"}
        Scores written to memory, with softmax, mask and dropout as separate passes or as one kernel; or all of
        attention in one kernel.
    recompute : str
        What is recomputed in the backward, one or several keys of `recompute.MODES` joined by ``+``.
    sequence : int
        Tokens per sequence, s.
    vocabulary : int
        Entries of the vocabulary; 0 if embedding and loss head are not modelled.
    learned_positions : bool
        Whether the embedding has parameters for each position in the sequence.
    global_batch : int
        Sequences per iteration, divided into microbatches.
    element_bytes : int
        Bytes per activation or weight.
    gradient_bytes, optimizer_bytes : float
        Bytes per parameter for the gradient and for the optimizer state; need not be integers.
    tied_embeddings : bool
        Whether the loss head shares the weights of the embedding. In a pipeline both ends store them, also where one
        rank holds both, as under schedules in a V.
    experts : ExpertSpec, optional
        A mixture of experts that replaces the MLP.
    latent_attention : LatentAttentionSpec, optional
        Latents that replace the plain projections of queries, keys and values.
    mtp_layers : int
        Layers that predict further tokens in training, each with a loss of its own (multi-token prediction).
    window : int
        How many tokens a query attends to in blocks with a window (sliding-window attention); 0 if it attends to all.
    global_every : int
        With a window, every so many blocks have none; 0 if all have it.
    qk_norm : bool
        Whether queries and keys are normalised, head by head.
    qkv_bias : bool
        Whether the projections of queries, keys and values have biases even if other layers have none; not costed.
    provenance : tuple of Provenance
        One entry for each value of the file.

    Raises
    ------
    SpecificationError
        If sizes contradict each other.
    """

    name: str
    title: str
    blocks: entries.Whole
    hidden: entries.Whole
    heads: entries.Whole
    kv_heads: entries.Whole
    head_size: entries.Number
    mlp_hidden: entries.Whole
    gated_mlp: entries.Switch
    norm: Annotated[str, Entry(str, words=("layernorm", "rmsnorm"))]
    bias: entries.Switch
    dropout: entries.Switch
    attention: Annotated[str, Entry(str, words=("materialised", "fused-softmax", "fused"))]
    recompute: Annotated[str, Entry(str, words=tuple(MODES), joined=tuple(MODULES))]
    sequence: entries.Whole
    vocabulary: entries.WholeOrZero
    learned_positions: entries.Switch
    global_batch: entries.Whole
    element_bytes: entries.Whole
    gradient_bytes: entries.Number
    optimizer_bytes: entries.Number
    tied_embeddings: entries.Switch = False
    experts: ExpertSpec | None = None
    latent_attention: LatentAttentionSpec | None = None
    mtp_layers: entries.WholeOrZero = 0
    window: entries.WholeOrZero = 0
    global_every: entries.WholeOrZero = 0
    qk_norm: entries.Switch = False
    qkv_bias: entries.Switch = False
    provenance: tuple[Provenance, ...] = field(default=(), compare=False, repr=False)

    def rules(self) -> Rules:
        """Sizes do not contradict each other."""
        heads, kv_heads, latent = self.heads, self.kv_heads, self.latent_attention
        remedy = f"write the number of groups, a divisor of {heads}; {heads} if heads are not grouped"
        yield "kv_heads", kv_heads, heads % kv_heads == 0, f"must divide heads ({heads})", remedy
        dense, rule = self.experts.dense_layers if self.experts else 0, f"must be fewer than blocks ({self.blocks})"
        yield "experts.dense_layers", dense, dense < self.blocks, rule, "write 0 for none"
        mtp, rule = self.mtp_layers, "needs a vocabulary: each has a loss"
        yield "mtp_layers", mtp, self.vocabulary or not mtp, rule, "give one, or write 0"
        if latent:
            size = latent.rope_head_size + latent.nope_head_size
            rule = f"must equal rope_head_size + nope_head_size ({size})"
            yield "head_size", f"{self.head_size:g}", self.head_size == size, rule, "write their sum"
            rule, remedy = f"must equal heads ({heads}) with latent_attention", "write the same: latents replace groups"
            yield "kv_heads", kv_heads, kv_heads == heads, rule, remedy

    @property
    def dense_blocks(self) -> int:
        """Number of leading blocks that have an MLP; without experts, all blocks."""
        return self.experts.dense_layers if self.experts else self.blocks


def load_model(name: str | os.PathLike[str] | ModelSpec) -> ModelSpec:
    """Read a model by name or from a file; see `load_system`.

    Parameters
    ----------
    name : str, Path or ModelSpec
        A name in `packaged`, the path of a ``.yaml`` or ``.yml`` file, or that of a published model's ``config.json``;
        a specification stays as it is.

    Returns
    -------
    ModelSpec
        Checked; sizes are numbers of elements, precision is in bytes.

    Raises
    ------
    SpecificationError
        As for `load_system` and for `ModelSpec`.

    Examples
    --------
    >>> load_model("paper").blocks
    128
    """
    return load_specification(name, "models", ModelSpec)
