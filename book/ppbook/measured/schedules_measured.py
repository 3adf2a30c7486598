"""Schedules that others measured on one machine, in one form, and every comparable pair beside its prediction."""

from functools import cache

import numpy as np
import pandas as pd

from ppbook.measured import pipemorph, zero_bubble
from ppmodel import PPModelError, build, replay
from ppmodel.clusters.specs import DATA
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import as_case
from ppmodel.simulation import OpCosts, compile_graph, run_graph
from ppmodel.studies.points.grid import resolve_point

_FOLDER = DATA / "reference" / "schedules_measured"
_TABLES = ("zero_bubble_tables", "primus", "isambard_gh200_vpp", "deepspeed_zbh1", "small_and_github", "pipeoffload")
_V_SHAPED = ("zb-v", "v-half", "v-min")
_SYSTEM = "a100"
_SIZES = ["layers", "hidden", "heads", "seq", "mbs", "m", "pp"]
_ASSUMED_M = 32
_BASE = "1f1b"  # what gains are over
_LEAST = 0.03
_DIVIDED = {"vocab": 1, "synctwice": 2, "interlaced": 0}  # methods of the artefact, and their barriers


@cache
def measured():
    """Rows of all tables of one form, of which the schedule is one of ours and the value is a number.

    Returns
    -------
    DataFrame
        Their columns, and ``file``; ``name``, our schedule; and ``rate``, larger if faster, comparable within a group.
    """
    rows = pd.concat([pd.read_csv(_FOLDER / f"{name}.csv").assign(file=name) for name in _TABLES], ignore_index=True)
    rows["name"] = rows.schedule.str.extract(r"^([a-z0-9_]+)")[0].map(zero_bubble.SCHEDULES)
    rows["value"] = pd.to_numeric(rows.value, errors="coerce")
    rows = rows[rows.name.notna() & rows.value.notna() & (rows.metric != "bubble rate")]
    rows = rows[~rows.status.str.startswith("unread")].reset_index(drop=True)
    return rows.assign(rate=np.where(rows.metric.str.contains("time"), 1 / rows.value, rows.value))


def _seconds(row):
    """The predicted iteration of a row, and what it is computed from: `model`, or `table` where sizes are missing."""
    case, recomputed = row["name"], "full" in str(row.recompute)
    is_interleaved = case == "interleaved-1f1b"
    if np.isnan(row.pp) or (is_interleaved and np.isnan(row.chunks)):
        return np.nan, ""
    if is_interleaved:
        case = (case, {"chunks": int(row.chunks)})
    if row[_SIZES].isna().any():
        costs = {"forward": 1, "input_grad": 1 + recomputed, "weight_grad": 1}
        given, basis = costs | {"microbatches": _ASSUMED_M if np.isnan(row.m) else int(row.m)}, "table"
    else:
        stages = int(row.pp) * (2 if row["name"] in _V_SHAPED else int(row.chunks) if is_interleaved else 1)
        given, basis = zero_bubble.like_gpt3(row, stages) | {"system": _SYSTEM}, "model"
        given["recompute"] = "full" if recomputed else "none"
    try:
        run = resolve_point(case, int(row.pp), **given).run()
    except PPModelError:  # such as fewer microbatches than ranks
        return np.nan, ""
    return (run.makespan_s if basis == "table" else run.iteration_s), basis


def _rows_of_tables():
    """What `measured` has, each row beside its predicted iteration."""
    tables = measured()
    results = [_seconds(row) for _, row in tables.iterrows()]
    tables = tables.assign(predicted_s=[seconds for seconds, _ in results], basis=[basis for _, basis in results])
    chunks = tables.chunks.where(tables.name == "interleaved-1f1b")
    return tables.assign(
        source=tables.file, size=[f"{mbs} {m}" for mbs, m in zip(tables.mbs, tables.m, strict=True)],
        schedule=tables.name + chunks.map(lambda count: "" if np.isnan(count) else f":{count:g}"),
        exact=(tables.basis == "model") & (tables.file == "zero_bubble_tables"),
    )  # fmt: skip


def _rows_of_profiles():
    """Zero Bubble's runs, predicted from the times of their operations that were profiled."""
    rates = zero_bubble.simulated("latency", 1e-3)
    return rates.assign(
        source="zero_bubble_throughput", group=rates.model, size=rates.microbatches, basis="profile", exact=True,
        schedule=rates.schedule.str.replace("_", "-"), rate=rates.samples_per_gpu_s, predicted_s=1 / rates.simulated,
    )  # fmt: skip


def _rows_under_delays():
    """PipeMorph's runs, but those of which 1F1B had another slow link, too."""
    runs = pipemorph.predicted()
    runs = runs[(runs.hardware != "A10") | (runs.slow_links != "2_3")]
    links = " link " + runs.slow_links.str.replace("_", " to ")
    return runs.assign(
        source="pipemorph", group=runs.hardware + links + (1e3 * runs.delay_s).map(", {:g} ms".format), exact=True,
        size=runs.experiment, schedule=runs.schedule.replace("1F1B", _BASE), rate=1 / runs.measured_s, basis="replay",
    )  # fmt: skip


