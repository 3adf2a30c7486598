"""Constants of a system fitted to timings of single kernels, copies, collectives and launches.

Every fit is least squares in the logarithm of the time, with scipy's soft L1 loss: residuals above 0.1 count linearly,
so that a few bad timings move little.
"""

from dataclasses import replace
from itertools import compress
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.collectives import collective_line
from ppmodel.clusters.costs.transfers import hockney_s
from ppmodel.clusters.specs import CollectiveSpec, LayoutSpec
from ppmodel.errors import PPModelError
from ppmodel.studies.measured.constants import BOUNDS, with_values
from ppmodel.studies.measured.fit import scipy_optimize

LEAST_SIZE = 1024
"""Rows, columns and depth of a matrix product from which on it counts: training has few smaller ones."""
COLLECTIVE_BYTES = 2**20, 2**29
"""Sizes of the collectives that count, as in training."""
COLLECTIVES = {
    "all_reduce": "all-reduce", "all_gather": "all-gather", "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all", "sendrecv": "message",
}  # fmt: skip
"""Collectives by their names in nccl-tests, with those in `costs.collectives`; each GPU sends a message to the next."""
PRODUCT_CONSTANTS = {
    "bf16": ("compute_efficiency", "kernels.product_half_rows", "kernels.product_half_width"),
    "fp8": ("kernels.fp8_efficiency", "kernels.fp8_half_rows", "kernels.fp8_half_width"),
}
"""What `fit_products` fits, by precision."""
QUANTISATION = "quantisation per input", "quantisation"
"""What it fits beside these where timings contain a quantisation, in seconds."""
PASSES = {
    "copy": "memory_efficiency", "stream": "kernels.stream_efficiency", "activation": "kernels.activation_efficiency",
    "loss": "kernels.loss_efficiency", "optimizer": "kernels.optimizer_efficiency",
}  # fmt: skip
"""Kernels that move memory, and the fraction of its bandwidth that they attain; stream is a normalisation."""
_ATTENTION = "kernels.attention_efficiency", "kernels.attention_backward_efficiency", "kernels.attention_half_length"
_LINES = {
    (False, False): ("collectives.node_efficiency", "collectives.node_latency"),
    (True, False): ("collectives.network_efficiency", "collectives.network_latency"),
    (False, True): ("collectives.node_efficiency", "nodes.node_latency"),
    (True, True): ("collectives.message_efficiency", "network_latency"),
}
"""What is fitted to timings, by whether they cross nodes, and whether they are messages."""
_SCALE, _FEWEST, _SPREAD = 0.1, 8, 2.0
_FARTHEST, _LONGEST, _STEP = 20.0, 1e6, 0.1  # the last, of an efficiency's logarithm, changes a time that tells it


class Fit(NamedTuple):
    """Constants found by a fit, and its errors.

    Parameters
    ----------
    values : dict of str to float
        Constants by their names in a system's file, in SI units; what the timings cannot tell is missing.
    rows : int
        Timings that counted.
    error : float
        Mean of |fitted / measured - 1| over these.
    """

    values: dict
    rows: int
    error: float


def fit_products(m, n, k, seconds, peak_flops, precision="bf16", half=(0.0, 0.0), quantises=False):
    """Fit the rate of matrix products, e m / (m + half_rows) w / (w + half_width) of the peak with w = min(n, k).

    Parameters
    ----------
    m, n, k, seconds : array of float, shape (num_timings,)
        Products of m rows, n columns and depth k, and how long each takes. If at least eight have m, n and k of
        `LEAST_SIZE` or more, only those count.
    peak_flops : float
        Peak of the device in that precision.
    precision : {"bf16", "fp8"}
        Which of `PRODUCT_CONSTANTS` to fit.
    half : tuple of float
        Values of half_rows and half_width to keep where m, or w, spans less than a factor of 2.
    quantises : bool
        Whether timings contain the quantisation of the m k inputs, as those of linear layers of TensorRT-LLM and vLLM
        do. Its seconds per input and its fixed seconds are then fitted as well, and left out of the values: they are
        the inference library's.

    Returns
    -------
    Fit

    Examples
    --------
    >>> m, n, k = np.array([(m, n, 4096) for m in (1024, 8192) for n in (1024, 2048, 4096, 8192)], float).T
    >>> seconds = 2 * m * n * k / (1e15 * 0.8 / (1 + 128 / m) / (1 + 256 / np.minimum(n, k)))
    >>> [round(value, 3) for value in fit_products(m, n, k, seconds, 1e15).values.values()]
    [0.8, 128.0, 256.0]
    """
    m, n, k, seconds = np.array([m, n, k, seconds], float)
    if (large := np.min([m, n, k], axis=0) >= LEAST_SIZE).sum() >= _FEWEST:
        m, n, k, seconds = np.array([m, n, k, seconds])[:, large]
    sizes = m, np.minimum(n, k)
    is_fitted = [True, *(size.max() >= _SPREAD * size.min() for size in sizes)]

    def log_time(logs):
        halves = np.array([np.nan, *half])
        halves[is_fitted] = np.exp(logs[: sum(is_fitted)])
        product = 2 * m * n * k / peak_flops * (1 + halves[1] / sizes[0]) * (1 + halves[2] / sizes[1]) / np.exp(logs[0])
        return np.log(product + (np.exp(logs[-2]) * m * k + np.exp(logs[-1]) if quantises else 0.0))

    names = *compress(PRODUCT_CONSTANTS[precision], is_fitted), *QUANTISATION * quantises
    starts = *compress((0.5, 128.0, 128.0), is_fitted), 1e-12, 1e-5
    return _fitted(log_time, seconds, dict(zip(names, starts, strict=False)))


