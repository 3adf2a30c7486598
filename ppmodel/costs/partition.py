"""How a model is cut: blocks into stages, the batch into microbatches."""

from functools import lru_cache

import numpy as np

from ppmodel.errors import BatchError, CostError

_SHARES_KEPT = 2**12


def stage_blocks(schedule, model, blocks=None):
    """How many blocks each stage holds: its share of them, whole blocks, in order.

    Stage boundaries are the cumulative shares rounded to whole blocks (half up).

    Parameters
    ----------
    schedule : Schedule
        Gives the stages and their shares of the model.
    model : ModelSpec
        Gives the number of blocks.
    blocks : sequence of int, optional
        The blocks of each stage, where they are not to follow the schedule's shares.

    Returns
    -------
    ndarray of int, shape (num_stages,)
        Transformer blocks, stage by stage.

    Raises
    ------
    CostError
        If a stage would be left without a block, or given blocks are not the model's.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model
    >>> stage_blocks(build("asymmetric-chimera", 4, 4), load_model("paper")).tolist()
    [21, 22, 42, 43]
    """
    if blocks is not None:
        blocks = np.asarray(blocks)
        whole = np.issubdtype(blocks.dtype, np.integer) and blocks.shape == (schedule.num_stages,)
        if not whole or blocks.min() < 1 or blocks.sum() != model.blocks:
            rule = f"must be {schedule.num_stages} whole numbers of at least 1 that sum to {model.blocks}"
            raise CostError("blocks", blocks.tolist(), rule, "give one number for each stage")
        return blocks
    return _shared_blocks(schedule.name, schedule.stage_shares.tobytes(), model.blocks)


@lru_cache(_SHARES_KEPT)
def _shared_blocks(name, shares, num_blocks):
    """Whole blocks by the shares, as bytes; of the schedule itself, with its table, none is kept alive."""
    shares = np.frombuffer(shares)
    blocks = np.diff(np.floor(np.cumsum(shares) / len(shares) * num_blocks + 0.5 + 1e-9).astype(int), prepend=0)
    if blocks.min() < 1:
        rule = f"are too few for the {len(shares)} stages of {name}"
        raise CostError("blocks", num_blocks, rule, "choose fewer ranks, chunks or waves, or a milder split")
    blocks.flags.writeable = False
    return blocks


def microbatch_sequences(schedule, model):
    """Sequences in one microbatch of the table; the global batch is fixed, so they shrink as B grows.

    Parameters
    ----------
    schedule : Schedule
        Gives B, as the table counts microbatches.
    model : ModelSpec
        Gives the global batch.

    Returns
    -------
    int
        Sequences, b.

    Raises
    ------
    CostError
        If the global batch does not divide into B microbatches of whole sequences.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.specs import load_model
    >>> model = load_model("paper")
    >>> model.global_batch // microbatch_sequences(build("gpipe", 4, 8), model)
    8
    """
    if model.global_batch % schedule.table_microbatches:
        rule = f"must divide into {schedule.table_microbatches} microbatches of whole sequences"
        remedy = "choose microbatches that divide it, or another global_batch"
        raise BatchError("global_batch", model.global_batch, rule, remedy)
    return model.global_batch // schedule.table_microbatches
