"""``python -m benchmarks.own_run``: PyTorch's pipeline runtime on this machine, every operation timed.

Processes on one machine run the schedules of `torch.distributed.pipelining` over gloo, and tables of ours that its
runtime loads. A stage sleeps for its forward, input gradient and weight gradient, so that four ranks need no more than
two cores; or, on two ranks, it multiplies matrices. Only the messages and the runtime are then the machine's. Needs the
extra `execute`; raised priority (``nice -n -15``) keeps other processes out of the numbers.
"""

import argparse
import csv
import gc
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "data" / "reference" / "own_run"
KIB, MIB = 2**10, 2**20
FORWARD_S = INPUT_GRAD_S = WEIGHT_GRAD_S = 10e-3
"""What a stage that holds 1/S of the model sleeps; one of v chunks sleeps 1/v of it."""
PRODUCT = (2048, 512)
"""Rows and width of the matrices that a stage multiplies."""
PAUSE_S = {"sleep": 0.0, "product": 0.4}
"""Between repetitions; the kernel takes a real-time process that never pauses off its core for a while."""
LINE = "{workload:22s} {schedule:17s} {runner:8s} {microbatches:3d} microbatches: {step_ms:8.2f} ms +- {spread:.2%}"


class Runner(NamedTuple):
    """A schedule and what runs it.

    Parameters
    ----------
    schedule : str
        Our name.
    runner : {"loop", "runtime", "table"}
        A loop that PyTorch wrote for it, its runtime with PyTorch's own order, or its runtime with a table of ours.
    theirs : str
        The class; of a table none.
    chunks : int
        Stages of a rank.
    """

    schedule: str
    runner: str
    theirs: str = "_PipelineScheduleRuntime"
    chunks: int = 1


class Workload(NamedTuple):
    """What the stages do."""

    name: str
    ranks: int
    work: str
    message_bytes: int
    microbatches: tuple
    repetitions: int


RUNNERS = (
    Runner("gpipe", "loop", "ScheduleGPipe"),
    Runner("1f1b", "loop", "Schedule1F1B"),
    Runner("gpipe", "table"),
    Runner("1f1b", "table"),
    Runner("eager-1f1b", "table"),
    Runner("zb-h1", "table"),
    Runner("zb-h2", "table"),
    Runner("interleaved-1f1b", "runtime", "ScheduleInterleaved1F1B", 2),
    Runner("interleaved-zb", "runtime", "ScheduleInterleavedZeroBubble", 2),
    Runner("zb-v", "runtime", "ScheduleZBVZeroBubble", 2),
    Runner("dualpipev", "runtime", "ScheduleDualPipeV", 2),
)
QUICK = (RUNNERS[0], RUNNERS[3], RUNNERS[8], RUNNERS[9])
WORKLOADS = (
    Workload("sleep, 4 KiB", 4, "sleep", 4 * KIB, (8, 16), 10),
    Workload("sleep, 8 MiB", 4, "sleep", 8 * MIB, (8, 16), 10),
    Workload("products, 4 KiB", 2, "product", 4 * KIB, (8,), 10),
    Workload("products, 4 MiB", 2, "product", 4 * MIB, (8,), 10),
)


def stage_module(workload, chunks, last):
    """The module of a stage, and what computes its weight gradient where autograd does not.

    Parameters
    ----------
    workload : Workload
    chunks : int
    last : bool
        Whether it is the last stage, whose result is one number.

    Returns
    -------
    module : torch.nn.Module
    dw_builder : callable or None
    """
    import torch

    if workload.work == "product":
        return _product(torch, workload, chunks, last), None

    numbers = workload.message_bytes // 4
    message, gradient = torch.zeros(1, 1 if last else numbers), torch.zeros(1, numbers)

    class Sleep(torch.autograd.Function):
        """Sleeps for as long as an operation takes, and hands on a message of the right size."""

        @staticmethod
        def forward(ctx, activation, _weight):
            ctx.first = not activation.requires_grad
            time.sleep(FORWARD_S / chunks)
            return message.detach()

        @staticmethod
        def backward(ctx, _gradient):
            time.sleep(INPUT_GRAD_S / chunks)
            return None if ctx.first else gradient.detach(), torch.zeros(())

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, activation):
            return Sleep.apply(activation, self.weight)

    return Stage(), lambda: lambda: time.sleep(WEIGHT_GRAD_S / chunks)


