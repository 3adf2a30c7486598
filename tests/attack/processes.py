"""What is around the process: paths, disks, streams, limits, servers, signals, and others who use the same folder."""

import json
import os
import random
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from itertools import product
from pathlib import Path

from .attempt import Attack, processes_of
from .rooms import DOCUMENTS, ON, OPERATIONS, POINT, PRODUCTS, ROWS, SIZE, TABLES

SWEEP = "schedules: [gpipe, 1f1b]\npp: [4, 8]\nmicrobatches: [8, 16]\nmodels: paper\nsystems: [dgx_h100, dgx_a100]\n"
LONG = SWEEP.replace("1f1b]", "1f1b, chimera, hanayo]") + "noise: {jitter: 0.1}\nseeds: {from: 1, to: 40}\n"
SWEEPS = "sweep sweep.yaml --out out.parquet"
_PARTS = r"out\.parquet(\.parts(/.*)?)?"

# ---- paths and disks -----------------------------------------------------------------------------

TARGETS = [
    "", ".", "..", "/", "theirs", "theirs/", "theirs/thesis.csv/x", "nowhere/x", "loop", "dangling", "pipe", "socket",
    "/dev/null", "/dev/full", "/proc/x",
    "/proc/self/fd/1", "sub", "x" * 255, "x" * 256, "\udcff\udcfe", "a\nb", "-x", " ", "a b", "'", "%s", "{{x}}", "~/x",
    "\u202ex", "aux.", "a/../b", "same",
]  # fmt: skip


def paths():
    """Where files are to be written: no file, no folder, somebody else's, or what the same command reads."""
    table, system = "mine.csv", "mine.yaml"
    files = {table: TABLES.good, system: DOCUMENTS["system"].good, "sweep.yaml": SWEEP}
    lines = [f"simulate {table} {ON} --trace", f"compare {table} 1f1b {ON} --csv", "sweep sweep.yaml --out"]
    for line, target in product(lines, TARGETS):
        yield Attack("paths and disks", f"{line} {target[:30]!r}", [*line.split(), target], files, prepare=_odd_paths,
                     writes=r"[^/]*(\.parts(/.*)?)?|sub/.*|dangling|same", holds=_theirs)  # fmt: skip
    for target in TARGETS:
        words = ["run", "mine.ipynb", "--out", target]
        yield Attack(
            "paths and disks", f"run --out {target[:30]!r}", words, files, codes=(2,), prepare=_odd_paths, holds=_theirs
        )
    lines += ["predict rows.csv --system b200 --out", "replay operations.csv --schedule 1f1b --csv",
              "calibrate rows.csv --system b200 --constants compute_efficiency --out", "measure --write-probe",
              "measure --system h100 --gemm products.csv --out"]  # fmt: skip
    files |= {"rows.csv": ROWS.good, "operations.csv": OPERATIONS.good, "products.csv": PRODUCTS.good}
    for size in (0, 1, 100, 3000):
        for line, target in zip(lines, ("a.json", "a.csv", "a.parquet", *["a.csv"] * 2, *["a.yaml"] * 3), strict=True):
            yield Attack("paths and disks", f"{line}, files of {size} bytes", [*line.split(), target], files,
                         begin=lambda _, size=size: _no_room(size), writes=r"a\.\w+(\.parts(/.*)?)?",
                         keeps=r"a\.parquet\.parts(/(?!\.ppmodel).*)?", holds=_theirs)  # fmt: skip
    for name in (
        "a b.csv",
        "-x.csv",
        "a\nb.csv",
        "\udcff.csv",
        "x" * 251 + ".csv",
        "ü.csv",
        "u\u0308.csv",
        "=.csv",
        ":.csv",
        "a:b=c.csv",
        "1f1b",
        ".csv",
    ):
        yield Attack("paths and disks", f"file {name[:30]!r}", ["check", name], {name: TABLES.good}, codes=(0, 2))
    yield Attack(
        "paths and disks", "a folder that is gone", ["check", "1f1b", *SIZE.split()], begin=_gone, codes=(0, 2)
    )
    yield Attack(
        "paths and disks",
        "output in a folder that is gone",
        f"{POINT} {ON} --trace a.json".split(),
        begin=_gone,
        codes=(2,),
    )


