"""One rank: walks its row of each table of a job, and times every operation.

Started once per rank, by `launch` on this machine or by torchrun. Needs PyTorch and `stages` alone.
"""

import datetime
import gc
import json
import math
import os
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist

from ppmodel.execution import stages

F, B, I, W, R = range(5)  # noqa: E741 - the letters of `OpKind`
NONE = -1
RATE = 0.1
_AHEAD_S = 5e-3  # between the agreement on a start and the start
_TOKEN = 1_000_000  # what the tag of a token adds to that of its message


def sleep_until(moment):
    """Wait for a moment of `time.perf_counter`."""
    if (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


class Transfers:
    """Messages of a rank, to be prepared for each iteration; a way of sending is a subclass.

    Parameters
    ----------
    program : dict
        From `programs.program_of`.
    rank : int
    like : Tensor
        Its shape is that of a result.
    padding : int
        Numbers by which a message is longer.
    """

    def __init__(self, program, rank, like, padding):
        self.p2p, self.like, self.filler = program["p2p"], like, like.new_zeros(padding)
        self.messages = {
            number: (receiver if sender == rank else sender, sender == rank, busy, delay)
            for number, sender, receiver, busy, delay in program["messages"]
            if rank in (sender, receiver)
        }
        self.threads = defaultdict(lambda: ThreadPoolExecutor(1))  # one for each peer, and one for sums of gradients
        self.token = like.new_empty(1)  # what follows a message on a link that takes time

    def begin(self):
        """Prepare an iteration."""
        self.outgoing, self.incoming, self.tasks = {}, {}, defaultdict(list)

    def start(self, thread, function):
        """Call a function on a thread, after all that was started there."""
        self.tasks[thread].append(self.threads[thread].submit(function))
        return self.tasks[thread][-1]

    def finish(self, *threads):
        """Wait until some threads, or all, have done everything."""
        for thread in threads or list(self.tasks):
            for task in self.tasks.pop(thread, ()):
                task.result()

    def buffer(self):
        """Space for a message."""
        return self.like.new_empty(self.like.numel() + len(self.filler))

    def give(self, number, result):
        """Take over the result of an operation that another rank needs."""
        self.outgoing[number] = torch.cat([result.detach().flatten(), self.filler])

    def release(self):
        """Send what is given, where that holds the rank; it comes after the end of the operation."""

    def take(self, number):
        """Wait for the result of another rank's operation."""
        buffer, wait = self.incoming.pop(number)
        wait()
        return buffer[: self.like.numel()].view(self.like.shape)


class Buffered(Transfers):
    """Messages wait for their receivers, which have posted all receives in advance; host threads send them.

    Transfers occupy nothing (``latency``) or their link (``overlapped``).
    """

    def begin(self):
        super().begin()
        self.free_at = defaultdict(float)  # by peer, of the link to it
        for number, (peer, sends, _, _) in self.messages.items():
            if not sends:
                buffer = self.buffer()
                self.incoming[number] = buffer, dist.irecv(buffer, peer, tag=number).wait

    def give(self, number, result):
        super().give(number, result)
        peer, _, busy, delay = self.messages[number]
        leaves = time.perf_counter() + busy
        if self.p2p == "overlapped":
            leaves = self.free_at[peer] = max(leaves, self.free_at[peer] + busy)

        def send():
            sleep_until(leaves + delay)
            dist.send(self.outgoing.pop(number), peer, tag=number)

        self.start(peer, send)


class Blocking(Buffered):
    """As `Buffered`, but the rank itself sends, and waits until a message has arrived (``blocking_send``)."""

    give = Transfers.give

    def release(self):
        for number in list(self.outgoing):
            peer, _, busy, delay = self.messages[number]
            time.sleep(busy + delay)
            dist.send(self.outgoing.pop(number), peer, tag=number)


class Rendezvous(Transfers):
    """The rank itself exchanges batches of messages with one peer at a time, and both wait until all have arrived."""

    def exchange(self, numbers):
        """Send and receive the messages of one batch; on a link that takes time, one has arrived when a token has."""
        posted, tokens = [], []
        for number in numbers:
            peer, sends, busy, delay = self.messages[number]
            message = self.outgoing.pop(number) if sends else self.buffer()
            posted.append(dist.P2POp(dist.isend if sends else dist.irecv, message, peer, tag=number))
            if not sends:
                self.incoming[number] = message, lambda: None
                if busy + delay:
                    tokens.append(dist.irecv(self.token, peer, tag=_TOKEN + number))
        for number, request in zip(numbers, dist.batch_isend_irecv(posted), strict=True):
            peer, sends, busy, delay = self.messages[number]
            request.wait()
            if sends and busy + delay:
                time.sleep(busy + delay)
                tokens.append(dist.isend(self.token, peer, tag=_TOKEN + number))
        for token in tokens:
            token.wait()


class Streams(Transfers):
    """Each pair of ranks has a stream, a thread, on which a transfer begins when both ends are posted.

    What a rank issues waits until that stream is free, and a sender's end on a link with a delay that much longer.
    """

    def issue(self, number):
        """Post this rank's end of a transfer."""
        peer, sends, busy, delay = self.messages[number]
        self.finish(peer)
        message, move = (self.outgoing.pop(number), dist.send) if sends else (self.buffer(), dist.recv)
        if sends:
            time.sleep(delay)

        def transfer():
            move(message, peer, tag=number)
            if busy:
                time.sleep(busy * sends)
                move(self.token, peer, tag=_TOKEN + number)

        task = self.start(peer, transfer)
        if not sends:
            self.incoming[number] = message, task.result


WAYS = {"latency": Buffered, "overlapped": Buffered, "blocking_send": Blocking, "rendezvous": Rendezvous,
        "streams": Streams}  # fmt: skip


class Rank:
    """A rank that executes one program."""

    def __init__(self, job, program, rank, device):
        self.program, self.rank, self.device = program, rank, device
        self.workload = job["workload"] | {"blocks": program["blocks"]}
        self.parts, self.num_stages = program["parts"], len(program["shares"])
        self.last, self.total_rows = self.num_stages - 1, self.workload["rows"] * program["microbatches"]
        self.modules = {
            (replica, stage): stages.stage_module(self.workload, stage, self.num_stages).to(device)
            for replica, ranks in enumerate(program["placement"])
            for stage, home in enumerate(ranks)
            if home == rank
        }
        self.data = []
        if any(stage in (0, self.last) for _, stage in self.modules):
            parts = range(program["microbatches"] * self.parts)
            self.data = [stages.first_input(self.workload, self.parts, part).to(device) for part in parts]
        self.like = torch.empty(stages.message_shape(self.workload, self.parts), device=device)
        least = self.workload["message_bytes"] / self.parts / self.like.element_size()
        padding = max(0, math.ceil(least) - self.like.numel())
        self.transfers = WAYS[program["p2p"]](program, rank, self.like, padding)
        self.homes = [tuple(sorted(set(ranks))) for ranks in zip(*program["placement"], strict=True)]
        # made on all ranks, in one order
        self.groups = {homes: dist.new_group(homes) for homes in sorted(set(self.homes)) if len(homes) > 1}

    def iteration(self):
        """Run the row once.

        Returns
        -------
        log : list of (int, float, float)
            The operations, with start and end in seconds.
        seconds : float
            Until this rank's row had ended.
        peak : float
            The most microbatches on 1/S of the model that it stored.
        """
        self.log, self.results, self.stored, self.peak = [], {}, {}, 0.0
        self.reductions, self.stepped = Counter(), set()
        for module in self.modules.values():
            for weight in module.parameters():
                weight.grad = torch.zeros_like(weight)
        self.transfers.begin()
        gc.collect()
        dist.barrier()
        start = torch.tensor([time.perf_counter() + _AHEAD_S], dtype=torch.float64, device=self.device)
        if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:  # ranks of one machine share a clock
            dist.broadcast(start, 0)
        self.zero = float(start)
        gc.disable()
        sleep_until(self.zero)
        for what, entry in self.program["rows"][self.rank]:
            getattr(self if what == "cell" else self.transfers, what)(entry)
        self.transfers.finish("sums")
        seconds = time.perf_counter() - self.zero
        gc.enable()
        self.transfers.finish()
        return self.log, seconds, self.peak

    def cell(self, numbers):
        """Run the operations of one cell, forwards first, once all have their inputs; then hand on their results."""
        operations = sorted(((number, *self.program["operations"][number]) for number in numbers), key=lambda op: op[1])
        values, results = [], {}
        for _, kind, _, microbatch, _, source in operations:
            if source == NONE:
                values.append(self.data[microbatch] if kind == F else None)
            else:
                is_remote = source in self.transfers.messages
                values.append(self.transfers.take(source) if is_remote else self.results.pop(source))
        start = time.perf_counter() - self.zero
        for (number, *operation, _), value in zip(operations, values, strict=True):
            results[number] = self.operate(*operation, value)
            self.log.append((number, start, start := time.perf_counter() - self.zero))
        for number, result in results.items():
            if number in self.transfers.messages:
                self.transfers.give(number, result)
            else:
                self.results[number] = result
        self.log[-1] = (*self.log[-1][:2], time.perf_counter() - self.zero)
        self.transfers.release()

    def operate(self, kind, stage, microbatch, replica, value):
        """Run one operation, for as long as its stage sleeps; return its result."""
        until = time.perf_counter() + self.program["seconds"][kind][stage]
        key, module, result = (replica, stage, microbatch), self.modules.get((replica, stage)), None
        if module is None:
            raise RuntimeError(f"stage {stage} of replica {replica} is not placed here")
        if kind == F:
            value = value.detach().requires_grad_(stage > 0)
            result = module(value)
            if stage == self.last:
                result = stages.loss(result, self.data[microbatch], self.total_rows)
            self.stored[key] = value, result
            self.peak = max(self.peak, sum(self.program["shares"][stage] for _, stage, _ in self.stored))
        elif kind in (B, I):
            inputs, output = self.stored.pop(key)
            deferred = stages.backward(output, value, kind == I)
            result = inputs.grad
            if kind == I:
                self.stored[key] = deferred
        elif kind == W:
            stages.add_weight_gradients(self.stored.pop(key))
        elif kind == R:
            self.reduce(stage)
        else:
            self.update(stage)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        sleep_until(until)
        return result

    def copies(self, stage):
        """The copies of a stage that this rank holds, one for each replica that places it here."""
        return [module for (_, place), module in self.modules.items() if place == stage]

    def reduce(self, stage):
        """Sum the gradients of a stage over its replicas; once, after the last of those that this rank holds."""
        self.reductions[stage] += 1
        copies = [list(module.parameters()) for module in self.copies(stage)]
        if self.reductions[stage] != len(copies):
            return
        total = sum(torch.cat([weight.grad.flatten() for weight in weights]) for weights in copies)
        group, seconds = self.groups.get(self.homes[stage]), self.program["seconds"][R][stage]
        request = None if group is None else dist.all_reduce(total, group=group, async_op=True)

        def arrive():
            if request is not None:
                request.wait()
            time.sleep(seconds)
            for weights in copies:
                for weight, part in zip(weights, total.split([weight.numel() for weight in weights]), strict=True):
                    weight.grad = part.view(weight.shape).clone()

        arrive() if self.program["allreduce"] == "blocking" else self.transfers.start("sums", arrive)

    def update(self, stage):
        """Take the optimizer step of a stage; once, for all of its replicas."""
        self.transfers.finish("sums")
        if stage not in self.stepped:
            self.stepped.add(stage)
            for module in self.copies(stage):
                stages.step(module, RATE)

    def complete(self):
        """Sum and update what the row has not; return each stage with its gradients and weights."""
        if len(self.program["placement"]) > 1:
            for stage in sorted(stage for _, stage in self.modules if stage not in self.reductions):
                self.reduce(stage)
        for _, stage in self.modules:
            self.update(stage)
        return [(stage, *stages.gradients_and_weights(module)) for (_, stage), module in self.modules.items()]

    def seconds_of_kinds(self, repetitions=5):
        """Median seconds of F, B, I and W of each stage that this rank holds, without a pipeline."""
        medians, self.stored, self.peak = {}, {}, 0.0
        dist.barrier()
        for replica, stage in self.modules:
            value, times = torch.randn_like(self.like), [[], [], [], []]
            gradient = None if stage == self.last else value
            inputs = self.data[0] if stage == 0 else value, gradient, gradient, None
            for kind in [F, B, F, I, W] * (repetitions + 1):
                start = time.perf_counter()
                self.operate(kind, stage, 0, replica, inputs[kind])
                times[kind].append(time.perf_counter() - start)
            medians[stage] = [statistics.median(of_kind[1:]) for of_kind in times]
        return medians


def relative_error(values, expected):
    """The largest difference between two lists of tensors, relative to the largest number of each; NaN if one is."""
    pairs = zip(values, expected, strict=True)
    errors = [(value - other).abs().max() / other.abs().max().clamp(min=1e-30) for value, other in pairs]
    return float(torch.stack(errors).max())


def execute(job, rank, say=print):
    """Execute all programs of a job; every rank calls this once `torch.distributed` is initialised.

    Parameters
    ----------
    job : dict
        As `comparison.execute` makes it.
    rank : int
    say : callable
        Told the number of each program that has ended.

    Returns
    -------
    list of dict, or None on all ranks but the first
        For each program ``steps``, the sorted seconds of its iterations; ``operations``, those of the median one: rank,
        number, start and end; ``peaks`` of the ranks; ``seconds`` of F, B, I and W of each stage, if they do not sleep;
        and ``gradient_error`` and ``weight_error``, relative differences from one process, or None.
    """
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, job["dtype"]))
    if job["device"] == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())
    device, results, references = torch.device(job["device"]), [], {}
    sys.setswitchinterval(1e-4)  # so that a thread that sends does not wait for one that computes
    gc.collect()
    gc.freeze()  # collecting between iterations is then quick
    for number, program in enumerate(job["programs"]):
        state, complete = Rank(job, program, rank, device), []
        seconds = state.seconds_of_kinds() if "model" in job["workload"] else {}
        runs = [state.iteration()]
        if program["checked"]:
            complete = state.complete()
        runs += [state.iteration() for _ in range(program["repetitions"])]
        gathered = [None] * dist.get_world_size() if rank == 0 else None
        dist.gather_object((runs, seconds, complete), gathered)
        if rank == 0:
            key = state.num_stages, program["microbatches"], tuple(program["blocks"])
            if program["checked"] and key not in references:
                references[key] = stages.reference(state.workload, *key[:2], device, RATE)
            results.append(_result(*zip(*gathered, strict=True), references.get(key)))
            say(number)
    return results if rank == 0 else None


