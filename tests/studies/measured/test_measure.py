"""A system file from timings: constants that made them come out again, files are read as people have them."""

import csv
import gzip
import json
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from refusals import refused

from ppmodel import compare
from ppmodel.cli import main
from ppmodel.clusters.costs.collectives import Collective, collective_s
from ppmodel.clusters.specs import DATA, CollectiveSpec, LayoutSpec, load_system
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import timings
from ppmodel.studies.measured.constants import value_of
from ppmodel.studies.measured.kernel_fits import (
    COLLECTIVES,
    PRODUCT_CONSTANTS,
    fit_attention,
    fit_bandwidth,
    fit_collectives,
    fit_products,
    without_quantisation,
)

KERNELS = DATA / "reference" / "kernels"
SIZES = (1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
MIB = 2**20
NCCL = """# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_gather_perf
# nThread 1 nGpus 4 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid    145 on   node-a device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid    145 on   node-a device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid    207 on   node-b device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid    207 on   node-b device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float    none      -1     0.05    0.00    0.00      0     0.04    0.00    0.00      0
     1048576         65536     float    none      -1    50.25   20.87   15.65      0    49.99   20.98   15.73      0
     4194304        262144     float    none      -1   120.50   34.81   26.11      0   119.80   35.01   26.26      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 20.9367
"""


def products(efficiency, half_rows, half_width, peak):
    m, n, k = np.array([(m, n, k) for m in SIZES for n in SIZES for k in SIZES]).T
    rate = peak * efficiency / (1 + half_rows / m) / (1 + half_width / np.minimum(n, k))
    return m, n, k, 2 * m * n * k / rate


# ---- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("constants", [(0.8, 120, 150), (0.9, 0.0, 1300), (0.35, 900, 0.0)])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_products_give_back_the_constants_that_made_them(constants, precision):
    """Exactly without noise, closely with noise and some timings that are three times too long."""
    m, n, k, seconds = products(*constants, 1e15)
    fit = fit_products(m, n, k, seconds, 1e15, precision)
    assert list(fit.values.values()) == pytest.approx(constants, rel=1e-3, abs=0.05)
    assert fit.error < 1e-4
    random = np.random.default_rng(0)
    noisy = seconds * np.exp(random.normal(0, 0.05, len(m))) * np.where(np.arange(len(m)) % 25 == 7, 3.0, 1.0)
    values = list(fit_products(m, n, k, noisy, 1e15, precision).values.values())
    assert values == pytest.approx(constants, rel=0.15, abs=40)


def test_products_have_no_unit_of_time():
    """A machine ten times as fast, of ten times the peak, has the same constants."""
    m, n, k, seconds = products(0.7, 200, 100, 1e14)
    slow, fast = fit_products(m, n, k, seconds, 1e14), fit_products(m, n, k, seconds / 10, 1e15)
    assert fast.values == pytest.approx(slow.values)


def test_products_of_one_size_leave_the_halves():
    """What a single shape does not tell is kept, and the efficiency is the one with it."""
    fit = fit_products([4096.0], [4096.0], [4096.0], [2 * 4096**3 / 4e14], 1e15, half=(4096.0, 0.0))
    assert fit.values == {"compute_efficiency": pytest.approx(0.8)}


def test_small_products_count_only_where_there_are_few_large_ones():
    """Shapes that training does not have neither help nor hurt."""
    m, n, k, seconds = products(0.8, 100, 100, 1e15)
    small = np.full(500, 64.0)
    fit = fit_products(
        *(np.append(a, b) for a, b in zip((m, n, k, seconds), (small, small, small, small), strict=True)), 1e15
    )
    assert fit.values == fit_products(m, n, k, seconds, 1e15).values
    assert fit_products(small, small, small, 2 * small**3 / 5e14, 1e15).values == {
        "compute_efficiency": pytest.approx(0.5)
    }


def test_attention_gives_back_limits_and_half_length():
    """Forward and backward have limits of their own and one half-length."""
    keys = np.tile(SIZES, 2)
    backward = np.repeat([False, True], len(SIZES))
    rates = np.where(backward, 0.6, 0.75) * 1e15 * keys / (keys + 1200)
    fit = fit_attention(keys, backward, rates, 1e15)
    assert list(fit.values.values()) == pytest.approx([0.75, 0.6, 1200], rel=1e-4)
    only = fit_attention(keys[backward], backward[backward], rates[backward], 1e15)
    assert only.values == pytest.approx(
        {"kernels.attention_backward_efficiency": 0.6, "kernels.attention_half_length": 1200}, rel=1e-4
    )


def test_bandwidth_is_that_of_large_passes():
    """Small ones are bound by latency, or by a cache."""
    sizes = np.array([1e3, 1e8, 4e8])
    fit = fit_bandwidth(sizes, sizes / 6e11 + [1e-3, 0, 0], 1e12, "loss")
    assert fit.values == {"kernels.loss_efficiency": pytest.approx(0.6)}
    assert fit.rows == 2


def generated(system, shapes, ops=("all_gather", "all_reduce", "alltoall")):
    rows = []
    for gpus, nodes in shapes:
        placed = replace(system, nodes=replace(system.nodes, devices_per_node=gpus // nodes))
        for op in ops:
            for mib in (1, 4, 16, 64, 256):
                seconds = collective_s(Collective(COLLECTIVES[op], "tensor", mib * MIB), LayoutSpec(tp=gpus), placed)
                rows.append((op, gpus, nodes, mib * MIB, seconds))
    return rows


@pytest.mark.parametrize("overlapped", [False, True])
def test_collectives_give_back_both_links(overlapped):
    """Efficiency and latency of each kind of link, and whether a collective uses them at the same time."""
    attained = CollectiveSpec(
        node_efficiency=0.7, node_latency_s=3e-6, network_efficiency=0.6, network_latency_s=9e-6,
        exchange_efficiency=0.9, overlapped_phases=overlapped,
    )  # fmt: skip
    start = load_system("h100")
    rows = generated(replace(start, collectives=attained), [(8, 1), (4, 1), (16, 2), (32, 4)])
    values = {name: value for _, fit in fit_collectives(rows, start) for name, value in fit.values.items()}
    assert values == pytest.approx(
        {
            "collectives.node_efficiency": 0.7, "collectives.node_latency": 3e-6,
            "collectives.network_efficiency": 0.6, "collectives.network_latency": 9e-6,
            "collectives.exchange_efficiency": 0.9, "collectives.overlapped_phases": overlapped,
        }, rel=1e-2,
    )  # fmt: skip
    rings = dict(fit_collectives([row for row in rows if row[0] != "alltoall"], start))["collectives between nodes"]
    assert "collectives.exchange_efficiency" not in rings.values  # all-to-alls alone tell it


def test_what_timings_do_not_tell_is_missing():
    """Where links in nodes are the slower ones all along, any efficiency of those between nodes fits as well."""
    start = load_system("h100")
    attained = CollectiveSpec(node_efficiency=0.73, network_efficiency=0.92, overlapped_phases=True)
    large = replace(start, collectives=attained)
    rows = [row for row in generated(large, [(8, 1), (16, 2), (32, 4)], ["all_reduce"]) if row[3] >= 64 * MIB]
    fits = dict(fit_collectives(rows, start))
    assert fits["collectives in nodes"].values["collectives.node_efficiency"] == pytest.approx(0.73, rel=1e-2)
    between = fits["collectives between nodes"].values
    assert not {"collectives.network_efficiency", "collectives.exchange_efficiency"} & between.keys()


def test_messages_have_links_of_their_own():
    """Between nodes their efficiency and the latency; in a node, where collectives tell the efficiency, the latency."""
    start = load_system("h100")
    rows = [("sendrecv", 2, nodes, size, size / rate + 7e-6) for nodes, rate in ((1, 300e9), (2, 40e9))
            for size in (MIB, 4 * MIB, 64 * MIB)]  # fmt: skip
    fits = dict(fit_collectives(rows, start))
    assert fits["messages in nodes"].values == pytest.approx({"nodes.node_latency": 7e-6}, rel=1e-3)
    assert fits["messages between nodes"].values == pytest.approx(
        {"collectives.message_efficiency": 0.8, "network_latency": 7e-6}, rel=1e-3
    )


def test_collectives_in_a_node_need_nodes():
    """A system whose links are all alike has no place for them."""
    with refused(PPModelError, "nodes", "must be in the system"):
        fit_collectives([("all_reduce", 8, 1, MIB, 1e-3)], load_system("mid_cp_mid_nw"))


# ---- published timings ----------------------------------------------------------------------------


def published(name, **wanted):
    with open(KERNELS / name, encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in wanted.items())]


@pytest.mark.parametrize(
    ("gpu", "precision", "peak", "expected"),
    [
        ("A100", "bf16", 312e12, (0.913, 136, 236)), ("H100", "bf16", 989.4e12, (0.829, 138, 154)),
        ("H100", "fp8", 1978.8e12, (0.840, 186, 1335)), ("B200", "bf16", 2250e12, (0.703, 133, 138)),
    ],
)  # fmt: skip
def test_published_products_have_the_constants_that_their_readme_states(gpu, precision, peak, expected):
    """The fits that the packaged systems rest on."""
    rows = published("gemm.csv", gpu=gpu, precision=precision)
    m, n, k, latency = np.array([[float(row[name]) for name in ("m", "n", "k", "latency_us")] for row in rows]).T
    seconds = latency * 1e-6 if precision == "bf16" else without_quantisation(m, k, latency * 1e-6, 3.35e12)
    assert list(fit_products(m, n, k, seconds, peak, precision).values.values()) == pytest.approx(expected, rel=5e-3)


def test_sustained_products_run_at_three_quarters_of_the_clock_of_bursts():
    """On B200, by shape: what SimuMax measured under lasting load, over the fit to bursts."""
    rows = published("gemm_sustained.csv")
    m, n, k, rate = np.array([[float(row[name]) for name in ("m", "n", "k", "tflops")] for row in rows]).T
    burst = 2250 * 0.703 / (1 + 133 / m) / (1 + 138 / np.minimum(n, k))
    assert median(rate / burst) == pytest.approx(0.73, abs=0.01)


def test_published_attention():
    """cuDNN's on H200, causal, heads of 128, from 2,048 to 16,384 keys."""
    rows = [row for row in published("attention.csv", gpu="H200", mask="top_left", head_size="128")
            if row["sequence"] != "32768"]  # fmt: skip
    keys, rates = np.array([(float(row["sequence"]), 1e12 * float(row["tflops"])) for row in rows]).T
    fit = fit_attention(keys, [row["pass"] == "bwd" for row in rows], rates, 989.4e12)
    assert list(fit.values.values()) == pytest.approx([0.755, 0.616, 1193], rel=5e-3)
    assert fit.error < 0.03


def test_published_collectives():
    """NCCL in a node of H100s: two thirds of NVLink, 3 us a step."""
    rows = published("collectives.csv", gpu="H100", op="all_gather")
    timed = [(row["op"], int(row["gpus"]), 1, float(row["bytes"]), 1e-6 * float(row["latency_us"])) for row in rows]
    ((_, fit),) = fit_collectives(timed, load_system("h100"))
    assert list(fit.values.values()) == pytest.approx([0.664, 3.23e-6], rel=1e-2)


# ---- files ---------------------------------------------------------------------------------------


def test_nccl_tests_are_read_as_printed(tmp_path):
    """Out-of-place times, GPUs and hosts by their ranks; the prefixes of launchers and empty sizes are skipped."""
    path = tmp_path / "all_gather.txt"
    expected = [(1048576.0, 50.25e-6), (4194304.0, 120.5e-6)]
    for prefix in ("", "[1,0]<stdout>:", "0: "):
        path.write_text("".join(prefix + line for line in NCCL.splitlines(True)))
        rows = timings.read_nccl_tests(path).collectives
        assert [row[:3] for row in rows] == [("all_gather", 4, 2)] * 2
        assert [row[3:] for row in rows] == [pytest.approx(row) for row in expected]


def test_several_tests_in_one_file(tmp_path):
    """Each has its own ranks."""
    path = tmp_path / "both.txt"
    path.write_text(NCCL + NCCL.replace("all_gather_perf", "all_reduce_perf").replace("node-b", "node-a"))
    rows = timings.read_nccl_tests(path).collectives
    assert [(row.op, row.gpus, row.nodes) for row in rows] == [("all_gather", 4, 2)] * 2 + [("all_reduce", 4, 1)] * 2


OLD = "".join(line for line in NCCL.splitlines(True) if "starting" not in line and "version" not in line)


def test_old_nccl_tests_need_a_name(tmp_path):
    """Versions that do not say which test they are."""
    path = tmp_path / "old.txt"
    path.write_text(OLD.replace("   redop    root", "").replace("    none      -1", ""))
    assert timings.read_nccl_tests(path, "reduce_scatter").collectives[0][:2] == ("reduce_scatter", 4)
    assert timings.read_nccl_tests(path, "reduce_scatter").collectives[0].seconds == pytest.approx(50.25e-6)
    with refused(PPModelError, "collective", "must be one of", where="old.txt:13"):
        timings.read_nccl_tests(path)
    with refused(PPModelError, "collective", "must be one of", remedy="all_gather"):
        timings.read_nccl_tests(path, "allgather")


def test_the_file_of_another_test_is_refused(tmp_path):
    """What the user names must be what the file says that it tested."""
    path = tmp_path / "out.txt"
    path.write_text(NCCL)
    assert timings.read_nccl_tests(path, "all_gather") == timings.read_nccl_tests(path)
    with refused(PPModelError, "collective", "all_gather", where="out.txt:2"):
        timings.read_nccl_tests(path, "all_reduce")


def without(text, word):
    return "".join(line for line in text.splitlines(True) if word not in line)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (without(NCCL, " Rank "), "# Rank lines"), (without(NCCL, "Rank  3"), "# Rank lines"), ("", "timings"),
        (without(NCCL, "none"), "timings"), (NCCL.replace("   120.50", "      N/A"), "time"),
        (NCCL.replace("all_gather_perf", "broadcast_perf"), "collective"),
        (NCCL.replace("145 on   node-a device  1", "145 on   node-b device  2"), "# Rank lines"),
        (NCCL.replace("26.11      0", "26.11      5"), "#wrong"),
        (NCCL.replace("26.26      0", "26.26      1"), "#wrong"),
    ],
)  # fmt: skip
def test_nccl_tests_that_cannot_be_used(tmp_path, text, field):
    """Without ranks or timings, unequal nodes, wrong results, or an operation that training does not have."""
    path = tmp_path / "out.txt"
    path.write_text(text)
    with refused(PPModelError, field, where="out.txt"):
        timings.read_nccl_tests(path)


