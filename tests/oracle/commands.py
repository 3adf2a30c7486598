"""Command lines, in a folder with files of one's own: what they print, their exit codes, and what they write."""

import contextlib
import hashlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from .texts import ROOT, normal

LARGEST = 30_000
"""Bytes of a written file that is kept as text; of larger ones, the digest."""

SMALL_SWEEP = """\
schedules: [1f1b, {name: interleaved-1f1b, chunks: [2, 3]}, {name: hanayo, waves: 1}, zb-v]
pp: [4, 5]
microbatches: [4, 8]
p2p: [overlapped, blocking]
systems: [a100, mid_cp_slow_nw]
models: paper
"""
NOISY_SWEEP = """\
schedules: [gpipe, 1f1b, zb-v]
pp: 4
microbatches: 8
systems: a100
models: paper
links: [null, {1-2: {delay: 60 ms}}]
noise: {jitter: 0.1, straggling: 0.1, slowdown: 1.5}
seeds: {from: 1, to: 5}
"""
LAYOUT_SWEEP = """\
schedules: [1f1b, zb-v, {file: mine.csv}]
systems: h100
models: llama3_70b
pp: [2, 4]
layouts:
  - {tp: [4, 8], dp: 2, global_batch: 16, zero: 1}
  - gpus_64
"""
BAD_SWEEP = "schedules: [1f1b]\npp: 4\nmicrobatchs: 8\nsystems: a100\nmodels: paper\n"
GENERATOR = """\
from ppmodel.ops import Op, OpKind
from ppmodel.schedules.registry import schedule
from ppmodel.tables import Schedule


@schedule("all-forwards", label="all forwards", title="all forwards, then all backwards", legal="B >= 1")
def all_forwards(num_ranks, num_microbatches):
    rows = []
    for rank in range(num_ranks):
        row = [Op(OpKind.F, rank, m) for m in range(num_microbatches)]
        rows.append(row + [Op(OpKind.B, rank, m) for m in range(num_microbatches)])
    return Schedule.from_rows("all-forwards", rows)
"""
OPERATIONS = """\
rank,operation,start_s,end_s
0,0F0,0,1
0,0F1,1,2.1
0,0B0,5.2,7.3
0,0B1,8.6,10.5
1,1F0,1.1,2.2
1,1B0,2.2,4.9
1,1F1,4.9,6
1,1B1,6,8.4
"""
FILES = {
    "sweep.yaml": SMALL_SWEEP, "noisy.yaml": NOISY_SWEEP, "layouts.yaml": LAYOUT_SWEEP, "bad.yaml": BAD_SWEEP,
    "forwards.py": GENERATOR, "broken.py": "import nothing_of_this_name\n", "operations.csv": OPERATIONS,
    "empty.csv": "", "bad-system.yaml": "title: Bad\npeak_compute: {value: fast}\n",
}  # fmt: skip
COPIES = {
    "mine.csv": "templates/my_table.csv", "mine.py": "templates/my_schedule.py",
    "template.yaml": "templates/sweep.yaml", "system.yaml": "templates/system.yaml",
    "model.yaml": "templates/model.yaml", "layout.yaml": "templates/layout.yaml",
    "deadlock.csv": "templates/mistakes/deadlock.csv", "missing.csv": "templates/mistakes/missing_operation.csv",
    "wrong.csv": "templates/mistakes/wrong_rank.csv", "measured.csv": "reference/measured/korthikanti_a100.csv",
    "selene.csv": "reference/measured/bigscience_a100.csv", "probe.json": "reference/own_step/probe.json",
}  # fmt: skip

