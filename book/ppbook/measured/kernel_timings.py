"""Timings of kernels that others published, the constants fitted to them, and what a system's file has."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmodel.clusters.costs.roofline import Kernels, kernels_s
from ppmodel.clusters.costs.work import Kernel
from ppmodel.clusters.specs import DATA, CollectiveSpec, KernelSpec, load_system
from ppmodel.studies.measured import kernel_fits
from ppmodel.studies.measured.constants import with_values

TIMINGS = DATA / "reference" / "kernels"
STANDS_IN = {
    ("attention", "H100"): "H200", ("attention", "B200"): "GB200", ("products", "GB300"): "GB200",
    ("collectives", "GB300"): "GB200",
}  # fmt: skip
"""The GPU whose timings are taken where nobody published a GPU's own."""
LARGE = 2**29
"""Bytes from which on collectives between nodes count: below, the published ones wait for more than the links."""
IN_NODES = "all_gather", "reduce_scatter"
"""The collectives that constants are fitted to; of all-reduces some use the switch's own sums."""
_GPUS = "A100", "H100", "H200", "B200", "GB200", "GB300"
_NIC_ROWS = {"H100": ("H100-80GB", 8), "B200": ("B200-180GB", 4)}  # GPU and nodes, each of eight with a NIC per GPU


class Timed(NamedTuple):
    """Timings of one kind of kernel, and the constants fitted to them.

    Parameters
    ----------
    kind : str
        Such as ``products in fp8``.
    gpu : str
        The GPU that was timed.
    table : DataFrame
        One row per timing: ``of``, the line in a picture that it belongs to; ``size``; ``seconds``; and ``ideal_s``, at
        the peak or at the bandwidth of the link.
    fit : kernel_fits.Fit
    seconds_on : callable
        From a system to the seconds of each timing as a prediction has them.
    """

    kind: str
    gpu: str
    table: pd.DataFrame
    fit: kernel_fits.Fit
    seconds_on: Callable


def with_timings(names):
    """Those systems whose GPUs have timings.

    Parameters
    ----------
    names : sequence of str
        Of systems, which begin with the name of their GPU.

    Returns
    -------
    list of SystemSpec

    Examples
    --------
    >>> [system.name for system in with_timings(["mi300x", "h200"])]
    ['h200']
    """
    return [
        replace(system, kernels=system.kernels or KernelSpec(), collectives=system.collectives or CollectiveSpec())
        for system in map(load_system, names)
        if gpu_of(system) in _GPUS and system.nodes
    ]


def gpu_of(system):
    """The GPU of a system, by its name: ``H100`` of ``h100_mlperf``."""
    return system.name.split("_")[0].upper()


def timed(system):
    """All timings for a system, by kind.

    Parameters
    ----------
    system : SystemSpec
        From `with_timings`.

    Returns
    -------
    list of Timed

    Examples
    --------
    >>> [kernels.kind for kernels in timed(*with_timings(["a100"]))]
    ['products in bf16', 'attention', 'collectives in nodes']
    """
    peaks = {"bf16": system.peak_compute_flops, "fp8": system.fp8_peak_compute_flops}
    kernels = [_products(system, precision, peak) for precision, peak in peaks.items() if peak]
    gpu, rows = _rows("collectives.csv", "collectives", gpu_of(system))
    rows = rows[rows.op.isin(IN_NODES) & (rows.gpus == rows.gpus.max())]
    rows = rows.assign(nodes=1, seconds=1e-6 * rows.latency_us)
    in_nodes = _collectives("collectives in nodes", gpu, rows, system, system.nodes.node_bandwidth_bytes_per_s)
    kernels += [_attention(system), in_nodes, _between_nodes(system)]
    return [kind for kind in kernels if kind is not None]


def attained(kernels, system):
    """The share of the peak, or of the link, that each timing reached, and that two sets of constants say.

    Parameters
    ----------
    kernels : Timed
    system : SystemSpec

    Returns
    -------
    DataFrame
        The columns of ``kernels.table``, and ``timed``, ``fitted`` and, with the constants of the system's file,
        ``in_file``.
    """
    table = kernels.table
    seconds = {
        "timed": table.seconds, "fitted": kernels.seconds_on(with_values(system, kernels.fit.values)),
        "in_file": kernels.seconds_on(system),
    }  # fmt: skip
    return table.assign(**{name: table.ideal_s / value for name, value in seconds.items()})


# ---- kinds ---------------------------------------------------------------------------------------


def _rows(file, kind, gpu):
    """The rows of a file with the GPU whose timings count, and its name."""
    gpu = STANDS_IN.get((kind, gpu), gpu)
    rows = pd.read_csv(TIMINGS / file)
    return gpu, rows[rows.gpu == gpu].reset_index(drop=True)