def test_tables_of_products(tmp_path):
    """A time in microseconds or TFLOP/s; other columns are ignored, and bf16 is the precision if none is written."""
    path = tmp_path / "gemm.csv"
    path.write_text("m,n,k,precision,latency_us,note\n1000,1000,1000,,20,x\n1000,1000,1000,FP8,10,\n")
    plain, fp8 = timings.read_gemm_table(path).products
    assert plain == (1000, 1000, 1000, "bf16", pytest.approx(20e-6))
    assert fp8[3:] == ("fp8", pytest.approx(10e-6))
    path.write_text("m,n,k,latency_us,tflops\n1000,1000,1000,20,99\n")
    assert timings.read_gemm_table(path).products[0].seconds == pytest.approx(20e-6)
    path.write_text("m,n,k,tflops\n1000,1000,1000,100\n")
    assert timings.read_gemm_table(path).products[0].seconds == pytest.approx(20e-6)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("m,n,tflops\n1,1,1\n", "columns"), ("m,n,k\n1,1,1\n", "columns"), ("m,n,k,tflops\n", "rows"),
        ("m,n,k,tflops\n1,1,1,\n", "tflops"), ("m,n,k,tflops\n1,1,1,nan\n", "tflops"), ("m,n,k,tflops\n1,0,1,1\n", "n"),
        ("m,n,k,tflops,precision\n1,1,1,1,int4\n", "precision"), ('m,n,k,tflops\n"1,1,1,1\n', "text"),
        ("m,n,k,latency_us,tflops\n1000,1000,1000,20,200\n", "tflops"),
        ("m,n,k,time_us,time_ms\n1000,1000,1000,20,20\n", "time_ms"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_used(tmp_path, text, field):
    """File, line and column of what is wrong."""
    path = tmp_path / "gemm.csv"
    path.write_text(text)
    with refused(PPModelError, field, where="gemm.csv"):
        timings.read_gemm_table(path)


def test_tables_of_attention(tmp_path):
    """TFLOP/s as written, or what follows from a time: half of the scores if causal, 2.5 times in a backward."""
    path = tmp_path / "attention.csv"
    path.write_text("sequence,pass,batch,heads,head_size,causal,time_ms\n2048,fwd,1,64,128,true,0.142\n"
                    "2048,backward,1,64,128,true,0.464\n")  # fmt: skip
    forward, backward = timings.read_attention_table(path).attention
    assert forward == (2048, False, pytest.approx(484e12, rel=2e-3))
    assert backward == (2048, True, pytest.approx(370e12, rel=2e-3))
    path.write_text("sequence,pass,tflops\n2048,sideways,1\n")
    with refused(PPModelError, "pass", "must be one of", where="attention.csv:2"):
        timings.read_attention_table(path)


def traced(on_gpu=True):
    """A trace as PyTorch's profiler writes it, of two products and an all-gather."""
    dims = {"aten::mm": [[4096, 1024], [1024, 2048]], "aten::addmm": [[2048], [4096, 1024], [1024, 2048]]}
    events = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}, {"ph": "X", "name": "Optimizer.step"}]
    for number, (name, sizes) in enumerate(dims.items()):
        args = {"External id": number, "Input Dims": [*sizes, []], "Input type": ["c10::BFloat16"] * 3}
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "ts": 0, "dur": 40.0, "args": args})
        if on_gpu:
            args = {"External id": number, "stream": 7}
            events.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 9, "dur": 20.0 + number, "args": args})
    args = {
        "Collective name": "_allgather_base", "In msg nelems": MIB, "Out msg nelems": 4 * MIB, "Group size": 4,
        "dtype": "BFloat16", "Process Group Ranks": "[0, 1, 8, 9]",
    }  # fmt: skip
    uneven = args | {"Process Group Ranks": "[0, 1, 2, 8]"}
    for duration, of in ((900.0, args), (300.0, args), (200.0, uneven)) if on_gpu else ():
        events.append({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather", "dur": duration, "args": of})
    return {"schemaVersion": 1, "traceEvents": events}


def test_traces_have_products_and_collectives(tmp_path):
    """Kernels of one shape by their median; collectives of even nodes by their shortest, which waits for no rank."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(traced()).encode()))
    found = timings.read_trace(path, devices_per_node=8)
    assert [tuple(row) for row in found.products] == [(4096, 2048, 1024, "bf16", pytest.approx(20.5e-6))]
    assert [tuple(row) for row in found.collectives] == [("all_gather", 4, 2, 8.0 * MIB, pytest.approx(300e-6))]


def test_traces_of_a_cpu_have_no_kernels(tmp_path):
    """Operations take as long as they take."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(traced(on_gpu=False)))
    assert timings.read_trace(path).products[0].seconds == pytest.approx(40e-6)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "JSON"),
        ("{}", "traceEvents"),
        ('{"traceEvents": [1, {"args": {}}]}', "aten::mm, aten::addmm"),
        ('{"traceEvents": [{"cat": "cpu_op", "name": [], "args": {}}]}', "aten::mm, aten::addmm"),
    ],
)
def test_traces_that_cannot_be_used(tmp_path, text, field):
    """No JSON, no trace, or no shapes in it."""
    path = tmp_path / "trace.json"
    path.write_text(text)
    with refused(PPModelError, field, where="trace.json"):
        timings.read_trace(path)