SECONDS = "--forward 1 --backward 2 --comm 0.1"
DENSE = "--model llama3_70b --system h100 --pp 4 --tp 8 --dp 2 --zero 1 --sequence-parallel --global-batch 1024"
HELPED = (
    "simulate", "compare", "plan", "table", "check", "predict", "calibrate", "measure", "replay", "sweep", "run",
    "reproduce", "smoke", "claims", "pdf", "schedules", "columns",
)  # fmt: skip
COMMANDS = {
    "help": "--help",
    "version": "--version",
    "nothing": "",
    "unknown": "simulat",
    **{f"help of {name}": f"{name} --help" for name in HELPED},
    **{f"list of {name}": name for name in ("schedules", "models", "systems", "frameworks", "layouts")},
    "list of launchers": "launchers",
    "list of columns": "columns",
    "list of notebooks": "notebooks",
    "table": "table hanayo --pp 4 --microbatches 4 --waves 2",
    "table of chimera": "table chimera --pp 4 --microbatches 8 --concat overlapping",
    "table as csv": "table interleaved-1f1b:chunks=3 --pp 3 --microbatches 6 --format csv",
    "table for pytorch": "table zb-v --pp 4 --microbatches 6 --format pytorch",
    "table of pairs for pytorch": "table dualpipev --pp 4 --microbatches 8 --format pytorch",
    "own table": "table mine.csv",
    "own generator": "table mine.py --pp 4 --microbatches 6",
    "refused table": "table chimera --pp 3 --microbatches 4",
    "check": "check mine.csv",
    "check a schedule": "check zb-h2 --pp 4 --microbatches 8",
    "check a generator": "check mine.py --pp 8 --microbatches 8",
    "check a deadlock": "check deadlock.csv",
    "check a missing operation": "check missing.csv",
    "check a wrong rank": "check wrong.csv",
    "check an empty file": "check empty.csv",
    "check a broken generator": "check broken.py --pp 4 --microbatches 4",
    "simulate": f"simulate chimera --pp 8 --microbatches 16 {SECONDS}",
    "simulate as json": "simulate 1f1b --pp 8 --microbatches 64 --model llama3_70b --system h100 --p2p blocking --json",
    "simulate halves": "simulate zb-v --pp 8 --microbatches 32 --forward 1 --input-grad 1 --weight-grad 1 --comm 0.05",
    "simulate a layout": f"simulate 1f1b {DENSE}",
    "simulate a layout as json": f"simulate interleaved-1f1b --chunks 4 {DENSE} --json",
    "simulate a named layout": "simulate interleaved-1f1b --model llama3_405b --system h100 --layout llama3_405b_8k",
    "simulate experts": "simulate 1f1b --pp 4 --model mixtral_8x7b --system h100 --ep 8 --dp 8 --global-batch 64",
    "simulate own files": "simulate 1f1b --model model.yaml --system system.yaml --layout layout.yaml",
    "simulate a trace": f"simulate zb-h1 --pp 3 --microbatches 4 {SECONDS} --trace run.json",
    "simulate and launch": f"simulate interleaved-1f1b --chunks 2 {DENSE} --launch megatron",
    "simulate own generator": f"simulate forwards.py --pp 4 --microbatches 4 {SECONDS}",
    "without backward": "simulate 1f1b --pp 4 --microbatches 8 --forward 1",
    "no number": "simulate 1f1b --pp 4 --microbatches 8 --forward nothing --backward 2",
    "negative": "simulate 1f1b --pp 4 --microbatches 8 --forward -1 --backward 2",
    "unknown model": "simulate 1f1b --pp 4 --microbatches 8 --model llama --system h100",
    "bad system": "simulate 1f1b --pp 4 --microbatches 8 --model paper --system bad-system.yaml",
    "wrong layout": "simulate 1f1b --pp 4 --model llama3_70b --system h100 --tp 3 --global-batch 8",
    "compare": f"compare 1f1b interleaved-1f1b:chunks=2 zb-v --pp 8 --microbatches 64 {SECONDS}",
    "compare as json": f"compare 1f1b zb-h1 hanayo --pp 4 --microbatches 4 {SECONDS} --json",
    "compare own": "compare mine.csv forwards.py 1f1b zb-v --forward 1 --backward 2 --comm 0.5",
    "compare links": f"compare 1f1b zb-h1 zb-v --pp 8 --microbatches 24 {SECONDS} --p2p streams --link 6-7:delay=2",
    "compare a layout": f"compare 1f1b zb-v dualpipev {DENSE}",
    "compare the refused": f"compare chimera hanayo --pp 3 --microbatches 4 {SECONDS}",
    "plan that fits nothing": "plan --model llama3_405b --system h100 --gpus 8 --global-batch 64",
    "plan with a typo": "plan --model llama3_8b --system h100 --gpus 8 --global-batch 64 --fix tq=8",
    "predict": "predict measured.csv --system a100 --out predicted.csv",
    "predict nothing": "predict operations.csv --system a100 --out predicted.csv",
    "calibrate": "calibrate selene.csv --system a100 --only time --date 2026-01-02 --out fitted.yaml",
    "calibrate one run": [
        "calibrate", "--run",
        "llama3_70b tp=8 pp=4 dp=4 zero=1 sequence_parallel=true global_batch=1024 iteration_s=74", "--system", "h100",
        "--date", "2026-01-02", "--out", "fitted.yaml",
    ],
    "measure": "measure --system h100 --probe probe.json --date 2026-01-02 --out measured.yaml",
    "write the probe": "measure --write-probe probe.py",
    "replay": "replay operations.csv --schedule 1f1b --pp 2 --microbatches 2 --against zb-h1 --against gpipe",
    "replay as json": "replay operations.csv --schedule 1f1b --pp 2 --microbatches 2 --p2p rendezvous --link "
    "0-1:delay=60ms --against gpipe --csv replay.csv --json",
    "replay another schedule": "replay operations.csv --schedule gpipe --pp 2 --microbatches 2",
    "sweep": "sweep sweep.yaml --out rows.parquet",
    "sweep with noise": "sweep noisy.yaml --out rows.parquet",
    "sweep of layouts": "sweep layouts.yaml --out rows.parquet",
    "sweep with workers": "sweep sweep.yaml --workers 2 --out rows.parquet",
    "sweep of the template": "sweep template.yaml --out rows.parquet",
    "sweep of a generator": "sweep noisy.yaml --schedule-file forwards.py --out rows.parquet",
    "sweep with a typo": "sweep bad.yaml --out rows.parquet",
    "sweep of a wrong name": "sweep sweep.yaml --out rows.csv",
    "claim": "claims --row fig3_equal_1f1b",
    "no such notebook": "run no-such-notebook",
}  # fmt: skip
"""The arguments of each command, by its name."""

