"""Constants of a system fitted to measured runs: recovered where the rows tell them, and stated as they are."""

import json
import re
from dataclasses import replace
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused
from test_predict import ROW, write

import ppmodel as pp
from ppmodel.cli import main
from ppmodel.clusters.specs import DATA, load_framework, load_system, packaged
from ppmodel.errors import PPModelError
from ppmodel.schedules import names, small
from ppmodel.schedules.cases import Case
from ppmodel.studies.measured import FITS, fit_word, memory_errors, memory_margin, predicted, read_rows
from ppmodel.studies.measured.batch import Batch
from ppmodel.studies.measured.calibrate import INTERVAL, SCALE, calibrated, measured_data
from ppmodel.studies.measured.constants import MEMORY, TIME, Constant, chosen, value_of, with_values
from ppmodel.studies.measured.fit import Regression, fitted, parted, refitted, with_spread
from ppmodel.studies.measured.rows import configuration, is_healthy, system_of
from ppmodel.studies.measured.start import start_under
from ppmodel.studies.measured.stated_run import stated_run
from ppmodel.studies.sweep import compute_rows, load_sweep

pytest.importorskip("scipy")
MEASURED = DATA / "reference" / "measured"
STARTS = {path.stem: path for path in sorted((DATA / "starts").glob("*.yaml"))}
SAID = re.compile(r"(\S+\.csv): (\d+) rows, as fitted ([\d.]+)%, unseen mean ([\d.]+)%")
FEW = {
    "a100_vtrain": 40, "a100_layouts": 12, "a100_bigscience": 8, "b200_simumax": 1, "h100_mlperf": 1,
    "a100_selene": 1, "h100_playbook": 10, "a100_lucie": 2,
}  # fmt: skip
FILES = {
    "a100_vtrain": ["vtrain_single.csv", "vtrain_multi.csv"], "a100_layouts": ["layouts_a100.csv"],
    "a100_bigscience": ["bigscience_a100.csv"], "h100_mlperf": ["mlperf_h100.csv"],
    "b200_simumax": ["simumax_b200.csv"], "a100_selene": ["korthikanti_a100.csv"],
    "h100_playbook": ["playbook_h100.csv"], "a100_lucie": ["lucie_a100.csv"],
}  # fmt: skip
RANGE = [
    f"framework.{name}"
    for name in ("fastest", "slowest", "range_runs", "range_gpus", "range_precisions", "range_sources")
]


@cache
def rows_of(name):
    return [
        row | {"file": file} for file in FILES[name] for row in read_rows(MEASURED / file)[1]
        if is_healthy(row) and not (file == "playbook_h100.csv" and row["status"] == "failed")
    ]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_batches_are_the_twin_of_predictions(name):
    """Time and memory of many rows at once are those of each row by itself, whatever constants and precision."""
    rows, start = rows_of(name)[:: FEW[name]], load_system(STARTS[name])
    if start.fp8_peak_compute_flops:
        rows = [row | {"precision": word} for row, word in zip(rows, cycle(("fp8", "bf16", "")), strict=False)]
    other = with_values(start, {one.name: one.start * 0.9 for one in chosen(start)})
    times, peaks = Batch(rows, start).seconds([start, other]), Batch(rows, start).bytes([start, other])
    for system, seconds, held in zip((start, other), times, peaks, strict=True):
        alone = [predicted(row, system) for row in rows]
        assert seconds == pytest.approx([one["predicted_iteration_s"] for one in alone], rel=1e-12)
        assert held / 1e9 == pytest.approx([one["predicted_memory_gb"] for one in alone], rel=1e-12)


def test_batches_predict_rows_under_a_framework_that_the_system_does_not_have():
    """What a framework changes of a system counts for its rows, also where a batch computes beforehand."""
    rows, system = [*rows_of("a100_bigscience")[::8], *rows_of("a100_vtrain")[::40]], load_system("a100")
    alone = [predicted(row, system)["predicted_iteration_s"] for row in rows]
    assert Batch(rows, system).seconds([system])[0] == pytest.approx(alone, rel=1e-12)


