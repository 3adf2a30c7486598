"""Published numbers: a change of any of them by a tenth is noticed, by a recomputation wherever we can recompute it.

Each file has a check of a row against what the model, another file or the row itself says of it. The test changes every
number of every file in turn, up and down, and asks the check. `KNOWN` lists the columns for which nothing can be
recomputed: there the check is only that their sum is the one that was written down with them.
"""

import csv
import hashlib
from decimal import Decimal
from functools import cache

import numpy as np
import pytest
import test_stp_measured as stp
from test_calibrate import FILES, rows_of, stated
from test_pairs import _at_once as at_once

from ppbook.claims import load_claims
from ppbook.claims import rows_of as claims_of
from ppbook.measured import megatron, zero_bubble
from ppmodel import build
from ppmodel.clusters.specs import DATA, FrameworkSpec, load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.metrics import bubble_ratios
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.measured import run_of
from ppmodel.studies.measured.batch import Batch
from ppmodel.studies.points import simulate

REFERENCE = DATA / "reference"
OURS = {"own_run", "chimera_orders.csv", "peers.csv"}
"""What our own programs write, or print when run by us."""

KNOWN = {
    ("zero_bubble_bubble_rates.csv", "zb_1p"): "1.2605",
    ("zero_bubble_bubble_rates.csv", "zb_2p"): "0.0792",
    ("stp_recompute.csv", "samples_per_s"): "16.67",
    ("stp_recompute.csv", "peak_gb"): "178.5",
    ("stp_answers.csv", "1f1b_i"): "133.75",
    ("stp_answers.csv", "zb_v"): "134.15",
    ("stp_answers.csv", "stp"): "147.58",
    ("simulators.csv", "mean_error"): "0.2675",
    ("mlperf_h100.csv", "p10_s"): "135.2317",
    ("mlperf_h100.csv", "p90_s"): "136.5984",
    ("mlperf_h100.csv", "steps"): "8437.0",
    ("deepseek_profile.csv", "kernels_ms"): "223.48",
    ("deepseek_profile.csv", "weight_ms"): "29.80",
    ("deepseek_profile.csv", "exchange_ms"): "81.94",
    ("deepseek_profile.csv", "waiting_ms"): "32.58",
}
MODEL = "hidden", "heads", "kv_heads", "layers", "mlp_hidden", "vocabulary"
LLAMA = {("5120", "40", "40", "40", "13824", "128000"), ("6656", "52", "52", "60", "17920", "128000")}


