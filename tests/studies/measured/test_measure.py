"""A system file from timings: constants that made them come out again, files are read as people have them."""

import gzip
import json
import re
from dataclasses import replace
from itertools import product
from statistics import median

import numpy as np
import pytest
from refusals import refused

from ppmodel import compare
from ppmodel.cli import main
from ppmodel.clusters.costs.collectives import Collective, collective_s
from ppmodel.clusters.specs import DATA, CollectiveSpec, LayoutSpec, load_system
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import kernel_fits, timings
from ppmodel.studies.measured.constants import value_of

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
    fit = kernel_fits.fit_products(m, n, k, seconds, 1e15, precision)
    assert list(fit.values.values()) == pytest.approx(constants, rel=1e-3, abs=0.05)
    assert fit.error < 1e-4
    random = np.random.default_rng(0)
    noisy = seconds * np.exp(random.normal(0, 0.05, len(m))) * np.where(np.arange(len(m)) % 25 == 7, 3.0, 1.0)
    values = list(kernel_fits.fit_products(m, n, k, noisy, 1e15, precision).values.values())
    assert values == pytest.approx(constants, rel=0.15, abs=40)


def test_products_of_one_size_leave_the_halves():
    """What a single shape does not tell is kept, and the efficiency is the one with it."""
    fit = kernel_fits.fit_products([4096.0], [4096.0], [4096.0], [2 * 4096**3 / 4e14], 1e15, half=(4096.0, 0.0))
    assert fit.values == {"compute_efficiency": pytest.approx(0.8)}


def test_small_products_count_only_where_there_are_few_large_ones():
    """Shapes that training does not have neither help nor hurt."""
    timed, small = products(0.8, 100, 100, 1e15), np.full((4, 500), 64.0)
    both, few = np.hstack([timed, small]), [*small[:3], 2 * small[3] ** 3 / 5e14]
    assert kernel_fits.fit_products(*both, 1e15).values == kernel_fits.fit_products(*timed, 1e15).values
    assert kernel_fits.fit_products(*few, 1e15).values == {"compute_efficiency": pytest.approx(0.5)}


def test_attention_gives_back_limits_and_half_length():
    """Forward and backward have limits of their own and one half-length."""
    keys = np.tile(SIZES, 2)
    backward = np.repeat([False, True], len(SIZES))
    rates = np.where(backward, 0.6, 0.75) * 1e15 * keys / (keys + 1200)
    fit = kernel_fits.fit_attention(keys, backward, rates, 1e15)
    assert list(fit.values.values()) == pytest.approx([0.75, 0.6, 1200], rel=1e-4)
    only = kernel_fits.fit_attention(keys[backward], backward[backward], rates[backward], 1e15).values
    assert only == pytest.approx(dict(list(fit.values.items())[1:]), rel=1e-4)