@st.composite
def legal_rows(draw, schedule):
    """Random rows of a schedule; most of them can be predicted."""
    sizes = {name: draw(st.sampled_from(values)) for name, values in {
        "tp": (1, 2, 4), "cp": (1, 2), "dp": (1, 2), "pp": (2, 4), "zero": (0, 1, 2, 3), "microbatch_size": (1, 2),
        "pipeline_runs": (1, 1, 2),
    }.items()}  # fmt: skip
    words = {name: draw(st.sampled_from(values)) for name, values in {
        "sequence_parallel": ("true", "false"), "recompute": ("none", "selective", "full"),
        "attention": ("flash", "unfused", "unfused-fused-softmax"), "gated_mlp": ("true", "false"),
    }.items()}  # fmt: skip
    chunks = "2" if "chunks" in Case(schedule).known_options else "1"
    batch = sizes["dp"] * sizes["microbatch_size"] * sizes["pipeline_runs"] * draw(st.sampled_from((sizes["pp"], 12)))
    numbers = {name: str(size) for name, size in sizes.items()}
    return ROW | words | numbers | {"schedule": schedule, "chunks": chunks, "global_batch": str(batch)}


@pytest.mark.parametrize("schedule", [name for name in names() if not small(name).has_shards])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(data=st.data(), overlaps=st.booleans(), name=st.sampled_from(["a100_layouts", "h100_mlperf"]))
def test_calibrations_fit_the_model_that_predicts(schedule, data, overlaps, name):
    """Whatever the schedule and the row, time and memory to be fitted are those of `predict`."""
    start = load_system(STARTS[name])
    switches = dict.fromkeys(("overlap_tensor", "overlap_gradients", "overlap_parameters"), overlaps)
    system = replace(start, framework=replace(start.framework, **switches))
    row = data.draw(legal_rows(schedule))
    alone = predicted(row, system)
    assume(alone["refused"] is None)
    assert Batch([row], system).seconds([system])[0, 0] == pytest.approx(alone["predicted_iteration_s"], rel=1e-12)
    assert Batch([row], system).bytes([system])[0, 0] / 1e9 == pytest.approx(alone["predicted_memory_gb"], rel=1e-12)


# ---- what the packaged systems state -------------------------------------------------------------


def stated(name):
    """File, what, rows, error as fitted and on unseen rows, in per cent, as the sources of a packaged system say."""
    return [
        (file, what, int(rows), fitted, float(mean))
        for what in ("time", "memory", "fits")
        for file, rows, fitted, mean in SAID.findall(sources_of(load_system(name)).get(f"errors.{what}", ""))
    ]


def sources_of(system):
    return {one.field: one.source for one in system.provenance}


@pytest.mark.parametrize("name", FILES)
def test_errors_are_the_means_of_what_their_sources_state(name):
    """Over the files of runs; what no file states is None."""
    errors = load_system(name).errors
    for what in ("time", "memory", "fits"):
        means = [mean / 100 for _, known, *_, mean in stated(name) if known == what]
        assert getattr(errors, what) == (pytest.approx(np.mean(means), abs=1e-4) if means else None)


@pytest.mark.parametrize("name", FILES)
def test_packaged_systems_are_as_far_off_as_they_state(name):
    """To every digit: a measured value, a cost or a constant that changes turns this red."""
    said = {entry[:-1] for entry in stated(name)}
    data = measured_data([MEASURED / file for file in FILES[name]], load_system(name)).values()
    sources = [source for of_kind in data for source in of_kind.sources(*[of_kind.predicted([{}])[0]] * 2)]
    found = {(source.file, source.what, source.rows, f"{100 * source.fitted:.6f}") for source in sources}
    assert said == {entry for entry in found if entry[1] in {what for _, what, *_ in said}}


