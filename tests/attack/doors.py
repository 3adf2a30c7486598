"""The doors of the library: outputs under all names of what is read, streams, names of files, signals, and threads."""

import os
import signal
import time
from itertools import product
from pathlib import Path

from .attempt import Attack
from .rooms import DOCUMENTS, GENERATORS, MEASURED, ON, OPERATIONS, PRODUCTS, ROWS, SIZE, TABLES

SWEEP = "schedules: [gpipe, {file: mine.csv}, {file: mine.py}]\npp: 4\nmicrobatches: 8\nmodels: model.yaml\n" \
    "systems: system.yaml\nlayouts: [layout.yaml]\n"  # fmt: skip
FILES = {
    "run.yaml": "model: llama3_70b\ntp: 8\npp: 4\ndp: 4\nglobal_batch: 1024\niteration_s: 30\n",
    "mine.py": GENERATORS.good, "mine.csv": TABLES.good, "rows.csv": ROWS.good, "sweep.yaml": SWEEP,
    "operations.csv": OPERATIONS.good, "products.csv": PRODUCTS.good, "attention.csv": MEASURED["attention"].good,
    "all_reduce.txt": MEASURED["nccl-tests"].good, "probe.json": MEASURED["probe"].good,
    **{f"{kind}.yaml": DOCUMENTS[kind].good for kind in ("model", "system", "layout", "framework")},
}  # fmt: skip
MODEL = "--model model.yaml --system system.yaml --layout layout.yaml"
WRITERS = {
    f"compare mine.py:node=2 1f1b {SIZE} {ON} --csv": ["mine.py"],
    f"compare mine.csv gpipe {ON} --csv": ["mine.csv"],
    f"simulate --schedule-file mine.py {SIZE} {ON} --trace": ["mine.py"],
    f"simulate 1f1b {MODEL} --trace": ["model.yaml", "system.yaml", "layout.yaml"],
    f"compare gpipe 1f1b {MODEL} --csv": ["model.yaml", "system.yaml", "layout.yaml"],
    "predict rows.csv --system system.yaml --out": ["rows.csv", "system.yaml"],
    "calibrate rows.csv --system system.yaml --out": ["rows.csv", "system.yaml"],
    f"compare gpipe 1f1b {MODEL} --framework framework.yaml --csv": ["framework.yaml", "layout.yaml"],
    "predict rows.csv --system system.yaml --framework framework.yaml --out": ["framework.yaml"],
    "calibrate rows.csv --system system.yaml --framework framework.yaml --out": ["framework.yaml"],
    "calibrate --run run.yaml --system system.yaml --out": ["run.yaml", "system.yaml"],
    "replay operations.csv --schedule mine.csv --csv": ["operations.csv", "mine.csv"],
    "measure --system system.yaml --gemm products.csv --attention attention.csv --collectives all_reduce=all_reduce.txt"
    " --out": ["system.yaml", "products.csv", "attention.csv", "all_reduce.txt"],
    "measure --system system.yaml --probe probe.json --out": ["probe.json"],
    "sweep sweep.yaml --schedule-file mine.csv --force --out": ["sweep.yaml", *FILES],
}
"""Commands that write, and what each reads; the last leads to files that its specification names."""

NAMES = {
    "itself": lambda _, name: name,
    "a longer way": lambda _, name: f"theirs/.././{name}",
    "from the root": lambda work, name: str(work / name),
    "a link": lambda work, name: _linked(work, name, Path.symlink_to),
    "another name": lambda work, name: _linked(work, name, Path.hardlink_to),
    "the process's folder": lambda _, name: f"/proc/self/cwd/{name}",
}


def _linked(work, name, link):
    other = f"other{Path(name).suffix}"
    link(work / other, work / name if link is Path.hardlink_to else name)
    return other


