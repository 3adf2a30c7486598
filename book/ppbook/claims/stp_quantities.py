"""The quantities that STP's claims ask for, by name, from tables and for the runs that were measured.

A quantity is a function of an assumption, by its name in `stp_assumptions`, and of what its criterion gives.
"""

from dataclasses import replace
from functools import cache
from inspect import isfunction

import pandas as pd

from ppbook import stp
from ppmodel import formulas
from ppmodel.metrics import exposed_passes, peak_activations
from ppmodel.points.change import WITHOUT_NETWORK
from ppmodel.specs import CollectiveSpec, load_model, load_system

ANCHOR = "one constant"
_CONTENTION = 1.169  # fitted to data/reference/stp_overlap.csv on the page
_LONGEST_MICROBATCHES, _LARGEST_RANKS = 64, 8
_TIMES = {"equal": (10, 10, 10, 3), "unequal": (10, 12, 8, 3)}
_FORMULAS = {"1f1b_i": "interleaved", "zb_v": "zb_v", "stp": "stp"}
_TAKES = {"largest": lambda off: float(off.iloc[off.abs().argmax()]), "mean": lambda off: float(off.abs().mean())}


@cache
def stp_assumptions():
    """Ways to fill in what STP's paper leaves open, by name: a system and further keywords of `compare`.

    Examples
    --------
    >>> [*stp_assumptions()][0]
    'one constant'
    """
    bare, machine = stp.one_constant(), load_system("a800")
    slowed = replace(bare, collectives=CollectiveSpec(contention=_CONTENTION))
    return {
        ANCHOR: (bare, {}),
        "one constant with contention": (slowed, {}),
        "cost model": (machine, {}),
        "cost model without transfers": (machine, {"changes": WITHOUT_NETWORK}),
        "cost model with blocking transfers": (machine, {"p2p": "blocking"}),
    }


# ---- tables --------------------------------------------------------------------------------------


def _sizes(name):
    return [
        (ranks, count)
        for ranks in range(2, _LARGEST_RANKS + 1)
        for count in range(3 * ranks - 1, _LONGEST_MICROBATCHES + 1)
        if name != "1f1b_i" or count % ranks == 0
    ]


def exposed_more(_, of, ranks):
    """Exposed all-reduces of the first or the most loaded rank minus the published number: the largest difference."""
    differences = []
    for size in _sizes(of):
        published = {"1f1b_i": 2 * size[1], "zb_v": 4 * size[1], "stp": 2 * size[0] + 1}[of]
        passes = exposed_passes(stp.table_of(of, *size))
        differences.append((passes[0] if ranks == "first" else passes.max()) - published)
    return float(max(differences, key=abs))


def exposed_less(_):
    """Share of interleaved 1F1B's exposed all-reduces that STP's most loaded rank hides: the least in Table 6."""
    sizes = {(row.pipeline, row.batch) for row in stp.load_throughputs().itertuples()}
    return min(1 - exposed_passes(stp.table_of("stp", *size)).max() / (2 * size[1]) for size in sizes)


def bubble_more(_, of, times):
    """Least idle time of any rank over the published pipeline bubble, minus 1: the largest difference."""
    form = getattr(formulas, f"pipeline_bubble_{_FORMULAS[of]}")
    differences = []
    for ranks in range(2, _LARGEST_RANKS + 1):
        idle, _span = stp.idle_s(stp.table_of(of, ranks, 3 * ranks), *_TIMES[times])
        differences.append(idle.min() / form(ranks, *_TIMES[times]) - 1)
    return float(max(differences, key=abs))


def peak_more(_, weight_grads):
    """Chunks at STP's peak minus the published 3S: the largest difference."""
    options = {} if weight_grads == "hold" else {"held_for_weight_grad": 0.0}
    peaks = {size: 2 * peak_activations(stp.table_of("stp", *size), **options).max() for size in _sizes("stp")}
    return float(max(peak - 3 * ranks for (ranks, _), peak in peaks.items()))


def peak_ratio(_, over):
    """Peak activations of STP over those of another schedule, minus 1: the smallest value."""
    tables = [(stp.table_of("stp", *size), stp.table_of(over, *size)) for size in _sizes(over)]
    return float(min(peak_activations(ours).max() / peak_activations(other).max() for ours, other in tables)) - 1


# ---- runs ----------------------------------------------------------------------------------------


@cache
def _predicted(assumption, name, zb_v="exposed"):
    system, options = stp_assumptions()[assumption]
    return stp.predict(stp.load_throughputs(name), system, zb_v=zb_v, **options)


def gain_off(assumption, over, zb_v="exposed", rows="throughput", of="largest"):
    """Predicted gain of STP minus the measured one: the largest over all rows, or the mean of absolute values."""
    return _TAKES[of](_predicted(assumption, rows, zb_v)[f"off_{over}"])


def run_gain(assumption, over, zb_v="exposed", rows="throughput", of="max"):
    """Predicted gain of STP: the largest or the smallest over all rows."""
    return float(getattr(_predicted(assumption, rows, zb_v)[f"ours_{over}"], of)())


def deep_gain(assumption):
    """Predicted gain over interleaved 1F1B at tp 4: with eight ranks minus with four, at the most microbatches."""
    gains = _predicted(assumption, "throughput").query("tensor == 4").groupby("pipeline").ours_1f1b_i.last()
    return float(gains[8] - gains[4])