def _products(system, precision, peak):
    gpu, rows = _rows("gemm.csv", "products", gpu_of(system))
    rows = rows[rows.precision == precision].reset_index(drop=True)
    if rows.empty:
        return None
    seconds = 1e-6 * rows.latency_us
    fit = kernel_fits.fit_products(rows.m, rows.n, rows.k, seconds, peak, precision, quantises=precision == "fp8")
    if precision == "fp8":
        per_input_s, fixed_s = (fit.values.pop(name) for name in kernel_fits.QUANTISATION)
        seconds = seconds - (per_input_s * rows.m * rows.k + fixed_s)
    width, ideal_s = rows[["n", "k"]].min(axis=1), 2 * rows.m * rows.n * rows.k / peak
    columns = {"of": precision, "size": width, "rows": rows.m, "seconds": seconds, "ideal_s": ideal_s}
    return Timed(f"products in {precision}", gpu, pd.DataFrame(columns), fit, partial(product_s, rows, precision))


def product_s(rows, precision, system):
    width = rows[["n", "k"]].min(axis=1)
    flops = 2.0 * rows.m * rows.n * rows.k
    columns = zip(flops, flops * 0, [Kernel.PRODUCT] * len(rows), rows.m, width, flops * 0 + 1, strict=True)
    return kernels_s(Kernels.of(list(columns)), _at_boost(system), precision)


def _at_boost(system):
    """The system as single kernels see it: at the clock at which they were timed, without what comes around them."""
    return replace(
        system, compute_latency_s=0.0, memory_latency_s=0.0, kernels=replace(system.kernels, sustained_clock=1.0)
    )


def _attention(system):
    """Causal, heads of 128: cuDNN's, and on A100 FlashAttention-2, forward and backward together, from its chart."""
    gpu, rows = _rows("attention.csv", "attention", gpu_of(system))
    peak = system.peak_compute_flops if gpu == gpu_of(system) else load_system(gpu.lower()).peak_compute_flops
    is_wanted = (rows.backend == "cudnn") & (rows["mask"] == "top_left") & (rows.head_size == 128)
    keys, backward, tflops = (rows.loc[is_wanted, name].to_numpy() for name in ("sequence", "pass", "tflops"))
    backward, of = backward == "bwd", np.where(backward == "bwd", "backward", "forward")
    if gpu == "A100":
        charts = pd.read_csv(TIMINGS / "attention_charts.csv")
        charts = charts[charts.device.str.startswith(gpu) & (charts.kernel == "FlashAttention-2") & charts.causal]
        chart = charts[charts.head_dim == 128].filter(like="seq_").iloc[0].astype(float)
        keys, tflops = np.array([int(name.removeprefix("seq_")) for name in chart.index]), chart.to_numpy()
        backward, of = keys < 0, "both"
    fit = kernel_fits.fit_attention(keys, backward, 1e12 * tflops, peak)
    seconds = peak / system.peak_compute_flops / (1e12 * tflops)  # of one FLOP, at the same share of the system's peak
    table = pd.DataFrame({"of": of, "size": keys, "seconds": seconds, "ideal_s": 1 / system.peak_compute_flops})
    kinds = np.where(backward, Kernel.ATTENTION_BACKWARD, Kernel.ATTENTION)
    kernels = Kernels.of([(1.0, 0.0, kind, size, np.inf, 1.0) for kind, size in zip(kinds, keys, strict=True)])
    return Timed("attention", gpu, table, fit, lambda system: kernels_s(kernels, _at_boost(system)))


def _between_nodes(system):
    """All-reduces over nodes of eight; the bus bandwidth is 2 (n-1)/n V over the time."""
    gpu = gpu_of(system)
    if gpu not in _NIC_ROWS:
        return None
    device, nodes = _NIC_ROWS[gpu]
    rows = pd.read_csv(TIMINGS / "collectives_nodes.csv")
    rows = rows[(rows.gpu == device) & (rows.nodes == nodes)]
    rows = rows.assign(seconds=2e-9 * (rows.gpus - 1) / rows.gpus * rows.bytes / rows.busbw_gb_s)
    bandwidth = 8 * system.network_bandwidth_bytes_per_s
    return _collectives("collectives between nodes", gpu, rows, system, bandwidth, fitted_from=LARGE)


def _collectives(kind, gpu, rows, system, link_bytes_per_s, fitted_from=0):
    """The bandwidth of the link is a GPU's, and between nodes that of all NICs of a node."""
    table = rows[["op", "gpus", "nodes", "bytes", "seconds"]].reset_index(drop=True)
    rows, large = (list(some.itertuples(index=False, name=None)) for some in (table, table[table.bytes >= fitted_from]))
    ((_, fit),) = kernel_fits.fit_collectives(large, system)
    passes = 1 + (table.op == "all_reduce")
    ideal_s = passes * (table.gpus - 1) / table.gpus * table.bytes / link_bytes_per_s
    table = table.assign(of=table.op.map(kernel_fits.COLLECTIVES), size=table.bytes, ideal_s=ideal_s)
    seconds_on = partial(kernel_fits.collectives_s, rows)
    return Timed(kind, gpu, table[["of", "size", "seconds", "ideal_s"]], fit, seconds_on)