@pytest.mark.parametrize("raw", [b"no gzip", gzip.compress(b"{}" * 999)[:-9]], ids=["other", "cut short"])
def test_broken_archives_are_refused(tmp_path, raw):
    """In one line, as any file that cannot be read."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(raw)
    with refused(PPModelError, "file", "cannot be read"):
        timings.read_trace(path)


# ---- the command ---------------------------------------------------------------------------------

CONSTANTS = {
    "compute_efficiency": 0.77, "kernels.product_half_rows": 90.0, "kernels.product_half_width": 180.0,
    "kernels.fp8_efficiency": 0.66, "kernels.fp8_half_rows": 300.0, "kernels.fp8_half_width": 1100.0,
    "kernels.attention_efficiency": 0.61, "kernels.attention_backward_efficiency": 0.52,
    "kernels.attention_half_length": 800.0, "memory_efficiency": 0.88, "kernels.optimizer_efficiency": 0.7,
    "collectives.node_efficiency": 0.63, "collectives.node_latency": 4e-6, "kernels.block_host": 3e-4,
}  # fmt: skip


def probe(system, **changed):
    """What probe.py would write on a machine with these constants."""
    value = CONSTANTS.get
    names = "efficiency", "half_rows", "half_width"
    rows = []
    peaks = {"bf16": system.peak_compute_flops, "fp8": system.fp8_peak_compute_flops}
    for precision, peak in peaks.items():
        keys = PRODUCT_CONSTANTS[precision]
        timed = products(**dict(zip(names, map(value, keys), strict=True)), peak=peak)
        rows += [{**dict(zip(("m", "n", "k", "seconds"), row, strict=True)), "precision": precision}
                 for row in zip(*timed, strict=True)]  # fmt: skip
    attention = []
    for keys in SIZES:
        for name, direction, factor in (("attention", "forward", 2.0), ("attention_backward", "backward", 5.0)):
            rate = system.peak_compute_flops * value(f"kernels.{name}_efficiency") / (1 + 800 / keys)
            row = {"batch": 2, "heads": 8, "sequence": keys, "head_size": 128, "causal": True, "pass": direction}
            attention.append(row | {"seconds": factor * 2 * 8 * keys**2 * 128 / rate})
    bandwidth = system.memory_bandwidth_bytes_per_s
    attained = CollectiveSpec(node_efficiency=0.63, node_latency_s=4e-6)
    collectives = generated(replace(system, collectives=attained), [(8, 1)])
    fields = "op", "gpus", "nodes", "bytes", "seconds"
    return {
        "probe": 1, "device": "NVIDIA H100", "products": rows, "attention": attention,
        "passes": [{"kernel": "copy", "bytes": 2**30, "seconds": 2**30 / bandwidth / 0.88},
                   {"kernel": "optimizer", "bytes": 2**30, "seconds": 2**30 / bandwidth / 0.7}],
        "collectives": [dict(zip(fields, row, strict=True)) for row in collectives],
        "host": [{"phase": "forward", "seconds": 3e-4}],
    } | changed  # fmt: skip


def measure(tmp_path, document, *arguments):
    path, out = tmp_path / "probe.json", tmp_path / "mine.yaml"
    path.write_text(json.dumps(document))
    return main(["measure", "--system", "h100", "--probe", str(path), "--out", str(out), *arguments]), out


def test_a_measured_file_gives_back_the_machine(tmp_path, capsys):
    """Its constants, loaded, are those of the machine that was probed; all else is the starting system's."""
    start = load_system("h100")
    code, out = measure(tmp_path, probe(start), "--title", "My nodes", "--date", "2026-01-31")
    assert code == 0
    system, said = load_system(out), capsys.readouterr().out
    assert system.title == "My nodes"
    assert {name: value_of(system, name) for name in CONSTANTS} == pytest.approx(CONSTANTS, rel=2e-3)
    kinds = {entry.field: entry.kind for entry in system.provenance}
    assert {name for name, kind in kinds.items() if kind == "fitted"} == set(CONSTANTS)
    unchanged = [entry for entry in start.provenance if entry.field not in CONSTANTS]
    assert [entry for entry in system.provenance if entry.field not in CONSTANTS] == unchanged
    source = next(entry.source for entry in system.provenance if entry.field == "compute_efficiency")
    assert "125 timings" in source
    assert "probe.json" in source
    assert "2026-01-31" in source
    assert all(name in said for name in CONSTANTS)
    assert "kernels.batched_efficiency" in said.splitlines()[-1]


