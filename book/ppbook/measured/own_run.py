"""A run of our own: PyTorch's pipeline runtime on one machine, and its second half predicted from its first.

`data/reference/README.md` says what the files hold, and `ppmodel execute` runs the same tables. A step is timed in
several repetitions, of which every other one belongs to the first half. Of that half one repetition of each run, the
middle one, has the start and end of every operation; of the second half only the steps count.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmodel.clusters.specs import DATA
from ppmodel.loops.compiled import LARGE, prepare
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import Case, built
from ppmodel.simulation import graph_of, makespans, uniform_costs
from ppmodel.tables import NO_OPERATION, Schedule

FOLDER = DATA / "reference" / "own_run"
_US, _MS = 1e-6, 1e-3


@dataclass(frozen=True, eq=False)
class Recorded:
    """A schedule that ran.

    Parameters
    ----------
    workload : str
        What the stages did, and the size of a message.
    schedule, runner : str
        Our name, and what ran it: ``loop``, a loop that PyTorch wrote for this schedule; ``runtime``, its runtime with
        its own order; ``table``, its runtime with a table of ours.
    microbatches : int
    table : Schedule
        What it executed.
    steps_s : ndarray of float
        Each repetition, from the start of the first operation to the end of the last.
    start_s, end_s : ndarray of float
        Of each operation, in the order of the table, in the middle repetition of the first half.
    """

    workload: str
    schedule: str
    runner: str
    microbatches: int
    table: Schedule
    steps_s: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray

    @property
    def later_s(self):
        """The median step of the second half."""
        return float(np.median(self.steps_s[1::2]))


@cache
def recorded(folder=FOLDER):
    """All runs.

    Parameters
    ----------
    folder : path-like
        With the files of a recording.

    Returns
    -------
    tuple of Recorded

    Examples
    --------
    >>> run = recorded()[0]
    >>> run.schedule, run.microbatches, len(run.steps_s), run.table.num_operations == len(run.end_s)
    ('gpipe', 8, 10, True)
    """
    folder = Path(folder)
    steps = pd.read_csv(folder / "steps.csv").groupby("run").step_ms
    operations = dict(list(pd.read_csv(folder / "operations.csv").groupby("run")))
    runs = []
    for head in about(folder)["runs"]:
        rows = operations[head["run"]]
        case = Case(head["schedule"], (("chunks", head["chunks"]),) if "interleaved" in head["schedule"] else ())
        table = built(case, int(rows["rank"].max()) + 1, head["microbatches"])
        names = [str(table.op(index)) for index in range(table.num_operations)]
        times_s = _US * rows.set_index("operation")[["start_us", "end_us"]].reindex(names).to_numpy()
        facts = (head["workload"], head["schedule"], head["runner"], head["microbatches"])
        runs.append(Recorded(*facts, table, _MS * steps.get_group(head["run"]).to_numpy(), *times_s.T))
    return tuple(runs)


def about(folder=FOLDER):
    """The machine, what a stage sleeps, what a message takes alone, and the runs.

    Parameters
    ----------
    folder : path-like

    Returns
    -------
    dict

    Examples
    --------
    >>> about()["sleep_ms"]
    {'F': 10.0, 'I': 10.0, 'W': 10.0}
    """
    return json.loads((Path(folder) / "runs.json").read_text(encoding="utf-8"))


def gaps(run):
    """What passed before operations that follow another on their rank, in seconds; by what they needed.

    Parameters
    ----------
    run : Recorded

    Returns
    -------
    alone : ndarray of float
        From the operation before to those that needed no message.
    waited : ndarray of float
        From the end of the operation that sends to those for whose message the rank was waiting.

    Examples
    --------
    >>> alone, waited = gaps(recorded()[0])
    >>> bool(np.median(alone) < 1e-3)
    True
    """
    table = run.table
    later = np.setdiff1d(np.arange(table.num_operations), table.rank_start[:-1])
    free, source = run.end_s[later - 1], table.dependencies.source[later]
    remote = table.dependencies.remote[later] & (source != NO_OPERATION)
    sent, begun = np.where(remote, run.end_s[source], -np.inf), run.start_s[later]
    return (begun - free)[~remote], (begun - sent)[sent > free]


class Constants(NamedTuple):
    """What the first half of some runs shows of a machine.

    Parameters
    ----------
    operation_s : dict of (int, int, int) to float
        Mean time of an operation by number of stages, kind and stage.
    message_s : float
        Median time from the end of an operation to the start of one that waited for its message, less the fixed cost.
    per_operation_s : float
        The fixed cost of an operation: median time to it from the operation before, where it needed no message.
    """

    operation_s: dict
    message_s: float
    per_operation_s: float


def constants(runs):
    """What some runs show of the machine.

    Parameters
    ----------
    runs : sequence of Recorded
        Of one workload.

    Returns
    -------
    Constants
    """
    (alone, waited), durations = map(np.concatenate, zip(*map(gaps, runs), strict=True)), []
    for run in runs:
        columns = {"kind": run.table.kind, "stage": run.table.stage, "seconds": run.end_s - run.start_s}
        durations.append(pd.DataFrame({"stages": run.table.num_stages, **columns}))
    operation_s = pd.concat(durations).groupby(["stages", "kind", "stage"]).seconds.mean()
    fixed_s = float(np.median(alone))
    return Constants(operation_s.to_dict(), max(float(np.median(waited)) - fixed_s, 0.0), fixed_s)


def predicted(p2p, per_operation=True, folder=FOLDER):
    """The second half of every run, predicted from the first half of the runs of other schedules.

    Parameters
    ----------
    p2p : str
        What a transfer occupies.
    per_operation : bool
        Whether an operation has a fixed cost.
    folder : path-like

    Returns
    -------
    DataFrame
        A row for each run: ``workload, schedule, runner, microbatches, p2p, message_s, measured_s, predicted_s,
        error``, the last the predicted step over the measured one, less 1.

    Raises
    ------
    TableError
        If a schedule is a deadlock under `p2p`.

    Examples
    --------
    >>> frame = predicted("overlapped")
    >>> bool(frame[frame.workload == "sleep, 4 KiB"].error.abs().max() < 0.05)
    True
    """
    prepare(LARGE)  # many small graphs
    rows = []
    for run in recorded(folder):
        machine = _constants_of(run.workload, run.schedule, folder)
        rows.append((run.workload, run.schedule, run.runner, run.microbatches, p2p, machine.message_s, run.later_s,
                     _step_s(run, p2p, machine, per_operation)))  # fmt: skip
    columns = ["workload", "schedule", "runner", "microbatches", "p2p", "message_s", "measured_s", "predicted_s"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(error=frame.predicted_s / frame.measured_s - 1)


@cache
def _constants_of(workload, without, folder):
    """Constants of the runs of a workload that ran other schedules."""
    runs = [run for run in recorded(folder) if run.workload == workload and run.schedule != without]
    return constants(runs)


def _step_s(run, p2p, machine, per_operation):
    """What a step takes on a machine with these `Constants`; each stage has its own times."""
    table, compute_s = run.table, np.zeros((len(OpKind), run.table.num_stages))
    for kind, stage in {*zip(table.kind.tolist(), table.stage.tolist(), strict=True)}:
        compute_s[kind, stage] = machine.operation_s[table.num_stages, kind, stage]
        compute_s[kind, stage] += machine.per_operation_s * per_operation
    costs = uniform_costs(table, 1.0, 1.0, comm=machine.message_s)
    return float(makespans(graph_of(table, p2p), [replace(costs, compute_s=compute_s)])[0])


def rms(errors):
    """Root mean square of relative errors.

    Parameters
    ----------
    errors : sequence of float

    Returns
    -------
    float

    Examples
    --------
    >>> rms([0.03, -0.04]) == (0.0025 / 2) ** 0.5
    True
    """
    return float(np.sqrt(np.mean(np.square(errors))))
