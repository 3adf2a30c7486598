"""STP's measurements, and what the model says of the same runs."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ppmodel import formulas
from ppmodel.clusters.costs import PARTS, stages
from ppmodel.clusters.specs import DATA, LayoutSpec, load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.metrics import exposed_passes, peak_activations
from ppmodel.metrics.bubbles import busy_s
from ppmodel.ops import OpKind
from ppmodel.schedules import build
from ppmodel.schedules.cases import as_case, built
from ppmodel.simulation import OpCosts, compile_graph, run_graph
from ppmodel.studies.points import columns_of, frame_of, resolve, rows_of

SCHEDULES = {"1f1b_i": ("interleaved-1f1b", {"chunks": 2}), "zb_v": "zb-v", "stp": "stp"}
"""The three that were measured, by their columns."""

SHARE = 0.275
"""What all-reduces take of a layer's forward with eight tensor-parallel GPUs and sequences of 6,144 (section 1)."""

_SHARE_AT = {"model": "stp_12b", "tp": 8, "sequence": 6144}
_MODELS = {"12.1B": "stp_12b", "26.3B": "stp_26b"}
_AT_ONCE = 1e30  # bytes per second
_BUBBLES = {
    "1f1b_i": formulas.pipeline_bubble_interleaved, "zb_v": formulas.pipeline_bubble_zb_v,
    "stp": formulas.pipeline_bubble_stp,
}  # fmt: skip


def offloads(share=1.0):
    """How STP offloads the first chunk of each rank, as values of a layout: all in the warm-up, later a share of it.

    Parameters
    ----------
    share : float
        Not published; 1 is the most.

    Returns
    -------
    dict

    Examples
    --------
    >>> offloads(0.5)
    {'offload_warm_up': 1.0, 'offload': 0.5}
    """
    return {"offload_warm_up": 1.0, "offload": share}


def load_throughputs(name="throughput"):
    """Measured throughputs whose layout is stated, with the gain of STP on either of the other two.

    Parameters
    ----------
    name : {"throughput", "answers"}
        The paper's Table 6, or the authors' answers to its reviews.

    Returns
    -------
    DataFrame
        The file's columns; ``context`` and ``data`` parallelism; ``gain_1f1b_i`` and ``gain_zb_v``: throughput of STP
        over theirs, less 1.

    Examples
    --------
    >>> round(float(load_throughputs().gain_1f1b_i.max()), 3)
    0.111
    """
    file = pd.read_csv(DATA / "reference" / f"stp_{name}.csv").dropna(subset="tensor")
    rows = pd.DataFrame({"context": 1, "data": 1} | file.to_dict("list"))
    rows = rows.astype(dict.fromkeys(("tensor", "pipeline", "context", "data", "batch"), int))
    return rows.assign(gain_1f1b_i=rows.stp / rows["1f1b_i"] - 1, gain_zb_v=rows.stp / rows.zb_v - 1)


def one_constant(share=SHARE):
    """A system on which only floating-point operations, all-reduces of the tensor group and offloading take time.

    The paper's constant says nothing of offloading, so the link to the host is as fast, relative to the computing, as
    on the machine.

    Parameters
    ----------
    share : float
        What all-reduces take of the forward of a layer, 0 to 1, with eight GPUs and sequences of 6,144: the one
        constant. It sets the bandwidth inside a node. The machine gives the peak, of which only ratios to bandwidths
        count, the nodes and the link to the host.

    Returns
    -------
    SystemSpec

    Examples
    --------
    >>> slow, fast = (one_constant(share).nodes.node_bandwidth_bytes_per_s for share in (0.5, 0.25))
    >>> round(fast / slow, 9)
    3.0
    """
    if not 0 < share < 1:
        raise PPModelError("share", share, "must lie between 0 and 1", "write, for example, 0.275")
    machine = load_system("a800")
    bare = replace(
        machine, name=f"share {share:g}", compute_efficiency=1.0, compute_latency_s=0.0, memory_latency_s=0.0,
        memory_bandwidth_bytes_per_s=_AT_ONCE, network_bandwidth_bytes_per_s=_AT_ONCE, network_latency_s=0.0,
        kernels=None, collectives=None,
        nodes=replace(machine.nodes, node_latency_s=0.0, node_bandwidth_bytes_per_s=1.0),
    )  # fmt: skip
    computing, exposed = layer_s(system=bare, **_SHARE_AT)
    bandwidth = exposed / computing * (1 - share) / share
    link = machine.host_bandwidth_bytes_per_s * layer_s(system=machine, **_SHARE_AT)[0] / computing
    nodes = replace(bare.nodes, node_bandwidth_bytes_per_s=bandwidth)
    return replace(bare, nodes=nodes, host_bandwidth_bytes_per_s=link)


