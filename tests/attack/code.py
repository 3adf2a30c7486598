"""Code of a user's own: generators that do what no generator should, and notebooks that are none or do the same."""

import json

from .attempt import Attack

GENERATOR = """
import atexit, builtins, ctypes, gc, json, os, resource, signal, socket, subprocess, sys, threading, time, warnings
from ppmodel import build
from ppmodel.schedules.registry import schedule
from ppmodel.tables import Schedule

@schedule("mine", label="m", title="t", legal="any")
def mine(s, b):
    made = build("1f1b", s, b)
    {}
    return made
"""
_EACH = "\n    ".join(["for fd in range(3, 64):", "    try: os.write(fd, {})", "    except OSError: pass"])
_FLOOD = "\n    ".join(["while True:", "    for fd in range(3, 64):", "        try: os.write(fd, b'x' * 2**20)",
                        "        except OSError: pass"])  # fmt: skip
DEEDS = [
    *(_EACH.format(answer) for answer in (
        "b'\\n'", "b'5\\n'", "b'[]\\n'", "b'[1, 2, 3, 4]\\n'", "b'[null, \"x\", null, null]\\n'",
        "b'[\"\", 0, 5, 5]\\n'",
        "b'[\"\", true, null, null]\\n'", "b'[\"\\\\u001b[2J\", 0, null, null]\\n'", "b'{{\"a\": 1}}\\n'",
        "b'\\xff\\n'", "b'[' * 5000 + b'\\n'",
        "b'[\"\", 0, \"x\\\\ny\\\\u001b[2J\", \"y\"]\\n'", "b'[\"\", 9, null, null]\\n'",
        "b'[\"\", -1, null, null]\\n'",
        "b'[\"\", null, null, \"x\" * 9]\\n'", "b'NaN\\n'", "b'9' * 5000 + b'\\n'",
    )),
    _FLOOD, "atexit.register(time.sleep, 100)", "atexit.register(print, 'x' * 10**6)", "sys.excepthook = 1 / 0",
        "print('x' * 10**7)",
    "sys.stderr.write('Traceback\\x1b[2J' * 3)", "sys.stderr.write('x' * 10**7)", "os.write(1, b'\\x1b[2J' * 10)",
    "os.write(2, b'\\x1b[2J' * 10)", "sys.stdout = sys.stderr = open(os.devnull)",
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(99)",
    "os.setsid(); os.fork() or time.sleep(99)", "subprocess.Popen(['sleep', '99'])",
    "subprocess.Popen(['sleep', '99'], start_new_session=True)",
    "os.chdir('/')", "os.umask(0o777)", "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "gc.disable(); [bytearray(2**20) for _ in range(10**6)]",
    "warnings.warn('odd\\x1b[2J')", "raise Warning('odd')", "raise Exception(b'\\xff')",
    "raise ExceptionGroup('g', [ValueError(1)])",
    "raise Exception('a\\rb\\x1b[2J\\u202ec')", "class E(Exception): __str__ = None\n    raise E",
    "class E(Exception): __name__ = 5\n    raise E",
    "raise BlockingIOError(5, 'x', 'y')", "raise BrokenPipeError", "raise OSError(28, 'No space left', 'x')",
    "raise StopIteration", "yield made",
    "import ppmodel.cli.text as t; t.say = None", "import ppmodel.errors as e; e.shown = None; 1 / 0",
    "import json as j; j.dumps = None",
    "builtins.open = None; os.pipe = None", "builtins.print = builtins.repr = builtins.str; 1 / 0",
    "del sys.modules['ppmodel']",
    "sys.modules['numpy'] = None", "sys.path.clear(); sys.meta_path.clear()", "made.kind.setflags(write=True)",
    "made.__dict__['kind'] = None",
    "made.__dict__['kind'] = made.kind * 7", "made.__dict__['rank_start'] = made.rank_start[::-1]",
    "made.__dict__['placement'] = made.placement * 99",
    "made.__dict__['name'] = '\\x1b[2J' * 99", "made.__dict__['num_microbatches'] = 10**9",
    "made.__dict__['microbatch_parts'] = 0",
    "made = type('S', (Schedule,), {'num_ranks': property(lambda s: 1 / 0)})", "made = Schedule.from_rows('x', [])",
    "made = Schedule.from_rows('x', [['0F0'], None])", "made = Schedule.from_rows(None, [['0F0', '0B0']])",
    "made = Schedule.from_rows('x', 5)",
    "made = Schedule.from_rows('\\x1b[2J' * 99, [['0F0', '0F1', '0B0', '0B1'], ['1F0', '1F1', '1B0', '1B1']])",
    "made = Schedule.from_rows('x', iter(lambda: ['0F0'], None))", "threading.stack_size(2**30)",
    "ctypes.CDLL(None).exit(0)",
    "ctypes.CDLL(None).kill(-1 * os.getpgid(0), 9)", "os.dup2(0, 1); os.dup2(0, 2)",
    "socket.socket().bind(('127.0.0.1', 0))",
    "open('ran.txt', 'w').close(); os.unlink('ran.txt')", "os.killpg(0, signal.SIGSTOP)", "os.nice(19)",
    "sys.settrace(lambda *a: 1 / 0)",
    "sys.setprofile(lambda *a: time.sleep(1))", "signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1); time.sleep(9)",
    "os.kill(os.getpid(), 19)", "os.closerange(0, 99)", "ctypes.string_at(0)", "os.abort()",
    "open(__file__, 'a').write('1/0')",
    "[threading.Thread(target=time.sleep, args=(30,)).start() for _ in range(300)]", "[os.fork() for _ in range(4)]",
    "json.dumps = lambda *_, **__: '{{}}'", "made = bytearray(2**42)", "raise GeneratorExit", "raise MemoryError",
    "faulty = eval('(' * 99 + ')' * 99)",
]  # fmt: skip
_REGISTRY = "from ppmodel.schedules.registry import schedule\n"
FIRST_LINES = [
    "import sys; sys.exit(7)", "import os; os._exit(7)", "while True: pass", "raise SystemExit('\\x1b[2J')",
    "print('x' * 10**7)",
    "# -*- coding: rot13 -*-", "# coding: nowhere", "\ufeff\ufeff", "from __future__ import braces", "x: int = (yield)",
    "match 1:", "\x0c", "x = 0777",
    "import ppmodel.nowhere", "from ppmodel import *; del build", "class schedule: pass", "f'{'", "a" * 10**6,
    "lambda: (yield)", "'\\N{x}'", "\\",
    "schedule = 5\n@schedule('x')\ndef f(): pass",
    _REGISTRY + "@schedule('1f1b', label='x', title='', legal='')\ndef f(s, b): 1",
    _REGISTRY + "@schedule('x y', label='{{7}}', title='\\x1b[2J', legal='\\x1b[2J')\ndef f(s, b): 1 / 0",
    _REGISTRY + "@schedule('mine', label=None, title=None, legal=None, options=5)\ndef f(s, b): 1",
    _REGISTRY + "schedule('mine', label='x', title='x', legal='x')(5)",
    _REGISTRY + "for n in range(10**4):\n "
    "schedule(f'm{n}', label='x', title='x', legal='x')(lambda s, b: n)",
]  # fmt: skip