# by configuration, not by row: no copy of a row is seen, which is harder
MOST = {
    ("vtrain_multi.csv", "time"): 5.3, ("vtrain_single.csv", "time"): 5.0, ("layouts_a100.csv", "time"): 4.0,
    ("layouts_a100.csv", "fits"): 8.0, ("bigscience_a100.csv", "time"): 3.3, ("bigscience_a100.csv", "memory"): 4.8,
    ("korthikanti_a100.csv", "time"): 3.5, ("mlperf_h100.csv", "time"): 4.5, ("simumax_b200.csv", "time"): 2.0,
    ("simumax_b200.csv", "memory"): 4.0, ("lucie_a100.csv", "time"): 5.7,
    ("playbook_h100.csv", "time"): 9.4,  # from 10 % MFU
}  # fmt: skip


def test_errors_on_unseen_rows_are_within_what_was_reached():
    """Mean errors of the five-fold cross-validation, in per cent."""
    reached = {(file, what): mean for name in FILES for file, what, _, _, mean in stated(name)}
    assert reached.keys() == MOST.keys()
    assert [key for key in MOST if reached[key] > MOST[key]] == []


def test_memory_is_called_tight_by_what_the_files_state():
    """What nine of ten errors of memory on unseen rows stay below, in fitted systems; the largest is the margin."""
    sources = {name: sources_of(load_system(name)).get("errors.memory") for name in FILES}
    said = {name: float(re.search(r"90 % ([\d.]+)%", text)[1]) / 100 for name, text in sources.items() if text}
    assert memory_errors() == pytest.approx(said, abs=1e-4)
    most = 1 - memory_margin()
    assert memory_margin() == pytest.approx(max(said.values()), abs=1e-4)
    assert [fit_word(share, 1.0) for share in (most - 1e-6, most + 1e-6, 2 - most - 1e-6, 2 - most + 1e-6)] == [*FITS]
    assert [fit_word(share, 1.0) for share in (1.0, 1 + 1e-6)] == [*FITS[1:3]]


@pytest.mark.parametrize("name", FILES)
def test_what_is_fitted_says_to_which_rows(name):
    """Of kind fitted, with interval, rows, files, error and date; inside its interval; no value left of kind stated."""
    system, constants = load_system(name), {*TIME, *MEMORY}
    fitted = [one for one in system.provenance if one.kind == "fitted" and not one.field.startswith("errors.")]
    assert {*RANGE} <= {one.field for one in fitted}
    fitted = [one for one in fitted if one.field not in RANGE]
    assert fitted
    assert {one.field for one in fitted} <= constants
    for one in fitted:
        found = re.match(r"95 %: (\S+) to (\S+), from \S+; \d+ rows of .+%\); \d{4}-\d\d-\d\d$", one.source)
        assert float(found[1]) <= one.value <= float(found[2])
        assert all(file in one.source for file in FILES[name])


# ---- fits ----------------------------------------------------------------------------------------

TRUE = {"compute_efficiency": 0.62, "kernels.stream_efficiency": 0.31, "collectives.node_efficiency": 0.55}


def made(tmp_path, system, rows, noise=0.0):
    """A file of rows whose times and memory the model itself gives, with some noise."""
    times, peaks = Batch(rows, system).seconds([system])[0], Batch(rows, system).bytes([system])[0]
    chance = np.random.default_rng(1)
    rows = [
        row
        | {"iteration_s": str(float(time * np.exp(noise * chance.standard_normal()))), "memory_gb": repr(peak / 1e9)}
        for row, time, peak in zip(rows, times.tolist(), peaks.tolist(), strict=True)
    ]
    return write(tmp_path / "rows.csv", *rows)