def test_files_of_all_kinds_add_up(tmp_path):
    """Timings of one kind from several files are fitted together, and each file is a source."""
    gemm, output, out = tmp_path / "gemm.csv", tmp_path / "nccl.txt", tmp_path / "mine.yaml"
    gemm.write_text("m,n,k,tflops\n4096,4096,4096,500\n")
    output.write_text(OLD.replace("node-b", "node-a"))
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(traced()))
    line = f"measure --system h100 --gemm {gemm} --collectives all_gather={output} --trace {trace} --out {out}"
    assert main(line.split()) == 0
    sources = {entry.field: entry.source for entry in load_system(out).provenance if entry.kind == "fitted"}
    assert "2 timings" in sources["compute_efficiency"]
    assert "gemm.csv, trace.json" in sources["compute_efficiency"]
    assert "nccl.txt" in sources["collectives.node_efficiency"]


def test_a_cpu_takes_turns_with_itself(tmp_path):
    """Operations of a CPU run in the thread that launches them, so that host time adds up; and fp32 stands for bf16."""
    rows = [{"m": 512, "n": 512, "k": 512, "precision": "fp32", "seconds": 1e-4}]
    code, out = measure(tmp_path, {"probe": 1, "device": "cpu", "products": rows})
    assert code == 0
    assert load_system(out).kernels.host_exponent == 1


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({}, "probe"), ([], "probe"), ({"probe": 1}, "timings"), ({"probe": 1, "products": 3}, "products"),
        ({"probe": 1, "host": [{"seconds": -1}]}, "seconds"), ({"probe": 1, "host": [{"seconds": True}]}, "seconds"),
        ({"probe": 1, "passes": [{"kernel": "fft", "bytes": 1, "seconds": 1}]}, "kernel"),
        ({"probe": 1, "collectives": [{"op": "all_reduce", "gpus": 3, "nodes": 2, "bytes": 8, "seconds": 1}]}, "gpus"),
        ({"probe": 1, "products": [{"m": 1, "n": 1, "k": 1, "precision": "bf16"}]}, "seconds"),
    ],
)  # fmt: skip
def test_probes_that_cannot_be_used_write_nothing(tmp_path, capsys, document, field):
    """One line with the field, exit code 2, and no file."""
    code, out = measure(tmp_path, document)
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert f"{field} = " in line
    assert not out.exists()