def fit_attention(keys, is_backward, rates_flops, peak_flops):
    """Fit the rate of fused attention, e s / (s + half) of the peak for s keys, e by direction and half for both.

    Parameters
    ----------
    keys : array of float, shape (num_timings,)
        Tokens per sequence. The half is fitted if they span a factor of 2.
    is_backward : array of bool, shape (num_timings,)
        A backward counts 2.5 times the arithmetic of a forward.
    rates_flops : array of float, shape (num_timings,)
        FLOP/s reached; under a causal mask, half of the scores count.
    peak_flops : float

    Returns
    -------
    Fit

    Examples
    --------
    >>> keys = np.array([2048.0, 4096.0, 8192.0])
    >>> fit = fit_attention(keys, [False] * 3, 7e14 * keys / (keys + 1024), 1e15)
    >>> [round(value, 3) for value in fit.values.values()]
    [0.7, 1024.0]
    """
    keys, backward, rates = np.asarray(keys, float), np.asarray(is_backward, bool), np.asarray(rates_flops, float)
    is_fitted = not backward.all(), backward.any(), keys.max() >= _SPREAD * keys.min()
    start = dict(compress(zip(_ATTENTION, (0.5, 0.5, 512.0), strict=True), is_fitted))
    place = np.where(backward & is_fitted[0], 1, 0)

    def log_time(logs):
        return np.log1p((np.exp(logs[-1]) if is_fitted[2] else 0.0) / keys) - np.log(peak_flops) - logs[place]

    return _fitted(log_time, 1 / rates, start)


def fit_bandwidth(num_bytes, seconds, bandwidth_bytes_per_s, kernel="copy"):
    """Fit the fraction of the memory bandwidth in one of `PASSES`; sizes from a quarter of the largest on count.

    >>> fit_bandwidth([1e3, 1e9], [1e-3, 1e-2], 2e11)
    Fit(values={'memory_efficiency': 0.5}, rows=1, error=0.0)
    """
    num_bytes, seconds = np.asarray(num_bytes, float), np.asarray(seconds, float)
    large = 4 * num_bytes >= num_bytes.max()
    ideal = num_bytes[large] / bandwidth_bytes_per_s
    return _fitted(lambda logs: np.log(ideal) - logs[0], seconds[large], {PASSES[kernel]: 0.5})


def fit_host(seconds):
    """Fit block_host to the seconds that launches of one phase of a transformer block take: their median.

    >>> fit_host([1e-4, 2e-4, 2e-4]).values
    {'kernels.block_host': 0.0002}
    """
    value = float(np.median(seconds))
    return Fit({"kernels.block_host": value}, len(seconds), float(np.abs(value / np.asarray(seconds) - 1).mean()))


