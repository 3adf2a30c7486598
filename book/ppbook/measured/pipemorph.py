"""PipeMorph's runs under a known delay (Wu et al., NSDI 2026), replayed with measured times or one fitted cost."""

from functools import cache

import numpy as np
import pandas as pd

from ppbook.measured.zero_bubble import like_gpt3
from ppmodel import replay
from ppmodel.clusters.specs import DATA
from ppmodel.errors import TableError
from ppmodel.ops import OpKind
from ppmodel.studies.points import simulate

_FOLDER = DATA / "reference" / "schedules_measured"
RAN = {
    "1F1B": ("1f1b", "rendezvous"), "ZB": (("zb-2p", {"times": (1, 1, 1, 0)}), "streams"),
    "ZB-CPU": (("zb-2p", {"times": (1, 1, 1, 0), "delays": (0,)}), "latency"),
}  # fmt: skip
"""The table that each method ran, and what its transfers occupy: `batch_isend_irecv`, streams, host processes."""

RESCHEDULED = "ZB-CPU-ReSchedule"

_H800, _SLOW_LINK = ("H800", "14B"), "6_7"
_PHASE, _A10_TRANSFER_S = "no_delay_iter6-7", 0.0013
_KINDS = {"1F1B": "FB", "ZB": "FIW"}


def _key(method):
    return "1F1B" if method == "1F1B" else "ZB"


@cache
def a10_operations(experiment, method, links, delay_s):
    """Mean seconds of the operations of a run on A10, before the delay begins.

    Returns
    -------
    DataFrame
        Columns rank, operation and seconds; empty if none were recorded. The time of a run of weight gradients, such as
        ``8W``, counts as that of eight.
    """
    means = pd.read_csv(_FOLDER / "pipemorph_a10_op_means.csv", dtype={"slow_links": str})
    rows = means[(means.experiment == experiment) & (means.schedule == _key(method)) & (means.slow_links == links)]
    rows = rows[(rows.delay_s == delay_s) & (rows.phase == _PHASE)]
    parts = rows.op.str.extract(r"(?P<count>\d*)(?P<operation>[FBW])")
    operations = parts["count"].replace("", "1").astype(float) * rows.n
    rows = rows.assign(operation=parts.operation, total_s=rows.mean_ms * rows.n / 1e3, operations=operations)
    sums = rows.groupby(["rank", "operation"])[["total_s", "operations"]].sum()
    return (sums.total_s / sums.operations).rename("seconds").reset_index()


@cache
def fitted_operations(hardware, model, method):
    """Seconds of the operations of a model: those of our model of it on `h100`, times the one factor that is fitted.

    PipeMorph's code is a fork of Megatron-LM of 2023. The factor makes 1F1B and ZB without a delay as long as they
    were, on average.
    """
    row, rows = runs_of(hardware, model).iloc[0], {}
    given = {"system": "h100", "framework": "eager"} | like_gpt3(row, int(row.pp))
    seconds = simulate("zb-h1", int(row.pp), **given).costs.compute_s
    for key, kinds in _KINDS.items():
        operations = [(rank, kind, seconds[OpKind[kind], rank]) for rank in range(row.pp) for kind in kinds]
        rows[key] = pd.DataFrame(operations, columns=["rank", "operation", "seconds"])
    free_s = _free_s(hardware, model)
    factors = [free_s[key] / _iteration_s(rows[key], key, row.pp, row.m) for key in rows if key in free_s]
    return rows[_key(method)].assign(seconds=rows[_key(method)].seconds * np.mean(factors))


@cache
def _free_s(hardware, model):
    """Iterations without a delay, by method; ``ALL-CPU`` had all transfers by host processes, if it was run."""
    return runs_of(hardware, model).groupby("schedule").base_iter4_7_median_ms.mean() / 1e3