def layer_s(model, system, tp, sequence):
    """Seconds of a layer's forward on one GPU: its kernels, and its tensor-parallel collectives.

    Parameters
    ----------
    model : str
    system : SystemSpec
    tp : int
    sequence : int
        Tokens of a sequence; the microbatch has one.

    Returns
    -------
    tuple of float

    Examples
    --------
    >>> computing, exposed = layer_s("stp_12b", one_constant(), 8, 6144)
    >>> round(exposed / (computing + exposed), 6)
    0.275
    """
    spec = replace(load_model(model), sequence=sequence)
    layers = (1, 1, spec.blocks - 2)
    middle = stages(build("1f1b", 3, 3), spec, system, layout=LayoutSpec(pp=3, tp=tp, layers=layers))[1]
    return float(middle.parts_s[0, PARTS.index("computing")]), float(middle.parts_s[0, PARTS.index("tensor")])


def run_of(row):
    """A measured run as keywords of `compare`.

    Parameters
    ----------
    row : namedtuple
        Of `load_throughputs`.

    Returns
    -------
    dict
        Stages have the same number of layers, but the last two less.

    Examples
    --------
    >>> run_of(next(load_throughputs().itertuples()))["layers"]
    (4, 4, 4, 4, 4, 4, 4, 2)
    """
    model = replace(load_model(_MODELS[row.model]), sequence=int(row.sequence))
    num_stages = 2 * row.pipeline
    layers = (model.blocks + 2) // num_stages
    return {
        "pp": row.pipeline, "model": model, "tp": row.tensor, "cp": row.context, "dp": row.data,
        "global_batch": row.batch, "layers": (layers,) * (num_stages - 1) + (layers - 2,),
    }  # fmt: skip


def as_run(schedules, pp, **given):
    """Compare schedules in a layout that was run: none of its options is our choice, so none is told to be left out.

    Parameters
    ----------
    schedules, pp, **given
        As in `ppmodel.compare`.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> run = run_of(next(load_throughputs().itertuples()))
    >>> as_run(["zb-v", "stp"], system=one_constant(), **run).label.tolist()
    ['ZB-V', 'STP']
    """
    grid = resolve(schedules, pp, **given)
    return frame_of(columns_of(grid), rows_of(grid.points()))


def predict(rows, system, zb_v="exposed", **options):
    """What the model says of measured runs.

    Parameters
    ----------
    rows : DataFrame
        From `load_throughputs`.
    system : SystemSpec
    zb_v : {"exposed", "hidden"}
        The all-reduces of ZB-V's backward: exposed, as the paper's Table 1 has them; or hidden under weight gradients,
        as those of the other two are here.
    **options
        Further keywords of `compare`.

    Returns
    -------
    DataFrame
        The rows, with ``ours_1f1b_i`` and ``ours_zb_v``, the predicted gains of STP, and ``off_1f1b_i`` and
        ``off_zb_v``, what they are above the measured ones.

    Examples
    --------
    >>> rows = predict(load_throughputs().head(1), one_constant())
    >>> bool(abs(rows.off_1f1b_i.item()) < 0.025)
    True
    """
    seconds = pd.DataFrame(index=rows.index, columns=[*SCHEDULES], dtype=float)
    for name, case in SCHEDULES.items():
        given = {"overlap_backward": name != "zb_v" or zb_v == "hidden", **options}
        frames = [as_run([case], system=system, **run_of(row), **given) for row in rows.itertuples(index=False)]
        seconds[name] = pd.concat(frames).iteration_s.to_numpy()
    gains = {name: seconds[name] / seconds.stp - 1 for name in ("1f1b_i", "zb_v")}
    rows = rows.assign(**{f"ours_{name}": gain for name, gain in gains.items()})
    return rows.assign(**{f"off_{name}": gain - rows[f"gain_{name}"] for name, gain in gains.items()})


def table_of(name, num_ranks, num_microbatches):
    """The table of one of the three schedules, by its column in `SCHEDULES`."""
    return built(as_case(SCHEDULES[name]), num_ranks, num_microbatches)


