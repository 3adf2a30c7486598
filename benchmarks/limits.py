"""What the machine allows: the least that a stage could take, for goals that are missed.

``python -m benchmarks.limits`` prints, for 1F1B with 64 ranks and 1,024 microbatches, the time of the passes that no
implementation can leave out. Compare ratios on a quiet machine:

- *one evaluation* reads 28 bytes an operation and writes 16. That alone takes 1.5 ns; with the chain of a maximum and
  an addition from one operation to the next, 1.8 ns. A link adds a second such chain: 3.8 ns for 1F1B, `overlapped`.
- *many systems*: the chain alone takes 0.7 ns an operation and system; with links, 0.8 to 1.0 ns.
- *compile*: one gather of the table's five columns in the order of the dependencies takes 4.5 ns an operation. Sources,
  levels, order, renumbering and instructions are about ten such passes.
"""

from time import process_time_ns

import numpy as np

REPEATS, SYSTEMS = 20, 64


def least_ns(function, count):
    """The shortest CPU time of several calls, per item."""
    function()
    times = []
    for _ in range(REPEATS):
        began = process_time_ns()
        function()
        times.append(process_time_ns() - began)
    return min(times) / count


def measured():
    """Nanoseconds of each pass, by its name."""
    from numba import njit

    from ppmodel import build
    from ppmodel.loops.compiled import using
    from ppmodel.simulation import compile_graph

    with using(True):
        schedule = build("1f1b", 64, 1024)
        rows, sizes = compile_graph(schedule).instructions
    count, order = len(rows), schedule.dependencies.order
    columns = [schedule.kind, schedule.stage, schedule.microbatch, schedule.replica, schedule.rank]

    @njit
    def passing(rows, times):
        total = 0
        for row in range(len(rows)):
            total += rows[row, 0]
            times[0, row] = times[1, row] = total

    @njit
    def chain(rows, compute, free, there, times):
        for row in range(len(rows)):
            class_, stream, take, give = rows[row, 0], rows[row, 1], rows[row, 2], rows[row, 3]
            times[0, row] = begin = free[stream] if free[stream] > there[take] else there[take]
            times[1, row] = free[stream] = there[give] = begin + compute[class_]

    @njit
    def chains(rows, compute, free, there):
        for row in range(len(rows)):
            class_, stream, take, give = rows[row, 0], rows[row, 1], rows[row, 2], rows[row, 3]
            for k in range(SYSTEMS):
                begin = free[stream, k] if free[stream, k] > there[take, k] else there[take, k]
                free[stream, k] = there[give, k] = begin + compute[class_, k]

    @njit
    def gather(order, kind, stage, microbatch, replica, rank, packed):
        for op in order:
            packed[op, 0], packed[op, 1], packed[op, 2] = kind[op], stage[op], microbatch[op]
            packed[op, 3] = replica[op] + rank[op]

    times, packed = np.empty((2, count)), np.empty((count, 4), np.int32)

    def states(*systems):
        return np.ones((6 * 64, *systems)), np.zeros((sizes[1], *systems)), np.zeros((sizes[0], *systems))

    return {
        "one pass over what an evaluation reads and writes": least_ns(lambda: passing(rows, times), count),
        "the chain of one evaluation": least_ns(lambda: chain(rows, *states(), times), count),
        "the chain of many systems, each": least_ns(lambda: chains(rows, *states(SYSTEMS)), count * SYSTEMS),
        "one gather in the order of the dependencies": least_ns(lambda: gather(order, *columns, packed), count),
    }


if __name__ == "__main__":
    for name, nanoseconds in measured().items():
        print(f"{name:50} {nanoseconds:5.2f} ns/op")