def _gains(assumption, tensor, sequence, **options):
    """Seconds of the three schedules on the 12.1B model with four ranks and 64 sequences."""
    system, keywords = stp_assumptions()[assumption]
    spec = replace(load_model("stp_12b"), sequence=sequence)
    layout = {"tp": tensor, "global_batch": 64, "overlap_backward": True}
    return stp.as_run(
        [*stp.SCHEDULES.values()], 4, model=spec, system=system, **layout, **keywords, **options
    ).iteration_s.array


def overlapped_gain(assumption, tensor, sequence_parallel):
    """Gain of STP, hiding nothing else, over the faster baseline whose tensor collectives run under its products."""
    hidden = _gains(assumption, tensor, 4096, overlap_tensor=True, sequence_parallel=sequence_parallel)[:2]
    return float(hidden.min() / _gains(assumption, tensor, 4096)[2]) - 1


def long_gain(assumption, tensor, sequence):
    """Gain of STP over the faster of the other two, for a given sequence length."""
    *baselines, stp = _gains(assumption, tensor, sequence)
    return float(min(baselines) / stp) - 1


def alone_gain(assumption):
    """Gain of STP over the faster of the other two without tensor parallelism."""
    return long_gain(assumption, 1, 4096)


def share_growth(assumption):
    """Share of a layer's forward spent in all-reduces: with eight GPUs over that with two."""
    two, eight = (stp.layer_s("stp_12b", stp_assumptions()[assumption][0], tp, 6144) for tp in (2, 8))
    return (eight[1] / sum(eight)) / (two[1] / sum(two))


def seconds_growth(assumption):
    """Seconds of a layer's all-reduces: with eight GPUs over those with two."""
    two, eight = (stp.layer_s("stp_12b", stp_assumptions()[assumption][0], tp, 6144) for tp in (2, 8))
    return eight[1] / two[1]


# ---- memory --------------------------------------------------------------------------------------


def _stp_run(assumption, run=None, **layout):
    """STP's row of `compare` for a measured run under a layout; `link` multiplies the bandwidth of the host link.

    Without a run it is that of Table 6 whose throughput matches that in the replies' table on recomputation.
    """
    runs = stp.load_throughputs().query("tensor == 4 and pipeline == 4 and batch == 128")
    run = run or next(runs.itertuples(index=False))
    system, keywords = stp_assumptions()[assumption]
    link = layout.pop("link", 1.0) * system.host_bandwidth_bytes_per_s
    keywords = {"overlap_backward": True, **stp.run_of(run), **keywords, **layout}
    return stp.as_run("stp", system=replace(system, host_bandwidth_bytes_per_s=link), **keywords).iloc[0]


@cache
def _layout_rows(assumption, share):
    """STP's rows of `compare` for the smallest run of each layout of Table 6, with offloading if a share is given."""
    runs = stp.load_throughputs().drop_duplicates(["model", "tensor", "pipeline"]).itertuples(index=False)
    layout = {} if share is None else stp.offloads(share)
    return pd.DataFrame([_stp_run(assumption, run, **layout) for run in runs]).infer_objects()


def offload_saves(assumption, share, of):
    """Share of the peak memory that STP's way of offloading saves: the least or the most in Table 6's layouts."""
    peaks, plain = (_layout_rows(assumption, kept).peak_memory_bytes.array for kept in (share, None))
    return float(getattr(1 - peaks / plain, of)())


def offload_waits(assumption):
    """Share of the iteration spent waiting for the offloaded first chunks: the most in Table 6's layouts."""
    rows = _layout_rows(assumption, 1.0)
    return float((rows.offload_s / rows.iteration_s).max())


def offload_over_recompute(assumption, link):
    """Throughput with the first chunks offloaded over that with full recomputation, minus 1, over a given host link."""
    offloaded = _stp_run(assumption, offload=1.0, link=link).iteration_s
    recomputed = _stp_run(assumption, recompute="full").iteration_s
    return float(recomputed / offloaded) - 1


def peak_off(assumption, recompute, measured):
    """Predicted peak memory of STP over the measured one in GB, minus 1."""
    return float(_stp_run(assumption, recompute=recompute).peak_memory_bytes / 1e9 / measured) - 1


def filled_gain(assumption, offload):
    """Gain of STP over the faster of the other two if each fills the memory, as we read Table 5."""
    system, keywords = stp_assumptions()[assumption]
    keywords = {"model": replace(load_model("stp_12b"), sequence=8192), "system": system, "tp": 4, **keywords}
    keywords |= {"global_batch": 192, "microbatch_size": [1, 2, 4], "recompute": ["none", "selective", "full"]}
    rows = stp.as_run([*stp.SCHEDULES.values()], 4, overlap_backward=True, **keywords)
    if offload:
        rows = pd.concat([rows, stp.as_run("stp", 4, overlap_backward=True, **keywords, **stp.offloads())])
    best = rows[rows.fits.eq(True)].groupby("schedule").iteration_s.min()
    return float(best.drop("stp").min() / best["stp"]) - 1


STP_QUANTITIES = {
    name: cache(quantity) for name, quantity in globals().items()
    if isfunction(quantity) and quantity.__module__ == __name__ and not name.startswith("_")
}  # fmt: skip
"""Every public function above, by its name in ``data/claims.yaml``."""
