"""Chimera's operations in other orders: the fastest order for each split of the model, found once and kept as data.

The placement is Chimera's own, backwards are whole, transfers take time and occupy nothing. For each split and size a
solver was asked two questions: the fastest order within the peak of the generated table, and the fastest order of all.
"""

from fractions import Fraction
from functools import cache

import pandas as pd

from ppmodel.clusters.specs import DATA
from ppmodel.metrics import peak_activations
from ppmodel.schedules import build
from ppmodel.simulation import compile_graph, run_events, run_graph, uniform_costs
from ppmodel.tables import Schedule

FILE = DATA / "reference" / "chimera_orders.csv"
LIMITS = ("as generated", "none")


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
        runs = [(run_graph, table), (run_graph, schedule), (run_events, schedule)]
        costs = uniform_costs(table, 1.0, 2.0, latency=float(Fraction(row.comm)))
        times = [run(compile_graph(order, p2p="latency"), costs).makespan_s for run, order in runs]
        simulated.append((*times, peak_activations(schedule).max()))
    numbers = pd.DataFrame(simulated, columns=["table", "time", "events", "peak"], dtype=float).round(9)
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
