"""Schedules run for real, beside what simulation and replay predict for them."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from statistics import median, median_low
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmodel.clusters.specs import as_links, load_model
from ppmodel.errors import PPModelError, refusing
from ppmodel.execution.launch import launch
from ppmodel.execution.programs import divided, program_of
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import as_case, as_cases
from ppmodel.simulation import Timeline, link_values, receivers, run_graph
from ppmodel.studies.measured.replay import CAUSES, idle_by_cause
from ppmodel.studies.points.comparison import frame_of
from ppmodel.studies.points.grid import resolve_point

if TYPE_CHECKING:
    from collections.abc import Callable

    from pandas import DataFrame

    from ppmodel.studies.points.comparison import LinksLike, ModelLike

COLUMNS = (
    "schedule", "label", "pp", "microbatches", "p2p", "links", "measured_s", "fastest_s", "slowest_s", "simulated_s",
    "error", "replayed_s", "replay_error", "idle_s", *CAUSES, "operation_cost_s", "transfer_s", "peak_activations",
    "table_peak_activations", "gradient_error", "weight_error", "gradients_equal", "refused",
)  # fmt: skip
EQUAL = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 0.1}
"""What gradients may differ by, relative to the largest of a parameter, and count as equal; by type of number."""

_MODEL = ("hidden", "heads", "kv_heads", "head_size", "mlp_hidden", "gated_mlp", "norm", "bias", "vocabulary")
_SMALL = {"rows": 4, "shape": [32], "model": None}
_CALIBRATING = 4
_LIMIT_S = 60.0  # how long a rank waits for another, beyond twice the longest iteration


def execute(
    schedules: Any, pp: int | None = None, microbatches: int | None = None, *, forward: float | None = None,
    backward: float | None = None, input_grad: float | None = None, weight_grad: float | None = None,
    model: ModelLike | None = None, comm: float = 0.0, links: LinksLike | None = None, message_bytes: float = 0,
    reduction: float = 0.0, p2p: str = "latency", allreduce: str = "excluded", repetitions: int = 5, check: bool = True,
    dtype: str = "float64", device: str = "cpu", runner: Callable[..., Any] | None = None,
    on_progress: Callable[[str, int, int], Any] | None = None,
    on_result: Callable[[dict[str, Any], Timeline | None], Any] | None = None,
) -> DataFrame:  # fmt: skip
    """Run schedules for real: every rank walks its row, and sends and receives what the table says.

    One process for each rank, on this machine or started by torchrun. Needs PyTorch (the extra ``execute``).

    Parameters
    ----------
    schedules, pp, microbatches
        As in `ppmodel.compare`; all have the same ranks.
    forward, backward, input_grad, weight_grad, reduction : float, optional
        Seconds that stages sleep, as in `ppmodel.simulate`.
    model : str, Path or ModelSpec, optional
        Messages are at least as long as its activations for one sequence. Without seconds, stages are its transformer
        blocks, on random tokens and with one sequence per microbatch.
    comm : float
        Seconds by which every transfer occupies its link longer than it does anyway.
    links : str or dict, optional
        Links with a delay or a bandwidth of their own, which their senders imitate.
    message_bytes : float
        Least size of messages.
    p2p, allreduce : str
        How transfers are sent, and what gradient all-reduces do; one of `programs.SENT` and `programs.REDUCED`.
    repetitions : int
        Timed iterations; one more comes before them.
    check : bool
        Whether to compare gradients and weights with those of one process.
    dtype, device : str
        Type of numbers of a model's blocks; ``cpu``, with gloo, or ``cuda``, with NCCL, which nobody has tried yet.
    runner : callable, optional
        Executes a job; by default, processes on this machine, or those that torchrun has started.
    on_progress : callable, optional
        Told a label, a number and of how many.
    on_result : callable, optional
        Given the row of each schedule and the `Timeline` of its measured operations, None if it was refused.

    Returns
    -------
    DataFrame
        A row for each schedule, in the order given; under torchrun, empty on all ranks but the first. ``measured_s`` is
        the median iteration, with ``fastest_s`` and ``slowest_s``; ``simulated_s`` is what the simulation predicts with
        ``operation_cost_s`` and ``transfer_s`` from a run of its own (a broadcast of shards takes as many transfers as
        a tree of the ranks is deep; blocks of a model take the median of their kind and stage in the iteration that is
        not timed), and ``replayed_s`` the same with the measured time of each operation; ``error`` and ``replay_error``
        are each over measured, less 1. The idle time of the replay is divided by cause as in `ppmodel.replay`.
        ``peak_activations`` were stored, in microbatches on 1/S of the model, and ``gradients_equal`` compares all
        gradients and updated weights with those of one process.

    Raises
    ------
    PPModelError
        If PyTorch is missing, or a rank fails.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.execute(["gpipe", "1f1b"], 4, 8, forward=0.02, backward=0.04)  # doctest: +SKIP
    """
    if forward is None and model is None:
        raise PPModelError("forward", None, "is missing", "give {field} and {backward}, or {model}", names_fields=True)
    seconds = {"forward": forward, "backward": backward, "input_grad": input_grad, "weight_grad": weight_grad}
    blocks, workload, links = 0, _SMALL | {}, as_links(links)
    if model is not None:
        spec = load_model(model)
        message_bytes = max(message_bytes, spec.sequence * spec.hidden * spec.element_bytes)
        if forward is None:
            seconds, blocks = {"forward": 1.0, "backward": 2.0}, spec.blocks
            values = {name: getattr(spec, name) for name in _MODEL}
            workload = {"rows": 1, "shape": [spec.sequence, spec.hidden], "model": values}
    given = {**seconds, "comm": comm, "p2p": p2p, "allreduce": allreduce}
    given["reduction"] = reduction if reduction or allreduce != "excluded" else None
    tasks = [_Task(case, (pp, microbatches), given, links, message_bytes, blocks) for case in as_cases(schedules)]
    ready = [task for task in tasks if task.graph is not None]
    if len(sizes := {task.row["pp"] for task in ready}) > 1:
        raise PPModelError("pp", sorted(sizes), "must be the same for all schedules", "execute them one by one")
    if ready:
        plain = {**given, "comm": 0.0, "allreduce": "excluded", "reduction": None}
        calibrating = _Task(as_case("gpipe"), (*sizes, _CALIBRATING), plain, (), message_bytes, blocks)
        programs = [task.program(repetitions, check and task in ready) for task in (calibrating, *ready)]
        workload["rows"] *= math.lcm(*(program["parts"] * (1 if blocks else program["slices"]) for program in programs))
        job = {
            "programs": programs, "workload": workload | {"message_bytes": message_bytes}, "device": device,
            "dtype": dtype if blocks else "float64", "limit_s": _LIMIT_S + 2 * max(task.simulated_s for task in ready),
        }  # fmt: skip
        labels = ["a run of its own for costs", *(task.row["label"] for task in ready), "done"]
        run, show = runner or (_join if "WORLD_SIZE" in os.environ else launch), on_progress or (lambda *_: None)
        show(labels[0], 0, len(programs))
        results = run(job, lambda number: show(labels[number + 1], number + 1, len(programs)))
        if results is None:
            return frame_of(COLUMNS, [])
        operation_s, transfer_s = _fixed_costs(calibrating, results[0])
        for task, result in zip(ready, results[1:], strict=True):
            task.complete(result, operation_s, transfer_s, EQUAL[job["dtype"]])
    for task in tasks if on_result else ():
        on_result(task.row, task.timeline)
    return frame_of(COLUMNS, [task.row for task in tasks])


class _Task:
    """A schedule to run, what its ranks add to the costs of this machine, and the row of its results."""

    def __init__(self, case, size, given, links, message_bytes, blocks):
        self.blocks, self.graph, self.timeline = blocks, None, None
        self.row = dict.fromkeys(COLUMNS) | {
            "schedule": case.name, "label": case.label, "pp": size[0], "microbatches": size[1], "p2p": given["p2p"],
            "links": " ".join(map(str, links)) or None,
        }  # fmt: skip
        with refusing(self.row):
            delays = tuple(link._replace(bandwidth_bytes_per_s=None) for link in links)
            point = resolve_point(case, *size, **given, links=delays or None)
            table, graph = point.table, point.graph
            if blocks and 0 in divided(blocks, table):
                rule = f"are fewer than the {table.num_stages} stages of {case.name}"
                raise PPModelError("blocks", blocks, rule, "choose fewer ranks or a deeper model")
            shape = -1, table.num_replicas, table.num_stages
            compute_s, busy_s, delay_s = (of.reshape(shape) for of in point.costs.by_class(table.num_replicas))
            _, bandwidth = link_values(links, table.placement, receivers(table))
            busy_s = busy_s + np.nan_to_num(message_bytes / table.microbatch_parts / bandwidth)
            compute_s = 0 * compute_s if blocks else compute_s
            self.costs = replace(point.costs, compute_s=compute_s, occupancy_s=busy_s, latency_s=delay_s)
            self.simulated_s = run_graph(graph, self.costs).makespan_s  # refuses a deadlock
            self.row |= {"pp": table.num_ranks, "microbatches": table.num_microbatches}
            self.graph = graph

    def program(self, repetitions, checked):
        """What its ranks do."""
        return program_of(self.graph, self.costs, repetitions, self.row["label"], checked, self.blocks)

    def complete(self, result, operation_s, transfer_s, tolerance):
        """Fill in its row and its timeline from the result of its ranks."""
        graph, table, steps = self.graph, self.graph.schedule, result["steps"]
        self.timeline, is_timed = _timeline(graph, result["operations"]), table.computes
        compute_s, measured_s = self.costs.compute_s.copy(), self.timeline.end_s - self.timeline.start_s
        compute_s[: OpKind.R] += operation_s
        if self.blocks:
            first = _timeline(graph, result["first"])
            for each in set(table.cost_class[is_timed].tolist()):
                compute_s.flat[each] = np.median((first.end_s - first.start_s)[table.cost_class == each])
        occupancy_s = self.costs.occupancy_s + transfer_s
        if table.has_shards:  # results that Gloo broadcasts along a tree
            for results in (occupancy_s[OpKind.S : OpKind.R], occupancy_s[OpKind.F, ..., -1]):
                results *= math.ceil(math.log2(table.num_ranks))
        costs = replace(self.costs, compute_s=compute_s, occupancy_s=occupancy_s)
        ones = replace(costs, compute_s=np.where(np.arange(len(OpKind)) < OpKind.R, 1.0, compute_s.T).T)
        replayed = idle_by_cause(table, graph.p2p, ones, np.where(is_timed, measured_s, 1.0))
        simulated_s, replayed_s = run_graph(graph, costs).makespan_s, replayed["makespan_s"]
        self.row |= {name: replayed[name] for name in ("idle_s", *CAUSES)} | {
            "measured_s": median(steps), "fastest_s": steps[0], "slowest_s": steps[-1], "simulated_s": simulated_s,
            "error": simulated_s / median(steps) - 1, "replayed_s": replayed_s,
            "replay_error": replayed_s / median_low(steps) - 1, "transfer_s": transfer_s,
            "operation_cost_s": 0.0 if self.blocks else operation_s, "peak_activations": max(result["peaks"]),
            "table_peak_activations": float(peak_activations(table, held_for_weight_grad=1.0).max()),
        }  # fmt: skip
        if result["gradient_error"] is not None:
            errors = {name: result[name] for name in ("gradient_error", "weight_error")}
            self.row |= errors | {"gradients_equal": all(error <= tolerance for error in errors.values())}


def _timeline(graph, operations):
    """Measured operations, as if they were simulated."""
    times_s = np.full((2, graph.schedule.num_operations), np.nan)
    for _, number, *times in operations:
        times_s[:, number] = times
    times_s = times_s[:, graph.index]
    transfers_s, makers = np.full_like(times_s, np.nan), graph.source[graph.remote]
    transfers_s[:, makers] = times_s[1, makers], times_s[0, graph.remote]
    return Timeline(graph, times_s, lambda: transfers_s, [])


def _fixed_costs(task, result):
    """Seconds of an operation beyond what its stage sleeps, and of a transfer, as GPipe shows them.

    Forwards of the first rank and backwards of the last follow each other without a wait; each rank waits for its first
    forward and its first backward.
    """
    timeline, (forward_s, backward_s) = _timeline(task.graph, result["operations"]), task.costs.compute_s[: OpKind.I, 0]
    start_s, end_s = (of.reshape(-1, 2, _CALIBRATING) for of in (timeline.start_s, timeline.end_s))  # rank, F or B
    beyond_s = np.diff(start_s[0, 0]) - forward_s[0], np.diff(start_s[-1, 1]) - backward_s[-1]
    waits_s = start_s[1:, 0, 0] - end_s[:-1, 0, 0], start_s[:-1, 1, 0] - end_s[1:, 1, 0]
    operation_s, transfer_s = (float(np.median(each)) if np.size(each) else 0.0 for each in (beyond_s, waits_s))
    if task.graph.p2p in ("rendezvous", "blocking_send"):  # between two operations, these ranks send
        operation_s -= transfer_s
    return max(0.0, operation_s), max(0.0, transfer_s)


def _join(job, say):
    """Execute a job among the processes of torchrun."""
    from ppmodel.execution import rank

    try:
        return rank.execute(job, say)
    except (RuntimeError, ValueError) as error:
        raise PPModelError(f"rank {os.environ.get('RANK')}", None, f"has failed: {error}", "see torchrun") from None


def script_of(job):
    """The text of a script that executes a job under torchrun, and needs PyTorch alone."""
    stages, rank = (Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in ("stages", "rank"))
    rank = rank.replace("from ppmodel.execution import stages\n", "stages = sys.modules[__name__]\n")
    rank = rank.replace("    main(Path(sys.argv[1]))\n", "    script(json.loads(JOB))\n")
    return f"{stages}\n\nJOB = {json.dumps(json.dumps(job))}\n\n\n{rank}"
