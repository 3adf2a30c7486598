"""The columns of every frame, of a sweep's rows and of the command line's JSON: one table that all of them read."""

from typing import NamedTuple

from ppmodel.specs.layout import layout_options


class Column(NamedTuple):
    """A column of the rows that `points` computes.

    Parameters
    ----------
    name : str
    type : type
        ``int``, ``float``, ``bool`` or ``str``; a value that does not exist is None.
    unit : str
        SI; empty if the column has no dimension.
    heading : str
        For tables and figures.
    doc : str
        What it is, in one line.
    group : str
        ``schedule``, ``system``, ``noise``, ``seconds``, ``links``, ``change``, ``layout``, ``result``, ``iteration``
        or ``remark``; frames have the columns of a group all together, or not at all.
    """

    name: str
    type: type
    unit: str
    heading: str
    doc: str
    group: str


_GROUPS = {
    "schedule": (
        ("schedule", str, "", "schedule", "name of the schedule"),
        ("options", str, "", "options", "its options, as in chunks=2"),
        ("label", str, "", "schedule", "its name in figures, options included"),
        ("pp", int, "", "S", "ranks of the pipeline"),
        ("microbatches", int, "", "B", "microbatches per iteration"),
        ("p2p", str, "", "transfers", "what a transfer occupies"),
        ("allreduce", str, "", "all-reduce", "what the gradient all-reduce of replicated stages does"),
    ),
    "system": (
        ("system", str, "", "system", "the cluster"),
        ("model", str, "", "model", "the model"),
        ("framework", str, "", "framework", "the training framework; empty if a fitted system does not name its own"),
    ),
    "noise": (
        ("jitter", float, "", "jitter", "standard deviation of the logarithm of an operation's time"),
        ("straggling", float, "", "straggling", "probability that a rank is slow"),
        ("slowdown", float, "", "slowdown", "time of an operation on a slow rank over that on another"),
        ("seed", int, "", "seed", "seed of the noisy run"),
    ),
    "seconds": (
        ("forward", float, "s", "F", "forward of one microbatch on 1/S of the model"),
        ("backward", float, "s", "Bw", "its backward; each of its halves takes half of it"),
        ("input_grad", float, "s", "I", "its gradient of the input; with weight_grad, instead of backward"),
        ("weight_grad", float, "s", "W", "its gradient of the weights; with input_grad"),
        ("pair", float, "s", "F&B", "a forward and a backward in one cell, F&B; by default their sum"),
        ("comm", float, "s", "c", "one transfer (default 0); not divided among chunks"),
        ("latency", float, "s", "latency", "what a transfer takes beyond the time for which it occupies its link"),
        ("reduction", float, "s", "R", "gradient all-reduce of 1/S of the model"),
        ("optimizer", float, "s", "O", "optimizer step of 1/S of the model"),
    ),
    "links": (("links", str, "", "links", "the links that differ from the others, with delays in seconds"),),
    "change": (("change", str, "", "change", "what is changed of the system and its costs"),),
    "layout": (
        ("layout", str, "", "layout", "name of the layout; empty if any of its values was overridden"),
        *(
            (name, str if option.words else option.type, "", name, option.help)
            for name, option in layout_options(column=True)
        ),
    ),
    "result": (
        ("makespan_s", float, "s", "time", "from the first operation's start to the last one's end"),
        ("busy_s", float, "s", "computing", "computing time, summed over ranks"),
        ("idle_ratio", float, "", "idle", "idle time over total time, of all ranks"),
        ("bubble_ratio_total", float, "", "bubble", "the same (Huang et al., 2019)"),
        ("bubble_ratio_ideal", float, "", "bubble over computing", "idle over computing time (Narayanan et al., 2021)"),
        ("bubble_ratio_span", float, "", "bubble in the span", "idle over a rank's longest span (Qi et al., 2024)"),
        ("table_bubble_ratio", float, "", "table bubble", "idle share of the idealised table, without communication"),
        ("peak_activations", float, "", "peak activations", "of the most loaded rank, in microbatches on 1/S of it"),
        ("messages", int, "", "messages", "point-to-point messages, over all ranks"),
        ("comm_over_forward", float, "", "c/F", "the slowest transfer over the mean forward"),
        ("peak_memory_bytes", float, "B", "memory", "bytes on the most loaded rank; with a layout, on one of its GPUs"),
        ("activations_bytes", float, "B", "activations", "bytes of its activations"),
        ("memory_capacity_bytes", float, "B", "capacity", "memory of a device"),
        ("slowest_over_mean", float, "", "unevenness", "the longest computing time of a rank over the mean"),
        ("nics_shared", bool, "", "shared NICs", "whether transfers queue at shared NICs"),
    ),
    "iteration": (
        ("iteration_s", float, "s", "iteration", "the whole iteration, with gradient reduction and optimizer"),
        ("fastest_s", float, "s", "from", "the least of nine of ten measured runs that were predicted to take as long"),
        ("slowest_s", float, "s", "to", "the most of nine of ten measured runs that were predicted to take as long"),
        ("tokens_per_s_per_gpu", float, "1/s", "tokens/s per GPU", "training rate of a GPU"),
        ("model_flops_utilization", float, "", "MFU", "FLOPs of the model, masked scores too, over the GPUs' peak"),
        ("computing_s", float, "s", "computing", "computing, including recomputation"),
        ("tensor_s", float, "s", "tensor parallel", "collectives of tensor parallelism that nothing hides"),
        ("context_s", float, "s", "context parallel", "collectives of context parallelism that nothing hides"),
        ("expert_s", float, "s", "expert parallel", "collectives of expert parallelism that nothing hides"),
        ("p2p_s", float, "s", "point to point", "what transfers between stages add to the makespan"),
        ("bubble_s", float, "s", "bubble", "idle time of the same pipeline if transfers took no time"),
        (
            "data_s", float, "s", "data parallel",
            "gradient reduction and gathering of parameters that nothing hides, and waiting for the slowest rank",
        ),
        ("optimizer_s", float, "s", "optimizer", "the optimizer step"),
        ("offload_s", float, "s", "offloading", "what waiting for offloaded activations adds to the makespan"),
        ("weights_bytes", float, "B", "weights", "weights on the most loaded GPU"),
        ("gradients_bytes", float, "B", "gradients", "their gradients"),
        ("optimizer_bytes", float, "B", "optimizer", "optimizer state"),
        ("working_bytes", float, "B", "working", "a recomputed block's activations, gathered weights and gradients"),
        ("logits_bytes", float, "B", "logits", "logits of a microbatch, except what the backward needs of them"),
        ("buffers_bytes", float, "B", "buffers", "communication buffers"),
        ("reserve_bytes", float, "B", "reserve", "memory that a run cannot use"),
        ("fits", bool, "", "fits", "whether every GPU has enough memory"),
        ("fit", str, "", "fit", "the same with a margin: fits, tight, may not fit, does not fit"),
        ("stage_layers", str, "", "layers", "of each stage, for Megatron-LM's --pipeline-model-parallel-layout"),
    ),
    "remark": (
        ("ordered_for", str, "", "ordered for", "the times and the held fraction that an order was searched for"),
        ("refused", str, "", "refused", "why the combination is not defined; its numbers are then empty"),
    ),
}  # fmt: skip
COLUMNS = tuple(Column(*entry, group) for group, entries in _GROUPS.items() for entry in entries)
"""Every column, in the order in which frames have them."""


def column_names(*groups):
    """The names of the columns of some groups, in order.

    Parameters
    ----------
    *groups : str
        As in `Column`.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> column_names("change", "remark")
    ('change', 'ordered_for', 'refused')
    """
    return tuple(column.name for column in COLUMNS if column.group in groups)


SECONDS = column_names("seconds")
"""Costs that may be given in seconds, instead of a model and a system; see `costs.uniform_costs`."""

NUMBERS = column_names("result")
"""The columns with the results of a point."""

ENDS = "iteration_s", "fastest_s", "slowest_s"
"""An iteration's predicted time, and the ends of the range in which it was measured to be."""

HEADINGS = {column.name: column.heading for column in COLUMNS}
"""The heading of each column."""

PARTS = {name: HEADINGS[name] for name in column_names("iteration") if name.endswith("_s") and name not in ENDS}
"""The parts of an iteration's time on its most loaded rank, with their headings; they sum to ``iteration_s``."""

MEMORY_PARTS = (
    "weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "working_bytes", "logits_bytes",
    "buffers_bytes", "reserve_bytes",
)  # fmt: skip
"""The parts of a GPU's memory on the most loaded rank; they sum to ``peak_memory_bytes``."""
