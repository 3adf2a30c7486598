"""The quantities that STP's claims ask for, by name, from tables and for the runs that were measured."""

from dataclasses import replace
from functools import cache

from pandas import concat

from ppbook.stp import SCHEDULES, idle_s, layer_s, load_throughputs, offloads, one_constant, predict, run_of, table_of
from ppmodel import formulas
from ppmodel.metrics import exposed_passes, peak_activations
from ppmodel.points import compare
from ppmodel.points.change import WITHOUT_NETWORK
from ppmodel.specs import CollectiveSpec, load_model, load_system

ANCHOR = "one constant"
_CONTENTION = 1.169  # fitted to data/reference/stp_overlap.csv on the page
_LONGEST_MICROBATCHES, _LARGEST_RANKS = 64, 8
_TIMES = {"equal": (10, 10, 10, 3), "unequal": (10, 12, 8, 3)}
_FORMULAS = {"1f1b_i": "interleaved", "zb_v": "zb_v", "stp": "stp"}
_TAKES = {"largest": lambda off: float(off.iloc[off.abs().argmax()]), "mean": lambda off: float(off.abs().mean())}

STP_QUANTITIES = {}
"""Every quantity of STP's claims by its name in ``data/claims.yaml``: functions of an assumption and of criteria."""


def _quantity(function):
    STP_QUANTITIES[function.__name__] = cache(function)
    return function


@cache
def stp_assumptions():
    """Ways to fill in what STP's paper leaves open, by name: a system and further keywords of `compare`.

    Examples
    --------
    >>> [*stp_assumptions()][0]
    'one constant'
    """
    bare, machine = one_constant(), load_system("a800")
    slowed = replace(bare, collectives=CollectiveSpec(contention=_CONTENTION))
    return {
        ANCHOR: (bare, {}),
        "one constant, contention": (slowed, {}),
        "cost model": (machine, {}),
        "cost model, no transfers": (machine, {"changes": WITHOUT_NETWORK}),
        "cost model, blocking transfers": (machine, {"p2p": "blocking"}),
    }


# ---- tables --------------------------------------------------------------------------------------


def _sizes(name):
    return [
        (ranks, count)
        for ranks in range(2, _LARGEST_RANKS + 1)
        for count in range(3 * ranks - 1, _LONGEST_MICROBATCHES + 1)
        if name != "1f1b_i" or count % ranks == 0
    ]


@_quantity
def exposed_more(_, of, ranks):
    """Exposed all-reduces of the first or the most loaded rank minus the published number: the largest difference."""
    published = {
        "1f1b_i": lambda _, count: 2 * count,
        "zb_v": lambda _, count: 4 * count,
        "stp": lambda s, _: 2 * s + 1,
    }
    passes = {size: exposed_passes(table_of(of, *size)) for size in _sizes(of)}
    found = [(one[0] if ranks == "first" else one.max()) - published[of](*size) for size, one in passes.items()]
    return float(max(found, key=abs))


@_quantity
def exposed_less(_):
    """Share of interleaved 1F1B's exposed all-reduces that STP's most loaded rank hides: the least in Table 6."""
    sizes = {(row.pipeline, row.batch) for row in load_throughputs().itertuples()}
    return min(1 - exposed_passes(table_of("stp", *size)).max() / (2 * size[1]) for size in sizes)


@_quantity
def bubble_more(_, of, times):
    """Least idle time of any rank over the published pipeline bubble, minus 1: the largest difference."""
    form = getattr(formulas, f"pipeline_bubble_{_FORMULAS[of]}")
    found = []
    for ranks in range(2, _LARGEST_RANKS + 1):
        count = 3 * ranks + (-3 * ranks) % ranks
        idle, _span = idle_s(table_of(of, ranks, count), *_TIMES[times])
        found.append(idle.min() / form(ranks, *_TIMES[times]) - 1)
    return float(max(found, key=abs))


@_quantity
def peak_more(_, weight_grads):
    """Chunks at STP's peak minus the published 3S: the largest difference."""
    held = {} if weight_grads == "hold" else {"held_for_weight_grad": 0.0}
    return float(
        max(2 * peak_activations(table_of("stp", *size), **held).max() - 3 * size[0] for size in _sizes("stp"))
    )


@_quantity
def peak_ratio(_, over):
    """Peak activations of STP over those of another schedule, minus 1: the smallest value."""
    found = [
        peak_activations(table_of("stp", *size)).max() / peak_activations(table_of(over, *size)).max()
        for size in _sizes(over)
    ]
    return float(min(found)) - 1


# ---- runs ----------------------------------------------------------------------------------------


@cache
def _predicted(assumption, name, zb_v="exposed"):
    system, options = stp_assumptions()[assumption]
    return predict(load_throughputs(name), system, zb_v=zb_v, **options)


@_quantity
def gain_off(assumption, over, zb_v="exposed", rows="throughput", of="largest"):
    """Predicted gain of STP minus the measured one: the largest over all rows, or the mean of absolute values."""
    return _TAKES[of](_predicted(assumption, rows, zb_v)[f"off_{over}"])


@_quantity
def run_gain(assumption, over, zb_v="exposed", rows="throughput", of="max"):
    """Predicted gain of STP: the largest or the smallest over all rows."""
    return float(getattr(_predicted(assumption, rows, zb_v)[f"ours_{over}"], of)())