def fit_collectives(timings, system):
    """Fit efficiencies and latencies of links, by the lines of collectives and messages that a prediction uses.

    First those inside a node, then, with these, those that cross nodes, where both ways of using the two kinds of links
    are tried; see `costs.collectives.collective_s`.

    Parameters
    ----------
    timings : sequence of tuple
        Operation (a key of `COLLECTIVES`), GPUs, nodes, bytes of the whole tensor or of a message, and seconds. Where
        some have `COLLECTIVE_BYTES`, only those count.
    system : SystemSpec
        Provides bandwidths, and constants that the timings do not tell.

    Returns
    -------
    list of tuple of (str, Fit)
        Each with what it is of, such as ``collectives in nodes``.

    Raises
    ------
    PPModelError
        If timings are from inside a node, and the system has no nodes.
    """
    if system.nodes is None and any(nodes == 1 for _, _, nodes, _, _ in timings):
        remedy = "start from a system whose file has nodes"
        raise PPModelError("nodes", "none", "must be in the system, for some collectives stay in a node", remedy)
    fits, system = [], replace(system, collectives=system.collectives or CollectiveSpec())
    for (crosses, is_message), names in _LINES.items():
        rows = [row for row in timings if (row[2] > 1, row[0] == "sendrecv") == (crosses, is_message)]
        in_training = [row for row in rows if COLLECTIVE_BYTES[0] <= row[3] <= COLLECTIVE_BYTES[1]]
        if not (rows := in_training if _spread(in_training) else rows):
            continue
        names = names if _spread(rows) else names[:1]
        usual = system.collectives.overlapped_phases  # where timings do not tell, as the system has it
        is_told = not is_message and any(gpus > nodes > 1 for _, gpus, nodes, _, _ in rows)
        tried = [_link_fit(rows, system, names, way) for way in ((usual, not usual) if is_told else (None,))]
        fit = min(tried, key=lambda fit: round(fit.error, 3))
        if is_message and not crosses:
            fit.values.pop(names[0], None)  # collectives tell it
        fits.append((f"{'messages' if is_message else 'collectives'} {'between' if crosses else 'in'} nodes", fit))
        system = with_values(system, fit.values)
    return fits


def _spread(rows):
    """Return whether sizes differ enough to tell a latency from a bandwidth."""
    sizes = [row[3] for row in rows] or [1]
    return max(sizes) >= _SPREAD * min(sizes)


def collectives_s(rows, system):
    """Seconds of collectives on a system, by the lines that a prediction uses.

    Parameters
    ----------
    rows : sequence of CollectiveTiming
        Or tuples of as many fields.
    system : SystemSpec
        With as many devices on a node as the collectives have there.

    Returns
    -------
    ndarray of float, shape (num_rows,)
    """
    lines = {}
    for op, gpus, nodes in {row[:3] for row in rows}:
        group, layout = system, LayoutSpec(pp=1, tp=int(gpus))
        if system.nodes:
            group = replace(system, nodes=replace(system.nodes, devices_per_node=int(gpus // nodes)))
        lines[op, gpus, nodes] = collective_line(COLLECTIVES[op], "tensor", layout, group)
    fixed, slope = np.array([lines[row[:3]] for row in rows]).T
    return fixed + slope * np.array([row[3] for row in rows])


def _link_fit(rows, system, names, overlapped):
    """The constants of a link; unless `overlapped` is None, also whether its phases and those in nodes share time."""
    switch = {} if overlapped is None else {"collectives.overlapped_phases": overlapped}
    start = dict(zip(names, (0.5, 5e-6), strict=False))
    if "collectives.network_efficiency" in start:  # told by all-to-alls alone, which do not tell the other
        start["collectives.exchange_efficiency"] = 0.5
    sizes, inside = np.array([row[3] for row in rows]), rows[0][2] == 1

    def log_time(logs):
        attained = with_values(system, switch | dict(zip(start, np.exp(logs).tolist(), strict=True)))
        is_message = rows[0][0] == "sendrecv"
        return np.log(sum(hockney_s(sizes, attained, inside)) if is_message else collectives_s(rows, attained))

    fit = _fitted(log_time, [row[4] for row in rows], start)
    return fit._replace(values=fit.values | switch)


def _fitted(log_time, seconds, start):
    """Least squares for the logarithms of the constants, in the order of `start`."""
    measured, most = np.log(seconds), [BOUNDS.get(name, (0.0, _LONGEST))[1] for name in start]
    first = np.log(list(start.values()))
    result = scipy_optimize().least_squares(
        lambda logs: log_time(logs) - measured, first, bounds=(first - _FARTHEST, np.log(most)),
        loss="soft_l1", f_scale=_SCALE,
    )  # fmt: skip
    may_vanish = [not name.endswith("efficiency") for name in start]
    values = np.where(may_vanish & (result.x < first - 0.5 * _FARTHEST), 0.0, np.exp(result.x)).tolist()
    steps = np.diag([_STEP * name.endswith("efficiency") for name in start])
    log_times = log_time(result.x)
    is_determined = [not step.any() or np.abs(log_time(result.x + step) - log_times).max() > _STEP**4 for step in steps]
    determined = dict(compress(zip(start, values, strict=True), is_determined))
    return Fit(determined, len(measured), float(np.abs(np.expm1(log_times - measured)).mean()))
