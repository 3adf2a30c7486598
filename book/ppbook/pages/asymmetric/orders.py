"""Chimera's operations in other orders: the fastest order for each split of the model, found once and kept as data.

The placement is Chimera's own, backwards are whole, transfers take time and occupy nothing. For each split and size a
solver is asked two questions: the fastest order within the peak of the generated table, and the fastest order of all.
``python -m ppbook.pages.asymmetric.orders`` asks them again and writes the file; with one core, a fixed seed and a
limit of work, the result is the same on every machine.
"""

from fractions import Fraction
from functools import cache
from itertools import product

import pandas as pd

from ppmodel.clusters.specs import DATA
from ppmodel.schedules import build
from ppmodel.simulation import compile_graph, run_events, run_graph, uniform_costs
from ppmodel.studies.optimum import peak_of, problem_of, solve, time_of
from ppmodel.tables import Schedule

FILE = DATA / "reference" / "chimera_orders.csv"
SIZES = ((4, 4), (4, 8), (8, 8))
SPLITS = ((1, 1), (1, 3), (1, 2), (2, 3), (2, 1))
COMMS = ("0", "1/4")
LIMITS = ("as generated", "none")
_BACKWARD = 2.0


def table_of(pp, microbatches, split):
    """The generated table of a split; Chimera's own if the split is even.

    Examples
    --------
    >>> table_of(4, 4, (1, 2)).stage_shares.round(3).tolist()
    [0.667, 0.667, 1.333, 1.333]
    """
    if split[0] == split[1]:
        return build("chimera", pp, microbatches)
    return build("asymmetric-chimera", pp, microbatches, split=split)


def question(table, comm, limit):
    """The problem that a table poses: its placement and split, a backward of two forwards, and its peak or no limit."""
    return problem_of(table, comm=Fraction(comm), limit=peak_of(table) if limit == LIMITS[0] else None, split=False)


def solved(pp, microbatches, split, comm, limit):
    """The file's row for a question: what the solver finds, as text."""
    table = table_of(pp, microbatches, split)
    solution = solve(question(table, comm, limit), hint=table, work=30.0)
    rows = [" ".join(str(cell[0]) for cell in row if cell[0].microbatch >= 0) for row in solution.schedule.rows()]
    return {
        "pp": pp, "microbatches": microbatches, "split": ":".join(map(str, split)), "comm": comm, "limit": limit,
        "time": str(solution.time), "bound": str(solution.bound), "order": " / ".join(rows),
    }  # fmt: skip


@cache
def orders():
    """The orders that were found, simulated again.

    Returns
    -------
    DataFrame
        One row per question; columns ``pp, microbatches, split, comm, limit, table, time, events, peak, proven``: the
        time of the generated table, the time of the order found, by the longest path and by the event queue, its peak,
        and whether the solver proved it to be the fastest. Times in forwards of 1/S of the model.

    Examples
    --------
    >>> rows = orders()
    >>> bool((rows.time == rows.events).all()), bool((rows.time <= rows.table + 1e-9).all())
    (True, True)
    """
    file = pd.read_csv(FILE, dtype={"comm": str, "time": str, "bound": str}, comment="#")
    simulated = []
    for row in file.itertuples(index=False):
        table = table_of(row.pp, row.microbatches, tuple(map(int, row.split.split(":"))))
        programs = [cells.split() for cells in row.order.split(" / ")]
        schedule = Schedule.from_rows("reordered", programs, stage_shares=table.stage_shares)
        graph = compile_graph(schedule, p2p="latency")
        costs = uniform_costs(schedule, 1.0, _BACKWARD, latency=float(Fraction(row.comm)))
        generated = time_of(table, question(table, row.comm, row.limit))
        times = [run(graph, costs).makespan_s for run in (run_graph, run_events)]
        simulated.append((generated, *times, peak_of(schedule)))
    numbers = pd.DataFrame(simulated, columns=["table", "time", "events", "peak"], dtype=float)
    numbers = numbers.round(dict.fromkeys(["table", "time", "events"], 9))
    rows = file[["pp", "microbatches", "split", "comm", "limit"]].assign(comm=file.comm.map(Fraction).astype(float))
    return rows.join(numbers).assign(proven=file.time == file.bound)


@cache
def gains():
    """How much less time the splits take than the even one, both as generated and in their fastest orders.

    Returns
    -------
    DataFrame
        One row per uneven split, size, transfer and limit: ``pp, microbatches, comm, limit, split, generated,
        reordered, peak, even_peak, proven``; gains are 1 - T(split) / T(even).

    Examples
    --------
    >>> float(gains().query("limit == 'none'").reordered.max()) > 0.03
    True
    """
    keys = ["pp", "microbatches", "comm", "limit"]
    even, uneven = orders().query("split == '1:1'"), orders().query("split != '1:1'")
    rows = uneven.merge(even, "left", keys, suffixes=("", "_even"), validate="many_to_one")
    rows["generated"], rows["reordered"] = 1 - rows.table / rows.table_even, 1 - rows.time / rows.time_even
    rows["proven"] &= rows.proven_even
    columns = [*keys, "split", "generated", "reordered", "peak", "peak_even", "proven"]
    return rows[columns].rename(columns={"peak_even": "even_peak"})


def write(path=FILE):
    """Ask the solver every question, and write the file."""
    rows = [solved(*size, split, comm, limit) for size, comm, limit, split in product(SIZES, COMMS, LIMITS, SPLITS)]
    path.write_text(pd.DataFrame(rows).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    write()