def outputs():
    """Every command that writes, to every file that it reads, under all its names: the file stays."""
    for (line, inputs), (kind, name_of) in product(WRITERS.items(), NAMES.items()):
        for name in inputs:
            if line.startswith("sweep") and kind in ("a link", "another name"):
                target = "out.parquet"
                begin = _parquet_link(name, kind)
                yield Attack("doors", f"{line} {kind} of {name}", [*line.split(), target], FILES, codes=(2,),
                             prepare=begin, seconds=60)  # fmt: skip
                continue
            yield _writing(line, kind, name, name_of)
    for name, mode in product(("a.csv", "a.json"), (0o600, 0o640, 0o444)):
        line = f"compare gpipe 1f1b {SIZE} {ON} --csv" if name == "a.csv" else f"simulate gpipe {SIZE} {ON} --trace"
        yield Attack(
            "doors", f"{line}, mode {mode:o}", [*line.split(), name], {name: "before"}, writes=r"a\.\w+",
            prepare=lambda work, name=name, mode=mode: (work / name).chmod(mode),
            holds=lambda work, _, name=name, mode=mode: _mode(work / name, mode),
        )  # fmt: skip


def _writing(line, kind, name, name_of):
    """The target is known in the folder of the attack alone: it is made there, and put behind the words."""
    words = line.split()

    def prepare(work):
        words[len(line.split()) :] = [name_of(work, name)]

    return Attack("doors", f"{line} {kind} of {name}", words, FILES, codes=(2,), prepare=prepare, seconds=60)


def _parquet_link(name, kind):
    def prepare(work):
        (work / "out.parquet").symlink_to(name) if kind == "a link" else (work / "out.parquet").hardlink_to(work / name)

    return prepare


def _mode(path, mode):
    found = path.stat().st_mode & 0o777
    return None if found == mode else f"mode {mode:o} became {found:o}"


STREAMS = [
    "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/1", "link", "/dev/stdin", "/dev/fd/0",
    "/dev/fd/3", "/proc/self/fd/3", "log", "given", "/dev/null", "/dev/tty", "/dev/zero", "/dev/fd/99",
]  # fmt: skip


def streams():
    """Outputs to streams that lead to files, appended to or not, and to pipes: nothing that was there is lost."""
    lines = [f"compare gpipe 1f1b {SIZE} {ON} --csv", f"simulate gpipe {SIZE} {ON} --trace",
             "predict rows.csv --system system.yaml --out", "sweep sweep.yaml --out"]  # fmt: skip
    for line, stream, how in product(lines, STREAMS, ("append", "pipe", "new")):
        if stream == "log" and how != "append":
            continue  # a file like any other
        yield Attack(
            "doors", f"{line} {stream}, {how}", [*line.split(), stream], FILES | {"log": "kept\n", "given": "given\n"},
            prepare=lambda work: (work / "link").symlink_to("/dev/stdout"), begin=_streams(how), fresh=True,
            writes="log", keeps="log", holds=lambda work, _: _kept(work), seconds=60,
            loud=stream in ("/dev/stderr", "/dev/fd/2"),
        )  # fmt: skip


def _streams(how):
    def begin(_):
        os.dup2(os.open("given", os.O_RDONLY), 0)
        os.dup2(os.open("log", os.O_WRONLY | os.O_APPEND), 3)
        os.set_inheritable(3, True)
        if how == "append":
            os.dup2(3, 1)
        elif how == "pipe":
            read, write = os.pipe()
            if not os.fork():
                os.close(write)
                os.setsid()
                while os.read(read, 2**16):
                    pass
                os._exit(0)
            os.close(read)
            os.dup2(write, 1)
            os.close(write)

    return begin


def _kept(work):
    log, given = (work / "log").read_text(), (work / "given").read_text()
    return None if log.startswith("kept\n") and given == "given\n" else f"lost: {log[:40]!r} {given!r}"