@cache
def table(name):
    with open(next(REFERENCE.rglob(name)), encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def number(text):
    try:
        return Decimal(text)
    except ArithmeticError:
        return None


def text_of(value):
    return str(int(value)) if value == int(value) else str(value.normalize())


def changes(name):
    """Every number of a file, a tenth more and a tenth less: the row, its column, and the new text."""
    for place, row in enumerate(table(name)):
        for column, text in row.items():
            value = number(text)
            if value:
                yield from ((place, column, text_of(value * by)) for by in (Decimal("1.1"), Decimal("0.9")))


def whole(*columns):
    """A check: these columns hold whole numbers."""

    def check(_name, _place, column, text):
        return column in columns and not text.isdigit()

    return check


def known(name, _place, column, _text):
    """A column's sum is the one written down, and so notices every change of one of its numbers."""
    return (name, column) in KNOWN


# ---- runs that others measured ---------------------------------------------------------------------


@cache
def said_of(name, what):
    """Of a file of runs: its system, the identifiers, errors and the stated mean of one kind of number."""
    system = next(system for system, files in FILES.items() if name in files)
    column = {"time": "iteration_s", "memory": "memory_gb"}[what]
    rows = [row for row in rows_of(system) if row["file"] == name and row[column]]
    mean = next(fitted for file, kind, _, fitted, _ in stated(system) if (file, kind) == (name, what))
    fitted = load_system(system)
    batch = Batch(rows, fitted)
    found = batch.seconds([fitted])[0] if what == "time" else batch.bytes([fitted])[0] / 1e9
    return fitted, [row["id"] for row in rows], np.abs(found / [float(row[column]) for row in rows] - 1), mean, rows


def moves(name, what, identifier, error):
    """Whether another error of one row changes the mean that the packaged system states."""
    _, ids, found, mean, _ = said_of(name, what)
    place = ids.index(identifier)
    return f"{100 * np.append(np.delete(found, place), abs(error)).mean():.6f}" != mean


def refused(name, place, column, text):
    """A run that nobody can have run, or that has another number of GPUs than its layout."""
    row = table(name)[place] | {column: text}
    try:
        layout = run_of(row).layout
        return str(layout.replica_gpus * layout.dp) != row["gpus"]
    except PPModelError:
        return True


def another_node(name, _place, column, text):
    """The system that is fitted to the rows has nodes of as many GPUs as they say."""
    system = next(system for system, files in FILES.items() if name in files)
    return column == "gpus_per_node" and text != str(load_system(system).nodes.devices_per_node)


def another_model(name, place, column, text):
    """The runs of Hagemann et al. are of two models; many have no time to compare with."""
    row = table(name)[place] | {column: text}
    return name == "layouts_a100.csv" and tuple(row[column] for column in MODEL) not in LLAMA


def another_error(name, place, column, text):
    """The mean error that the packaged system states moves with what was measured."""
    what = {"iteration_s": "time", "memory_gb": "memory"}.get(column)
    if what is None:
        return False
    row = table(name)[place]
    _, ids, found, _, _ = said_of(name, what)
    measured, predicted = float(row[column]), prediction(name, what)[row["id"]]
    assert abs(predicted / measured - 1) == pytest.approx(found[ids.index(row["id"])], abs=1e-12)
    return moves(name, what, row["id"], predicted / float(text) - 1)


@cache
def prediction(name, what):
    system, ids, _, _, rows = said_of(name, what)
    if what == "time":
        return dict(zip(ids, Batch(rows, system).seconds([system])[0].tolist(), strict=True))
    return dict(zip(ids, (Batch(rows, system).bytes([system])[0] / 1e9).tolist(), strict=True))


def another_prediction(name, left):
    """Which of some changes of runs with a time leave their prediction, and so the stated mean, as it was."""
    system, ids, _, _, _ = said_of(name, "time")
    timed = [(place, column, text) for place, column, text in left if table(name)[place]["id"] in ids]
    rows = [table(name)[place] | {column: text} for place, column, text in timed]
    seconds = Batch(rows, system).seconds([system])[0] if rows else []
    noticed = {
        change for change, row, second in zip(timed, rows, seconds, strict=True)
        if moves(name, "time", row["id"], second / float(row["iteration_s"]) - 1)
    }  # fmt: skip
    return [change for change in left if change not in noticed]


def activations(name, place, column, text):
    """What Korthikanti et al. count is what we count, dropout's masks among it, to 3 %: they leave out the loss."""
    if column != "activation_gib":
        return False
    run = run_of(table(name)[place], FrameworkSpec(dropout=True))
    given = {"model": run.model, "system": "a100", "layout": run.layout}
    held = simulate(run.case, run.layout.pp, run.num_microbatches, **given).to_dict()["activations_bytes"] / 2**30
    assert held == pytest.approx(float(table(name)[place][column]), rel=0.03)
    return held != pytest.approx(float(text), rel=0.03)


DIGESTS = {
    "anchors.csv": "f47d19c8967cd7b9",
    "dgxc_h100.csv": "7de012ecd52285d5",
    "internevo_a100.csv": "c1f6ddd4fe003556",
    "llm_foundry_fsdp.csv": "0ba59e7f9ade5f0d",
    "megatron_bridge.csv": "878e7cbee025506a",
    "mlperf_b200.csv": "b8e179e1d495e304",
    "nanotron_h100.csv": "a4aa4060de7661fc",
    "nemo.csv": "7d24d8ec9ce453f5",
    "playbook_h100.csv": "51657c51e4ecb750",
    "attention.csv": "1cc79995ffd0fea1",
    "attention_charts.csv": "7672299fd1b81a11",
    "collectives.csv": "12c4fafabc9fc0ea",
    "collectives_nodes.csv": "95e7c07a8443872a",
    "gemm.csv": "c4ea63f778bcb496",
    "gemm_sustained.csv": "8cf83b960c8c5ca9",
    "deepspeed_zbh1.csv": "d39b69f6888fdf11",
    "ep_overlap_combined_1f1b.csv": "0060f42dae5852ef",
    "isambard_gh200_vpp.csv": "baee6df45b13f62c",
    "pipemorph_a10_op_means.csv": "b9aae24e923a417d",
    "pipemorph_iterations.csv": "22f7f92916c7adc6",
    "pipeoffload.csv": "43fc7c0ab03b80e2",
    "primus.csv": "deff88e58a56b206",
    "seq1f1b.csv": "6fa1a091b88136ef",
    "small_and_github.csv": "3c4eb06b30521614",
    "vocab_parallel_artifact.csv": "e7abe70e3094c830",
    "vocab_parallel_tables.csv": "e75c0990bd326af2",
    "zero_bubble_tables.csv": "6a8da40123767600",
}
"""The start of the SHA-256 of tables that no system is fitted to, so that no stated error moves with their numbers."""

RUNS = sorted({path.name for path in (REFERENCE / "measured").glob("*.csv")} - {*DIGESTS})


@pytest.mark.parametrize("name", RUNS)
def test_a_changed_run_is_noticed(name):
    """No number of a run can change by a tenth without a contradiction or another stated error."""
    checks = [known, refused, another_node, another_model, another_error, activations]
    left = [change for change in changes(name) if not any(check(name, *change) for check in checks)]
    assert another_prediction(name, left) == []


@pytest.mark.parametrize("name", DIGESTS)
def test_a_table_that_nothing_is_fitted_to_is_as_it_was_read(name):
    """Its numbers were compared with their source once; a change of any is noticed here."""
    content = next(REFERENCE.rglob(name)).read_bytes()
    assert hashlib.sha256(content).hexdigest().startswith(DIGESTS[name])


# ---- tables of papers --------------------------------------------------------------------------------


def published_rates(name, place, column, text):
    """Three schedules have the published rates to four digits, interleaved 1F1B one that is 2 to 4.5 % above."""
    row = table(name)[place] | {column: text}
    models = {one["model"]: one for one in table("zero_bubble_models.csv")}
    times = [float(row[f"t_{half}_ms"]) for half in ("forward", "input_grad", "weight_grad", "comm")]
    sizes = int(row["devices"]), int(row["microbatches"])
    exact = (rate_of(one.replace("_", "-"), *sizes, *times) for one in ("1f1b", "zb_h1", "zb_h2"))
    if any(f"{rate:.4f}" != row[one] for one, rate in zip(("1f1b", "zb_h1", "zb_h2"), exact, strict=True)):
        return True
    chunks = int(models[row["model"]]["interleaved_chunks"])
    ratio = rate_of("interleaved-1f1b", *sizes, *times, chunks=chunks) / float(row["interleaved_1f1b"])
    return not 1.02 < ratio < 1.045


def rate_of(schedule, ranks, microbatches, forward, input_grad, weight_grad, comm, **options):
    one = build(schedule, ranks, microbatches, **options)
    costs = uniform_costs(one, forward, None, comm, input_grad=input_grad, weight_grad=weight_grad)
    return bubble_ratios(run_graph(compile_graph(one, p2p="latency"), costs)).span


@cache
def margins():
    """Margins of claim 11 as its file expects them, and tolerances, by what is asked for."""
    rows = [row for row in claims_of(load_claims()) if row.criterion["quantity"].startswith("measured_")]
    return {tuple(row.criterion.values()): (row.expected.margin, row.tolerance) for row in rows}


def another_margin(key, found):
    margin, tolerance = margins()[key]
    return tolerance - abs(found) != pytest.approx(margin, abs=1e-6)


@cache
def zero_bubble_runs():
    return zero_bubble.simulated("latency", 1e-3), zero_bubble.memories()


def another_run(name, place, column, text):
    """The mean errors of rate and memory of each schedule are those that claim 11 expects."""
    rates, held = zero_bubble_runs()
    kind = table(name)[place]["schedule"]
    own, key = {
        "samples_per_gpu_s": (rates.simulated, ("measured_rate", kind, 1.0)),
        "memory_gb": (held.gib, ("measured_memory", kind)),
    }.get(column, (None, None))
    if own is None:
        return False
    measured = np.array([float(row[column]) for row in table(name)])
    assert not another_margin(key, (own / measured - 1)[rates.schedule == kind].mean())
    measured[place] = float(text)
    return another_margin(key, (own / measured - 1)[rates.schedule == kind].mean())


def another_size(name, place, column, text):
    """Models of the table are those of `data/models`."""
    row = table(name)[place]
    model = load_model(f"zero_bubble_{row['model'].replace('.', '_').lower()}")
    field = {"layers": "blocks", "hidden": "hidden", "heads": "heads", "sequence": "sequence"}.get(column)
    assert field is None or str(getattr(model, field)) == row[column]
    return field is not None and str(getattr(model, field)) != text


def another_throughput(_name, place, column, text):
    """The mean errors of throughput of each figure and number of chunks are those that claim 11 expects."""
    runs = megatron_runs().copy()
    runs[column] = runs[column].astype(object if not text.isdigit() else runs[column].dtype)
    key = ("measured_throughput", int(runs.figure[place]), int(runs.chunks[place]), 0.82)
    own = (runs.figure == key[1]) & (runs.chunks == key[2])
    assert not another_margin(key, runs[own].error.mean())
    changed = runs.iloc[[place]].drop(columns=["predicted", "error"]).astype({column: float})
    changed[column] = float(text) if column == "tflops_per_gpu" else int(text)
    runs.loc[place, "error"] = megatron.throughput(0.82, runs=changed).error.iloc[0]
    return another_margin(key, runs[own].error.mean())


@cache
def megatron_runs():
    return megatron.throughput(0.82)


def another_overlap(name, place, column, text):
    """In turn is the sum of both, and at once what one contention gives."""
    row = table(name)[place] | {column: text}
    alone, both = float(row["gemm_alone_ms"]) + float(row["all_reduce_alone_ms"]), float(row["at_once_ms"])
    return abs(alone - float(row["in_turn_ms"])) > 0.0015 or abs(at_once(row, 1.169) / both - 1) > 0.01


def another_gain(name, place, column, text):
    """The gain of STP is what the model gives, within 2.5 points over interleaved 1F1B and 3.5 over ZB-V."""
    row = table(name)[place] | {column: text}
    return any(
        100 * abs(gains()[place][kind] - float(row["stp"]) / float(row[kind])) > most
        for kind, most in (("1f1b_i", 2.5), ("zb_v", 3.5))
    )


@cache
def gains():
    on = stp.system(stp.fitted())
    return [
        {kind: stp.samples_per_s(row, "stp", on) / stp.samples_per_s(row, kind, on) for kind in ("1f1b_i", "zb_v")}
        for row in table("stp_throughput.csv")
    ]


def another_simulator(name, place, column, text):
    """SimuMax is too fast by up to 9 % and counts up to 1.5 % too little; Calculon's mean error is 2.83 %."""
    rows = [row if at != place else row | {column: text} for at, row in enumerate(table(name))]
    measured = {row["id"]: row for file in RUNS for row in table(file)}
    if column == "predicted_memory_gib":
        return not -0.015 < float(text) * 2**30 / 1e9 / float(measured[rows[place]["id"]]["memory_gb"]) - 1 < 0.0005
    if column != "predicted_iteration_s":
        return False
    if rows[place]["simulator"] == "SimuMax":
        return not -0.09 < float(text) / float(measured[rows[place]["id"]]["iteration_s"]) - 1 < 0
    off = [
        abs(float(row[column]) / float(measured[row["id"]]["iteration_s"]) - 1)
        for row in rows if row["simulator"] == "Calculon" and row["id"]
    ]  # fmt: skip
    return np.mean(off) != pytest.approx(0.0283, abs=1e-4)


CHECKS = {
    "zero_bubble_bubble_rates.csv": [whole("devices", "microbatches"), known, published_rates],
    "zero_bubble_throughput.csv": [whole("devices", "microbatches", "microbatch_size"), another_run],
    "zero_bubble_models.csv": [whole("microbatch_size", "pipeline", "interleaved_chunks"), another_size],
    "megatron_sc21.csv": [
        whole("figure", "tensor", "pipeline", "chunks", "microbatch_size", "batch"), another_throughput
    ],
    "stp_overlap.csv": [another_overlap],
    "stp_throughput.csv": [whole("tensor", "pipeline", "sequence", "batch"), another_gain],
    "stp_answers.csv": [whole("tensor", "pipeline", "context", "data", "sequence", "batch"), known],
    "stp_recompute.csv": [known],
    "deepseek_profile.csv": [known],
    "simulators.csv": [known, another_simulator],
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_a_changed_table_is_noticed(name):
    """No number of a published table can change by a tenth unnoticed."""
    every = list(changes(name))
    assert every
    assert [change for change in every if not any(check(name, *change) for check in CHECKS[name])] == []


def test_unchanged_tables_are_as_they_should_be():
    """The checks that recompute find nothing in the files as they are; the others hold the sums that were noted."""
    for name, checks in CHECKS.items():
        for place, row in enumerate(table(name)):
            for column, text in row.items():
                if number(text):
                    recomputed = [check for check in checks if check is not known]
                    assert not any(check(name, place, column, text) for check in recomputed), (name, place, column)
    for (name, column), total in KNOWN.items():
        assert str(sum(number(row[column]) or 0 for row in table(name))) == total, (name, column)


def test_every_published_file_has_a_check():
    """A new file of numbers of others comes with one."""
    found = {path.relative_to(REFERENCE) for path in REFERENCE.rglob("*.csv")}
    assert {path.name for path in found if path.parts[0] not in OURS} == {*RUNS, *DIGESTS, *CHECKS}