def fit(tmp_path, rows, *more, out="fitted.yaml", start=STARTS["a100_layouts"]):
    command = ["calibrate", rows, "--system", str(start), "--out", str(tmp_path / out), "--date", "2026-01-31"]
    return main([*command, *more])


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_constants_that_made_the_rows_are_found_again(tmp_path, noise):
    """Of rows that the model itself made: without noise to a hundredth, with noise within their intervals."""
    start = load_system(STARTS["a100_layouts"])
    rows = [row for row in rows_of("a100_layouts") if row["iteration_s"]][::4]
    true = with_values(start, TRUE | {"memory.activation_factor": 1.9})
    names = [*TRUE, "memory.activation_factor"]
    rows = made(tmp_path, true, rows, noise)
    assert fit(tmp_path, rows, "--prior", "1", "--constants", ",".join(names)) == 0
    found = load_system(tmp_path / "fitted.yaml")
    for one in found.provenance:
        if one.field in names:
            low, high = map(float, re.match(r"95 %: (\S+) to (\S+),", one.source).groups())
            value = value_of(true, one.field)
            assert low * 0.99 <= value <= high * 1.01
            assert noise or value_of(found, one.field) == pytest.approx(value, rel=0.01)
    errors = {"errors.time", "errors.memory", "errors.memory_nine_tenths"}
    assert {one.field for one in found.provenance if one.kind == "fitted"} == {*names, *errors, *RANGE}
    assert (found.errors.time < 0.001) == (noise == 0)


def test_constants_that_the_rows_cannot_tell_stay(tmp_path, capsys):
    """No row runs unfused attention or leaves a node: what these take stays where it was, as it was, and is named."""
    start = load_system(STARTS["a100_layouts"])
    rows = [row for row in rows_of("a100_layouts") if row["attention"] == "flash" and row["iteration_s"]][::8]
    rows = [row | {"dp": "1", "global_batch": "32", "gpus": ""} for row in rows if int(row["tp"]) * int(row["pp"]) <= 8]
    names = "compute_efficiency,kernels.softmax_efficiency,collectives.data_efficiency"
    assert fit(tmp_path, made(tmp_path, start, rows), "--constants", names) == 0
    found = load_system(tmp_path / "fitted.yaml")
    fitted = [one.field for one in found.provenance if one.kind == "fitted"]
    assert fitted == [
        "compute_efficiency", *RANGE, "errors.time", "errors.memory", "errors.memory_nine_tenths",
    ]  # fmt: skip
    kept = {one.field: one for one in start.provenance}
    assert all(one == kept[one.field] for one in found.provenance if one.kind != "fitted")
    assert capsys.readouterr().out.count("not determined by these rows") == 2


def fitted_names(system):
    """The constants that a file says were fitted to rows."""
    return [entry.field for entry in system.provenance if entry.kind == "fitted" and INTERVAL in entry.source]


def test_a_packaged_fit_is_made_again(tmp_path):
    """From the same rows and the same start, but for rounding; of another system, its constants of memory."""
    packaged = load_system("a100_selene")
    rows, names = str(MEASURED / "korthikanti_a100.csv"), ",".join(fitted_names(packaged))
    assert fit(tmp_path, rows, "--constants", names, start=STARTS["a100_selene"]) == 0
    found = load_system(tmp_path / "fitted.yaml")
    for one, other in zip(packaged.provenance, found.provenance, strict=True):
        assert (one.field, one.kind) == (other.field, other.kind)
        is_rounded = one.kind == "fitted" and not isinstance(one.value, str)
        assert one.value == (pytest.approx(other.value, rel=2e-3) if is_rounded else other.value)
    packaged = load_system("b200_simumax")
    rows, names = str(MEASURED / "simumax_b200.csv"), [name for name in fitted_names(packaged) if name in MEMORY]
    assert names
    assert fit(tmp_path, rows, "--constants", ",".join(names), start=STARTS["b200_simumax"]) == 0
    found = load_system(tmp_path / "fitted.yaml")
    for name in names:
        assert value_of(found, name) == pytest.approx(value_of(packaged, name), rel=2e-3)


