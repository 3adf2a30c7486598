"""The library from eight threads at once, from the first call on, and forks, signals and ends of files beside them."""

import textwrap

from .attempt import Attack
from .rooms import DOCUMENTS, GENERATORS, OPERATIONS, PRODUCTS, ROWS, TABLES

FILES = {
    "mine.py": GENERATORS.good, "mine.csv": TABLES.good, "rows.csv": ROWS.good, "products.csv": PRODUCTS.good,
    "operations.csv": OPERATIONS.good, "fw.yaml": DOCUMENTS["framework"].good, "sweep.yaml": "schedules: [gpipe, "
    "{file: mine.py}]\npp: [2, 4]\nmicrobatches: 8\nmodels: paper\nsystems: dgx_h100\n",
}  # fmt: skip
CALLS = {
    "simulate": "pp.simulate(['1f1b', 'zb-v', 'chimera', 'gpipe'][n % 4], 4, 8, forward=1, backward=2).makespan_s",
    "searched": "pp.simulate(('zb-1p', {'times': (1, 1, 1, n % 3)}), 4, 8, forward=1, backward=2, comm=1).makespan_s",
    "compare": "pp.compare(['gpipe', '1f1b'], 2 + 2 * (n % 3), 12, forward=1, backward=2).makespan_s.tolist()",
    "layout": "pp.simulate('1f1b', 4, 8, **LLAMA, tp=[1, 2, 4, 8][n % 4]).iteration.iteration_s",
    "framework": "pp.simulate('1f1b', 4, 8, **LLAMA, framework=['nemo', 'fsdp', 'fw.yaml'][n % 3], tp=2).makespan_s",
    "generator": "pp.build(('mine.py', {'node': 1 + n % 2}), 4, 8).to_frame().values.tolist()",
    "table": "pp.build('mine.csv').to_frame().values.tolist()",
    "round trip": "pp.build('1f1b', 4, 8 + n % 4).to_csv(f'{n}.csv') or pp.read_table(f'{n}.csv').num_microbatches",
    "one file": "pp.build('1f1b', 4, 8).to_csv('same.csv') or pp.read_table('same.csv').num_microbatches",
    "predict": "main(['predict', 'rows.csv', '--system', 'b200', '--out', f'{n % 4}.csv']) if n < 4 else 0",
    "measure": "main(['measure', '--system', 'h100', '--gemm', 'products.csv', '--out', f'{n}.yaml']) if n < 4 else 0",
    "replay": "pp.replay('operations.csv', '1f1b', 2, 1, against=['gpipe']).makespan_s.tolist()",
    "sweep": "run_sweep('sweep.yaml', f'{n}.parquet').rows if n < 3 else 8",
    "specifications": "(pp.load_model('paper'), pp.load_system('fw.yaml' if n == 99 else 'h100')) and 0",
}  # fmt: skip
"""Expressions of ``n``; each is the same whoever computes it."""

BESIDE = {
    "nothing": "",
    "a fork": "values[0].result(60)  # what is imported meanwhile is locked for ever\npid = os.fork()\n"
    "if not pid:\n    faulthandler.dump_traceback_later(40, exit=True)\n    call(0)\n    os._exit(0)\n"
    "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0",
    "ends of files": "for _ in range(5):\n    end_processes()\n    time.sleep(0.05)",
    "signals": "signal.signal(signal.SIGUSR1, lambda *_: None)\nfor _ in range(50):\n    os.kill(os.getpid(), "
    "signal.SIGUSR1)\n    time.sleep(0.005)",
    "collections": "for _ in range(20):\n    gc.collect()",
    "another folder": "for _ in range(20):\n    os.chdir('theirs')\n    os.chdir('..')",
}  # fmt: skip
_FOLDERS = {"generator", "table", "framework", "predict", "measure", "replay", "sweep", "round trip", "one file"}
"""These name files, which are others in another folder."""

CODE = """
import faulthandler, gc, os, signal, sys, threading, time, warnings
from concurrent.futures import ThreadPoolExecutor
import ppmodel as pp
from ppmodel.cli import main
from ppmodel.schedules.own_files import end_processes
from ppmodel.studies.sweep import run_sweep
LLAMA = {{"model": "llama3_8b", "system": "dgx_h100"}}

def call(n):
    for again in range(20):
        try:
            return {call}
        except pp.PPModelError as error:
            if "ends the process" not in str(error) or {strict}:
                raise

if __name__ == "__main__":
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(8) as threads:
        values = [threads.submit(call, n) for n in range(8)]
{beside}
        values = [value.result(60) for value in values]
    assert values == [call(n) for n in range(8)], values
    print("same")
"""


def threads():
    """Every call beside everything; what threads get is what one gets alone."""
    for (name, call), (kind, beside) in ((entry, other) for entry in CALLS.items() for other in BESIDE.items()):
        if kind == "another folder" and name in _FOLDERS:
            continue
        strict = kind != "ends of files"
        code = CODE.format(call=call, beside=textwrap.indent(beside, " " * 8), strict=strict)
        files = FILES | {"code.py": code}
        yield Attack("threads", f"{name}, beside {kind}", ["code.py"], files, codes=(0,), seconds=90,
                     writes=r"\d\.(csv|yaml|parquet)|same\.csv", program=True, loud=True,
                     holds=lambda _, done: None if done.out.endswith("same\n") else done.err[-500:])  # fmt: skip