def generators():
    """Generators that forge or flood the answer, hide, stay, break what is around them, or return no schedule."""
    rest = ["--pp", "2", "--microbatches", "2", "--time-limit", "1"]
    for deed in DEEDS:
        text = GENERATOR.replace("{}", deed)
        for words in (["check", "mine.py", *rest], ["simulate", "mine.py", *rest, "--forward", "1", "--backward", "2"]):
            if words[0] == "check" or "made" in deed:
                yield Attack("generators", deed.replace("\n", " ")[:90], words, {"mine.py": text}, loud=_is_loud(deed),
                             memory=2**34)  # fmt: skip
    for line in FIRST_LINES:
        yield Attack(
            "generators", line[:60], ["check", "mine.py", *rest], {"mine.py": line + "\n"}, loud=_is_loud(line)
        )


def _is_loud(text):
    """Whether code prints: its own output is its user's."""
    return any(word in text for word in ("print(", "stderr.write", "os.write(1", "os.write(2", '"y"]'))


# ---- notebooks -----------------------------------------------------------------------------------

_CELL = {
    "cell_type": "code",
    "metadata": {"tags": ["parameters"]},
    "source": "a = 1",
    "outputs": [],
    "execution_count": None,
    "id": "a",
}
_GOOD = {"nbformat": 4, "nbformat_minor": 5, "cells": [_CELL], "metadata": {}}
_ODD = [None, 5, -1, 10**30, "x", [], {}, [None], [[]], {"a": None}, True, 1.5, "\x1b[2J", "x" * 10**5]
_SOURCES = [
    "a = __import__('os').system('touch ran')", "import os", "a = [1] * 10**9", "a = 1 if True else 2", "a = b = 1",
    "a, b = 1, 2", "a: int = 1",
    "a = 1; b = a", "a = f'{1}'", "del a", "def a(): pass", "a = {1: {2: {3: []}}}", "a = ...", "a = 1j", "a = b'x'",
    "a = 1  # nowhere: x",
    "a = 1  # count", "a = 'x'  # count: x", "\x00", "%matplotlib", "!touch ran", "a = '\\ud800'",
    "a = " + "[" * 200 + "]" * 200, "a = 9" + "9" * 5000,
    "a = 1\na = 2", "a.b = 1", "a[0] = 1", "a = lambda: 1", "pass", "'x'", "a = -'x'", "a = {*()}", "a = (1,)", "if 1:",
    "a = 1  # system: x",
]  # fmt: skip