@pytest.mark.parametrize("text", [
    "two\nerrors:\n  time: {value: 0}", "\x85a\u2028b\x7f\x1b[31m", 'quoted " and \\ and \\n', "#: {", "é 😀", "\udcff",
])  # fmt: skip
def test_a_title_and_names_of_files_say_nothing_else(tmp_path, text):
    """Whatever they are, the file is read, has the same title and no key that its numbers do not give."""
    plain = made(tmp_path, load_system("b200_simumax"), rows_of("b200_simumax")[:4])
    named = tmp_path / f"{text.replace('/', '')}.csv"
    Path(plain).rename(named)
    more = "--constants", "compute_efficiency", "--title", text
    assert fit(tmp_path, str(named), *more, start=STARTS["b200_simumax"]) == 0
    found, start = load_system(tmp_path / "fitted.yaml"), load_system(STARTS["b200_simumax"])
    shown = text.encode(errors="backslashreplace").decode()
    assert found.title == "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)
    assert [one.field for one in found.provenance] == [one.field for one in start.provenance]
    assert named.name.replace(text, shown) in sources_of(found)["compute_efficiency"]


def test_a_second_fit_states_its_own_errors(tmp_path):
    """Those of the system that it starts from are replaced; and the same rows give the same bytes."""
    rows, names = made(tmp_path, load_system("b200_simumax"), rows_of("b200_simumax")), "compute_efficiency"
    for out in ("fitted.yaml", "again.yaml"):
        assert fit(tmp_path, rows, "--constants", names, start="b200_simumax", out=out) == 0
    assert (tmp_path / "fitted.yaml").read_bytes() == (tmp_path / "again.yaml").read_bytes()
    assert load_system("b200_simumax").errors.time > 0.01
    assert load_system(tmp_path / "fitted.yaml").errors.time < 0.001


@pytest.mark.parametrize(("number", "told"), [(4, "too few rows to tell; as fitted"), (5, "mean 0.")])
def test_a_fit_to_few_rows_is_not_judged(tmp_path, capsys, number, told):
    """Below five rows there are no five folds: the file states no error on unseen rows, but that as fitted."""
    rows = made(tmp_path, load_system("b200_simumax"), rows_of("b200_simumax")[:number])
    Path(rows).write_text(Path(rows).read_text().replace("iteration_s", "as_measured"))
    names = ["--constants", "reserve"] if number < 5 else []
    assert fit(tmp_path, rows, *names, start="b200_simumax") == 0
    said = capsys.readouterr().out
    assert told in said
    assert "no row has a number in iteration_s: time not fitted" in said
    assert re.search(r"reserve +1\.\d+ GB  \(95 %: [.\d]+ to [.\d]+\)\n", said)
    assert ("no block memory: copy from" in said) == (number == 5)
    found = load_system(tmp_path / "fitted.yaml")
    assert (found.errors is None) == (number < 5)
    assert ("as fitted" in sources_of(found)["reserve"]) == (number < 5)


# ---- refusals ------------------------------------------------------------------------------------


def one_row(tmp_path, **changed):
    return write(tmp_path / "rows.csv", ROW | {"iteration_s": "2.5"} | changed)


@pytest.mark.parametrize(("changed", "arguments", "told"), [
    ({}, "--constants peak_compute", "peak_compute: cannot be fitted"),
    ({}, "--constants kernels.block_host", "kernels.block_host: is not in the system"),
    ({}, "--constants compute_latency", "compute_latency: is 0 in the system"), ({}, "--prior 0", "--prior = 0"),
    ({"tp": "3"}, "", "row a: row = refused"), ({"iteration_s": ""}, "", "have no measurements"),
    ({"status": "failed", "memory_gb": "37"}, "", "have no measurements"),
    ({"iteration_s": "nan"}, "", "rows.csv:2: iteration_s = 'nan': must be a number above 0"),
    ({"iteration_s": "1e-320"}, "", "iteration_s = '1e-320': must be a number above 0"),
    ({"memory_gb": "37 GB"}, "", "memory_gb = '37 GB': must be a number above 0"),
    ({"iteration_s": "2500"}, "", "write seconds, not milliseconds"),
    ({"iteration_s": "0.04"}, "", "write seconds, not minutes"),
    ({"memory_gb": "37000"}, "", "write 1e9 bytes, not MB or MiB"),
    ({"memory_gb": "1000000"}, "", "or start from a system that is nearer"),
    ({"status": "OOM"}, "", "row a: status = OOM: must be one of measured, oom, failed, or empty; did you mean oom?"),
])  # fmt: skip
def test_what_cannot_be_fitted_is_refused_in_one_line(tmp_path, capsys, changed, arguments, told):
    """Constants, rows that cannot be predicted, files without a measurement: exit code 2, and nothing is written."""
    assert fit(tmp_path, one_row(tmp_path, **changed), *arguments.split()) == 2
    message = capsys.readouterr().err
    assert told in message
    assert message.count("\n") == 1
    assert not (tmp_path / "fitted.yaml").exists()