SMALL = "--model llama3_8b --system h100 --gpus 16 --global-batch 64"
PLANS = {
    "one node": "plan --model llama3_8b --system h100 --gpus 8 --global-batch 64 --json",
    "one schedule": f"plan {SMALL} --schedules 1f1b --json",
    "as text": f"plan {SMALL}",
    "of 70b": "plan --model llama3_70b --system h100 --gpus 64 --global-batch 1024 --fix tp=8 --fix pp=4 --json",
    "within a tenth": "plan --model llama2_13b --system a100 --gpus 16 --global-batch 64 --within 0.1 --rows 20 "
    "--schedules 1f1b --schedules interleaved-1f1b --json",
    "of experts": "plan --model mixtral_8x7b --system h100 --gpus 16 --global-batch 64 --schedules 1f1b --fix cp=1 "
    "--json",
    "with little memory": [
        "plan", *SMALL.split(), "--memory-limit", "40 GiB", "--schedules", "1f1b", "--schedules", "zb-v", "--json"
    ],
    "slow link": f"plan {SMALL} --fix pp=4 --link 1-2:delay=5ms --json",
    "another framework": f"plan {SMALL} --framework fsdp --max-tp 2 --csv plan.csv",
    "launched": f"plan {SMALL} --max-pp 2 --launch megatron --explain 2",
}  # fmt: skip

CLAIMS = {
    "paper": "claims --rows --json",
    "as text": "claims",
    "stp": "claims --of stp --rows --json",
    "setting of the paper": "claims --setting paper --rows --json",
    "stp as text": "claims --of stp",
}
PARTS = {"commands": COMMANDS, "plans": PLANS, "claims": CLAIMS}
ENVIRONMENT = {"COLUMNS": "80", "MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "book")])}


def is_apart(name, words):
    """Whether a command needs a process of its own: those that load code of the user's, and some for their own sake."""
    return any(word.endswith(".py") for word in words) or name in ("simulate", "unknown", "version", "sweep")


def result(part, name):
    """Run one command in a new folder.

    Returns
    -------
    dict
        Its arguments, ``code``, ``stdout``, ``stderr``, and for each file that it wrote, its text or digest.
    """
    given = PARTS[part][name]
    words = shlex.split(given) if isinstance(given, str) else given
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        for file, text in FILES.items():
            Path(folder, file).write_text(text)
        for file, source in COPIES.items():
            shutil.copyfile(ROOT / "data" / source, Path(folder, file))
        before = {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
        code, out, err = (_in_process if is_apart(name, words) else _here)(words, folder)
        texts = {"command": shlex.join(words), "code": str(code), "stdout": normal(out, folder)}
        texts["stderr"] = normal(err, folder)
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file() and before.get(path) != path.read_bytes():
                texts[f"file {path.relative_to(folder)}"] = _content(path, folder)
        return texts


def _in_process(words, folder):
    environment = os.environ | ENVIRONMENT
    command = [sys.executable, "-m", "ppmodel", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


def _here(words, folder):
    from ppmodel.cli import main

    out, err = io.StringIO(), io.StringIO()
    kept = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        with contextlib.ExitStack() as stack:
            for context in (contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)):
                stack.enter_context(context)
            code = main(words)
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return code, out.getvalue(), err.getvalue()


def _content(path, folder):
    if path.suffix == ".parquet":
        text = pd.read_parquet(path).to_csv(index=False)
    else:
        data = path.read_bytes()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return f"sha256 {hashlib.sha256(data).hexdigest()}"
    text = normal(text, folder)
    return text if len(text) <= LARGEST else f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"