def notebooks():
    """Notebooks with parts that are none, and cells of parameters that hold code: refused, and nothing of them runs."""
    for key in ("nbformat", "nbformat_minor", "cells", "metadata"):
        for odd in _ODD:
            yield _refused(f"{key} = {str(odd)[:30]!r}", _GOOD | {key: odd})
    for key in _CELL:
        for odd in _ODD[:10]:
            if (key, odd) not in (
                ("execution_count", None),
                ("source", []),
                ("outputs", []),
                ("id", "x"),
                ("source", "x"),
            ):
                yield _refused(f"cells.{key} = {str(odd)[:30]!r}", _GOOD | {"cells": [_CELL | {key: odd}]})
    for source in _SOURCES:
        yield _refused(f"source {source[:40]!r}", _GOOD | {"cells": [_CELL | {"source": source}]})


def _refused(name, notebook):
    words = ["run", "mine.ipynb", "--out", "theirs"]  # a good one is refused for its folder
    return Attack("notebooks", name, words, {"mine.ipynb": json.dumps(notebook)}, codes=(2,))


HOSTILE = [
    "print('x' * 10**8)", "print('\\x1b[2J')", "import sys; sys.stderr.write('x' * 10**7)", "input()",
    "import os; os.chdir('/')",
    "import os, shutil; shutil.rmtree('results', ignore_errors=True); os.symlink('/', 'results')",
    "import os; os.symlink('/etc/passwd', 'passwd')", "import os; os.mkfifo('pipe')",
    "import os; open('.ppmodel.json', 'w').write('{}')",
    "import shutil, os; shutil.rmtree(os.getcwd())", "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)",
    "import subprocess; subprocess.Popen(['sleep', '99'])",
    "import threading, time; threading.Thread(target=time.sleep, args=(99,)).start()",
    "import os; os.fork() or os._exit(0)", "get_ipython().kernel.do_shutdown(False)",
    "from IPython.display import HTML; HTML('<script>alert(1)</script>')",
    "import sys; sys.modules.clear()", "class C:\n    def _repr_html_(self): 1 / 0\nC()", "raise KeyboardInterrupt",
    "import os; os.close(2); os.close(1)",
    "import signal, time; [signal.signal(one, signal.SIG_IGN) for one in (2, 15)]; time.sleep(99)",
]  # fmt: skip


def hostile_notebooks():
    """Cells that flood, hide, stay, leave, or change the folder that they run in; each starts a kernel."""
    for source in HOSTILE:
        cells = [_CELL, {**_CELL, "metadata": {}, "source": source, "id": "b"}]
        words = ["run", "mine.ipynb", "--out", "out", "--time-limit", "8"]
        files = {"mine.ipynb": json.dumps(_GOOD | {"cells": cells})}
        yield Attack(
            "kernels", source[:80], words, files, codes=(0, 2), seconds=90, writes=r"out(/.*)?", environment={"A": "1"}
        )
