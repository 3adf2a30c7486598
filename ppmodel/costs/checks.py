"""Check that a run layout suits a model, a system and a schedule."""

from functools import lru_cache

from ppmodel.costs.offload import offloads
from ppmodel.errors import SpecificationError

_KEPT = 2**12


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
    >>> from ppmodel.specs import LayoutSpec, load_model, load_system
    >>> given = load_model("llama3_70b"), load_system("dgx_h100"), build("1f1b", 4, 8)
    >>> check_layout(LayoutSpec(tp=8, dp=2), *given).gpus
    64
    """
    if layout.precision == "fp8" and system.fp8_peak_compute_flops is None:
        rule = f"needs a system with a peak in fp8, and {system.name} gives none"
        raise SpecificationError("precision", "fp8", rule, "add fp8_peak_compute to its file, or choose bf16")
    if offloads(layout) and system.host_bandwidth_bytes_per_s is None:
        rule = f"needs a system with a link to its host, and {system.name} gives none"
        value, remedy = layout.offload or layout.offload_warm_up, "add host_bandwidth to its file, or leave it out"
        raise SpecificationError("offload", value, rule, remedy)
    return _checked(layout, model, schedule.num_ranks, schedule.table_microbatches)


@lru_cache(_KEPT)
def _checked(layout, model, num_ranks, num_microbatches):
    for field, value, holds, rule, remedy in _rules(layout, model):
        if not holds:
            raise SpecificationError(field, value, rule, remedy)
    return layout.at(num_ranks, num_microbatches)


def _rules(layout, model):
    """Field, value, whether the rule holds, rule and remedy; the first that does not hold is reported."""
    tp, cp, ep, tokens = layout.tp, layout.cp, layout.ep, model.sequence
    experts = model.experts.number if model.experts else 0
    for name, width in _split_widths(model):
        yield "tp", tp, width % tp == 0, f"must divide {name} of {model.name} ({width})", "choose a smaller tp"
    few, many = sorted((model.kv_heads, tp))
    rule = f"must divide kv_heads of {model.name} ({model.kv_heads}), or be a multiple of them"
    yield "tp", tp, many % few == 0, rule, "choose another tp"
    rule = f"x 2 must divide the sequence of {model.name} ({tokens}): each GPU takes a piece from each end"
    yield "cp", cp, cp == 1 or tokens % (2 * cp) == 0, rule, "choose a smaller cp"
    splits = not layout.sequence_parallel or tokens % (tp * cp) == 0
    rule = f"needs a sequence divisible by tp x cp ({tp} x {cp}), but that of {model.name} is {tokens}"
    yield "sequence_parallel", "true", splits, rule, "choose a smaller tp or cp"
    rule = f"has no effect: {model.name} has no experts"
    yield "ep", ep, ep == 1 or experts, rule, "leave it out, or choose a model with experts"
    yield "ep", ep, experts % ep == 0, f"must divide the experts of {model.name} ({experts})", "choose a divisor"


def _split_widths(model):
    widths = [(name, getattr(model, name)) for name in ("heads", "hidden", "mlp_hidden")]
    return [*widths, ("experts.hidden", model.experts.hidden)] if model.experts else widths
