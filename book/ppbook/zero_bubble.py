"""Zero Bubble's 48 measured runs (Qi et al., 2024, Tables 4, 5 and 9), simulated with the times that were profiled."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmodel.compiled import LARGE, prepare
from ppmodel.costs import uniform_costs
from ppmodel.errors import TableError
from ppmodel.points import simulate
from ppmodel.schedules.cases import Case, as_case, built
from ppmodel.simulation import graph_of, iterations
from ppmodel.specs import DATA, load_model

_MS = 1e-3
_FOLDER = DATA / "reference"
SCHEDULES = {"1f1b": "1f1b", "interleaved_1f1b": "interleaved-1f1b", "zb_1p": "zb-1p", "zb_2p": "zb-2p"}
"""From the names in the file to ours."""


class Point(NamedTuple):
    """A run that was measured, and the times that were profiled of it.

    Parameters
    ----------
    model, schedule : str
        As in the files.
    devices, microbatches, microbatch_size : int
    samples_per_gpu_s, memory_gb : float
        Measured.
    times_s : tuple of float
        Forward, input gradient, weight gradient and transfer, in seconds.
    chunks : int
        Of interleaved 1F1B.
    held : float
        What a weight gradient needs of a stage's activations, 32 of 34 + 5as/h bytes.
    """

    model: str
    schedule: str
    devices: int
    microbatches: int
    microbatch_size: int
    samples_per_gpu_s: float
    memory_gb: float
    times_s: tuple
    chunks: int
    held: float

    @property
    def case(self):
        """The schedule as it ran, its order searched for the times where it is searched."""
        case = as_case(SCHEDULES[self.schedule])
        options = {"interleaved-1f1b": {"chunks": self.chunks}, "1f1b": {}}
        searched = {"times": tuple(round(1e3 * time, 3) for time in self.times_s), "held": round(self.held, 6)}
        return Case(case.name, tuple(options.get(case.name, searched).items()))


@cache
def points():
    """The 48 runs.

    Returns
    -------
    list of Point

    Examples
    --------
    >>> len(points()), points()[0].times_s
    (48, (0.018522, 0.018086, 0.009337, 0.000601))
    """
    measured = pd.read_csv(_FOLDER / "zero_bubble_throughput.csv")
    profiled = pd.read_csv(_FOLDER / "zero_bubble_bubble_rates.csv")
    models = pd.read_csv(_FOLDER / "zero_bubble_models.csv").drop(columns=["microbatch_size"])
    joined = measured.merge(profiled, on=["model", "devices", "microbatches"]).merge(models, on="model")
    return [_point(row) for row in joined.itertuples(index=False)]


def _point(row):
    times = (row.t_forward_ms, row.t_input_grad_ms, row.t_weight_grad_ms, row.t_comm_ms)
    return Point(
        *(getattr(row, name) for name in Point._fields[:7]), tuple(round(time * _MS, 9) for time in times),
        row.interleaved_chunks, 32 / (34 + 5 * row.heads * row.sequence / row.hidden),
    )  # fmt: skip


def simulated(p2p="latency", per_operation_s=0.0, schedules=None, change=None):
    """Samples per GPU and second of each run, simulated with its profiled times.

    An iteration takes as long as the longest span of a rank, from its first operation to its last: the authors validate
    the optimizer's step afterwards, so that a rank goes on without waiting for the others (their section 4).

    Parameters
    ----------
    p2p : str
        What a transfer occupies.
    per_operation_s : float or sequence of float
        A fixed cost of every operation; a chunk's forward costs as much as a whole stage's.
    schedules : dict of str to str, optional
        Other schedules than ran, by their names in the file; to see that the numbers tell them apart.
    change : callable, optional
        From the times of a run to others.

    Returns
    -------
    DataFrame
        A row for each run and fixed cost; columns ``model, microbatches, schedule, per_operation_s,
        samples_per_gpu_s, simulated, error``, the last the simulated rate over the measured one, less 1; NaN where the
        schedule is a deadlock under `p2p`.

    Examples
    --------
    >>> frame = simulated("latency")
    >>> len(frame), bool((frame.error > 0).mean() > 0.9)
    (48, True)
    """
    prepare(LARGE)  # many small graphs
    extra = np.atleast_1d(per_operation_s)
    rows = [
        (point.model, point.microbatches, point.schedule, seconds, point.samples_per_gpu_s, rate)
        for point in points()
        for seconds, rate in zip(extra, _rates(point, p2p, extra, schedules or {}, change), strict=True)
    ]
    columns = ["model", "microbatches", "schedule", "per_operation_s", "samples_per_gpu_s", "simulated"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(error=frame.simulated / frame.samples_per_gpu_s - 1)


def _rates(point, p2p, extra, schedules, change):
    """Samples per GPU and second, for each fixed cost."""
    case = as_case(schedules[point.schedule]) if point.schedule in schedules else point.case
    table = built(case, point.devices, point.microbatches)
    times = change(point.times_s) if change else point.times_s
    forward, input_grad, weight_grad, comm = times
    costs = uniform_costs(table, forward, input_grad=input_grad, weight_grad=weight_grad, comm=comm)
    many = [replace(costs, compute_s=costs.compute_s + fixed_s) for fixed_s in extra]
    try:
        seconds = iterations(graph_of(table, p2p), many).span_s
    except TableError:  # a deadlock under rendezvous
        return np.full(len(extra), np.nan)
    return point.microbatches * point.microbatch_size / (point.devices * seconds)


def scaled_rms(frame):
    """Root mean square of the relative errors that one free scale for each model leaves.

    Parameters
    ----------
    frame : DataFrame
        From `simulated`, with one fixed cost; runs without a rate are left out.

    Returns
    -------
    float
    """
    logs = np.log(frame.simulated / frame.samples_per_gpu_s)
    return float(np.sqrt(np.nanmean((logs - logs.groupby(frame.model).transform("mean")) ** 2)))


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
    samples = np.array([point.microbatches * point.microbatch_size / point.devices for point in points()])[
        :, None, None
    ]
    seconds = samples[..., 0] / frame.simulated.to_numpy().reshape(len(runs), -1)
    rates = samples / (seconds[..., None] + PER_ITERATION_S)
    logs = np.log(rates / runs.samples_per_gpu_s.to_numpy()[:, None, None])
    everything = np.ones(len(runs), dtype=bool)
    fits_by_column = {"": [(everything, _least(logs, runs.schedule, everything))]}
    models = [runs.model == model for model in runs.model.unique()]
    fits_by_column["unseen_"] = [(held_out, _least(logs, runs.schedule, ~held_out)) for held_out in models]
    for prefix, fits in fits_by_column.items():
        for held_out, (place, other) in fits:
            runs.loc[held_out, f"{prefix}per_operation_s"] = PER_OPERATION_S[place]
            runs.loc[held_out, f"{prefix}per_iteration_s"] = PER_ITERATION_S[other]
            runs.loc[held_out, prefix.rstrip("_") or "simulated"] = rates[held_out, place, other]
    runs["error"] = runs.simulated / runs.samples_per_gpu_s - 1
    runs["unseen_error"] = runs.unseen / runs.samples_per_gpu_s - 1
    return runs


def _least(logs, schedule, seen):
    """Places of the fixed costs that favour no schedule, by some of the runs."""
    means = [logs[(seen & (schedule == name)).to_numpy()].mean(axis=0) for name in schedule.unique()]
    return np.unravel_index(np.square(means).sum(axis=0).argmin(), logs.shape[1:])


def memories(schedules=None):
    """Memory of the most loaded rank of each run, with the layers as the authors place them.

    Parameters
    ----------
    schedules : dict of str to str, optional
        As in `simulated`.

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
    rows = [
        (point.model, point.microbatches, point.schedule, point.memory_gb, _gib(point, schedules or {}))
        for point in points()
    ]
    frame = pd.DataFrame(rows, columns=["model", "microbatches", "schedule", "memory_gb", "gib"])
    return frame.assign(error=frame.gib / frame.memory_gb - 1)


def _gib(point, schedules):
    case = as_case(schedules[point.schedule]) if point.schedule in schedules else point.case
    model = load_model(f"zero_bubble_{point.model.replace('.', '_').lower()}")
    stages = built(case, point.devices, point.microbatches).num_stages
    per_stage = (model.blocks + 2) // stages  # the embedding and the head take the place of a layer layers
    layout = {
        "pp": point.devices, "microbatch_size": point.microbatch_size,
        "global_batch": point.microbatches * point.microbatch_size,
        "layers": [per_stage - 1, *[per_stage] * (stages - 2), per_stage - 1],
    }  # fmt: skip
    return simulate(case, model=model, system="dgx_a100", layout=layout).peak_memory_bytes / 2**30
