"""Division of a model: its widths over GPUs, blocks into stages, the batch into microbatches."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.data_parallel import SHARED_WEIGHTS
from ppmodel.clusters.costs.work import recompute_of
from ppmodel.clusters.specs.formats import FORMATS
from ppmodel.clusters.specs.layers import StageText, parse_layers
from ppmodel.clusters.specs.layout import LAYER_WORDS, LAYOUT_BOUNDS, STAGE_GROUPS, product_text
from ppmodel.errors import BatchError, BlocksError, CostError, SpecificationError
from ppmodel.loops.balance import balance
from ppmodel.ops import OpKind

_MOST_BALANCED = 2**16


def check_layout(layout, model, system, schedule):
    """Fill in what a layout leaves open, and check it against model, system and schedule.

    Parameters
    ----------
    layout : LayoutSpec
    model : ModelSpec
        Its heads, widths, experts and sequence are split over GPUs.
    system : SystemSpec
        Need not have a peak in 8-bit floating point.
    schedule : Schedule
        Provides ranks and microbatches.

    Returns
    -------
    LayoutSpec
        With pp, gpus and global_batch.

    Raises
    ------
    SpecificationError
        If something cannot be split, or the layout's size differs from the schedule's.

    Notes
    -----
    If there are fewer key-value heads than tp, several GPUs hold the same one. The vocabulary is padded to a multiple
    of tp.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
    >>> given = load_model("llama3_70b"), load_system("dgx_h100"), build("1f1b", 4, 8)
    >>> check_layout(LayoutSpec(tp=8, dp=2), *given).gpus
    64
    """
    if system.peak_flops(layout.precision) is None:
        name = f"fp{FORMATS[layout.precision].bits}"
        rule = f"needs a system with a peak in {name}, and {system.name} gives none"
        remedy = f"add {name}_peak_compute to its file, or choose bf16"
        if layout.precision == "mxfp8":
            rule, remedy = f"needs a GPU that has it, as from Blackwell on, and {system.name} has none", "choose fp8"
        raise SpecificationError("precision", layout.precision, rule, remedy)
    if layout.offloads and system.host_bandwidth_bytes_per_s is None:
        rule = f"needs a system with a link to its host, and {system.name} gives none"
        value, remedy = layout.offload or layout.offload_warm_up, "add host_bandwidth to its file, or leave it out"
        raise SpecificationError("offload", value, rule, remedy)
    if schedule.gathers and layout.zero < SHARED_WEIGHTS and layout.data_gpus > 1:
        rule = "must be 3: the schedule gathers weights"
        raise SpecificationError("zero", layout.zero, rule, "set it to 3, or take a table without gathers")
    hides = hides_backward(layout, system.framework, schedule)
    return _checked(layout, hides, model, schedule.num_ranks, schedule.table_microbatches // schedule.slices)


def hides_backward(layout, framework, schedule):
    """Decide if collectives of the backward are hidden: as the layout says, or else as the framework does by itself.

    They are hidden under weight gradients, so most backwards of the schedule must then be whole.

    Parameters
    ----------
    layout : LayoutSpec
    framework : FrameworkSpec or None
    schedule : Schedule

    Returns
    -------
    bool

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import LayoutSpec, load_framework
    >>> layout, framework = LayoutSpec(tp=8), load_framework("megatron")
    >>> [hides_backward(layout, framework, build(name, 4, 8)) for name in ("1f1b", "dualpipev", "zb-v")]
    [True, True, False]
    """
    if layout.overlap_backward is not None:
        return layout.overlap_backward
    if framework is None or not framework.overlap_backward:
        return False
    of_kinds = schedule.class_counts.reshape(2, len(OpKind), -1).sum(axis=(0, 2)).tolist()
    return of_kinds[OpKind.B] > of_kinds[OpKind.W]


@lru_cache(2**12)
def _checked(layout, hides, model, num_ranks, num_microbatches):
    layout.require_shares()
    SpecificationError.require(_rules(layout, model))
    return replace(layout, overlap_backward=hides).at(num_ranks, num_microbatches)


def _rules(layout, model):
    """Field, value, whether the rule holds, rule and remedy; the first that does not hold is reported."""
    tp, cp, ep, tokens = layout.tp, layout.cp, layout.ep, model.sequence
    experts = model.experts.number if model.experts else 0
    widths = {name: getattr(model, name) for name in ("heads", "hidden", "mlp_hidden")}
    for name, width in widths.items():
        yield "tp", tp, width % tp == 0, f"must divide {name} of {model.name} ({width})", "choose a smaller tp"
    smaller, larger = sorted((model.kv_heads, tp))
    rule = f"must divide kv_heads of {model.name} ({model.kv_heads}), or be a multiple of them"
    yield "tp", tp, larger % smaller == 0, rule, "choose another tp"
    rule = f"must divide half of the sequence of {model.name} ({tokens}): each GPU takes a piece from each end"
    yield "cp", cp, cp == 1 or tokens % (2 * cp) == 0, rule, "choose a smaller cp"
    splits = not layout.sequence_parallel or tokens % layout.stage_gpus == 0
    product = f"{product_text(STAGE_GROUPS)} ({product_text(layout.sizes(STAGE_GROUPS))})"
    rule = f"needs a sequence divisible by {product}, but that of {model.name} is {tokens}"
    yield "sequence_parallel", "true", splits, rule, f"choose a smaller {' or '.join(STAGE_GROUPS)}"
    rule = f"has no effect: {model.name} has no experts"
    for name, neutral in (("ep", 1), ("etp", None), ("expert_imbalance", 1)):
        value = getattr(layout, name)
        yield name, value, value == neutral or experts, rule, "leave it out, or choose a model with experts"
    again = str(recompute_of(model, layout)).split("+")
    both = [name for name in layout.offloaded if name in again]
    yield "offload", "+".join(both), not both, "recomputed as well, so they keep nothing", "leave out one of the two"
    alone = "attn_proj" in layout.offloaded and "core_attn" not in layout.offloaded
    rule = "saves nothing without core_attn, whose backward needs the same tensor"
    yield "offload", layout.offload, not alone, rule, "add +core_attn, or leave it out"
    yield "ep", ep, experts % ep == 0, f"must divide the experts of {model.name} ({experts})", "choose a divisor"
    for name, size in LAYOUT_BOUNDS.items():
        value, most = layout.sizes((name, size))
        yield name, value, (value or 0) <= most, f"must be at most {size} ({most})", "choose a smaller one"
    same = not layout.replicas_apart or layout.ep * layout.expert_tp == layout.stage_gpus or not experts
    rule = f"needs ep x etp = {product}, as Megatron-LM does"
    yield "order", layout.order, same, rule, "choose tp-cp-ep-dp-pp, or another ep"
    if experts:
        width, etp = model.experts.hidden, layout.expert_tp
        rule = f"must divide experts.hidden of {model.name} ({width})"
        yield "etp" if layout.etp else "tp", etp, width % etp == 0, rule, "choose a smaller etp"
        rule = f"must be tp ({tp}) without sequence_parallel"
        yield "etp", etp, tp in (1, etp) or layout.sequence_parallel, rule, "set sequence_parallel, or leave it out"


def stage_blocks(schedule, model):
    """Compute the number of blocks in each stage: its share, in whole blocks, in order.

    Stage boundaries are the cumulative shares rounded to whole blocks (half up).

    Parameters
    ----------
    schedule : Schedule
        Provides the stages and their shares of the model.
    model : ModelSpec
        Provides the number of blocks.

    Returns
    -------
    ndarray of int, shape (num_stages,)
        Transformer blocks, stage by stage.

    Raises
    ------
    CostError
        If a stage would have no block.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import load_model
    >>> stage_blocks(build("asymmetric-chimera", 4, 4), load_model("paper")).tolist()
    [21, 22, 42, 43]
    """
    ends = np.cumsum(schedule.stage_shares) / schedule.num_stages * model.blocks
    blocks = np.floor(ends + 0.5 + 1e-9).astype(int)
    blocks[1:] -= blocks[:-1]  # as np.diff, which takes longer than all the rest
    if blocks.min() < 1:
        rule = f"are too few for the {schedule.num_stages} stages of {schedule.name}"
        raise BlocksError("blocks", model.blocks, rule, "choose fewer ranks, chunks or waves, or a more even split")
    return blocks


class LayerTimes(NamedTuple):
    """Times of a model's layers, forward and backward of one microbatch, in seconds or any other unit.

    Parameters
    ----------
    block, embedding, head : float or ndarray of float
        Times of a transformer block, of the embedding, and of the loss head with all multi-token prediction.
    dense : float
        Time of each leading block without experts, in a model with experts.
    dense_blocks : int
        Number of these.
    """

    block: float
    embedding: float = 0.0
    head: float = 0.0
    dense: float = 0.0
    dense_blocks: int = 0

    @property
    def rounded(self):
        """Multiples of a block, to a hundredth, so that similar systems get the same partition."""
        *seconds, dense_blocks = self
        unit = np.where(self.block, self.block, 1.0)
        return LayerTimes(*np.round(np.array(np.broadcast_arrays(*seconds)) / unit, 2), dense_blocks)


class StageLayers(NamedTuple):
    """The layers of each stage.

    Parameters
    ----------
    blocks : ndarray of int, shape (num_stages,)
        Transformer blocks, in the order of the model.
    embedding : int
        The stage with the embedding.
    mtp, losses : ndarray of int, shape (num_stages,)
        Multi-token-prediction layers, and losses: those of these layers, and the model's, which is the last.
    embeddings : ndarray of float, shape (num_stages,)
        1 where an embedding is held: on its stage, and a copy where multi-token prediction is on another rank.
    """

    blocks: np.ndarray
    embedding: int
    mtp: np.ndarray
    losses: np.ndarray
    embeddings: np.ndarray

    @property
    def head(self):
        """The stage with the model's loss."""
        return len(self.losses) - 1 - int((self.losses[::-1] > 0).argmax())

    @property
    def texts(self):
        """The layers of each stage, a list of `specs.layers.StageText`."""
        is_first = np.arange(len(self.blocks)) == self.embedding
        columns = (column.tolist() for column in (self.blocks, self.mtp, self.losses.astype(int), is_first))
        return list(map(StageText, *columns))