def _product(torch, workload, chunks, last):
    """A product of a matrix that is larger than its message, or as large."""
    rows, width = PRODUCT
    sent = workload.message_bytes // 4 // width

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList(torch.eye(width) for _ in range(2 // chunks))

        def forward(self, activation):
            hidden = activation.reshape(sent, width).repeat(rows // sent, 1)
            for weight in self.weights:
                hidden = hidden @ weight
            if last:
                return hidden.mean().reshape(1, 1)
            return hidden.reshape(rows // sent, sent * width).mean(0, keepdim=True)

    return Stage()


def _stages(workload, runner, rank, order):
    """The stages of a rank; `order` has its rows."""
    import torch
    from torch.distributed.pipelining import PipelineStage

    numbers, num_stages = workload.message_bytes // 4, workload.ranks * runner.chunks
    own = sorted({op.stage for cell in order[rank] for op in cell})
    stages = []
    for index in own:
        last = index == num_stages - 1
        module, dw_builder = stage_module(workload, runner.chunks, last)
        stages.append(
            PipelineStage(
                module, index, num_stages, torch.device("cpu"), dw_builder=dw_builder,
                input_args=torch.zeros(1, numbers, requires_grad=index > 0),
                output_args=torch.zeros(1, 1 if last else numbers, requires_grad=True),
            )
        )  # fmt: skip
    return stages


def _watch(stage, log):
    """Have a stage note the start and end of each of its operations."""

    def watched(kind_of, method):
        def run(microbatch, *arguments, **options):
            start = time.perf_counter_ns()
            result = method(microbatch, *arguments, **options)
            log.append((f"{stage.stage_index}{kind_of(options)}{microbatch}", start, time.perf_counter_ns()))
            return result

        return run

    stage.forward_one_chunk = watched(lambda _: "F", stage.forward_one_chunk)
    halves = {True: "B", False: "I"}
    stage.backward_one_chunk = watched(lambda given: halves[given.get("full_backward", True)], stage.backward_one_chunk)
    stage.backward_weight_one_chunk = watched(lambda _: "W", stage.backward_weight_one_chunk)


def _schedule(runner, stages, microbatches, table, folder):
    """PyTorch's schedule object."""
    from torch.distributed.pipelining import schedules

    kind = getattr(schedules, runner.theirs)
    given = stages[0] if runner.runner == "loop" else stages
    made = kind(given, microbatches, loss_fn=lambda output, _: output.sum())
    if runner.runner == "table":
        path = Path(folder) / f"table-{stages[0].group_rank}.csv"
        table.to_pytorch(path)
        made._load_csv(str(path))
    return made


def record(workload, runner, microbatches, rank, repetitions, warm_up, folder):
    """Run one schedule again and again.

    Returns
    -------
    list of list of (str, int, int)
        For each repetition the operations of this rank, with start and end in nanoseconds.
    """
    import torch
    import torch.distributed as dist

    import ppmodel

    options = {"chunks": runner.chunks} if "interleaved" in runner.schedule else {}
    table = ppmodel.build(runner.schedule, workload.ranks, microbatches, **options)
    log, found = [], []
    stages = _stages(workload, runner, rank, table.rows())
    for stage in stages:
        _watch(stage, log)
    schedule = _schedule(runner, stages, microbatches, table, folder)
    gc.collect()
    gc.freeze()  # collecting between steps is then quick
    first, last = stages[0].is_first, stages[-1].is_last
    inputs = (torch.zeros(microbatches, workload.message_bytes // 4),) if first else ()
    target = {"target": torch.zeros(microbatches)} if last else {}
    for _ in range(warm_up + repetitions):
        log.clear()
        gc.collect()
        dist.barrier()
        gc.disable()
        schedule.step(*inputs, **target, return_outputs=False)
        gc.enable()
        dist.barrier()
        time.sleep(PAUSE_S[workload.work])
        found.append(list(log))
    gc.unfreeze()  # or the stages, which refer to themselves, would stay in memory
    return found[warm_up:]


def ping_pong(rank, message_bytes, times):
    """Seconds of a message one way, half of each round trip; only ranks 0 and 1 take part."""
    import torch
    import torch.distributed as dist

    tensor, found = torch.zeros(message_bytes // 4), []
    for _ in range(times):
        dist.barrier()
        start = time.perf_counter()
        if rank < 2:
            for turn in (0, 1):
                (dist.send if rank == turn else dist.recv)(tensor, 1 - rank)
        found.append((time.perf_counter() - start) / 2)
    return found


def _rank(rank, ranks, folder, chosen):
    """What one process does: all of its workloads; writes a JSON file."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{ranks}", rank=rank, world_size=ranks)
    runs, messages = [], []
    for workload in chosen["workloads"]:
        seconds = ping_pong(rank, workload.message_bytes, 30)[10:]
        messages.append({"workload": workload.name, "ping_pong_ms": round(1e3 * median(seconds), 4)})
        for microbatches in workload.microbatches[: chosen["sizes"]]:
            for runner in chosen["runners"]:
                repetitions = chosen["repetitions"] or workload.repetitions
                found = record(workload, runner, microbatches, rank, repetitions, chosen["warm_up"], folder)
                head = {"workload": workload.name, **runner._asdict(), "microbatches": microbatches}
                runs.append(head | {"found": found})
                dist.barrier()
    Path(folder, f"rank-{ranks}-{rank}.json").write_text(json.dumps({"runs": runs, "messages": messages}))
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # a library that torch loads complains for pages when Python ends


def measure(workloads=WORKLOADS, runners=RUNNERS, repetitions=None, warm_up=2, sizes=None):
    """Run everything.

    Parameters
    ----------
    workloads, runners : sequence
    repetitions : int, optional
        The workload's where not given.
    warm_up : int
    sizes : int, optional
        How many of the numbers of microbatches.

    Returns
    -------
    runs : list of dict
        ``workload, schedule, runner, theirs, chunks, microbatches`` and ``found``: for each repetition and rank the
        operations with start and end in nanoseconds.
    messages : list of dict
        What a message takes alone.
    """
    import torch.multiprocessing as processes

    runs, messages = [], []
    for ranks in sorted({workload.ranks for workload in workloads}, reverse=True):
        some = [workload for workload in workloads if workload.ranks == ranks]
        given = {"workloads": some, "runners": runners, "repetitions": repetitions, "warm_up": warm_up, "sizes": sizes}
        with tempfile.TemporaryDirectory() as folder:
            processes.spawn(_rank, (ranks, folder, given), ranks)
            read = [json.loads(Path(folder, f"rank-{ranks}-{rank}.json").read_text()) for rank in range(ranks)]
        messages += read[0]["messages"]
        for parts in zip(*(one["runs"] for one in read), strict=True):
            runs.append(parts[0] | {"found": list(zip(*(part["found"] for part in parts), strict=True))})
    return runs, messages


def steps_ms(found):
    """What each repetition took, from the start of its first operation to the end of its last, in milliseconds."""
    return [
        (max(op[2] for rank in ranks for op in rank) - min(op[1] for rank in ranks for op in rank)) / 1e6
        for ranks in found
    ]


def halves(repetitions):
    """The repetitions of either half: every other one.

    >>> halves(5)
    (range(0, 5, 2), range(1, 5, 2))
    """
    return range(0, repetitions, 2), range(1, repetitions, 2)


def _middle(steps, some):
    """The repetition, of some, whose step is their median, the lower of two."""
    return sorted(some, key=lambda repetition: steps[repetition])[(len(some) - 1) // 2]


def write(runs, messages, folder):
    """Write the recording: what ran and on what, every step, and the operations of one repetition of each run.

    Parameters
    ----------
    runs, messages : list of dict
        From `measure`.
    folder : path-like
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    heads, steps, operations = [], [], []
    for number, run in enumerate(runs):
        found = run["found"]
        took = steps_ms(found)
        first, _ = halves(len(took))
        shown = _middle(took, first)
        heads.append({"run": number, **{key: value for key, value in run.items() if key != "found"}, "shown": shown})
        steps += [(number, repetition, f"{one:.3f}") for repetition, one in enumerate(took)]
        zero = min(op[1] for rank in found[shown] for op in rank)
        operations += [
            (number, rank, name, (start - zero) // 1000, (end - zero) // 1000)
            for rank, ops in enumerate(found[shown])
            for name, start, end in ops
        ]
    _csv(folder / "steps.csv", ("run", "repetition", "step_ms"), steps)
    _csv(folder / "operations.csv", ("run", "rank", "operation", "start_us", "end_us"), operations)
    about = {"machine": _about(), "sleep_ms": _sleeps(), "messages": messages, "sha256": sums(folder), "runs": heads}
    (folder / "runs.json").write_text(_text(about), encoding="utf-8")


def sums(folder):
    """Checksums of the two tables of a recording.

    Parameters
    ----------
    folder : path-like

    Returns
    -------
    dict of str to str
    """
    files = ("steps.csv", "operations.csv")
    return {name: hashlib.sha256(Path(folder, name).read_bytes()).hexdigest() for name in files}


def _about():
    """The machine, and how the processes were scheduled."""
    from benchmarks.machine import machine

    names = {os.SCHED_OTHER: "other", os.SCHED_FIFO: "fifo", os.SCHED_RR: "round robin"}
    found = machine()
    shown = ("processor", "cores", "caches", "memory_gib", "system", "python", "day")
    scheduling = {"scheduling": names.get(os.sched_getscheduler(0), "another"), "nice": os.nice(0)}
    versions = {"torch": found["packages"].get("torch"), "kernel": platform.release().partition("-")[0]}
    return {name: found[name] for name in shown} | versions | scheduling


def _sleeps():
    return {"F": 1e3 * FORWARD_S, "I": 1e3 * INPUT_GRAD_S, "W": 1e3 * WEIGHT_GRAD_S}


def _text(about):
    """JSON with a line for each run."""
    lines = {key: value for key, value in about.items() if key != "runs"}
    runs = ",\n".join("  " + json.dumps(run) for run in about["runs"])
    return json.dumps(lines, indent=1).removesuffix("\n}") + ',\n "runs": [\n' + runs + "\n ]\n}\n"


def _csv(path, head, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


def main(arguments=None):
    """Record, write and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own_run", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", metavar="FOLDER", default=FOLDER, help="where to write the recording")
    parser.add_argument("--quick", action="store_true", help="four schedules, two repetitions; needs --out")
    chosen = parser.parse_args(arguments)
    if chosen.quick and chosen.out == FOLDER:
        parser.error("--quick: would replace the recording with a small one; pass --out")
    quick = {"workloads": WORKLOADS[:1], "runners": QUICK, "repetitions": 2, "warm_up": 1, "sizes": 1}
    runs, messages = measure(**quick if chosen.quick else {})
    write(runs, messages, chosen.out)
    for run in runs:
        took = steps_ms(run["found"])
        middle = median(took)
        spread = median(abs(one - middle) for one in took) / middle
        print(LINE.format(step_ms=middle, spread=spread, **run))


if __name__ == "__main__":
    main()