@cache
def host_transfer_s(hardware, model):
    """Seconds of a transfer by host processes: what the run with all of them and no delay takes longer; else 0."""
    all_host_s, row = _free_s(hardware, model).get("ALL-CPU"), runs_of(hardware, model).iloc[0]
    if all_host_s is None:
        return 0.0
    rows, long_s = fitted_operations(hardware, model, "ZB"), 0.01
    fast_s, slow_s = (_iteration_s(rows, "ZB-CPU", row.pp, row.m, comm=comm) for comm in (0.0, long_s))
    return max(0.0, long_s * (all_host_s - fast_s) / (slow_s - fast_s))


def runs_of(hardware=None, model=None):
    """The rows of the file, of one model or of all."""
    rows = pd.read_csv(_FOLDER / "pipemorph_iterations.csv", dtype={"slow_links": str, "schedule": str})
    return rows if model is None else rows[(rows.hardware == hardware) & (rows.model == model)]


def links_of(method, slow_links, delay_s, corrected=True):
    """The links as `replay` takes them.

    In the batches of 1F1B, the injector takes a send to rank 1 for one to the next rank: of rank 2's, it delays those
    to rank 1 where link 2_3 is slow, and not where 1_2 is. So do we if `corrected`.

    Examples
    --------
    >>> links_of("ZB", "2_3", 0.06), links_of("1F1B", "2_3", 0.06)
    ('2-3:delay=0.06', '2>1:delay=0.06 2>3:delay=0.06 3>2:delay=0.06')
    """
    links = slow_links.split(",") if delay_s else []
    if method != "1F1B" or not corrected:
        return " ".join(f"{link.replace('_', '-')}:delay={delay_s!r}" for link in links) or None
    ways = {way for link in links for way in (link.replace("_", ">"), ">".join(link.split("_")[::-1]))} - {"2>1"}
    ways |= {"2>1"} if "2_3" in links else set()
    return " ".join(f"{way}:delay={delay_s!r}" for way in sorted(ways)) or None


def _iteration_s(rows, method, pp, microbatches, comm=0.0, links=None, ran=None, p2p=None):
    schedule, semantics = (ran or RAN)[method]
    given = {"p2p": p2p or semantics, "comm": comm, "links": links}
    try:
        return float(replay(rows, schedule, pp, microbatches, **given).makespan_s[0])
    except TableError:  # a deadlock under rendezvous
        return np.nan


def rescheduled(rows, pp, slow_links, delay_s):
    """PipeMorph's order for measured operations and a delay on some links, as `replay` takes it."""
    times_ms = rows.groupby("operation").seconds.mean() * 1e3
    delays = [0.0] * (pp - 1)
    for link in slow_links.split(","):
        delays[int(link[0])] = 1e3 * delay_s
    times = [round(float(times_ms[kind]), 3) for kind in ("F", "I" if "I" in times_ms else "B", "W")]
    return ("zb-2p", {"times": (*times, 0), "delays": tuple(delays)}), "latency"


def searched(rows, pp, slow_links, delay_s):
    """The order that our own search finds for the same operations and the mean delay of a link, as `rescheduled`."""
    (name, options), p2p = rescheduled(rows, pp, slow_links, delay_s)
    mean_ms = round(sum(options["delays"]) / (pp - 1), 3)
    return (name, {"times": (*options["times"][:3], mean_ms)}), p2p


