"""What a sweep writes and prints: its table, its errors and its progress."""

import contextlib
import fcntl
import io
import json
import os
import re
import struct
import termios
import time

import numpy as np
import pytest
from pyarrow import parquet
from sweeps import PLAIN, SHORT, run

import ppmodel
from ppmodel.clusters.specs import DATA
from ppmodel.studies.points.columns import column_names
from ppmodel.studies.sweep import execution, run_sweep
from ppmodel.studies.workers import progress, runners
from ppmodel.studies.workers.store import Store


def test_the_output_is_a_table_that_knows_its_sweep(file, tmp_path, capsys, plain_rows):
    """Columns, types and rows as promised; the specification with all contents stands in the file."""
    out = tmp_path / "results.parquet"
    code, said, _ = run(capsys, file(PLAIN), "--out", out)
    table = parquet.read_table(out)
    refused = sum(row["refused"] is not None for row in plain_rows)
    alike = sum(row["schedule"] == "hanayo" and row["pp"] != row["microbatches"] for row in plain_rows)
    assert (code, said) == (
        0,
        f"{out}: {len(plain_rows)} rows, {len(plain_rows)} computed now; {refused} refused, {alike} like this: "
        "microbatches = 4: must equal pp (2) for hanayo, which is defined only there; "
        "pass microbatches 2\n",
    )
    assert table.column_names == list(column_names("schedule", "system", "result", "remark"))
    assert table.to_pylist() == plain_rows
    record = json.loads(table.schema.metadata[b"ppmodel_sweep"])
    assert record["sweep"]["systems"][1]["name"] == "dgx_h100"
    assert record["sweep"]["systems"][1]["network_bandwidth_bytes_per_s"] == 50e9
    assert not list(tmp_path.glob("*.parts"))


FITTING = """
schedules: [gpipe, 1f1b, chimera]
pp: 32
microbatches: [256, 512]
p2p: [latency, overlapped]
systems: [roomy.yaml, dgx_h100]
models: llama3_70b
"""


@pytest.mark.parametrize("noise", ["", "noise: [{jitter: 0.5}, {jitter: 0.1}]\nseeds: {from: 1, to: 2}\n"])
def test_the_page_chooses_the_fastest_that_fits(file, tmp_path, monkeypatch, noise):
    """Its lines run on an output, with and without noise: of each setting the best mean over the seeds that fits."""
    monkeypatch.chdir(tmp_path)
    system = (DATA / "systems" / "dgx_h100.yaml").read_text()
    file(re.sub(r"(memory_capacity:\n?\s*\{value: )[^,]+", r"\g<1>512", system), "roomy.yaml")
    run_sweep(file(FITTING + noise), "results.parquet")
    blocks = re.findall(r"```python\n(.*?)```", (DATA.parent / "book" / "sweeps.md").read_text(), re.DOTALL)
    found = {}
    for block in blocks:
        exec(block, found)
    runs, best = {}, {}
    names = ("system", "model", "pp", "microbatches", "p2p", "allreduce", "jitter", "straggling", "slowdown")
    for row in parquet.read_table("results.parquet").to_pylist():
        if row["refused"] is None and row["peak_memory_bytes"] <= row["memory_capacity_bytes"]:
            runs.setdefault((*(row.get(name) for name in names), row["label"]), []).append(row["makespan_s"])
    for (*setting, _), spans in runs.items():
        best[tuple(setting)] = min(best.get(tuple(setting), np.inf), np.mean(spans))
    assert {label for *_, label in runs} == {"1F1B", "Chimera"}  # what GPipe holds does not fit
    assert len(best) == (8 if noise else 4)  # of each microbatches, semantics and noise
    assert sorted(found["fastest"]["makespan_s"]) == pytest.approx(sorted(best.values()))


def test_a_finished_sweep_is_not_computed_again(file, tmp_path, capsys, monkeypatch):
    """The same command finds its rows; another sweep is refused, and replaces them only when forced."""
    path, out = file(SHORT), tmp_path / "results.parquet"
    run_sweep(path, out)
    before = out.read_bytes()
    monkeypatch.setattr(execution, "compute_rows", None)
    assert run(capsys, path, "--out", out) == (0, f"{out}: 96 rows, already complete, nothing to do; 0 refused\n", "")
    monkeypatch.undo()
    path.write_text(SHORT.replace("dgx_h100", "dgx_a100"))
    code, _, said = run(capsys, path, "--out", out)
    assert code == 2
    assert re.match(r"error: --out = .*exists already, from another specification or version of .*pass --force", said)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if "parts" in path.name] == []
    assert run(capsys, path, "--out", out, "--force")[0] == 0
    assert set(parquet.read_table(out)["system"].to_pylist()) == {"dgx_a100"}