def stage_layers(schedule, model, layout=None, times=None):
    """Divide layers among stages: as listed, evenly, or balanced.

    Parameters
    ----------
    schedule : Schedule
        Provides the stages, their ranks, and their shares of the model.
    model : ModelSpec
        Provides the number of blocks.
    layout : LayoutSpec, optional
        Its ``layers`` say how the model is divided. Without a layout, a model with a vocabulary is balanced, and one
        without, such as the paper's, is divided evenly.
    times : LayerTimes, optional
        The times to balance; without them, the model is divided evenly. Those of several runs, as arrays, give a row of
        blocks for each.

    Returns
    -------
    StageLayers

    Raises
    ------
    CostError
        If a stage that must not be empty would have no block, or listed layers do not sum to the model's.

    Notes
    -----
    Balancing makes the slowest rank, which may have several stages, as fast as whole blocks allow (with leading blocks
    without experts, as fast as moving one block at a time makes it), and then spreads the blocks of a rank over its
    stages. If the slowest rank of an even split is within 3 % of that, the even split is kept. A schedule that
    specifies shares for its stages, such as asymmetric Chimera, is divided by these.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import load_model
    >>> table, model = build("interleaved-1f1b", 8, 8, chunks=4), load_model("llama3_70b")
    >>> blocks = stage_layers(table, model, times=LayerTimes(1.0)).blocks
    >>> blocks.reshape(4, 8).sum(axis=0).tolist()
    [10, 10, 10, 10, 10, 10, 10, 10]
    """
    cut = layout.layers if layout is not None else "balanced" if model.vocabulary else "even"
    written = parse_layers(cut) if isinstance(cut, str) and cut not in LAYER_WORDS else ()
    if written or isinstance(cut, tuple):
        blocks = np.array([stage.blocks for stage in written] if written else cut)
        if len(blocks) != schedule.num_stages or blocks.sum() != model.blocks:
            needed = f"{schedule.num_stages} stages with {model.blocks} blocks"
            rule, shown = f"must be {needed}, but has {len(blocks)} with {blocks.sum()}", cut if written else list(cut)
            raise CostError("layers", shown, rule, "fix it, or choose balanced")
    elif cut == "even" or times is None or np.ptp(schedule.stage_shares):
        blocks = stage_blocks(schedule, model)
    else:
        if model.blocks > _MOST_BALANCED:
            rule = f"must be at most {_MOST_BALANCED} to be balanced among stages, one by one"
            raise CostError("blocks", model.blocks, rule, "choose layers: even")
        times = times._replace(embedding=0.0, head=0.0) if schedule.has_shards else times
        blocks = _balanced(schedule, stage_blocks(schedule, model), times.rounded)
    mtp_layers, last = model.mtp_layers, np.eye(schedule.num_stages, dtype=int)[-1]
    embedding, mtp, losses = 0, mtp_layers * last, (1 + mtp_layers) * last
    if written:  # in the order of the model
        embedding = next(place for place, stage in enumerate(written) if stage.embedding)
        mtp, losses = (np.array([getattr(stage, name) for stage in written]) for name in ("mtp", "losses"))
        if mtp.sum() != mtp_layers:
            remedy = f"write {mtp_layers} times m" if mtp_layers else "leave them out"
            rule = f"has {mtp.sum()} MTP layers m, but the model has {mtp_layers}"
            raise CostError("layers", cut, rule, remedy)
    embeddings = np.eye(schedule.num_stages)[embedding]
    if mtp_layers:
        apart = (schedule.placement[:, None] != schedule.placement[:, embedding, None]).all(axis=(0, 1))
        embeddings = np.where((mtp > 0) & apart, 1.0, embeddings)
    if schedule.has_shards:  # on all ranks alike
        shares = (np.arange(schedule.num_stages) < schedule.num_ranks) / schedule.num_ranks
        is_stored = schedule.num_ranks == 1 or not model.tied_embeddings  # else with the output layer
        losses, embeddings = shares * losses.sum(), shares * is_stored
    for name, whole in ("recompute", "full"), ("offload", "1"):
        number = getattr(layout, name, None)
        if isinstance(number, int | float) and number > blocks.max():
            rule = f"is more than any stage has: the largest has {blocks.max()} layers"
            raise CostError(name, int(number), rule, f"choose fewer, or {whole}")
    return StageLayers(blocks, embedding, mtp, losses, embeddings)


