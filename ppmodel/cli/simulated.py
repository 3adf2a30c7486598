"""A simulated run as lines of text."""

from ppmodel.cli.text import MANY, TIGHT, by_rank, counted, gibibytes, in_words, uneven_text
from ppmodel.costs import parameters
from ppmodel.ops import OpKind
from ppmodel.points import HEADINGS, MEMORY_PARTS, PARTS

_LEAST = 1e-9


def simulated_text(result, run, not_kept=""):
    """Format what ``simulate`` prints.

    Parameters
    ----------
    result : dict
        As in the JSON output.
    run : Run
    not_kept : str
        What to add about the layout.

    Returns
    -------
    str
    """
    table = run.table
    cut = f", {table.num_stages} stages" if table.num_stages != table.num_ranks else ""
    halves = ", its halves of one" if (table.kind == OpKind.I).any() else ""
    lines = [
        f"{result['schedule']}, {counted(result['pp'], 'rank')}{cut}, "
        f"{counted(result['microbatches'], 'microbatch')}; "
        f"transfers {result['p2p']}" + ("" if "tp" in result else f", all-reduce {result['allreduce']}"),
        f"makespan            {result['makespan_s']:.6g} s{'  (the pipeline alone)' if 'tp' in result else ''}",
        f"idle ratio          {result['idle_ratio']:z.4f}  (over the ideal time {result['bubble_ratio_ideal']:z.4f}, "
        f"over the longest span {result['bubble_ratio_span']:z.4f})",
        f"table bubble ratio  {result['table_bubble_ratio']:.4f}  (no communication, backward of two slots{halves})",
        f"peak activations    {by_rank(result['peak_activations_by_rank'])}  "
        f"(microbatches on 1/S of the model, by rank{'; all with --json' if result['pp'] > MANY else ''})",
    ]
    if result["ordered_for"] is not None:
        lines.append(
            f"ordered for         {result['ordered_for']}  (forward, halves of the backward, transfer; --times, --held)"
        )
    if "iteration_s" in result:
        lines += [*_named(run), *_iteration(result, run.model.sequence, not_kept)]
    elif "model" in result:
        lines += [*_specified(result), *_named(run)]
    if "nodes" in result:
        lines += _nodes(result["nodes"], run)
    if "trace" in result:
        lines.append(f"trace               {result['trace']}, {result['trace_events']} events")
    return "\n".join(lines)


def _named(run):
    """Model and system with the numbers that show a slip in their files: parameters, and bandwidth in both units."""
    count, bandwidth = parameters(run.model), run.system.network_bandwidth_bytes_per_s
    active = f", {in_words(count.active)} active" if run.model.experts else ""
    yield f"model               {run.model.name}: {in_words(count.total)} parameters{active}"
    members, nodes = "ranks" if run.layout is None else "GPUs", run.system.nodes
    ends = f"between {'nodes' if nodes else members}"
    inside = f", {nodes.node_bandwidth_bytes_per_s / 1e9:.4g} GB/s inside" if nodes else ""
    network = f"{bandwidth / 1e9:.4g} GB/s ({bandwidth / 125e6:.4g} Gbit/s)"
    yield f"system              {run.system.name}: {network} {ends}{inside}"


def _specified(result):
    """Microbatch, balance, and the memory of the most loaded rank."""
    held, room = result["peak_memory_bytes"], result["memory_capacity_bytes"]
    fits = "" if held <= room else ": does not fit"
    if fits and result["microbatch_sequences"] > 1:
        fits += f"; with more microbatches, each would have fewer than {result['microbatch_sequences']} sequences"
    yield f"microbatch          {counted(result['microbatch_sequences'], 'sequence')}"
    if uneven_text(result):
        yield f"uneven stages       {uneven_text(result)}"
    yield f"memory              {gibibytes(held)} GiB on the most loaded rank, of {gibibytes(room)}{fits}"


def _iteration(result, length, not_kept):
    """The whole iteration of a layout: its time by part, its rate, and the memory of a GPU."""
    seconds, sizes = result["iteration_s"], ", ".join(f"{name} {result[name]}" for name in ("tp", "cp", "ep", "dp"))
    sizes = f"pp {result['pp']}, {sizes}, zero {result['zero']}"
    yield f"layout              {counted(result['gpus'], 'GPU')}: {sizes}{not_kept}"
    yield (
        f"iteration           {seconds:.6g} s for {counted(result['global_batch'], 'sequence')} of {length} tokens: "
        f"{result['tokens_per_s_per_gpu']:.4g} tokens/s per GPU, "
        f"{result['model_flops_utilization']:.1%} of the peak (MFU)"
    )
    for name in PARTS:
        if abs(result[name]) > _LEAST * seconds:
            yield f"  {HEADINGS[name]:<18}{result[name]:>9.4g} s {result[name] / seconds:>7.1%}"
    if uneven_text(result):
        yield f"uneven stages       {uneven_text(result)}"
    held, room = result["peak_memory_bytes"], result["memory_capacity_bytes"]
    yield f"memory              {gibibytes(held)} GiB on the most loaded GPU, of {gibibytes(room)}{_fits(held, room)}"
    parts = [(name.removesuffix("_bytes"), result[name]) for name in MEMORY_PARTS if result[name]]
    yield "                    " + ", ".join(f"{name} {gibibytes(size)}" for name, size in parts)


def _fits(held, room):
    """What is to be said of a layout's memory: nothing where it fits with room to spare."""
    from ppmodel.measured import is_tight, memory_errors

    if is_tight(held, room):
        return f": {TIGHT} ({max(memory_errors().values()):.0%})"
    return "" if held <= room else ": does not fit"


def _nodes(nodes, run):
    """Nodes, and the messages inside and between them."""
    placement = nodes["placement"] if isinstance(nodes["placement"], str) else "by the file's list"
    way = " through shared NICs" if nodes["nics"] == "held" else ""
    members = "ranks" if run.layout is None else "GPUs"
    yield f"nodes               {nodes['used']} of up to {nodes['devices_per_node']} {members}, {placement}"
    yield f"messages            {nodes['messages_inside']} inside nodes, {nodes['messages_between']} between them{way}"
    if nodes["nics"].startswith("not occupied"):
        yield f"shared NICs         {nodes['nics']}"