def sizes(name, max_pp, max_microbatches):
    """Sizes (S, B) that STP and one of the three schedules are defined at.

    Examples
    --------
    >>> sizes("1f1b_i", 2, 8)
    [(2, 6), (2, 8)]
    """
    return [
        (ranks, count)
        for ranks in range(2, max_pp + 1)
        for count in range(3 * ranks - 1, max_microbatches + 1)
        if name != "1f1b_i" or count % ranks == 0
    ]


def beside_table_1(name, max_pp, max_microbatches):
    """Counts of a schedule's tables, less those that STP's Table 1 states.

    Parameters
    ----------
    name : str
        One of `SCHEDULES`.
    max_pp, max_microbatches : int
        As in `sizes`.

    Returns
    -------
    DataFrame
        One row per size; columns ``schedule, pp, microbatches, exposed_first, exposed_most, peak_first, peak_most,
        peak_without``: exposed all-reduces in those of a pass over a chunk, and chunks at the peak, of the first and
        the most loaded rank, less the published ones; the last if an input gradient frees all that it needs.

    Examples
    --------
    >>> beside_table_1("stp", 2, 5)[["exposed_first", "exposed_most", "peak_most"]].values.tolist()
    [[0.0, 1.0, 1.0]]
    """
    rows = []
    for ranks, count in sizes(name, max_pp, max_microbatches):
        exposed, peak = {
            "1f1b_i": (2 * count, 3 * ranks - 2), "zb_v": (4 * count, 2 * ranks), "stp": (2 * ranks + 1, 3 * ranks),
        }[name]  # fmt: skip
        table = table_of(name, ranks, count)
        passes, chunks = exposed_passes(table) - exposed, 2 * peak_activations(table) - peak
        without = 2 * peak_activations(table, held_for_weight_grad=0.0) - peak
        rows.append((table.name, ranks, count, passes[0], passes.max(), chunks[0], chunks.max(), without.max()))
    columns = "schedule pp microbatches exposed_first exposed_most peak_first peak_most peak_without"
    return pd.DataFrame(rows, columns=columns.split())


def pipeline_bubbles(name, times, max_pp):
    """The pipeline bubbles of a schedule beside the published ones, at B = 3S.

    Parameters
    ----------
    name : str
        One of `SCHEDULES`.
    times : tuple of float
        F, I, W and A of one chunk, as in `idle_s`.
    max_pp : int

    Returns
    -------
    DataFrame
        One row per S; columns ``schedule, pp, published, least, most, within_span``: idle time of the rank that waits
        least and most, and the least within a rank's span.

    Examples
    --------
    >>> pipeline_bubbles("stp", (10, 10, 10, 3), 3)[["pp", "published", "least"]].values.tolist()
    [[2.0, 13.0, 13.0], [3.0, 26.0, 26.0]]
    """
    rows = []
    for ranks in range(2, max_pp + 1):
        table = table_of(name, ranks, 3 * ranks)
        idle, span = idle_s(table, *times)
        rows.append((table.name, ranks, _BUBBLES[name](ranks, *times), idle.min(), idle.max(), span))
    return pd.DataFrame(rows, columns=["schedule", "pp", "published", "least", "most", "within_span"])


def idle_s(table, forward, input_grad, weight_grad, all_reduce):
    """Idle time where forwards and input gradients expose their all-reduces alone, and nothing else does.

    Parameters
    ----------
    table : Schedule
    forward, input_grad, weight_grad, all_reduce : float
        Times F, I, W and A of one chunk.

    Returns
    -------
    ranks : ndarray of float, shape (num_ranks,)
        Makespan less computing time, in which exposed all-reduces count.
    span : float
        The least of them within a rank's span from its first to its last operation.

    Examples
    --------
    >>> idle_s(table_of("stp", 4, 12), 10, 10, 10, 3)
    (array([48., 45., 42., 39.]), 39.0)
    """
    seconds = {OpKind.F: forward, OpKind.B: input_grad + weight_grad, OpKind.I: input_grad, OpKind.W: weight_grad}
    compute = np.zeros((len(OpKind), table.num_stages))
    for kind, duration in seconds.items():
        compute[kind] = duration + all_reduce * (kind in (OpKind.F, OpKind.I))
    pairs = {
        key: (seconds[OpKind(key[0])] + seconds[OpKind(key[2])]) / (compute[key[0], 0] + compute[key[2], 0])
        for key in table.pairs.keys
    }
    none = np.zeros_like(compute)
    timeline = run_graph(compile_graph(table), OpCosts(compute, none, none, pairs=pairs or None))
    busy = busy_s(timeline)
    return timeline.makespan_s - busy, float(timeline.longest_span_s - busy.max())
