"""What a training framework does that neither model nor layout says."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass
from typing import Annotated, Literal

from ppmodel.specs.entries import Checked, Number, Switch, Transfers, entry, file_form


@dataclass(frozen=True)
class FrameworkSpec(Checked):
    """What a training framework does that rows of measured runs do not say.

    Parameters
    ----------
    p2p : str
        What a transfer between stages occupies, as in `simulation.compile_graph`.
    precision : {"bf16", "fp8"}
        Of matrix multiplications.
    dropout : bool
        Whether GPT blocks have dropout.
    overlap_tensor, overlap_gradients, overlap_parameters : bool
        As in `LayoutSpec`.
    scatter_messages : bool
        Whether each tensor-parallel rank sends only its part of the message to the next stage, not all of it
        (Narayanan et al., 2021, section 4.1).
    gathered_logits : bool
        Whether every tensor-parallel rank keeps all logits in memory.
    tied_embeddings : bool
        Whether models with a gated MLP also tie the loss head to the embedding; models without one always do.
    gradient_bytes, optimizer_bytes : float
        Bytes per parameter.
    """

    p2p: Transfers = "overlapped"
    precision: Annotated[str, entry(Literal["bf16", "fp8"])] = "bf16"
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
"""The system field that holds its framework."""
