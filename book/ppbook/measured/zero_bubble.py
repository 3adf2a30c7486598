"""Zero Bubble's 48 measured runs (Qi et al., 2024, Tables 4, 5 and 9), simulated with the times that were profiled."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from ppmodel.clusters.specs import DATA, load_model
from ppmodel.loops.compiled import LARGE, prepare
from ppmodel.schedules.cases import Case, as_case, built
from ppmodel.simulation import graph_of, iterations, uniform_costs
from ppmodel.studies.measured.rows import even_layers
from ppmodel.studies.points import simulate

_MS = 1e-3
_FOLDER = DATA / "reference"
SCHEDULES = {
    "1f1b": "1f1b", "gpipe": "gpipe", "interleaved_1f1b": "interleaved-1f1b", "zb_h1": "zb-h1", "zb_1p": "zb-1p",
    "zb_2p": "zb-2p", "zb": "zb-1p", "zb_v": "zb-v", "v_half": "v-half", "v_min": "v-min",
}  # fmt: skip
"""From the names in files of measured schedules to ours."""


def like_gpt3(row, num_stages):
    """A run of a model of other sizes with what is inferred of Zero Bubble's, which are like GPT-3, for `simulate`.

    Parameters
    ----------
    row : namedtuple or Series
        With the columns of the files in ``schedules_measured``; without a number, `dp` and `tp` are 1.
    num_stages : int

    Returns
    -------
    dict
        Its model and layout.
    """
    dp, heads = int(np.nan_to_num(row.dp, nan=1)), int(row.heads)
    model = replace(
        load_model("zero_bubble_6_2b"), hidden=int(row.hidden), heads=heads, kv_heads=heads,
        head_size=int(row.hidden) / heads, mlp_hidden=4 * int(row.hidden), blocks=int(row.layers),
        sequence=int(row.seq),
    )  # fmt: skip
    return {
        "model": model, "tp": int(np.nan_to_num(row.tp, nan=1)), "dp": dp, "microbatch_size": int(row.mbs),
        "global_batch": int(row.m * row.mbs) * dp, "layers": even_layers(model.blocks, num_stages),
    }  # fmt: skip


def case_of(point):
    """The schedule of one of `points` as it ran, its order searched for the times where it is searched.

    Parameters
    ----------
    point : namedtuple

    Returns
    -------
    Case
    """
    case = as_case(SCHEDULES[point.schedule])
    options = {"interleaved-1f1b": {"chunks": point.interleaved_chunks}, "1f1b": {}}
    searched = {"times": tuple(round(1e3 * time, 3) for time in point.times_s), "held": round(point.held, 6)}
    return Case(case.name, tuple(options.get(case.name, searched).items()))


@cache
def points():
    """The 48 runs.

    Returns
    -------
    DataFrame
        The columns of the files, such as ``model, schedule, devices, microbatches, microbatch_size``, and measured
        ``samples_per_gpu_s, memory_gb``; ``times_s``, of a forward, input gradient, weight gradient and transfer; and
        ``held``, what a weight gradient needs of a stage's activations, 32 of 34 + 5as/h bytes.

    Examples
    --------
    >>> len(points()), points().times_s[0]
    (48, (0.018522, 0.018086, 0.009337, 0.000601))
    """
    measured = pd.read_csv(_FOLDER / "zero_bubble_throughput.csv")
    profiled = pd.read_csv(_FOLDER / "zero_bubble_bubble_rates.csv")
    models = pd.read_csv(_FOLDER / "zero_bubble_models.csv").drop(columns=["microbatch_size"])
    joined = measured.merge(profiled, on=["model", "devices", "microbatches"]).merge(models, on="model")
    times_ms = joined[["t_forward_ms", "t_input_grad_ms", "t_weight_grad_ms", "t_comm_ms"]]
    return joined.assign(
        times_s=[*map(tuple, (times_ms * _MS).round(9).values.tolist())],
        held=32 / (34 + 5 * joined.heads * joined.sequence / joined.hidden),
    )


def simulated(p2p="latency", per_operation_s=0.0):
    """Samples per GPU and second of each run, simulated with its profiled times.

    An iteration takes as long as the longest span of a rank, from its first operation to its last: the authors validate
    the optimizer's step afterwards, so that a rank goes on without waiting for the others (their section 4).

    Parameters
    ----------
    p2p : str
        What a transfer occupies.
    per_operation_s : float or sequence of float
        A fixed cost of every operation; a chunk's forward costs as much as a whole stage's.

    Returns
    -------
    DataFrame
        A row for each run and fixed cost; columns ``model, microbatches, schedule, per_operation_s,
        samples_per_gpu_s, simulated, error``, the last the simulated rate over the measured one, less 1.

    Raises
    ------
    TableError
        If a schedule is a deadlock under `p2p`.

    Examples
    --------
    >>> frame = simulated("latency")
    >>> len(frame), bool((frame.error > 0).mean() > 0.9)
    (48, True)
    """
    prepare(LARGE)  # many small graphs
    frames = []
    for point in points().itertuples():
        table = built(case_of(point), point.devices, point.microbatches)
        forward, input_grad, weight_grad, comm = point.times_s
        costs = uniform_costs(table, forward, input_grad=input_grad, weight_grad=weight_grad, comm=comm)
        systems = [replace(costs, compute_s=costs.compute_s + fixed_s) for fixed_s in np.atleast_1d(per_operation_s)]
        seconds = iterations(graph_of(table, p2p), systems).span_s
        rows = pd.DataFrame({
            "model": point.model, "microbatches": point.microbatches, "schedule": point.schedule,
            "per_operation_s": np.atleast_1d(per_operation_s), "samples_per_gpu_s": point.samples_per_gpu_s,
            "simulated": point.microbatches * point.microbatch_size / (point.devices * seconds),
        })  # fmt: skip
        frames.append(rows.assign(error=rows.simulated / rows.samples_per_gpu_s - 1))
    return pd.concat(frames, ignore_index=True)


PER_OPERATION_S, PER_ITERATION_S = np.arange(75) * 2e-5, np.arange(31) * 5e-3
"""Fixed costs among which `with_fixed_costs` chooses: up to 1.5 ms, and up to 0.15 s."""


def with_fixed_costs():
    """Rates with two fixed costs, of an operation and of an iteration, fitted so that no schedule is favoured.

    The fit minimises the sum over schedules of the squared mean logarithm of simulated over measured rate.

    Returns
    -------
    DataFrame
        A row for each run: columns of `simulated` without a fixed cost of the fit; ``per_operation_s, per_iteration_s,
        simulated, error`` by the fit to all runs, and ``unseen_per_operation_s, unseen_per_iteration_s, unseen,
        unseen_error`` by the fit to the runs of the other models.

    Examples
    --------
    >>> frame = with_fixed_costs()
    >>> bool((frame.groupby("schedule").error.mean().abs() < 0.01).all())
    True
    """
    frame = simulated("latency", PER_OPERATION_S)
    runs = frame[frame.per_operation_s == 0].drop(columns=["per_operation_s", "simulated", "error"])
    runs = runs.reset_index(drop=True)
    samples = (points().microbatches * points().microbatch_size / points().devices).to_numpy()[:, None]
    seconds = samples / frame.simulated.to_numpy().reshape(len(runs), -1)
    rates = samples[..., None] / (seconds[..., None] + PER_ITERATION_S)
    logs = np.log(rates / runs.samples_per_gpu_s.to_numpy()[:, None, None])
    everything, models = pd.Series(True, runs.index), [runs.model == model for model in runs.model.unique()]
    folds = [("", "simulated", everything, everything), *(("unseen_", "unseen", fold, ~fold) for fold in models)]
    for prefix, column, fold, fitted in folds:
        means = [logs[fitted & (runs.schedule == name)].mean(axis=0) for name in runs.schedule.unique()]
        operation, iteration = np.unravel_index(np.square(means).sum(axis=0).argmin(), logs.shape[1:])
        runs.loc[fold, f"{prefix}per_operation_s"] = PER_OPERATION_S[operation]
        runs.loc[fold, f"{prefix}per_iteration_s"] = PER_ITERATION_S[iteration]
        runs.loc[fold, column] = rates[fold, operation, iteration]
    runs["error"] = runs.simulated / runs.samples_per_gpu_s - 1
    runs["unseen_error"] = runs.unseen / runs.samples_per_gpu_s - 1
    return runs


def memories():
    """Memory of the most loaded rank of each run, with the layers as the authors place them.

    Returns
    -------
    DataFrame
        A row for each run; columns ``model, microbatches, schedule, memory_gb, gib, error``. The measured GB are read
        as GiB, as PyTorch counts.

    Examples
    --------
    >>> bool((memories().error.abs() < 0.1).all())
    True
    """
    frame, sizes = points()[["model", "microbatches", "schedule", "memory_gb"]], []
    for point in points().itertuples():
        case, model = case_of(point), load_model(f"zero_bubble_{point.model.replace('.', '_').lower()}")
        stages = built(case, point.devices, point.microbatches).num_stages
        layout = {
            "pp": point.devices, "microbatch_size": point.microbatch_size,
            "global_batch": point.microbatches * point.microbatch_size,
            "layers": even_layers(model.blocks, stages),
        }  # fmt: skip
        sizes.append(simulate(case, model=model, system="dgx_a100", layout=layout).peak_memory_bytes / 2**30)
    return frame.assign(gib=sizes, error=sizes / frame.memory_gb - 1)