def _odd_paths(work):
    (work / "loop").symlink_to("loop")
    (work / "dangling").symlink_to("sub/there")
    (work / "sub").mkdir()
    os.mkfifo(work / "pipe")
    os.mknod(work / "socket", stat.S_IFSOCK | 0o600)
    os.link(work / "mine.csv", work / "same")
    shutil.copy(work / "mine.csv", work / "kept")


def _theirs(work, _):
    kept = (work / "theirs" / "thesis.csv").read_text() == "theirs"
    return None if kept else "a foreign file was changed"


def _no_room(size):
    """A disk that is full: no file becomes longer."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for stream in (1, 2):  # which are files here
        read, write = os.pipe()
        if os.fork():
            os.close(read)
            os.dup2(write, stream)
            os.close(write)
            continue
        os.close(write)
        os.setsid()
        while piece := os.read(read, 2**16):
            os.write(stream, piece)
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _gone(work):
    (work / "there").mkdir()
    os.chdir(work / "there")
    (work / "there").rmdir()


# ---- streams and limits --------------------------------------------------------------------------

LIMITS = {
    "NOFILE": (3, 4, 6, 10, 20), "AS": (2**24, 2**26, 2**28, 2**29), "DATA": (2**20, 2**24, 2**27), "STACK": (2**16,
    2**18), "CPU": (1,), "FSIZE": (0, 10),
    "NPROC": (0,), "MEMLOCK": (0,),
}  # fmt: skip
VARIABLES = [
    {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "xx_YY"}, {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"}, {"COLUMNS": "0"},
    {"COLUMNS": "-5"}, {"COLUMNS": "x"}, {"COLUMNS": "9" * 30}, {"TERM": "dumb"}, {"TERM": ""}, {"NO_COLOR": "1"},
    {"HOME": "/nowhere"}, {"HOME": None},
    {"TMPDIR": "/nowhere"}, {"PATH": ""}, {"PATH": None}, {"TZ": "x/y"}, {"PYTHONWARNINGS": "error"},
    {"PYTHONWARNINGS": "x"}, {"PYTHONHASHSEED": "1"},
    {"PYTHONOPTIMIZE": "2"}, {"PYTHONDEVMODE": "1"}, {"PYTHONUNBUFFERED": "1"}, {"PYTHONDONTWRITEBYTECODE": "1"},
    {"OMP_NUM_THREADS": "x"},
    {"NUMBA_CACHE_DIR": "/nowhere"}, {"NUMBA_DISABLE_JIT": "1"}, {"NUMBA_THREADING_LAYER": "x"}, {"MPLBACKEND": "nope"},
    {"MPLCONFIGDIR": "/dev/null"},
    {"PYTHONNOUSERSITE": "1"}, {"SOURCE_DATE_EPOCH": "x"}, {"DASK_CONFIG": "/dev/null"},
    {"COVERAGE_PROCESS_START": "x"}, {"PPMODEL_X": "\udcff"},
]  # fmt: skip


def streams():
    """Streams that are closed, full or nobody's; limits that are too tight; variables of the shell that are odd."""
    lines = [f"{POINT} {ON} --json", "schedules", f"check 1f1b {SIZE}", "simulate --help", "nowhere"]
    for line, (name, values) in product(lines[:3], LIMITS.items()):
        for value in values:
            tight = value == values[0] or (name, value) in _TIGHT
            yield Attack("streams and limits", f"{line.split()[0]} with {name} = {value}", line.split(), codes=_ANY,
                fresh=True, loud=tight,
                         begin=lambda _, name=name, value=value: _limit(name, value),
                             holds=_no_success_without_result)  # fmt: skip
    for variables in VARIABLES:
        yield Attack("streams and limits", str(variables), lines[0].split(), codes=(0, 2), environment=variables)
    for line, closed in product(lines, ([0], [1], [2], [0, 1, 2])):
        yield Attack("streams and limits", f"{line.split()[0]} without {closed}", line.split(), fresh=True,
                     begin=lambda _, closed=closed: [os.close(one) for one in closed])  # fmt: skip