def generated(system, shapes, ops=("all_gather", "all_reduce", "alltoall")):
    rows = []
    for (gpus, nodes), op, mib in product(shapes, ops, (1, 4, 16, 64, 256)):
        placed = replace(system, nodes=replace(system.nodes, devices_per_node=gpus // nodes))
        collective = Collective(kernel_fits.COLLECTIVES[op], "tensor", mib * MIB)
        rows.append((op, gpus, nodes, mib * MIB, collective_s(collective, LayoutSpec(tp=gpus), placed)))
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
    values = {name: value for _, fit in kernel_fits.fit_collectives(rows, start) for name, value in fit.values.items()}
    assert values == pytest.approx({
        "collectives.node_efficiency": 0.7, "collectives.node_latency": 3e-6, "collectives.network_efficiency": 0.6,
        "collectives.network_latency": 9e-6, "collectives.exchange_efficiency": 0.9,
        "collectives.overlapped_phases": overlapped,
    }, rel=1e-2)  # fmt: skip
    _, (_, between) = kernel_fits.fit_collectives([row for row in rows if row[0] != "alltoall"], start)
    assert "collectives.exchange_efficiency" not in between.values  # all-to-alls alone tell it


def test_what_timings_do_not_tell_is_missing():
    """Where links in nodes are the slower ones all along, any efficiency of those between nodes fits as well."""
    start = load_system("h100")
    attained = CollectiveSpec(node_efficiency=0.73, network_efficiency=0.92, overlapped_phases=True)
    large = replace(start, collectives=attained)
    rows = [row for row in generated(large, [(8, 1), (16, 2), (32, 4)], ["all_reduce"]) if row[3] >= 64 * MIB]
    (_, inside), (_, between) = kernel_fits.fit_collectives(rows, start)
    assert inside.values["collectives.node_efficiency"] == pytest.approx(0.73, rel=1e-2)
    assert not {"collectives.network_efficiency", "collectives.exchange_efficiency"} & between.values.keys()


def test_messages_have_links_of_their_own():
    """Between nodes their efficiency and the latency; in a node, where collectives tell the efficiency, the latency."""
    rows = [("sendrecv", 2, nodes, size, size / rate + 7e-6) for nodes, rate in ((1, 300e9), (2, 40e9))
            for size in (MIB, 4 * MIB, 64 * MIB)]  # fmt: skip
    (_, inside), (_, between) = kernel_fits.fit_collectives(rows, load_system("h100"))
    assert inside.values == pytest.approx({"nodes.node_latency": 7e-6}, rel=1e-3)
    assert between.values == pytest.approx({"collectives.message_efficiency": 0.8, "network_latency": 7e-6}, rel=1e-3)


def test_collectives_in_a_node_need_nodes():
    """A system whose links are all alike has no place for them."""
    with refused(PPModelError, "nodes", "must be in the system"):
        kernel_fits.fit_collectives([("all_reduce", 8, 1, MIB, 1e-3)], load_system("mid_cp_mid_nw"))


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "0: "])
def test_nccl_tests_are_read_as_printed(tmp_path, prefix):
    """Out-of-place times of each test with its own ranks; the prefixes of launchers and empty sizes are skipped."""
    path, again = tmp_path / "both.txt", NCCL.replace("all_gather_perf", "all_reduce_perf").replace("node-b", "node-a")
    path.write_text("".join(prefix + line for line in (NCCL + again).splitlines(True)))
    rows, times = timings.read_nccl_tests(path).rows, [(1048576.0, 50.25e-6), (4194304.0, 120.5e-6)]
    assert [row[:3] for row in rows] == [("all_gather", 4, 2)] * 2 + [("all_reduce", 4, 1)] * 2
    assert [row[3:] for row in rows] == [pytest.approx(row) for row in times * 2]


OLD = "".join(line for line in NCCL.splitlines(True) if "starting" not in line and "version" not in line)


def test_the_name_of_a_test_is_needed_and_the_right_one(tmp_path):
    """Old versions do not say which test they are; of the others, the user's must be what the file says."""
    path = tmp_path / "out.txt"
    path.write_text(NCCL)
    assert timings.read_nccl_tests(path, "all_gather") == timings.read_nccl_tests(path)
    with refused(PPModelError, "collective", "all_gather", where="out.txt:2"):
        timings.read_nccl_tests(path, "all_reduce")
    path.write_text(OLD.replace("   redop    root", "").replace("    none      -1", ""))
    row, _ = timings.read_nccl_tests(path, "reduce_scatter").rows
    assert row == ("reduce_scatter", 4, 2, MIB, pytest.approx(50.25e-6))
    for name, remedy in ((None, "name it"), ("allgather", "all_gather")):
        with refused(PPModelError, "collective", "must be one of", where="out.txt:13", remedy=remedy):
            timings.read_nccl_tests(path, name)


def without(text, word):
    return "".join(line for line in text.splitlines(True) if word not in line)


def test_tables_of_products(tmp_path):
    """A time in microseconds or TFLOP/s; other columns are ignored, and bf16 is the precision if none is written."""
    path = tmp_path / "gemm.csv"
    path.write_text("m,n,k,precision,latency_us,note\n1000,1000,1000,,20,x\n1000,1000,1000,FP8,10,\n")
    plain, fp8 = timings.read_gemm_table(path).rows
    assert plain == (1000, 1000, 1000, "bf16", pytest.approx(20e-6))
    assert fp8[3:] == ("fp8", pytest.approx(10e-6))
    for columns, values in (("latency_us,tflops", "20,99"), ("tflops", "100")):
        path.write_text(f"m,n,k,{columns}\n1000,1000,1000,{values}\n")
        assert timings.read_gemm_table(path).rows[0].seconds == pytest.approx(20e-6)