@cache
def pairs():
    """Every schedule beside 1F1B on the same machine, model and batch.

    Returns
    -------
    DataFrame
        A row for each pair: ``source, group, schedule, label``; ``measured_gain`` of the rate over that of 1F1B, and
        ``predicted_gain``; ``basis``, what it is predicted from (``replay`` of measured or fitted operations,
        ``profile`` of operations, ``model`` on `a100`, or the ``table`` alone); ``exact``, whether the source says all
        that the prediction needs; ``off``; and ``sign``, whether both gains have the same, None below 3 %.
    """
    key = ["source", "group", "size", "basis", "exact"]
    rows = pd.concat([_rows_under_delays(), _rows_of_profiles(), _rows_of_tables()], ignore_index=True)
    means = rows.groupby([*key, "schedule"], sort=False)[["rate", "predicted_s"]].mean().reset_index()
    frame = means[means.schedule != _BASE].merge(means[means.schedule == _BASE], on=key, suffixes=("", "_base"))
    frame["measured_gain"] = frame.rate / frame.rate_base - 1
    frame["predicted_gain"] = frame.predicted_s_base / frame.predicted_s - 1
    frame = frame[frame.measured_gain.notna() & frame.predicted_gain.notna()]
    given = frame.schedule.str.replace(":", ":chunks=")
    frame["label"] = [as_case(name).label if name.islower() else name for name in given]
    names = ["source", "group", "schedule", "label", "measured_gain", "predicted_gain", "basis", "exact"]
    frame = frame[names].assign(off=frame.predicted_gain - frame.measured_gain)
    same = np.sign(frame.measured_gain) == np.sign(frame.predicted_gain)
    return frame.assign(sign=same.where(frame.measured_gain.abs() >= _LEAST)).reset_index(drop=True)


def vocabulary():
    """The artefact's runs, replayed with the times of each stage that it prints, and transfers as it times them.

    Its columns are named one too far to the right: after forward and backward come S with T, the input layer's forward
    and backward, and a transfer. The orders of S follow from the mean times of a forward and a backward, as in the
    authors' code.

    Returns
    -------
    DataFrame
        Columns name, method, measured_s, makespan_s, error, bubble_s and slower_ranks_s, the last two of 1F1B alone.
    """
    runs, frames = pd.read_csv(_FOLDER / "vocab_parallel_artifact.csv"), []
    for run in runs[runs.method.isin(["base", "redis"])].itertuples():
        times = {"F": run.forward_us_per_stage, "B": run.backward_us_per_stage}
        rows = [
            (rank, kind, float(microseconds) / 1e6)
            for kind, text in times.items() for rank, microseconds in enumerate(text.split())
        ]  # fmt: skip
        operations = pd.DataFrame(rows, columns=["rank", "operation", "seconds"])
        frame = replay(operations, "1f1b", run.pp, run.m, iteration_s=run.iteration_ms / 1e3)
        frames.append(frame.assign(name=run.name, method=run.method))
    for run in runs[runs.method.isin(_DIVIDED)].itertuples():
        columns = ("forward_us_per_stage", "backward_us_per_stage", *runs.columns[-5:-1])
        forward, backward, passes, before, behind, transfer = (
            np.array(getattr(run, column).split(), float) / 1e6 for column in columns
        )
        barriers = _DIVIDED[run.method]
        options = {"barriers": barriers, "ratio": backward.mean() / forward.mean()} if barriers else {}
        table = build("vocab-1f1b" if barriers else "interlaced", run.pp, run.m, **options)
        compute_s, transfer_s = np.zeros((2, len(OpKind), run.pp))
        compute_s[OpKind.F], compute_s[OpKind.B] = forward + before, backward + behind
        first = 2 / 3 if barriers == 1 else 1 / 3  # of three products as large, those that S runs
        compute_s[OpKind.S], compute_s[OpKind.T] = first * passes, (1 - first) * passes
        transfer_s[[OpKind.F, OpKind.B]] = transfer
        costs = OpCosts(compute_s, transfer_s, 0 * transfer_s)
        seconds, measured_s = run_graph(compile_graph(table, "streams"), costs).makespan_s, run.iteration_ms / 1e3
        numbers = {"measured_s": measured_s, "makespan_s": seconds, "error": seconds / measured_s - 1}
        frames.append(pd.DataFrame([{"name": run.name, "method": run.method, **numbers}]))
    columns = ["name", "method", "measured_s", "makespan_s", "error", "bubble_s", "slower_ranks_s"]
    return pd.concat(frames, ignore_index=True)[columns]