def test_targets_and_systems_that_do_not_serve_are_refused(tmp_path, capsys):
    """A file that is read, another ending, no system, a date that is none."""
    rows = one_row(tmp_path)
    for options in ("--system a100 --out {rows}", "--system a100 --out x.txt", "--out x.yaml",
                    "--system a100 --out x.yaml --date today"):  # fmt: skip
        assert main(["calibrate", rows, *options.format(rows=rows).split()]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_without_scipy_the_extra_is_named(tmp_path, capsys, monkeypatch):
    """In one line, with exit code 2."""
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    assert fit(tmp_path, one_row(tmp_path)) == 2
    assert "ppmodel[calibrate]" in capsys.readouterr().err


# ---- trust ---------------------------------------------------------------------------------------

RUN_WORDS = "llama3_70b tp=8 pp=4 dp=4 global_batch=256 zero=1 sequence_parallel=true"
RUN_KEYS = {"tp": 8, "dp": 4, "global_batch": 256, "zero": 1, "sequence_parallel": True}


@pytest.mark.parametrize("framework", [None, *packaged("frameworks")])
def test_every_command_agrees_with_the_calibrated_run(tmp_path, capsys, framework):
    """One run in words, under each framework: calibrate, predict, simulate, compare and sweep give the same seconds.

    The fitted system says which framework that was.
    """
    more = ["--framework", framework] if framework else []
    measured = 40 if framework == "nanotron" else 17  # its host makes the device wait in such a pipeline
    words, out = f"{RUN_WORDS} iteration_s={measured}", str(tmp_path / "mine.yaml")
    assert main(["calibrate", "--run", words, "--system", "h100", *more, "--out", out]) == 0
    system, (_, row) = load_system(out), stated_run(words)
    seconds = Batch([row], system).seconds([system])[0, 0]
    assert seconds == pytest.approx(measured, rel=1e-8)
    same = pytest.approx(seconds, rel=1e-12)
    assert predicted(row, system)["predicted_iteration_s"] == same
    assert predicted(row | {"framework": framework or "megatron"}, system)["predicted_iteration_s"] == same
    given = {"model": "llama3_70b", "system": out} | RUN_KEYS
    assert pp.simulate("1f1b", 4, **given).iteration_s == same
    assert pp.compare("1f1b", 4, **given).iteration_s[0] == same
    swept = tmp_path / "sweep.yaml"
    layout = json.dumps({"pp": 4} | RUN_KEYS)
    swept.write_text(f"schedules: [1f1b]\nmodels: [llama3_70b]\nsystems: [{json.dumps(out)}]\nlayouts: [{layout}]\n")
    assert compute_rows(load_sweep(swept), 0, 1)["iteration_s"][0] == same
    capsys.readouterr()
    asked = ["--pp", "4", "--model", "llama3_70b", "--system", out, "--tp", "8", "--global-batch", "256"]
    assert main(["simulate", "1f1b", *asked]) == 0
    assert f"{framework or 'megatron'}, as mine was fitted\n" in capsys.readouterr().out
    assert pp.compare("1f1b", 4, **given).framework[0] == load_framework(framework or "megatron").label


@pytest.mark.parametrize("start", ["h100", "b200_simumax"])
@pytest.mark.parametrize("framework", [[], ["--framework", "nemo"]])
def test_bytes_of_gradients_are_the_files_too(tmp_path, start, framework):
    """No option says them where the file is used."""
    out, measured = str(tmp_path / "mine.yaml"), 60
    words = f"{RUN_WORDS} gradient_bytes=8 iteration_s={measured}"
    assert main(["calibrate", "--run", words, "--system", start, *framework, "--out", out]) == 0
    simulated = pp.simulate("1f1b", 4, model="llama3_70b", system=out, **RUN_KEYS)
    assert simulated.iteration_s == pytest.approx(measured, rel=1e-9)
    assert load_system(out).framework.gradient_bytes == 8


@pytest.mark.parametrize(("name", "ratio"), [*zip(packaged("systems"), cycle([0.5, 1.7]))])
def test_one_run_is_enough_on_every_system(tmp_path, name, ratio):
    """Faster or slower than predicted, the file gives its time to every digit, in predictions, simulations and plans.

    It states a range, wider by the run's own error, and scales other runs by what no other constant explains.
    """
    sizes = {"tp": 2, "pp": 2, "dp": 2, "microbatch_size": 1, "zero": 1, "sequence_parallel": True}
    words = "llama2_13b " + " ".join(f"{key}={str(value).lower()}" for key, value in sizes.items()) + " global_batch=16"
    _, row = stated_run(words)
    before = load_system(name)
    seconds = float(f"{ratio * predicted(row, before)['predicted_iteration_s']:.7g}")
    out = str(tmp_path / "mine.yaml")
    assert main(["calibrate", "--run", f"{words} iteration_s={seconds!r}", "--system", name, "--out", out]) == 0
    same, system = pytest.approx(seconds, rel=1e-9), load_system(out)
    assert predicted(row, system)["predicted_iteration_s"] == same
    simulated = pp.simulate("1f1b", model="llama2_13b", system=out, global_batch=16, **sizes)
    assert simulated.iteration_s == same
    fixed = {key: value for key, value in sizes.items() if key != "sequence_parallel"} | {"recompute": "none"}
    roomy = replace(system, memory_capacity_bytes=2**50)
    frame = pp.plan("llama2_13b", roomy, 8, 16, fix=fixed, schedules=["1f1b"])
    assert same in list(frame.iteration_s)
    assert (system.range is None) == (system_of(row, before).range is None)
    if system.range is not None:
        width, known = (np.log(high / low) for low, high in (system.range, system_of(row, before).range))
        assert (width, system.range[0] * system.range[1]) == pytest.approx((np.sqrt(2) * known, 1.0), abs=5e-4)
    assert system.timed.timed == system.timed


def test_a_run_may_state_its_utilization_and_the_file_of_its_model(tmp_path):
    """The fitted system then reaches that MFU with the model of the file, as with the packaged one."""
    file = tmp_path / "own.yaml"
    file.write_text((DATA / "models" / "llama3_70b.yaml").read_text())
    given = RUN_KEYS | {"pp": 4}
    for model in ("llama3_70b", str(file)):
        words, out = f"{RUN_WORDS.replace('llama3_70b', model)} mfu=0.37", str(tmp_path / "mine.yaml")
        assert main(["calibrate", "--run", words, "--system", "h100", "--out", out]) == 0
        mfu = pp.compare("1f1b", model=model, system=out, **given).model_flops_utilization[0]
        assert mfu == pytest.approx(0.37, rel=1e-9)
    with refused(PPModelError, "mfu", "at most 1"):
        stated_run(f"{RUN_WORDS} mfu=37")
    with refused(PPModelError, "mfu", "beside iteration_s"):
        stated_run(f"{RUN_WORDS} mfu=0.37 iteration_s=12")


def test_a_run_in_a_file_is_the_run_in_words(tmp_path):
    """The same keys, one below another; in both, what is not a key or no number is refused."""
    file = tmp_path / "run.yaml"
    file.write_text("model: llama3_70b\n" + "\n".join(f"{key}: {json.dumps(value)}" for key, value in RUN_KEYS.items()))
    assert stated_run(f"{file}")[1] == stated_run(RUN_WORDS.replace("pp=4 ", ""))[1]
    file.write_text("tensor: 8\n")
    for text, field, rule in (("llama3_70b tensor=8", "--run", "must be one of"), (str(file), "tensor", "not a known"),
                              ("llama3_70b iteration_s=fast", "iteration_s", "above 0")):  # fmt: skip
        with refused(PPModelError, field, rule):
            stated_run(text)


def test_a_run_of_a_model_of_ones_own_needs_no_more_than_its_sizes():
    """What its words leave out is as for a packaged model of the same sizes."""
    sizes = "hidden=5120 heads=40 kv_heads=40 layers=40 mlp_hidden=13824 gated_mlp=true vocabulary=32000 sequence=4096"
    rows = [stated_run(f"{model} pp=2 dp=2 global_batch=16")[1] for model in (sizes, "llama2_13b")]
    own, packaged = (predicted(row, load_system("h100"))["predicted_iteration_s"] for row in rows)
    assert own == pytest.approx(packaged, rel=1e-9)


def test_copies_of_a_configuration_are_in_one_fold():
    """Rows that differ only in measurement or source are left out together."""
    rows = rows_of("b200_simumax")
    labels = [configuration(row) for row in (*rows, *(row | {"source": "copy", "iteration_s": "1"} for row in rows))]
    for seen, held_out in parted(labels, 5, 0):
        assert not {labels[place] for place in seen} & {labels[place] for place in held_out}
    assert sorted(place for _, held_out in parted(labels, 5, 0) for place in held_out) == list(range(len(labels)))


@pytest.mark.parametrize("noise", [0.03, 0.1])
@pytest.mark.parametrize("number", [5, 20])
def test_intervals_cover(number, noise):
    """Of 120 fits to noisy rows, about 95 % of the intervals contain the constant that made them."""
    chance, covered = np.random.default_rng(number), []
    for _ in range(120):
        drawn = noise * chance.standard_normal(number)
        problem = Regression(
            [Constant("a", 1.0, 1e-300, np.inf)],
            lambda points, drawn=drawn: np.array([np.log(point["a"]) - np.log(1.1) - drawn for point in points]),
            SCALE, 0.5,
        )  # fmt: skip
        fit = fitted(problem)
        folds = parted(list(range(number)), 5, 0)
        refits = [refitted(problem, fit.values, seen) for seen, _ in folds]
        fit = with_spread(fit, refits)
        value, factor = fit.values["a"], fit.factors["a"]
        covered.append(value / factor <= 1.1 <= value * factor)
    assert 0.91 <= np.mean(covered) <= 0.995


def test_few_rows_scale_one_factor(tmp_path, capsys):
    """Four configurations do not tell a dozen constants apart; the factor is named."""
    system = with_values(load_system("h100"), {"kernels.sustained_clock": 0.6})
    rows = [ROW | {"tp": tp, "dp": dp} for tp, dp in (("1", "1"), ("2", "1"), ("2", "2"), ("4", "1"))]
    start = start_under(system)
    rows = made(tmp_path, start, rows)
    assert fit(tmp_path, rows, "--only", "time", start="h100") == 0
    assert "only kernels.sustained_clock, time_factor fitted" in capsys.readouterr().out
    found = load_system(tmp_path / "fitted.yaml")
    assert found.kernels.sustained_clock == pytest.approx(0.6, rel=1e-3)
    assert found.time_factor == pytest.approx(1.0, rel=1e-3)
    assert sorted(fitted_names(found)) == ["kernels.sustained_clock", "time_factor"]  # not those of kernels


def test_an_outlier_hardly_moves_the_robust_mean(tmp_path):
    """One row of twelve takes five times as long: the mean shows it, mean without the worst tenth and median do not."""
    start, rows = load_system(STARTS["b200_simumax"]), rows_of("b200_simumax")[:12]
    file = made(tmp_path, start, rows)
    first = repr(float(Batch(rows, start).seconds([start])[0, 0]))
    Path(file).write_text(Path(file).read_text().replace(first, repr(3 * float(first))))
    errors = calibrated([file], start, ["compute_efficiency"], kinds=("time",)).sources[0].unseen
    assert errors["mean"] > 0.04
    assert max(errors["mean without the worst tenth"], errors["median"]) < 0.01