def test_tables_of_attention(tmp_path):
    """TFLOP/s as written, or what follows from a time: half of the scores if causal, 2.5 times in a backward."""
    path = tmp_path / "attention.csv"
    path.write_text("sequence,pass,batch,heads,head_size,causal,time_ms\n2048,fwd,1,64,128,true,0.142\n"
                    "2048,backward,1,64,128,true,0.464\n")  # fmt: skip
    forward, backward = timings.read_attention_table(path).rows
    assert forward == (2048, False, pytest.approx(484e12, rel=2e-3))
    assert backward == (2048, True, pytest.approx(370e12, rel=2e-3))


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
    product, collective = timings.read_trace(path, devices_per_node=8).rows
    assert product == (4096, 2048, 1024, "bf16", pytest.approx(20.5e-6))
    assert collective == ("all_gather", 4, 2, 8.0 * MIB, pytest.approx(300e-6))


def test_traces_of_a_cpu_have_no_kernels(tmp_path):
    """Operations take as long as they take."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(traced(on_gpu=False)))
    assert timings.read_trace(path).rows[0].seconds == pytest.approx(40e-6)


@pytest.mark.parametrize(("read", "text", "field"), [
    (timings.read_gemm_table, "m,n,tflops\n1,1,1\n", "columns"), (timings.read_gemm_table, "m,n,k\n1,1,1\n", "columns"),
    (timings.read_gemm_table, "m,n,k,tflops\n", "rows"), (timings.read_gemm_table, "m,n,k,tflops\n1,1,1,\n", "tflops"),
    (timings.read_gemm_table, "m,n,k,tflops\n1,1,1,nan\n", "tflops"),
    (timings.read_gemm_table, "m,n,k,tflops\n1,0,1,1\n", "n"),
    (timings.read_gemm_table, "m,n,k,tflops,precision\n1,1,1,1,int4\n", "precision"),
    (timings.read_gemm_table, 'm,n,k,tflops\n"1,1,1,1\n', "text"),
    (timings.read_gemm_table, "m,n,k,latency_us,tflops\n1000,1000,1000,20,200\n", "tflops"),
    (timings.read_gemm_table, "m,n,k,time_us,time_ms\n1000,1000,1000,20,20\n", "time_ms"),
    (timings.read_attention_table, "sequence,pass,tflops\n2048,sideways,1\n", "pass"),
    (timings.read_nccl_tests, "", "timings"), (timings.read_nccl_tests, without(NCCL, "none"), "timings"),
    (timings.read_nccl_tests, without(NCCL, " Rank "), "# Rank lines"),
    (timings.read_nccl_tests, without(NCCL, "Rank  3"), "# Rank lines"),
    (timings.read_nccl_tests, NCCL.replace("   120.50", "      N/A"), "time"),
    (timings.read_nccl_tests, NCCL.replace("all_gather_perf", "broadcast_perf"), "collective"),
    (timings.read_nccl_tests, NCCL.replace("26.11      0", "26.11      5"), "#wrong"),
    (timings.read_nccl_tests, NCCL.replace("26.26      0", "26.26      1"), "#wrong"),
    (timings.read_trace, "{", "JSON"), (timings.read_trace, "{}", "aten::mm, aten::addmm"),
    (timings.read_trace, '{"traceEvents": [1, {"args": {}}]}', "aten::mm, aten::addmm"),
    (timings.read_trace, '{"traceEvents": [{"cat": "cpu_op", "name": [], "args": {}}]}', "aten::mm, aten::addmm"),
])  # fmt: skip
def test_files_that_cannot_be_used(tmp_path, read, text, field):
    """One line with the file and what is wrong or missing in it."""
    path = tmp_path / "timings.txt"
    path.write_text(text)
    with refused(PPModelError, field, where="timings.txt"):
        read(path)


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


def probe(system):
    """What probe.py would write on a machine with these constants."""
    rows, attention = [], []
    for precision, peak in (("bf16", system.peak_compute_flops), ("fp8", system.fp8_peak_compute_flops)):
        timed = products(*map(CONSTANTS.get, kernel_fits.PRODUCT_CONSTANTS[precision]), peak)
        rows += [dict(zip(("m", "n", "k", "seconds"), row, strict=True)) | {"precision": precision}
                 for row in zip(*timed, strict=True)]  # fmt: skip
    for keys in SIZES:
        for name, direction, factor in (("attention", "forward", 2.0), ("attention_backward", "backward", 5.0)):
            rate = system.peak_compute_flops * CONSTANTS[f"kernels.{name}_efficiency"] / (1 + 800 / keys)
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
    }  # fmt: skip


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
    replaced = {*CONSTANTS, "kernels.flash_attention_factor"}  # attention was timed as it runs
    unchanged = [entry for entry in start.provenance if entry.field not in replaced]
    assert [entry for entry in system.provenance if entry.field not in CONSTANTS] == unchanged
    source = next(entry.source for entry in system.provenance if entry.field == "compute_efficiency")
    assert re.match("125 timings .*probe.json; 2026-01-31", source)
    assert all(name in said for name in CONSTANTS)
    assert "kernels.batched_efficiency" in said.splitlines()[-1]
    assert "flash_attention_factor" not in out.read_text() + said


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


@pytest.mark.parametrize(("document", "field"), [
    ({}, "probe"), ([], "probe"), ({"probe": 1}, "timings"), ({"probe": 1, "products": 3}, "products"),
    ({"probe": 1, "host": [{"seconds": -1}]}, "seconds"), ({"probe": 1, "host": [{"seconds": True}]}, "seconds"),
    ({"probe": 1, "passes": [{"kernel": "fft", "bytes": 1, "seconds": 1}]}, "kernel"),
    ({"probe": 1, "collectives": [{"op": "all_reduce", "gpus": 3, "nodes": 2, "bytes": 8, "seconds": 1}]}, "gpus"),
    ({"probe": 1, "products": [{"m": 1, "n": 1, "k": 1, "precision": "bf16"}]}, "seconds"),
])  # fmt: skip
def test_probes_that_cannot_be_used_write_nothing(tmp_path, capsys, document, field):
    """One line with the field, exit code 2, and no file."""
    code, out = measure(tmp_path, document)
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert f"{field} = " in line
    assert not out.exists()


@pytest.mark.parametrize(("options", "missing"), [("--system h100", "--out"), ("--out mine.yaml", "--system")])
def test_what_must_be_given(capsys, options, missing):
    """A system to start from, and a file to write."""
    assert main(f"measure --probe probe.json {options}".split()) == 2
    assert missing in capsys.readouterr().err


def test_fp8_needs_its_peak(tmp_path, capsys):
    """A system without that peak has no place for timings in fp8."""
    path = tmp_path / "gemm.csv"
    path.write_text("m,n,k,precision,tflops\n4096,4096,4096,fp8,500\n")
    assert main(["measure", "--system", "a100", "--gemm", str(path), "--out", str(tmp_path / "mine.yaml")]) == 2
    assert "fp8_peak_compute" in capsys.readouterr().err


def test_the_probe_comes_with_the_command(tmp_path):
    """It is written whole, and is Python."""
    path = tmp_path / "probe.py"
    assert main(["measure", "--write-probe", str(path)]) == 0
    assert path.read_text() == (DATA / "templates" / "probe.py").read_text()
    compile(path.read_text(), "probe.py", "exec")


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
    assert main(f"measure --system {folder}/base.yaml --probe {folder}/probe.json --out {out}".split()) == 0
    given = {"model": folder / "model.yaml", "layout": folder / f"{name}.yaml", "framework": "plain"}
    frame = compare("1f1b", system=out, **given)
    steps = json.loads((folder / "runs.json").read_text())["seconds"][name]
    assert frame.iteration_s[0] / median(steps) - 1 == pytest.approx(off, abs=0.002)
