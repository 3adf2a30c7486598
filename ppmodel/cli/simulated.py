"""A simulated run as lines of text."""

from ppmodel.cli import text
from ppmodel.clusters.costs import microbatch_sequences
from ppmodel.clusters.specs.framework import DEFAULT
from ppmodel.clusters.specs.layout import DIMENSIONS, LAYOUT_KEYWORDS, LayoutSpec
from ppmodel.errors import counted
from ppmodel.ops import OpKind
from ppmodel.studies.points import HEADINGS, MEMORY_PARTS, PARTS

_LEAST = 1e-9
_SAID = "gpus", "global_batch", "sequence", "layers"  # elsewhere


def simulated_lines(result, run):
    """Format what ``simulate`` prints.

    Parameters
    ----------
    result : dict
        As in the JSON output.
    run : Run

    Yields
    ------
    str
    """
    yield from _pipeline(result, run)
    if run.layout is not None:
        yield from _model_and_system(run)
        yield from _iteration(result, run)
    elif run.model is not None:
        sequences = round(microbatch_sequences(run.table, run.model) * run.table.slices)
        yield f"microbatch          {counted(sequences, 'sequence')}"
        smaller = f"; with more microbatches, each would have fewer than {sequences} sequences"
        yield from _memory(result, "rank", smaller * (sequences > 1))
        yield from _model_and_system(run)
    if "trace" in result:
        yield f"trace               {result['trace']}, {result['trace_events']} events"


def _pipeline(result, run):
    table, has_layout = run.table, run.layout is not None
    stages = f", {table.num_stages} stages" if table.num_stages != table.num_ranks else ""
    allreduce = "" if has_layout else f", all-reduce {result['allreduce']}"
    halves = ", its halves of one" if (table.kind == OpKind.I).any() else ""
    all_ranks = "; all with --json" if result["pp"] > text.MANY else ""
    size = f"{counted(result['pp'], 'rank')}{stages}, {counted(result['microbatches'], 'microbatch')}"
    size += f" of {table.slices} slices" * (table.slices > 1)
    options = f" {result['options']}" if result["options"] else ""
    yield f"{result['schedule']}{options}, {size}; transfers {result['p2p']}{allreduce}"
    if result.get("links"):
        sender = DEFAULT if run.system is None else run.system.framework.packaged or "its framework"
        calls = f"; transfers as {sender} sends" * (run.p2p == run.point.usual_p2p != "overlapped")
        yield f"links               {result['links']}{calls}"
    yield f"makespan            {result['makespan_s']:.6g} s{'  (the pipeline alone)' if has_layout else ''}"
    ideal, span = (f"{result[f'bubble_ratio_{name}']:z.4f}" for name in ("ideal", "span"))
    ratios = f"(over the ideal time {ideal}, over the longest span {span})"
    yield f"idle ratio          {result['idle_ratio']:z.4f}  {ratios}"
    yield f"table bubble ratio  {result['table_bubble_ratio']:.4f}  (no communication, backward of two slots{halves})"
    peaks = text.by_rank(result["peak_activations_by_rank"])
    yield f"peak activations    {peaks}  (microbatches on 1/S of the model, by rank{all_ranks})"
    if table.has_shards and run.model is None:
        yield "output layer        S, T and their collectives take no time: give a model and a system"
    if run.ordered_for is not None:
        yield f"ordered for         {run.ordered_for}  (forward, halves of the backward, transfer; --times, --held)"


def _memory(result, member, remark=""):
    """How uneven stages are, and whether memory suffices, with a remark if it does not."""
    if uneven := text.unevenness(result):
        yield f"uneven stages       {uneven}"
    size, capacity = (text.gibibytes(result[name]) for name in ("peak_memory_bytes", "memory_capacity_bytes"))
    if (fits := text.fit_text(result)) in ("tight", "may not fit"):
        remark = f"; {text.margin_text()}"
    yield f"memory              {size} GiB on the most loaded {member}, of {capacity}{fits and f': {fits}{remark}'}"


def _model_and_system(run):
    framework = run.system.framework
    yield f"model               {run.model.name}: {text.size_text(run.model)}"
    yield f"system              {run.system.name}: {text.network_text(run.system, 'GPUs' if run.layout else 'ranks')}"
    yield f"framework           {text.framework_text(run.system)}{f': {framework.title}' if framework.name else ''}"
    if remark := text.peaks_text(run.system):
        yield f"peaks               {remark}"


def _iteration(result, run):
    """The whole iteration of a layout: its time by part, its rate, and the memory of a GPU."""
    seconds = result["iteration_s"]
    names = [name for name in ("pp", *DIMENSIONS, "zero") if result[name] is not None]
    sizes = ", ".join(f"{name} {result[name]}" for name in names)
    asked, usual = run.point.layout, LayoutSpec(pp=run.layout.pp, zero=run.layout.zero).under(run.system.framework)
    words = ((name, getattr(asked, name)) for name in LAYOUT_KEYWORDS if name not in (*DIMENSIONS, *_SAID))
    words = [(name, value) for name, value in words if value not in (None, getattr(usual, name))]
    others = "".join(
        f", {name} {value:g}" if isinstance(value, float) else f", {name} {value}" for name, value in words
    )
    yield f"layout              {counted(result['gpus'], 'GPU')}: {sizes}{others}"
    yield f"layers              {result['stage_layers']}"
    mean = " on average" * (run.layout.lengths != "equal")
    yield (
        f"iteration           {seconds:.6g} s{text.range_text(result)} "
        f"for {counted(result['global_batch'], 'sequence')} of {run.model.sequence} tokens{mean}: "
        f"{result['tokens_per_s_per_gpu']:.4g} tokens/s per GPU, {text.mfu_text(result)}"
    )
    yield f"range               {text.range_from(result)}"
    for name in PARTS:
        if abs(result[name]) > _LEAST * seconds:
            yield f"  {HEADINGS[name]:<18}{result[name]:>9.4g} s {result[name] / seconds:>7.1%}"
    yield from _memory(result, "GPU")
    parts = [(name.removesuffix("_bytes"), result[name]) for name in MEMORY_PARTS if result[name]]
    yield "                    " + ", ".join(f"{name} {text.gibibytes(size)}" for name, size in parts)