_TIGHT = {("NOFILE", 4), ("FSIZE", 10), ("AS", 2**26), ("DATA", 2**24)}
"""With these, and the first of each limit, an interpreter cannot load its modules: how it ends is not ours to say."""

_ANY = (
    0,
    1,
    2,
    127,
    -signal.SIGKILL,
    -signal.SIGXCPU,
    -signal.SIGSEGV,
    -signal.SIGABRT,
    -signal.SIGXFSZ,
    -signal.SIGBUS,
)
"""Where an interpreter cannot even start it may die; what is asked is that nothing else happens."""


def _limit(name, value):
    number = getattr(resource, f"RLIMIT_{name}")
    resource.setrlimit(number, (value, value))


def _no_success_without_result(_, done):
    return "a success without a result" if done.code == 0 and not done.out else None


# ---- schedulers ----------------------------------------------------------------------------------

ADDRESSES = [
    "", " ", "x", ":", "://", "tcp://", "tcp://:", "tcp://:0", "tcp://127.0.0.1", "tcp://127.0.0.1:0",
    "tcp://127.0.0.1:1", "tcp://127.0.0.1:99999", "tcp://127.0.0.1:-1",
    "tcp://127.0.0.1:x", "tcp://[::1]:1", "tcp://[::1", "tcp://nowhere.invalid:1", "tcp://256.256.256.256:1",
    "tcp://\x1b[2J:1", "tcp://a b:1", "udp://127.0.0.1:1",
    "http://127.0.0.1:1", "ws://127.0.0.1:1", "inproc://1/2/3", "ucx://127.0.0.1:1", "file:///etc/passwd",
    "tls://127.0.0.1:1", "127.0.0.1:1", "tcp://user:pw@127.0.0.1:1",
    "tcp://127.0.0.1:1/x?y#z", "tcp://" + "a" * 5000 + ":1", "tcp://" + "a." * 200 + ":1", "tcp://\udcff:1",
    "tcp://é:1", "tcp://0:1", "$(touch ran)", "TCP://127.0.0.1:1",
]  # fmt: skip
ANSWERS = {
    "closes": b"", "HTTP": b"HTTP/1.1 200 OK\r\n\r\n", "SSH": b"SSH-2.0-x\r\n", "zeros": bytes(64),
    "ones": b"\xff" * 64, "frames": b"\x01" + bytes(7) + b"\xff" * 8,
    "many frames": b"\xff\xff\xff\x7f" + bytes(4), "TLS": b"\x15\x03\x01\x00\x02\x02\x28", "text": b"hello\n" * 99,
    "msgpack": b"\x02" + bytes(7) + b"\x01" + bytes(7) + b"\x80",
}  # fmt: skip


def schedulers():
    """Addresses that are none, and servers that close, talk of other things or say nothing."""
    for address in ADDRESSES:
        yield _of_scheduler(address[:60], address)
    for name, answer in ANSWERS.items():
        yield _of_scheduler(f"a server: {name}", None, answer)
    yield _of_scheduler("a server: silent", None, None)


def _of_scheduler(name, address, answer=b""):
    """A sweep with a scheduler at an address, or at a server that is started for it."""
    words = [*SWEEPS.split(), "--scheduler", address]
    if address is None:
        server = socket.create_server(("127.0.0.1", 0))
        words[-1] = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=_answering, args=(server, answer), daemon=True).start()
    return Attack("schedulers", repr(name), words, {"sweep.yaml": SWEEP}, codes=(2,), seconds=60, fresh=True,
        environment={
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "3s"})  # fmt: skip


def _answering(server, answer):
    kept = []
    while True:
        one, _ = server.accept()
        if answer is None:
            kept.append(one)
            continue
        try:
            one.sendall(answer)
            one.close()
        except OSError:
            pass


# ---- kills and concurrency -----------------------------------------------------------------------