ODD_NAMES = [
    "x" * 300, "x" * 300 + ".py", "x" * 300 + ".csv", "x" * 300 + ".yaml", "a/" * 2100 + "b.py", "\udcff.py",
    "\udcff.csv", "\udcff.yaml", "\x85.py", "\u2028.csv", "a\nb.yaml", "\x1b[2J.py", "=1+1.csv", "-.py", "loop.py",
    "loop.yaml", "folder.py", "folder.csv", "pipe.py", "pipe.yaml", "theirs/thesis.csv/x.py", "/dev/zero",
    "/proc/self/mem", "mine.py:", "mine.py:node", "mine.py:node=", "mine.py:node=2,node=2", ":mine.py",
]  # fmt: skip
READERS = [
    f"check {{}} {SIZE}", f"compare {{}} 1f1b {SIZE} {ON}", f"simulate --schedule-file {{}} {SIZE} {ON}",
    f"simulate 1f1b {SIZE} --model paper --system {{}}", f"simulate 1f1b {SIZE} --system a100 --model {{}}",
    f"simulate 1f1b {SIZE} --model paper --system a100 --layout {{}}", "sweep {} --out a.parquet",
    "sweep sweep.yaml --out a.parquet --schedule-file {}", "predict {} --system a100 --out a.csv",
    f"simulate 1f1b {SIZE} --model paper --system a100 --framework {{}}",
    "calibrate --run {} --system a100 --out a.yaml", "replay {} --schedule 1f1b --csv a.csv",
    "replay operations.csv --schedule {} --csv a.csv", "measure --system {} --gemm products.csv --out a.yaml",
    "measure --system a100 --gemm {} --out a.yaml", "measure --system a100 --probe {} --out a.yaml",
    "measure --system a100 --collectives all_reduce={} --out a.yaml",
    "predict rows.csv --system {} --out a.csv",
]  # fmt: skip


def names():
    """Names that are too long, not UTF-8, or of what is no file, wherever a file is named."""
    for line, name in product(READERS, ODD_NAMES):
        words = [word.replace("{}", name) for word in line.split(" ")]
        yield Attack("doors", f"{line} {name[:30]!r}", words, FILES | {"\udcff.csv": TABLES.good},
                     prepare=_odd, writes=r"a\.(csv|yaml)", seconds=60)  # fmt: skip


def _odd(work):
    for suffix in ("py", "yaml"):
        (work / f"loop.{suffix}").symlink_to(f"loop.{suffix}")
        os.mkfifo(work / f"pipe.{suffix}")
    for suffix in ("py", "csv"):
        (work / f"folder.{suffix}").mkdir()


ENDLESS = GENERATORS.good.replace("    rows = []\n", "    import os\n    os.fork()\n    while True:\n        pass\n", 1)
AT_ONCE = "import time\ntime.sleep(99)\n"
SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGUSR1, signal.SIGPIPE]


def signals():
    """Commands whose generator never ends, ended by any signal at any moment: nothing runs on, nothing is left."""
    lines = [f"check mine.py {SIZE}", f"simulate mine.py {SIZE} {ON}", f"compare mine.py gpipe {SIZE} {ON} --csv a.csv",
             "sweep sweep.yaml --out a.parquet", "sweep sweep.yaml --out a.parquet --workers 2"]  # fmt: skip
    codes = (2, 130, *(-number for number in SIGNALS))
    for line, number, after in product(lines, SIGNALS, (0.3, 0.8, 1.6)):
        text = ENDLESS if after != 0.8 else AT_ONCE
        yield Attack("doors", f"{line}, {number.name} after {after} s", line.split(), FILES | {"mine.py": text},
                     fresh=True, codes=codes, keeps=r"a\.parquet\.parts(/.*)?", writes=r"a\.parquet\.parts(/.*)?",
                     during=_signalled(number, after), seconds=40, loud=True)  # fmt: skip


def _signalled(number, after):
    def during(child, _):
        time.sleep(after)
        os.kill(child, number)
        if number in (signal.SIGUSR1, signal.SIGPIPE, signal.SIGINT):  # may be ignored, or answered later
            time.sleep(1)
            os.kill(child, signal.SIGTERM)

    return during


def doors():
    """All of these."""
    for kind in (outputs, streams, names, signals):
        yield from kind()


__all__ = ["doors"]
