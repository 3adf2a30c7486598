"""Schedules run for real, beside what simulation and replay predict for them."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ppmodel.clusters.specs import as_links, load_model
from ppmodel.errors import PPModelError, refusing
from ppmodel.execution.launch import launch
from ppmodel.execution.programs import divided, program_of
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import as_case, as_cases
from ppmodel.simulation import Timeline, graph_of, link_values, receivers, run_graph
from ppmodel.studies.measured.replay import CAUSES, idle_by_cause
from ppmodel.studies.points.comparison import frame_of
from ppmodel.studies.points.grid import resolve_point

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = (
    "schedule", "label", "pp", "microbatches", "p2p", "links", "measured_s", "fastest_s", "slowest_s", "simulated_s",
    "error", "replayed_s", "replay_error", "idle_s", *CAUSES, "operation_cost_s", "transfer_s", "peak_activations",
    "table_peak_activations", "gradient_error", "weight_error", "gradients_equal", "refused",
)  # fmt: skip
EQUAL = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 0.1}
"""What gradients may differ by, relative to the largest of a parameter, and count as equal; by type of number."""

_MODEL = ("hidden", "heads", "kv_heads", "head_size", "mlp_hidden", "gated_mlp", "norm", "bias", "sequence",
          "vocabulary")  # fmt: skip
_ROWS, _CALIBRATING = 4, 4
_LIMIT_S = 60.0


class Execution(NamedTuple):
    """A schedule that has run.

    Attributes
    ----------
    row : dict
        By `COLUMNS`.
    timeline : Timeline or None
        Its operations as they were measured; None if it was refused.
    """

    row: dict
    timeline: Timeline | None

    def operations(self):
        """Its operations as a frame that `ppmodel.replay` reads."""
        columns = {"start_s": self.timeline.start_s, "end_s": self.timeline.end_s}
        frame = self.timeline.graph.schedule.frame_with(columns)
        return frame[frame.start_s.notna()]


def execute(schedules: Any, pp: int | None = None, microbatches: int | None = None, **given: Any) -> DataFrame:
    """Run schedules for real: every rank walks its row, and sends and receives what the table says.

    One process for each rank, on this machine or started by torchrun. Needs PyTorch (the extra ``execute``).

    Parameters
    ----------
    schedules, pp, microbatches
        As in `ppmodel.compare`; all have the same ranks.
    **given
        Costs and semantics, see `executed`.

    Returns
    -------
    DataFrame
        A row for each schedule, in the order given. ``measured_s`` is the median iteration, with ``fastest_s`` and
        ``slowest_s``; ``simulated_s`` is what the simulation predicts with `operation_cost_s` and `transfer_s` from a
        run of its own, and ``replayed_s`` the same with the measured time of each operation; ``error`` and
        ``replay_error`` are each over measured, less 1. The idle time of the replay is divided by cause as in
        `ppmodel.replay`. ``peak_activations`` were stored, in microbatches on 1/S of the model, and
        ``gradients_equal`` compares all gradients and updated weights with those of one process.

    Raises
    ------
    PPModelError
        If PyTorch is missing, or a rank fails.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.execute(["gpipe", "1f1b"], 4, 8, forward=0.02, backward=0.04)  # doctest: +SKIP
    """
    done = executed(schedules, pp, microbatches, **given)
    return frame_of(COLUMNS, [execution.row for execution in done])


def executed(
    schedules, pp=None, microbatches=None, *, forward=None, backward=None, input_grad=None, weight_grad=None,
    model=None, comm=0.0, links=None, message_bytes=0, reduction=0.0, p2p="latency", allreduce="excluded",
    repetitions=5, check=True, dtype="float64", device="cpu", runner=None, on_progress=None,
):  # fmt: skip
    """Run schedules as `execute` does, and return what happened.

    Parameters
    ----------
    schedules, pp, microbatches
        As in `execute`.
    forward, backward, input_grad, weight_grad, reduction : float, optional
        Seconds that stages sleep, as in `ppmodel.simulate`.
    model : str, Path or ModelSpec, optional
        Without seconds, stages are its transformer blocks, on random tokens and with one sequence per microbatch; with
        seconds, messages are as long as its activations.
    comm : float
        Seconds by which every transfer occupies its link longer than it does anyway.
    links : str or dict, optional
        Links with a delay or a bandwidth of their own, which their senders imitate.
    message_bytes : float
        Least size of messages.
    p2p, allreduce : str
        How transfers are sent, and what gradient all-reduces do; see `programs.SENT`.
    repetitions : int
        Timed iterations; one more comes before them.
    check : bool
        Whether to compare gradients and weights with those of one process.
    dtype, device : str
        Type of numbers of a model's blocks; ``cpu`` or ``cuda``.
    runner : callable, optional
        Executes a job; by default, processes on this machine, or those that torchrun has started.
    on_progress : callable, optional
        Told a label, a number and of how many.

    Returns
    -------
    list of Execution
        Empty on all ranks but the first, under torchrun.
    """
    sleeps = forward is not None
    if not sleeps and model is None:
        raise PPModelError("forward", None, "is missing", "give {field} and {backward}, or {model}", names_fields=True)
    spec = None if model is None else load_model(model)
    values = {"forward": forward, "backward": backward, "input_grad": input_grad, "weight_grad": weight_grad}
    seconds = {name: value for name, value in values.items() if value is not None}
    seconds = seconds if sleeps else {"forward": 1.0, "backward": 2.0}
    if sleeps and spec is not None:
        message_bytes = max(message_bytes, spec.sequence * spec.hidden * spec.element_bytes)
    shaped = {"seconds": seconds, "comm": comm, "links": as_links(links), "reduction": reduction, "sleeps": sleeps,
              "blocks": 0 if sleeps else spec.blocks, "message_bytes": message_bytes}  # fmt: skip
    semantics, cases = (p2p, allreduce), as_cases(schedules)
    done = [_Task(case, pp, microbatches, semantics, shaped) for case in cases]
    tasks = [task for task in done if task.table is not None]
    if len(counts := {task.table.num_ranks for task in tasks}) > 1:
        raise PPModelError("pp", sorted(counts), "must be the same for all schedules", "execute them one by one")
    if tasks:
        plain = shaped | {"comm": 0.0, "links": (), "reduction": 0.0}
        first = _Task(as_case("gpipe"), tasks[0].table.num_ranks, _CALIBRATING, (p2p, "excluded"), plain)
        programs = [task.program(repetitions, check and task is not first) for task in (first, *tasks)]
        parts = math.lcm(*(task.table.microbatch_parts for task in tasks))
        job = {
            "programs": programs, "device": device, "one_clock": "LOCAL_WORLD_SIZE" not in os.environ
            or os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"], "limit_s": _LIMIT_S,
            "dtype": "float64" if sleeps else dtype,
            "workload": {"rows": parts * (_ROWS if sleeps else 1), "message_numbers": math.ceil(message_bytes / 8)}
            | ({} if sleeps else {"model": {name: getattr(spec, name) for name in _MODEL}}),
        }  # fmt: skip
        labels = ["a run of its own for costs", *(task.case.label for task in tasks), "done"]
        runner = runner or (_joined if "WORLD_SIZE" in os.environ else launch)

        def say(number):
            if on_progress is not None:
                on_progress(labels[number + 1], number + 1, len(programs))

        say(-1)
        results = runner(job, say)
        if results is None:
            return []
        operation_s, transfer_s = _fixed_costs(first, results[0])
        for task, result in zip(tasks, results[1:], strict=True):
            task.measured(result, operation_s if sleeps else 0.0, transfer_s, EQUAL[job["dtype"]])
    return [Execution(task.row, task.timeline) for task in done]


class _Task:
    """A schedule to run, and the costs of its operations and transfers beyond those of the machine."""

    def __init__(self, case, pp, microbatches, semantics, shaped):
        self.case, self.semantics, self.table, self.timeline = case, semantics, None, None
        self.blocks, links = shaped["blocks"], shaped["links"]
        self.row = dict.fromkeys(COLUMNS) | {
            "schedule": case.name, "label": case.label, "pp": pp, "microbatches": microbatches, "p2p": semantics[0],
            "links": " ".join(map(str, links)) or None,
        }  # fmt: skip
        with refusing(self.row):
            delays = [link._replace(bandwidth_bytes_per_s=None) for link in links]
            given = shaped["seconds"] | {"comm": shaped["comm"]}
            given |= {"reduction": shaped["reduction"]} if shaped["reduction"] else {}
            given |= {"links": tuple(delays)} if delays else {}
            point = resolve_point(case, pp, microbatches, p2p=semantics[0], allreduce=semantics[1], **given)
            table, costs = point.table, point.costs
            _, bandwidth = link_values(links, table.placement, receivers(table))
            busy = np.nan_to_num(shaped["message_bytes"] / table.microbatch_parts / bandwidth)
            shape = busy.shape
            by_replica = [np.broadcast_to(of if of.ndim == 3 else of[:, None], shape)
                          for of in (costs.compute_s, costs.occupancy_s, costs.latency_s)]  # fmt: skip
            compute_s = by_replica[0] * (1.0 if shaped["sleeps"] else 0.0)
            self.costs = replace(costs, compute_s=compute_s, occupancy_s=by_replica[1] + busy, latency_s=by_replica[2])
            if 0 in divided(self.blocks, table) and self.blocks:
                rule = f"are fewer than the {table.num_stages} stages of {case.name}"
                raise PPModelError("blocks", self.blocks, rule, "choose fewer ranks or a deeper model")
            self.graph = graph_of(table, *semantics)
            run_graph(self.graph, self.costs)  # refuses a deadlock
            self.row |= {"pp": table.num_ranks, "microbatches": table.num_microbatches}
            self.table = table

    def program(self, repetitions, checked):
        """What its ranks do."""
        options = {"label": self.case.label, "checked": checked, "blocks": self.blocks}
        return program_of(self.table, *self.semantics, self.costs, repetitions, **options)

    def measured(self, result, operation_s, transfer_s, equal):
        """Fill in its row and its timeline from the result of its ranks."""
        table, graph, row, steps = self.table, self.graph, self.row, result["steps"]
        start_s, end_s = np.full((2, table.num_operations), np.nan)
        for _, number, start, end in result["operations"]:
            start_s[number], end_s[number] = start, end
        compute_s = self.costs.compute_s.copy()
        compute_s[: OpKind.R] += np.where(compute_s[: OpKind.R] > 0, operation_s, 0.0)
        if result["seconds"] is not None:
            compute_s[: OpKind.R] = np.array(result["seconds"]).T[:, None]
        costs = replace(self.costs, compute_s=compute_s, occupancy_s=self.costs.occupancy_s + transfer_s)
        of_each = compute_s.reshape(-1)[table.cost_class]
        is_timed = (table.kind < OpKind.R) & (of_each > 0)
        factors = np.where(is_timed, (end_s - start_s) / np.where(is_timed, of_each, 1.0), 1.0)
        again = idle_by_cause(table, self.semantics[0], costs, factors)
        row |= {"measured_s": median(steps), "fastest_s": min(steps), "slowest_s": max(steps)}
        row |= {"simulated_s": run_graph(graph, costs).makespan_s, "replayed_s": again.pop("makespan_s")}
        row |= {"error": row["simulated_s"] / row["measured_s"] - 1, "operation_cost_s": operation_s}
        row |= {"replay_error": row["replayed_s"] / sorted(steps)[(len(steps) - 1) // 2] - 1, "transfer_s": transfer_s}
        row |= {name: again[name] for name in ("idle_s", *CAUSES)}
        row |= {"peak_activations": max(result["peaks"]), "table_peak_activations": float(
            peak_activations(table, held_for_weight_grad=1.0).max())}  # fmt: skip
        if result["gradient_error"] is not None:
            errors = row["gradient_error"], row["weight_error"] = result["gradient_error"], result["weight_error"]
            row["gradients_equal"] = max(errors) <= equal
        times_s = np.array((start_s, end_s))[:, graph.index]
        sent = np.where(np.isin(np.arange(len(graph.index)), graph.source[graph.remote]), times_s[1], np.nan)
        arrived = np.full_like(sent, np.nan)
        arrived[graph.source[graph.remote]] = times_s[0][graph.remote]
        self.timeline = Timeline(graph, times_s, lambda: np.array((sent, arrived)), [])


def _fixed_costs(task, result):
    """Seconds of an operation beyond what its stage sleeps, and of a transfer, as GPipe shows them.

    Forwards of the first rank and backwards of the last follow each other without a wait; each rank waits for its first
    forward and its first backward.
    """
    table, compute_s = task.table, task.costs.compute_s[:, 0]
    times = {(rank, number): (start, end) for rank, number, start, end in result["operations"]}
    by_kind = {(rank, kind): [] for rank in range(table.num_ranks) for kind in (OpKind.F, OpKind.B)}
    for (rank, number), span in sorted(times.items(), key=lambda item: item[1]):
        by_kind[rank, OpKind(table.kind[number])].append(span)
    last, beyond, waits = table.num_ranks - 1, [], []
    for rank, kind in ((0, OpKind.F), (last, OpKind.B)):
        starts = [start for start, _ in by_kind[rank, kind]]
        beyond += (np.diff(starts) - compute_s[kind, rank]).tolist()
    for rank in range(last):
        waits.append(by_kind[rank + 1, OpKind.F][0][0] - by_kind[rank, OpKind.F][0][1])
        waits.append(by_kind[rank, OpKind.B][0][0] - by_kind[rank + 1, OpKind.B][0][1])
    return max(0.0, median(beyond)), max(0.0, median(waits)) if waits else 0.0


def _joined(job, say):
    """Execute a job among the processes of torchrun."""
    from ppmodel.execution.rank import join

    try:
        return join(job, int(os.environ["RANK"]), say)
    except (RuntimeError, ValueError) as error:
        raise PPModelError(f"rank {os.environ.get('RANK')}", None, f"has failed: {error}", "see torchrun") from None


def script_of(job):
    """The text of a script that executes a job under torchrun, and needs PyTorch alone."""
    import json
    from pathlib import Path

    folder = Path(__file__).parent
    stages, rank = ((folder / f"{name}.py").read_text(encoding="utf-8") for name in ("stages", "rank"))
    rank = rank.replace("from ppmodel.execution import stages\n", "stages = sys.modules[__name__]\n")
    begin = rank[: rank.index('if __name__ == "__main__":')]
    end = 'if __name__ == "__main__":\n    script(json.loads(JOB))\n'
    return f"{stages}\n\n{begin}JOB = {json.dumps(json.dumps(job))}\n\n{end}"