def kills(count=40):
    """Sweeps that are ended at any moment, by any signal, twice; then the same command gives the same bytes."""
    chance = random.Random(13)
    signals = [
        signal.SIGKILL,
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGPIPE,
        signal.SIGABRT,
    ]
    for number in range(count):
        how, after, workers = signals[number % len(signals)], chance.random() * 1.5, 1 + number % 2
        words = f"{SWEEPS} --workers {workers}".split()
        yield Attack("kills", f"{how.name} after {after:.2f} s, {workers} workers", words, {"sweep.yaml": LONG},
            seconds=60, writes=_PARTS, keeps=_PARTS, fresh=True,
                     codes=(0, 1, 2, 130, *(-one for one in signals)), holds=_resumed,
                     during=lambda child, _, how=how, after=after: _kill(child, how, after))  # fmt: skip
    for number in range(8):
        after = number / 20
        yield Attack("kills", f"a trace, killed after {after} s",
            f"simulate gpipe --pp 16 --microbatches 256 {ON} --trace a.json".split(), fresh=True, writes=r"a\.json",
                     codes=(0, -signal.SIGKILL), during=lambda child, _, after=after: _kill(child, signal.SIGKILL,
                         0.15 + after), holds=_whole)  # fmt: skip


def _kill(child, how, after):
    time.sleep(after)
    os.kill(child, how)


def _whole(work, _):
    left = {path.name for path in work.iterdir()} - {"theirs", "a.json"}
    if left:
        return f"left: {left}"
    if (work / "a.json").exists():
        json.loads((work / "a.json").read_text())
    return None


_expected = []


def _again(work):
    return subprocess.run([sys.executable, "-m", "ppmodel", *SWEEPS.split()], cwd=work, capture_output=True, text=True,
        timeout=120,
                          env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}, check=False)  # fmt: skip


def _resumed(work, _):
    """The same command again finishes, and the output is what an undisturbed run writes."""
    if not _expected:
        calm = work.parent / "calm"
        calm.mkdir()
        (calm / "sweep.yaml").write_text(LONG)
        _again(calm)
        _expected.append((calm / "out.parquet").read_bytes())
    done = _again(work)
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        return f"cannot be resumed: {done.returncode} {done.stderr[-200:]}"
    if (work / "out.parquet").read_bytes() != _expected[0]:
        return "other bytes than of an undisturbed run"
    left = {path.name for path in work.iterdir()} - {"theirs", "sweep.yaml", "out.parquet"}
    return f"left: {left}" if left else None


def concurrency(count=12):
    """Several at once with one output: one whole result, or a refusal; never a mixture."""
    for number in range(count):
        others = 1 + number % 3
        yield Attack("concurrency", f"a sweep beside {others} of the same", SWEEPS.split(), {"sweep.yaml": LONG},
            seconds=90, writes=_PARTS, keeps=_PARTS, fresh=True,
                     during=lambda _, work, others=others: _beside(work, SWEEPS, others), holds=_resumed)  # fmt: skip
        line = f"simulate 1f1b --pp 8 --microbatches 128 {ON} --trace a.json"
        yield Attack("concurrency", f"a trace beside {others} of the same", line.split(), seconds=60, writes=r"a\.json",
            fresh=True, codes=(0,),
                     during=lambda _, work, others=others, line=line: _beside(work, line, others),
                         holds=_whole)  # fmt: skip