@_quantity
def deep_gain(assumption):
    """Predicted gain over interleaved 1F1B at tp 4: with eight ranks minus with four, at the most microbatches."""
    found = _predicted(assumption, "throughput")
    found = found[found.tensor == 4].groupby("pipeline").ours_1f1b_i.last()
    return float(found[8] - found[4])


def _gains(assumption, tensor, sequence, **options):
    """Seconds of the three schedules on the 12.1B model with four ranks and 64 sequences."""
    system, more = stp_assumptions()[assumption]
    spec = replace(load_model("stp_12b"), sequence=sequence)
    cases = [("interleaved-1f1b", {"chunks": 2}), "zb-v", "stp"]
    given = {"global_batch": 64, "layers": (4,) * 7 + (2,), "overlap_backward": True} | more | options
    return compare(cases, 4, model=spec, system=system, tp=tensor, **given).iteration_s.to_numpy()


@_quantity
def overlapped_gain(assumption, tensor, sequence_parallel):
    """Gain of STP, hiding nothing else, over the faster baseline whose tensor collectives run under its products."""
    hidden = _gains(assumption, tensor, 4096, overlap_tensor=True, sequence_parallel=sequence_parallel)[:2]
    return float(hidden.min() / _gains(assumption, tensor, 4096)[2]) - 1


@_quantity
def long_gain(assumption, tensor, sequence):
    """Gain of STP over the faster of the other two, for a given sequence length."""
    *others, ours = _gains(assumption, tensor, sequence)
    return float(min(others) / ours) - 1


@_quantity
def alone_gain(assumption):
    """Gain of STP over the faster of the other two without tensor parallelism."""
    return long_gain(assumption, 1, 4096)


@_quantity
def share_growth(assumption):
    """Share of a layer's forward spent in all-reduces: with eight GPUs over that with two."""
    system, _ = stp_assumptions()[assumption]
    shares = [
        exposed / (computing + exposed)
        for computing, exposed in (layer_s("stp_12b", system, tp, 6144) for tp in (2, 8))
    ]
    return shares[1] / shares[0]


@_quantity
def seconds_growth(assumption):
    """Seconds of a layer's all-reduces: with eight GPUs over those with two."""
    system, _ = stp_assumptions()[assumption]
    return layer_s("stp_12b", system, 8, 6144)[1] / layer_s("stp_12b", system, 2, 6144)[1]


# ---- memory --------------------------------------------------------------------------------------


def _stp_run(assumption, row, **layout):
    """STP's row of `compare` for a measured run under a layout; `link` multiplies the bandwidth of the host link."""
    system, more = stp_assumptions()[assumption]
    link = layout.pop("link", 1.0) * system.host_bandwidth_bytes_per_s
    given = {"overlap_backward": True, **run_of(row), **more, **layout}
    return compare("stp", system=replace(system, host_bandwidth_bytes_per_s=link), **given).iloc[0]


def _layouts():
    """The smallest run of each layout of Table 6."""
    found = load_throughputs().drop_duplicates(["model", "tensor", "pipeline"])
    return list(found.itertuples(index=False))


def _recomputed_run():
    """The run of Table 6 whose throughput matches that in the replies' table on recomputation."""
    found = load_throughputs().query("tensor == 4 and pipeline == 4 and batch == 128")
    return next(found.itertuples(index=False))


@cache
def _peaks(assumption, share):
    """Peak memory of STP in bytes in Table 6's layouts, with offloading if a share is given."""
    layout = {} if share is None else offloads(share)
    return [_stp_run(assumption, row, **layout).peak_memory_bytes for row in _layouts()]


@_quantity
def offload_saves(assumption, share, of):
    """Share of the peak memory that STP's way of offloading saves: the least or the most in Table 6's layouts."""
    plain, less = _peaks(assumption, None), _peaks(assumption, share)
    return float({"min": min, "max": max}[of](1 - one / other for one, other in zip(less, plain, strict=True)))


@_quantity
def offload_waits(assumption):
    """Share of the iteration spent waiting for the offloaded first chunks: the most in Table 6's layouts."""
    rows = [_stp_run(assumption, row, **offloads()) for row in _layouts()]
    return float(max(row.offload_s / row.iteration_s for row in rows))


@_quantity
def offload_over_recompute(assumption, link):
    """Throughput with the first chunks offloaded over that with full recomputation, minus 1, over a given host link."""
    run = _recomputed_run()
    offloaded, again = (
        _stp_run(assumption, run, **layout).iteration_s
        for layout in ({"offload": 1.0, "link": link}, {"recompute": "full"})
    )
    return float(again / offloaded) - 1


@_quantity
def peak_off(assumption, recompute, measured):
    """Predicted peak memory of STP over the measured one in GB, minus 1."""
    return float(_stp_run(assumption, _recomputed_run(), recompute=recompute).peak_memory_bytes / 1e9 / measured) - 1


@_quantity
def filled_gain(assumption, offload):
    """Gain of STP over the faster of the other two if each fills the memory, as we read Table 5."""
    system, more = stp_assumptions()[assumption]
    spec = replace(load_model("stp_12b"), sequence=8192)
    given = {"tp": 4, "global_batch": 192, "overlap_backward": True, "recompute": ["none", "selective", "full"], **more}
    given |= {"model": spec, "system": system, "microbatch_size": [1, 2, 4]}
    rows = compare([*SCHEDULES.values()], 4, **given)
    if offload:
        rows = concat([rows, compare("stp", 4, **given, **offloads())])
    best = rows[rows.fits.eq(True)].groupby("schedule").iteration_s.min()
    return float(best.drop("stp").min() / best["stp"]) - 1
