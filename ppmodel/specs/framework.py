"""What a training framework does on a system that neither model nor layout say."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass
from typing import Annotated, Literal

from ppmodel.specs.entries import Number, Switch, Transfers, entry_type, file_form


@dataclass(frozen=True)
class FrameworkSpec:
    """What a training framework does on a system that the rows of measured runs do not say.

    Parameters
    ----------
    p2p : str
        What a transfer between stages occupies, as in `simulation.compile_graph`.
    precision : {"bf16", "fp8"}
        Of matrix multiplications.
    dropout : bool
        Whether GPT's blocks have dropout.
    overlap_tensor, overlap_gradients, overlap_parameters : bool
        As in `LayoutSpec`.
    scatter_messages : bool
        Whether tensor-parallel ranks send a part each of what goes to the next stage (Narayanan et al., 2021, section
        4.1), and not all of it.
    gathered_logits : bool
        Whether every tensor-parallel rank has all logits in memory.
    tied_embeddings : bool
        Whether the head has the embedding's weights in models with a gated MLP, too; those without one tie them.
    gradient_bytes, optimizer_bytes : float
        Per parameter.
    """

    p2p: Transfers = "overlapped"
    precision: entry_type(str, Literal["bf16", "fp8"]) = "bf16"
    dropout: Switch = False
    overlap_tensor: Switch = False
    overlap_gradients: Switch = False
    overlap_parameters: Switch = False
    scatter_messages: Switch = False
    gathered_logits: Switch = False
    tied_embeddings: Switch = False
    gradient_bytes: Number = 4.0
    optimizer_bytes: Number = 12.0


Framework = Annotated[FrameworkSpec | None, file_form(FrameworkSpec)]
"""The field of a system that holds its framework."""