def _beside(work, line, others):
    """The same command, several times, in the folder of the one that is attacked; they end before it is judged."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    many = [subprocess.Popen([sys.executable, "-m", "ppmodel", *line.split()], cwd=work, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
                             env=environment) for _ in range(others)]  # fmt: skip
    for one in many:
        one.wait(90)


# ---- tampering -----------------------------------------------------------------------------------


def tampering():
    """Parts, records and outputs of a sweep that was killed, changed before it goes on; folders that bear our mark."""
    deeds = {
        "a part cut short": lambda parts: _each_part(parts, lambda path: path.write_bytes(path.read_bytes()[:-9])),
        "a part of nothing": lambda parts: _each_part(parts, lambda path: path.write_bytes(b"")),
        "a part is a link": lambda parts: _each_part(parts, lambda path: (path.unlink(),
        path.symlink_to(parts.parent / "theirs" / "thesis.csv"))),
        "a part is a folder": lambda parts: _each_part(parts, lambda path: (path.unlink(), path.mkdir())),
        "a part of another number": lambda parts: _each_part(parts,
        lambda path: path.rename(path.with_name(path.name.replace("part-00000", "part-00001")))),
        "a bit": lambda parts: _each_part(parts,
        lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])),
        "a record of nothing": lambda parts: (parts / "sweep.json").write_text(""),
        "a record of null": lambda parts: (parts / "sweep.json").write_text("null"),
        "a record of lists": lambda parts: (parts / "sweep.json").write_text("[[]]"),
        "a record, deep": lambda parts: (parts / "sweep.json").write_text("[" * 10**5),
        "a record of bytes": lambda parts: (parts / "sweep.json").write_bytes(b"\xff\xfe"),
        "a record that is a pipe": lambda parts: ((parts / "sweep.json").unlink(), os.mkfifo(parts / "sweep.json")),
        "a record that is a link": lambda parts: ((parts / "sweep.json").unlink(),
        (parts / "sweep.json").symlink_to(parts.parent / "theirs" / "thesis.csv")),
        "no record": lambda parts: (parts / "sweep.json").unlink(),
        "a foreign file": lambda parts: (parts / "thesis.txt").write_text("x"),
        "a lock that is a link": lambda parts: ((parts / "lock").unlink(missing_ok=True),
        (parts / "lock").symlink_to(parts.parent / "theirs" / "thesis.csv")),
        "a lock that is a folder": lambda parts: ((parts / "lock").unlink(missing_ok=True), (parts / "lock").mkdir()),
        "parts that are a file": lambda parts: (shutil.rmtree(parts), parts.write_text("x")),
        "parts that are a link": lambda parts: (shutil.rmtree(parts), parts.symlink_to(parts.parent / "theirs")),
        "an output of text": lambda parts: (parts.parent / "out.parquet").write_text("thesis"),
        "an output of another": lambda parts: shutil.copy(parts / "sweep.json", parts.parent / "out.parquet"),
        "an output that is a folder": lambda parts: (parts.parent / "out.parquet").mkdir(),
    }  # fmt: skip
    for (name, deed), force in product(deeds.items(), ("", " --force")):
        yield Attack("tampering", name + force, f"{SWEEPS}{force}".split(), {"sweep.yaml": LONG}, prepare=lambda work,
            deed=deed: deed(_begun(work)), seconds=60,
                     writes=_PARTS, keeps=_PARTS, fresh=True, holds=_theirs)  # fmt: skip
    marks = ["", "null", "[]", "{}", '{"ppmodel": 1, "files": 2}', "\xff", "[" * 10**5, _marked({}),
        _marked({"../theirs/thesis.csv": "x"}), _marked({"thesis.csv": "x"}),
             _marked({"thesis.csv": None}), _marked({"/etc/passwd": "link"}), _marked([]),
                 _marked({"thesis.csv": "folder"})]  # fmt: skip
    for number, text in enumerate(marks):
        yield Attack(
            "tampering",
            f"a mark, {number}",
            ["run", "table", "--out", "theirs"],
            {"theirs/.ppmodel.json": text},
            codes=(2,),
            holds=_theirs,
        )


def _marked(files):
    return json.dumps(
        {"ppmodel": "what ppmodel wrote here; a folder with anything else in it is not replaced", "files": files}
    )


def _begun(work):
    """The parts of a sweep that was killed while it ran."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    running = subprocess.Popen([sys.executable, "-m", "ppmodel", *SWEEPS.split()], cwd=work, env=environment,
        start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    parts = work / "out.parquet.parts"
    while not list(parts.glob("part-*.parquet")) and running.poll() is None:
        time.sleep(0.005)
    running.kill()
    running.wait()
    for left in processes_of(running.pid):
        os.kill(left, signal.SIGKILL)
    (work / "out.parquet").unlink(missing_ok=True)
    parts.mkdir(exist_ok=True)
    (parts / "sweep.json").touch()
    return parts


def _each_part(parts, deed):
    for path in sorted(parts.glob("part-*.parquet")):
        deed(path)
