"""The quantities that STP's claims ask for, by name, from tables and for the runs that were measured.

A quantity is a function of what its criterion gives, and of an assumption, by its name in `stp_assumptions`, where it
depends on one.
"""

from dataclasses import replace
from functools import cache
from inspect import isfunction

import pandas as pd

from ppbook.measured import stp
from ppmodel.clusters.specs import CollectiveSpec, load_model, load_system
from ppmodel.metrics import exposed_passes, peak_activations
from ppmodel.studies.points.change import WITHOUT_NETWORK

ANCHOR = "one constant"
_CONTENTION = 1.169  # fitted to data/reference/stp_overlap.csv on the page
_LARGEST = 8, 64  # ranks and microbatches up to which formulas are held against tables
_TIMES = {"equal": (10, 10, 10, 3), "unequal": (10, 12, 8, 3)}


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
        ANCHOR: (bare, {}), "one constant with contention": (slowed, {}), "cost model": (machine, {}),
        "cost model without transfers": (machine, {"changes": WITHOUT_NETWORK}),
        "cost model with blocking transfers": (machine, {"p2p": "blocking"}),
    }  # fmt: skip


# ---- tables --------------------------------------------------------------------------------------


def _farthest(differences):
    """The difference that is farthest from 0, of equally far ones the first."""
    return float(differences.iloc[differences.abs().argmax()])


def count_off(of, count):
    """A count of a schedule's tables minus the published one, by its column in `beside_table_1`: the largest."""
    return _farthest(stp.beside_table_1(of, *_LARGEST)[count])


def exposed_less():
    """Share of interleaved 1F1B's exposed all-reduces that STP's most loaded rank hides: the least in Table 6."""
    sizes = {(row.pipeline, row.batch) for row in stp.load_throughputs().itertuples()}
    return min(1 - exposed_passes(stp.table_of("stp", *size)).max() / (2 * size[1]) for size in sizes)


def bubble_more(of, times):
    """Least idle time of any rank over the published pipeline bubble, minus 1: the largest difference."""
    bubbles = stp.pipeline_bubbles(of, _TIMES[times], _LARGEST[0])
    return _farthest(bubbles.least / bubbles.published - 1)


def peak_ratio(over):
    """Peak activations of STP over those of another schedule, minus 1: the smallest value."""
    tables = [[stp.table_of(name, *size) for name in ("stp", over)] for size in stp.sizes(over, *_LARGEST)]
    return float(min(peak_activations(ours).max() / peak_activations(other).max() for ours, other in tables)) - 1


# ---- runs ----------------------------------------------------------------------------------------


@cache
def _predicted(assumption, name, zb_v="exposed"):
    system, options = stp_assumptions()[assumption]
    return stp.predict(stp.load_throughputs(name), system, zb_v=zb_v, **options)


def gain_off(assumption, over, zb_v="exposed", rows="throughput", of="largest"):
    """Predicted gain of STP minus the measured one: the largest over all rows, or the mean of absolute values."""
    off = _predicted(assumption, rows, zb_v)[f"off_{over}"]
    return _farthest(off) if of == "largest" else float(off.abs().mean())


def run_gain(assumption, over, zb_v="exposed", rows="throughput", of="max"):
    """Predicted gain of STP: the largest or the smallest over all rows."""
    return float(getattr(_predicted(assumption, rows, zb_v)[f"ours_{over}"], of)())


def deep_gain(assumption):
    """Predicted gain over interleaved 1F1B at tp 4: with eight ranks minus with four, at the most microbatches."""
    gains = _predicted(assumption, "throughput").query("tensor == 4").groupby("pipeline").ours_1f1b_i.last()
    return float(gains[8] - gains[4])


def _compared(assumption, schedules, link=1.0, **point):
    """Rows of `compare` where backwards hide their all-reduces; `link` multiplies the bandwidth of the host link."""
    system, keywords = stp_assumptions()[assumption]
    system = replace(system, host_bandwidth_bytes_per_s=link * system.host_bandwidth_bytes_per_s)
    return stp.as_run(schedules, system=system, overlap_backward=True, **keywords, **point)


def _seconds(assumption, tensor, sequence, **layout):
    """Seconds of the three schedules on the 12.1B model with four ranks and 64 sequences."""
    layout |= {"pp": 4, "tp": tensor, "global_batch": 64}
    spec = replace(load_model("stp_12b"), sequence=sequence)
    return _compared(assumption, [*stp.SCHEDULES.values()], model=spec, **layout).iteration_s.array


def overlapped_gain(assumption, tensor, sequence_parallel):
    """Gain of STP, hiding nothing else, over the faster baseline whose tensor collectives run under its products."""
    hidden = _seconds(assumption, tensor, 4096, overlap_tensor=True, sequence_parallel=sequence_parallel)[:2]
    return float(hidden.min() / _seconds(assumption, tensor, 4096)[2]) - 1


def lead(assumption, tensor, sequence):
    """Gain of STP over the faster of the other two, for a tensor group and a sequence length."""
    *baselines, stp = _seconds(assumption, tensor, sequence)
    return float(min(baselines) / stp) - 1


def growth(assumption, of):
    """Seconds of a layer's all-reduces, or their share of its forward: with eight GPUs over those with two."""
    two, eight = (stp.layer_s("stp_12b", stp_assumptions()[assumption][0], tp, 6144) for tp in (2, 8))
    return eight[1] / two[1] if of == "seconds" else (eight[1] / sum(eight)) / (two[1] / sum(two))


# ---- memory --------------------------------------------------------------------------------------


def _stp_run(assumption, run=None, **layout):
    """STP's row of `compare` for a measured run under a layout.

    Without a run it is that of Table 6 whose throughput matches that in the replies' table on recomputation.
    """
    runs = stp.load_throughputs().query("tensor == 4 and pipeline == 4 and batch == 128")
    run = run or next(runs.itertuples(index=False))
    return _compared(assumption, "stp", **stp.run_of(run), **layout).iloc[0]


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
    ways = {"microbatch_size": [1, 2, 4], "recompute": ["none", "selective", "full"]}
    filled = {"pp": 4, "tp": 4, "model": replace(load_model("stp_12b"), sequence=8192), "global_batch": 192, **ways}
    rows = _compared(assumption, [*stp.SCHEDULES.values()], **filled)
    if offload:
        rows = pd.concat([rows, _compared(assumption, "stp", **filled, **stp.offloads())])
    best = rows[rows.fits.eq(True)].groupby("schedule").iteration_s.min()
    return float(best.drop("stp").min() / best["stp"]) - 1


STP_QUANTITIES = {
    name: cache(quantity) for name, quantity in globals().items()
    if isfunction(quantity) and quantity.__module__ == __name__ and not name.startswith("_")
}  # fmt: skip
"""Every public function above, by its name in ``data/claims.yaml``."""