def _result(runs, seconds, complete, reference):
    """The result of a program, from those of all ranks."""
    iterations = list(zip(*runs, strict=True))
    iterations = sorted(iterations[1:] or iterations, key=lambda ranks: max(seconds for _, seconds, _ in ranks))
    median = iterations[(len(iterations) - 1) // 2]
    of_stages = {stage: times for of_rank in seconds for stage, times in of_rank.items()}
    pairs = [(values, reference[stage]) for of_rank in complete for stage, *values in of_rank]
    errors = [list(map(relative_error, values, expected)) for values, expected in pairs]
    gradient_error, weight_error = torch.tensor(errors).amax(0).tolist() if errors else (None, None)
    return {
        "steps": [max(seconds for _, seconds, _ in ranks) for ranks in iterations],
        "operations": [(rank, *row) for rank, (log, _, _) in enumerate(median) for row in log],
        "peaks": [peak for _, _, peak in median], "seconds": [of_stages[stage] for stage in sorted(of_stages)],
        "gradient_error": gradient_error, "weight_error": weight_error,
    }  # fmt: skip


def join(job, say=print, method="env://"):
    """Execute a job as one of several processes, which torchrun or `launch` has started; as `execute`.

    Raises
    ------
    RuntimeError
        If they are not as many as the tables have ranks, or there is no GPU.
    """
    rank, world, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), len(job["programs"][0]["rows"])
    if world != size:
        raise RuntimeError(f"world size = {world}: the tables have {size} ranks; start as many processes")
    if job["device"] == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("device = cuda: PyTorch finds no GPU; pass cpu")
    limit = datetime.timedelta(seconds=job["limit_s"])
    dist.init_process_group("nccl" if job["device"] == "cuda" else "gloo", method, limit, size, rank)
    results = execute(job, rank, say)
    dist.barrier()
    dist.destroy_process_group()
    return results


