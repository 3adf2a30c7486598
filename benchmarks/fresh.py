"""Tasks that need a process of their own: its memory is counted, or its first call is what matters.

``python -m benchmarks.fresh TASK SIZES...`` prints one JSON object; `benchmarks.timing.in_fresh_process` reads it.
"""

import json
import resource
import sys
from pathlib import Path
from time import perf_counter_ns

_MOST_BYTES = 12 * 2**30  # a task that wants more ends here, and not the machine


def peak_bytes():
    """The most memory that this process has held since its start, or since `forget_peak`."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def forget_peak():
    """Let the peak begin anew at what is held now."""
    Path("/proc/self/clear_refs").write_text("5")


def _parts():
    """What the tasks need of the package; importing it is part of their time."""
    from ppmodel import build
    from ppmodel.simulation import compile_graph, makespans, run_graph, uniform_costs

    return build, uniform_costs, compile_graph, run_graph, makespans


def whole(num_ranks, num_microbatches):
    """From a schedule's name to its makespan, with transfers; all start and end times are there at the end."""
    began = perf_counter_ns()
    build, uniform_costs, compile_graph, run_graph, _ = _parts()
    schedule = build("1f1b", num_ranks, num_microbatches)
    makespan_s = run_graph(compile_graph(schedule), uniform_costs(schedule, 1.0, 2.0, 0.1)).makespan_s
    seconds = (perf_counter_ns() - began) * 1e-9
    return {"seconds": seconds, "peak_bytes": peak_bytes(), "makespan_s": makespan_s}


def compiling(num_ranks, num_microbatches):
    """The median of compile in a process that has done nothing else, with the pages that it gets there."""
    from benchmarks.stages import fresh, ready
    from benchmarks.timing import measure
    from ppmodel import build
    from ppmodel.loops.compiled import using

    with using(True):
        schedule = build("1f1b", num_ranks, num_microbatches)
        return {"median_s": measure(ready, lambda: fresh(schedule)).median}


def systems(num_ranks, num_microbatches, num_systems):
    """How much more memory many systems take than one."""
    build, uniform_costs, compile_graph, _, makespans = _parts()
    many_of = [
        (compile_graph(schedule), [uniform_costs(schedule, 1.0, 2.0, 0.001 * n) for n in range(num_systems)])
        for schedule in (build("1f1b", 8, 64), build("1f1b", num_ranks, num_microbatches))
    ]
    makespans(*many_of[0])  # code is loaded
    graph, many = many_of[1]
    _ = graph.tasks.instructions
    makespans(graph, many[:2])
    forget_peak()
    before = peak_bytes()
    makespans(graph, many)
    return {"added_bytes": peak_bytes() - before}


def layouts():
    """The CPU time of a frame of 480 layouts, from the import of the package on."""
    from ppmodel import compare

    schedules = ["1f1b", "gpipe", ("interleaved-1f1b", {"chunks": 2}), "zb-h1"]
    sizes = {"pp": [2, 4, 8, 16, 20], "tp": [1, 2, 4, 8], "dp": [1, 2, 4, 8, 16, 32], "global_batch": 512}
    frame = compare(schedules, model="llama3_70b", system="h100", **sizes)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": used.ru_utime + used.ru_stime, "rows": len(frame)}


TASKS = {"whole": whole, "layouts": layouts, "compiling": compiling, "systems": systems}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    task, *sizes = sys.argv[1:]
    print(json.dumps(TASKS[task](*map(int, sizes))))