WRONG_OUTPUTS = {
    "results.csv": "must end in .parquet",
    "nowhere/results.parquet": "nowhere, which is no folder; create it",
    "folder.parquet": "exists but is not a file; name another file",
}


@pytest.mark.parametrize("name", WRONG_OUTPUTS)
def test_wrong_outputs_are_refused_at_once(file, tmp_path, capsys, name):
    """Before anything is computed, in one line."""
    (tmp_path / "folder.parquet").mkdir()
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / name)
    assert (code, said.count("\n")) == (2, 1)
    assert WRONG_OUTPUTS[name] in said


@pytest.mark.parametrize(
    ("library", "extra"), [("pyarrow", "sweep"), ("filelock", "sweep"), ("distributed", "cluster")]
)
def test_a_missing_extra_is_named(file, tmp_path, capsys, monkeypatch, library, extra):
    """What is not installed is named with the extra that brings it."""
    monkeypatch.setattr(runners, "find_spec", lambda name: None if name == library else name)
    words = (file(SHORT), "--out", tmp_path / "r.parquet", "--scheduler", "tcp://127.0.0.1:1")
    said = f"error: {library} is not installed; in the clone, pip install -e '.[{extra}]'\n"
    assert run(capsys, *words) == (2, "", said)
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.parametrize(("ranks", "shown"), [("3", ": "), ("[3, 5]", ", all like this: ")])
def test_a_sweep_without_a_defined_row_says_so(file, tmp_path, capsys, ranks, shown):
    """Every row refused: exit code 1 and the reason, at the first run and at the second."""
    path, out = file(SHORT.replace("[gpipe, 1f1b, eager-1f1b]", "hanayo")), tmp_path / "results.parquet"
    text = path.read_text().replace("[2, 3, 4, 5]", ranks).replace("[2, 4, 8, 16]", "4").replace("[latency, ", "[")
    path.write_text(text)
    for _ in range(2):
        code, said, _ = run(capsys, path, "--out", out)
        assert code == 1
        assert f"every row is refused{shown}microbatches = 4: must equal pp (3) for hanayo" in said


def test_a_failure_is_one_line(file, tmp_path, capsys, monkeypatch):
    """Rows that cannot be computed are named with the reason."""
    monkeypatch.setattr("ppmodel.studies.points.rows.iterations", lambda *_, **__: 1 / 0)
    code, _, said = run(capsys, file(SHORT), "--out", tmp_path / "r.parquet")
    assert code == 2
    assert re.match(r"error: rows = 0 to \d+: cannot be computed \(ZeroDivisionError: division by zero\)", said)


def test_a_log_says_how_many_rows_are_done(file, tmp_path, capsys, monkeypatch):
    """With the time so far, and what is left."""
    put = Store.put
    monkeypatch.setattr(Store, "put", lambda *part: (put(*part), time.sleep(0.05)))
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    code, _, said = run(capsys, file(PLAIN), "--out", tmp_path / "results.parquet")
    assert (code, bool(re.search(r"0:\d\d so far, about \d:\d\d left: \d+ of \d+ rows\n", said))) == (0, True)


def test_a_passing_line_fits_the_terminal_and_a_log_gets_one_now_and_then(monkeypatch):
    """With the time so far, and what is left where a share is known; at the end the line is gone."""
    for name in ("_TICK_S", "_EVERY_S"):
        monkeypatch.setattr(progress, name, 0.02)
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    with open(writer, "w") as terminal, progress.passing("searching", terminal) as show:
        show("best 133.4 s, interleaved 1F1B", 0.5)
        time.sleep(0.1)
    written = b""
    with contextlib.suppress(OSError):  # at its end
        while part := os.read(reader, 10**4):
            written += part
    assert written.startswith(b"\r0:00 so far, about 0:00 left:\x1b[K")  # 29 of 30 columns
    assert written.endswith(b"\r\x1b[K")
    os.close(reader)
    with progress.passing("searching", log := io.StringIO()):
        time.sleep(0.1)
    assert log.getvalue().startswith("0:00 so far: searching\n")


@pytest.mark.parametrize("name", ["gpipe", "chimera"])
def test_the_table_and_compare_have_the_same_types(file, tmp_path, name):
    """Also of columns without a value: no row is refused, or every one is."""
    run_sweep(
        file(f"schedules: {name}\npp: 5\nmicrobatches: 10\nsystems: dgx_h100\nmodels: paper\n"),
        tmp_path / "out.parquet",
    )
    frame = ppmodel.compare(name, 5, 10, system="dgx_h100", model="paper")
    assert frame.dtypes.to_dict() == parquet.read_table(tmp_path / "out.parquet").to_pandas().dtypes.to_dict()