def main(folder):
    """Execute the job of a folder as one of the ranks of this machine, and leave the results or an error there."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    folder = Path(folder)
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    try:
        results = join(job, lambda number: (folder / f"done-{number}").touch(), f"file://{folder}/store")
        if results is not None:
            (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    except Exception as error:
        rank, text = int(os.environ["RANK"]), f"{type(error).__name__}: {error}".splitlines()[0]
        (folder / f"error-{rank}.json").write_text(json.dumps([time.time(), rank, text]), encoding="utf-8")
        os._exit(2)
    os._exit(0)  # what PyTorch loads may complain when Python ends


def _end_with_parent():
    sys.stdin.buffer.read()
    os._exit(1)


def script(job):
    """Execute a job under torchrun; print each table's time, and write what `ppmodel replay` reads."""
    try:
        results = join(job, lambda number: print(f"{number + 1} of {len(job['programs'])}", file=sys.stderr))
    except (RuntimeError, KeyError) as error:
        sys.exit(f"error: {type(error).__name__}: {error}")
    for program, result in zip(job["programs"], results or (), strict=False):
        seconds, error = statistics.median(result["steps"]), result["gradient_error"]
        checked = "" if error is None else f", gradients off by {error:.1e}"
        print(f"{program['label']:24s} {1e3 * seconds:10.2f} ms{checked}")
        rows = [f"{rank},{program['names'][number]},{start},{end}" for rank, number, start, end in result["operations"]]
        text = "\n".join(["rank,operation,start_s,end_s", *rows, ""])
        Path(f"operations-{program['label']}.csv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