def predicted(methods=tuple(RAN), p2p=None, ran=None, order=rescheduled, corrected=True):
    """Every run under a delay, with its predicted iteration: what the delay adds, and the measured one without it.

    Parameters
    ----------
    methods : tuple of str
        Of the file: those of `RAN`, and `RESCHEDULED`.
    p2p : str, optional
        The same semantics for all, instead of those of `RAN`.
    ran : tuple of (str, (ScheduleLike, str)), optional
        Other tables than ran, by method.
    order : callable
        The order of `RESCHEDULED`: `rescheduled` or `searched`.
    corrected : bool
        Whether links are delayed as the injector does it; see `links_of`.

    Returns
    -------
    DataFrame
        Columns hardware, schedule, slow_links, delay_s, experiment, measured_s, predicted_s and error; NaN where the
        table is a deadlock under `p2p`.
    """
    records = []
    for row in runs_of().itertuples():
        if row.schedule not in methods or not isinstance(row.slow_links, str):
            continue
        machine, by_host = (row.hardware, row.model), row.schedule in ("ZB-CPU", RESCHEDULED)
        rows = a10_operations(row.experiment, row.schedule, row.slow_links, row.delay_s)
        on_a10, base_s = len(rows) > 0, row.base_iter4_7_median_ms / 1e3
        if not on_a10:
            rows = fitted_operations(*machine, row.schedule)
        size = (row.pp, row.m, _A10_TRANSFER_S if on_a10 else host_transfer_s(*machine) if by_host else 0.0)
        if by_host and not on_a10:  # before the delay, the GPU sent
            base_s = _free_s(*machine).get("ALL-CPU", base_s)
        tables = RAN | dict(ran or ())
        if row.schedule == RESCHEDULED:
            tables[RESCHEDULED] = order(rows, row.pp, row.slow_links, row.delay_s)
        links = links_of(row.schedule, row.slow_links, row.delay_s, corrected)
        free_s = _iteration_s(rows, "ZB-CPU" if by_host else row.schedule, *size, None, tables, p2p)
        added_s = _iteration_s(rows, row.schedule, *size, links, tables, p2p) - free_s
        records.append({
            "hardware": row.hardware, "schedule": row.schedule, "slow_links": row.slow_links, "delay_s": row.delay_s,
            "experiment": row.experiment, "measured_s": row.delayed_last4_median_ms / 1e3,
            "predicted_s": base_s + added_s,
        })  # fmt: skip
    frame = pd.DataFrame(records)
    return frame.assign(error=frame.predicted_s / frame.measured_s - 1)


def in_order(runs):
    """How many pairs of 1F1B and ZB under one delay are predicted in the measured order, and how many there are.

    Parameters
    ----------
    runs : DataFrame
        From `predicted`.
    """
    means = runs.groupby(["hardware", "slow_links", "delay_s", "schedule"])[["measured_s", "predicted_s"]].mean()
    faster = (means.xs("1F1B", level="schedule") < means.xs("ZB", level="schedule")).dropna()
    return int((faster.measured_s == faster.predicted_s).sum()), len(faster)


def reversal():
    """The 14B model over the delay of a link: measured where it was, predicted on a fine grid.

    Returns
    -------
    measured, lines : DataFrame
        Columns schedule, delay_ms and iteration_s.
    """
    rows = runs_of(*_H800)
    rows = rows[rows.schedule.isin(RAN) & (rows.slow_links == _SLOW_LINK)]
    free = rows.assign(delay_s=0.0, delayed_last4_median_ms=rows.base_iter4_7_median_ms)
    both = pd.concat([rows, free]).assign(delay_ms=lambda of: 1e3 * of.delay_s)
    both = both[(both.schedule != "ZB-CPU") | (both.delay_ms > 0)]
    measured = both.groupby(["schedule", "delay_ms"]).delayed_last4_median_ms.mean().div(1e3).rename("iteration_s")
    lines = [
        (method, delay_ms, _iteration_s(
            fitted_operations(*_H800, method), method, 8, 24, host_transfer_s(*_H800) if method == "ZB-CPU" else 0.0,
            links_of(method, _SLOW_LINK, delay_ms / 1e3),
        ))
        for method in RAN for delay_ms in np.arange(0, measured.index.get_level_values(1).max() + 1, 2.5).tolist()
    ]  # fmt: skip
    return measured.reset_index(), pd.DataFrame(lines, columns=["schedule", "delay_ms", "iteration_s"])