# ---- balanced layers -----------------------------------------------------------------------------


def rank_loads(schedule):
    """The fraction of each stage's microbatches that a rank computes; shape (num_ranks, num_stages)."""
    shape, homes = (schedule.num_ranks, schedule.num_stages), schedule.placement
    forwards, place = schedule.class_counts[:, : homes.size].sum(axis=0), homes * shape[1] + np.arange(shape[1])
    loads = np.bincount(place.ravel(), forwards, shape[0] * shape[1]).reshape(shape)
    return loads / loads.sum(axis=0)


def _balanced(schedule, even, times):
    """Blocks of each stage such that the slowest rank is as fast as possible; an even split if that gains little.

    Ties go to the earlier stage or, if both directions of a pipeline share the ranks, to every other stage, so that
    neither direction has a slow half.
    """
    loads, place, columns = rank_loads(schedule).T, np.arange(len(even)), np.broadcast_arrays(*times)
    ties = np.where((loads > 0).sum(axis=1) > 1, place % 2 * 2 * len(even) - place, place)
    stage, rank = map(np.ascontiguousarray, np.nonzero(loads))
    rows = np.stack(columns, axis=-1, dtype=float).reshape(-1, len(columns))
    blocks = np.ones((len(rows), len(even)), dtype=np.int64)
    blocks[:, -1] -= (len(even) > 1) & (rows[:, 2] >= rows[:, 0])  # the head alone is a stage
    balance.run(blocks.size * int(even.sum()), stage, rank, loads[stage, rank], ties, even, rows, blocks)
    return blocks.reshape(*columns[0].shape, -1)