@pytest.mark.parametrize("missing", ["--system", "--out"])
def test_what_must_be_given(tmp_path, capsys, missing):
    """A system to start from, and a file to write."""
    arguments = {"--system": "h100", "--out": str(tmp_path / "mine.yaml"), "--probe": "probe.json"}
    del arguments[missing]
    assert main(["measure", *(word for pair in arguments.items() for word in pair)]) == 2
    assert missing in capsys.readouterr().err


def test_fp8_needs_its_peak(tmp_path, capsys):
    """A system without that peak has no place for timings in fp8."""
    path = tmp_path / "gemm.csv"
    path.write_text("m,n,k,precision,tflops\n4096,4096,4096,fp8,500\n")
    assert main(["measure", "--system", "a100", "--gemm", str(path), "--out", str(tmp_path / "mine.yaml")]) == 2
    assert "fp8_peak_compute" in capsys.readouterr().err


def test_the_probe_comes_with_the_command(tmp_path):
    """It is written whole, and is Python that imports PyTorch alone."""
    path = tmp_path / "probe.py"
    assert main(["measure", "--write-probe", str(path)]) == 0
    assert path.read_text() == (DATA / "templates" / "probe.py").read_text()
    compile(path.read_text(), "probe.py", "exec")


def test_the_probe_replaces_no_other_file(tmp_path, capsys):
    """A user's file stays as it is, and options that would do nothing are named."""
    path = tmp_path / "mine.py"
    path.write_text("thesis")
    assert main(["measure", "--write-probe", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert path.read_text() == "thesis"
    assert main(["measure", "--write-probe", str(tmp_path / "probe.py"), "--gemm", "gemm.csv"]) == 2
    assert "--gemm" in capsys.readouterr().err
    assert not (tmp_path / "probe.py").exists()


def test_a_poor_fit_and_a_peak_that_is_too_low_are_said(tmp_path, capsys):
    """Times in the wrong unit, or faster than the system to start from allows; the file is still legal."""
    path, out = tmp_path / "gemm.csv", tmp_path / "mine.yaml"
    for tflops, word in (("1e9", "limit"), ("1e-9", "units")):
        path.write_text(f"m,n,k,tflops\n4096,4096,4096,{tflops}\n")
        assert main(["measure", "--system", "h100", "--gemm", str(path), "--out", str(out)]) == 0
        assert word in capsys.readouterr().out
        assert load_system(out).compute_efficiency > 0


@pytest.mark.parametrize(("name", "off"), [("replicas", -0.125), ("pipeline", -0.084)])
def test_our_own_steps_are_predicted_from_our_own_probe(tmp_path, name, off):
    """The whole way on two cores with gloo: probe, system file, prediction, and ten steps that ran."""
    folder, out = DATA / "reference" / "own_step", tmp_path / "own.yaml"
    assert (
        main(["measure", "--system", f"{folder}/base.yaml", "--probe", f"{folder}/probe.json", "--out", str(out)]) == 0
    )
    given = {"model": folder / "model.yaml", "layout": folder / f"{name}.yaml", "framework": "plain"}
    frame = compare("1f1b", system=out, **given)
    steps = json.loads((folder / "runs.json").read_text())["seconds"][name]
    assert frame.iteration_s[0] / median(steps) - 1 == pytest.approx(off, abs=0.002)