def slowest_over_mean(schedule, stage_times):
    """The computing time of the rank that computes longest, over the mean of all.

    Parameters
    ----------
    schedule : Schedule
        Provides the ranks of each stage.
    stage_times : array of float, shape (num_stages,)
        Time of each stage on one microbatch, forward and backward.

    Returns
    -------
    float
        1 if all ranks compute equally long.

    Examples
    --------
    >>> from ppmodel import build
    >>> slowest_over_mean(build("1f1b", 4, 8), [3.0, 3.0, 3.0, 4.5])
    1.3333333333333333
    """
    ranks = rank_loads(schedule) @ np.asarray(stage_times, dtype=float)
    return float(ranks.max() / ranks.mean())


def microbatch_sequences(schedule, model, layout=None):
    """Sequences per microbatch of the table; without a layout, the global batch is fixed, so they shrink as B grows.

    Parameters
    ----------
    schedule : Schedule
        Provides B, as the table counts microbatches.
    model : ModelSpec
        Provides the global batch.
    layout : LayoutSpec, optional
        Gives the size directly.

    Returns
    -------
    int
        Sequences, b.

    Raises
    ------
    CostError
        If the global batch cannot be divided into B microbatches of whole sequences.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.specs import load_model
    >>> model = load_model("paper")
    >>> model.global_batch // microbatch_sequences(build("gpipe", 4, 8), model)
    8
    """
    if layout is not None:
        return layout.microbatch_size / schedule.slices if schedule.slices > 1 else layout.microbatch_size
    microbatches = schedule.table_microbatches // schedule.slices
    if model.global_batch % microbatches:
        rule = f"must divide into {microbatches} microbatches of whole sequences"
        remedy = "choose a number of microbatches that divides it, or another global_batch"
        raise BatchError("global_batch", model.global_batch, rule, remedy)
    sequences = model.global_batch // microbatches
    return sequences / schedule.slices if schedule.slices > 1 else sequences
