"""One rank: walks its row of each table of a job, and times every operation.

Started once per rank, by `launch` on this machine or by torchrun. Needs PyTorch and `stages` alone.
"""

import datetime
import gc
import json
import os
import queue
import statistics
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from ppmodel.execution import stages

F, B, I, W, R = range(5)  # noqa: E741 - the letters of `OpKind`
NONE = -1
RATE = 0.1
_AHEAD_S = 5e-3  # between the agreement on a start and the start


def sleep_until(moment):
    """Wait for a moment of `time.perf_counter`."""
    if (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


class Worker:
    """A thread that does one thing after another."""

    def __init__(self):
        self._tasks = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while (task := self._tasks.get()) is not None:
            task()

    def do(self, task):
        """Add a task; None ends the thread."""
        self._tasks.put(task)

    def finish(self):
        """Wait until all tasks are done."""
        done = threading.Event()
        self.do(done.set)
        done.wait()


class Transfers:
    """Messages of a rank in one iteration after another; a way of sending is a subclass.

    Parameters
    ----------
    program : dict
        From `programs.program_of`.
    rank : int
    like : Tensor
        Its shape is that of a message.
    padding : int
        Numbers by which a message is longer.
    """

    def __init__(self, program, rank, like, padding):
        self.rank, self.like = rank, like
        self.filler = like.new_zeros(padding) if padding else None
        self.messages = {message[0]: message for message in program["messages"] if rank in message[1:3]}
        self.outgoing = {number for number, message in self.messages.items() if message[1] == rank}
        self.workers = {}

    def worker(self, name):
        """The thread of that name."""
        if name not in self.workers:
            self.workers[name] = Worker()
        return self.workers[name]

    def close(self):
        """End the threads."""
        for worker in self.workers.values():
            worker.do(None)

    def packed(self, tensor):
        """A result as it is sent."""
        flat = tensor.detach().contiguous().flatten()
        return flat if self.filler is None else torch.cat([flat, self.filler])

    def buffer(self):
        """Space for a message."""
        return self.like.new_empty(self.like.numel() + (0 if self.filler is None else len(self.filler)))

    def unpacked(self, buffer):
        """The result that a message carries."""
        return buffer[: self.like.numel()].view(self.like.shape)

    def begin(self):
        """Prepare an iteration."""
        self.values, self.results = {}, {}

    def give(self, number, tensor):
        """Take over the result of an operation that another rank needs."""
        self.results[number] = tensor

    def take(self, number):
        """Wait for the result of another rank's operation."""
        return self.unpacked(self.values.pop(number))

    def finish(self):
        """Wait until all that was sent has left."""
        for worker in self.workers.values():
            worker.finish()


class Buffered(Transfers):
    """Messages wait for their receivers, which have posted all receives in advance; host threads send them.

    Transfers occupy nothing (``latency``), their link (``overlapped``) or the sender (``blocking_send``).
    """

    def __init__(self, program, *arguments):
        super().__init__(program, *arguments)
        self.p2p, self.free = program["p2p"], {}

    def begin(self):
        super().begin()
        self.free.clear()
        for number, sender, _, _, _ in self.messages.values():
            if sender != self.rank:
                buffer = self.buffer()
                self.values[number] = buffer, dist.irecv(buffer, sender, tag=number)

    def take(self, number):
        buffer, request = self.values.pop(number)
        request.wait()
        return self.unpacked(buffer)

    def give(self, number, tensor):
        _, _, receiver, busy, delay = self.messages[number]
        packed, leaves = self.packed(tensor), time.perf_counter()
        if self.p2p == "blocking_send":
            sleep_until(leaves + busy)
            if not delay:
                return dist.send(packed, receiver, tag=number)
            leaves += busy
        elif self.p2p == "overlapped":
            leaves = self.free[receiver] = max(leaves, self.free.get(receiver, leaves)) + busy
        else:
            leaves += busy

        def send():
            sleep_until(leaves + delay)
            dist.send(packed, receiver, tag=number)

        return self.worker(receiver).do(send)


class Rendezvous(Transfers):
    """The rank itself exchanges batches of messages with one peer at a time, and both wait until all have arrived."""

    def exchange(self, numbers):
        """Send and receive the messages of one batch; on a link that takes time, one has arrived when a token has."""
        posted, requests = [], []
        for number in numbers:
            _, sender, receiver, busy, delay = self.messages[number]
            if sends := sender == self.rank:
                buffer = self.packed(self.results.pop(number))
            else:
                buffer = self.values[number] = self.buffer()
                if busy + delay:
                    requests.append(dist.irecv(self.like.new_empty(1), sender, tag=_token(number)))
            peer = receiver if sends else sender
            posted.append(dist.P2POp(dist.isend if sends else dist.irecv, buffer, peer, tag=number))
        for number, request in zip(numbers, dist.batch_isend_irecv(posted), strict=True):
            _, sender, receiver, busy, delay = self.messages[number]
            if sender == self.rank and busy + delay:
                request.wait()
                time.sleep(busy + delay)
                request = dist.isend(self.like.new_empty(1), receiver, tag=_token(number))
            requests.append(request)
        for request in requests:
            request.wait()


class Streams(Transfers):
    """Each pair of ranks has a stream, a thread, on which a transfer begins when both ends are posted.

    What a rank issues waits until that stream is free, and a sender's end on a link with a delay that much longer.
    """

    def begin(self):
        super().begin()
        self.idle, self.arrived = {}, {}

    def issue(self, number):
        """Post this rank's end of a transfer."""
        _, sender, receiver, busy, delay = self.messages[number]
        sends = sender == self.rank
        peer = receiver if sends else sender
        if peer in self.idle:
            self.idle[peer].wait()
        idle = self.idle[peer] = self.arrived[number] = threading.Event()
        buffer = self.packed(self.results.pop(number)) if sends else self.buffer()
        if sends:
            time.sleep(delay)
        else:
            self.values[number] = buffer

        def transfer():
            token = self.like.new_empty(1)
            (dist.send if sends else dist.recv)(buffer, peer, tag=number)
            if busy:
                time.sleep(busy if sends else 0)
                (dist.send if sends else dist.recv)(token, peer, tag=_token(number))
            idle.set()

        self.worker(peer).do(transfer)

    def take(self, number):
        self.arrived[number].wait()
        return super().take(number)


def _token(number):
    """The tag of the token that follows a message."""
    return 1_000_000 + number


WAYS = {"latency": Buffered, "overlapped": Buffered, "blocking_send": Buffered, "rendezvous": Rendezvous,
        "streams": Streams}  # fmt: skip


class Rank:
    """A rank that executes one program."""

    def __init__(self, job, program, rank, device):
        self.program, self.rank, self.device = program, rank, device
        self.one_clock, self.parts = job["one_clock"], program["parts"]
        self.workload = job["workload"] | {"blocks": program["blocks"]}
        self.num_stages = len(program["placement"][0])
        self.modules = {
            (replica, stage): stages.stage_module(self.workload, stage, self.num_stages).to(device)
            for replica, ranks in enumerate(program["placement"])
            for stage, home in enumerate(ranks)
            if home == rank
        }
        self.data = []
        if self.modules.keys() & {(replica, end) for replica, _ in self.modules for end in (0, self.num_stages - 1)}:
            parts = range(program["microbatches"] * self.parts)
            self.data = [stages.first_input(self.workload, self.parts, part).to(device) for part in parts]
        like = torch.empty(stages.message_shape(self.workload, self.parts), device=device)
        padding = max(0, self.workload.get("message_numbers", 0) // self.parts - like.numel())
        self.transfers = WAYS[program["p2p"]](program, rank, like, padding)
        self.total_rows = self.workload["rows"] * program["microbatches"]
        self.homes = [tuple(sorted(set(column))) for column in zip(*program["placement"], strict=True)]
        # made on all ranks, in one order
        self.groups = {homes: dist.new_group(homes) for homes in sorted(set(self.homes)) if len(homes) > 1}
        self.reducer = Worker()

    def close(self):
        """End the threads."""
        self.transfers.close()
        self.reducer.do(None)

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
        self.log, self.local, self.stored, self.peak = [], {}, {}, 0.0
        self.reductions, self.stepped = {}, set()
        self.forget_gradients()
        self.transfers.begin()
        gc.collect()
        self.zero = self._agreed_start()
        gc.disable()
        sleep_until(self.zero)
        for what, entry in self.program["rows"][self.rank]:
            self.run_cell(entry) if what == "cell" else getattr(self.transfers, what)(entry)
        if self.reductions:
            self.reducer.finish()
        seconds = time.perf_counter() - self.zero
        gc.enable()
        self.transfers.finish()
        return self.log, seconds, self.peak

    def forget_gradients(self):
        """Begin to sum gradients at 0."""
        for module in self.modules.values():
            for weight in module.parameters():
                weight.grad = torch.zeros_like(weight)

    def _agreed_start(self):
        """A moment at which all ranks start; those of one machine share a clock."""
        dist.barrier()
        start = torch.tensor([time.perf_counter() + _AHEAD_S], dtype=torch.float64, device=self.device)
        if self.one_clock:
            dist.broadcast(start, 0)
        return float(start)

    def run_cell(self, numbers):
        """Run the operations of one cell, forwards first, once all have their inputs; then hand on their results."""
        operations = sorted(((number, *self.program["operations"][number]) for number in numbers), key=lambda op: op[1])
        inputs = [self._input(*operation) for operation in operations]
        start, results = time.perf_counter() - self.zero, {}
        for (number, kind, stage, microbatch, replica, *_), value in zip(operations, inputs, strict=True):
            results[number] = self.operate(kind, stage, microbatch, replica, value)
            self.log.append((number, start, start := time.perf_counter() - self.zero))
        for number, result in results.items():
            if number in self.transfers.outgoing:
                self.transfers.give(number, result)
            else:
                self.local[number] = result
        self.log[-1] = (*self.log[-1][:2], time.perf_counter() - self.zero)

    def _input(self, _, kind, __, microbatch, ___, source, remote):
        """What an operation needs, once it is there."""
        if source != NONE:
            return self.transfers.take(source) if remote else self.local.pop(source)
        return self.data[microbatch] if kind == F else None

    def operate(self, kind, stage, microbatch, replica, value):
        """Run one operation, for as long as its stage sleeps; return its result."""
        until = time.perf_counter() + self.program["seconds"][kind][stage]
        key, module = (replica, stage, microbatch), self.modules.get((replica, stage))
        if module is None:
            raise RuntimeError(f"stage {stage} of replica {replica} is not placed here")
        result = None
        if kind == F:
            value = value.detach().requires_grad_(value.is_floating_point() and stage > 0)
            result = module(value)
            if stage == self.num_stages - 1:
                result = stages.loss(self.workload, result, self.data[microbatch], self.total_rows)
            self.stored[key] = value, result
            shares = self.program["shares"]
            self.peak = max(self.peak, sum(shares[stage] for _, stage, _ in self.stored))
        elif kind in (B, I):
            given, made = self.stored[key]
            deferred = stages.backward(made, value, kind == I)
            result = given.grad
            self.stored[key] = deferred
            if kind == B:
                del self.stored[key]
        elif kind == W:
            stages.weight_gradients(self.stored.pop(key))
        elif kind == R:
            self.reduce(stage)
        else:
            self.update(stage)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        sleep_until(until)
        return result

    def reduce(self, stage):
        """Sum the gradients of a stage over its replicas; once, after the last of those that this rank holds."""
        self.reductions[stage] = self.reductions.get(stage, 0) + 1
        own = [list(module.parameters()) for (_, of), module in self.modules.items() if of == stage]
        if self.reductions[stage] != len(own):
            return
        total = sum(torch.cat([weight.grad.flatten() for weight in weights]) for weights in own)
        group, seconds = self.groups.get(self.homes[stage]), self.program["seconds"][R][stage]
        request = None if group is None else dist.all_reduce(total, group=group, async_op=True)

        def arrive():
            if request is not None:
                request.wait()
            time.sleep(seconds)
            for weights in own:
                parts = total.split([weight.numel() for weight in weights])
                for weight, part in zip(weights, parts, strict=True):
                    weight.grad = part.view(weight.shape).clone()

        arrive() if self.program["allreduce"] == "blocking" else self.reducer.do(arrive)

    def update(self, stage):
        """Take the optimizer step of a stage; once, for all of its replicas."""
        self.reducer.finish()
        if stage not in self.stepped:
            self.stepped.add(stage)
            for (_, of), module in self.modules.items():
                if of == stage:
                    stages.step(module, RATE)

    def complete(self):
        """Sum and update what the row has not; return the gradients and weights of each stage of each replica."""
        if len(self.program["placement"]) > 1:
            for stage in sorted(stage for _, stage in self.modules if stage not in self.reductions):
                self.reduce(stage)
        self.reducer.finish()
        gradients = [[weight.grad.cpu() for weight in module.parameters()] for module in self.modules.values()]
        for _, stage in self.modules:
            self.update(stage)
        weights = [
            [weight.detach().cpu().clone() for weight in module.parameters()] for module in self.modules.values()
        ]
        return list(zip(self.modules, gradients, weights, strict=True))

    def seconds_of_kinds(self, repetitions=5):
        """Median seconds of F, B, I and W of each stage that this rank holds, without a pipeline."""
        found, self.stored, self.peak = {}, {}, 0.0
        shape = stages.message_shape(self.workload, self.parts)
        dist.barrier()
        for replica, stage in self.modules:
            times = [[] for _ in range(4)]
            for kind in [F, B, F, I, W] * (repetitions + 1):
                value = torch.randn(shape, device=self.device)
                if kind == F and stage == 0:
                    value = self.data[0]
                if kind in (B, I) and stage == self.num_stages - 1:
                    value = None
                start = time.perf_counter()
                self.operate(kind, stage, 0, replica, value)
                times[kind].append(time.perf_counter() - start)
            found[stage] = [statistics.median(each[1:]) for each in times]
        return found


def off(found, expected):
    """The largest difference between two lists of tensors, relative to the largest number of each."""
    pairs = zip(found, expected, strict=True)
    return max(float((one - other).abs().max() / other.abs().max().clamp(min=1e-30)) for one, other in pairs)


def execute(job, rank, say=print):
    """Execute all programs of a job; every rank calls this, after `torch.distributed` has been initialised.

    Parameters
    ----------
    job : dict
        From `programs.job_of`.
    rank : int
    say : callable
        Told the number of each program that has ended.

    Returns
    -------
    list of dict, or None on all ranks but the first
        For each program ``steps``, the seconds of each repetition; ``operations``, those of the median one: rank,
        number, start and end; ``peaks`` of the ranks; ``seconds`` of F, B, I and W of each stage, or None; and
        ``gradient_error`` and ``weight_error``, relative differences from one process, or None.
    """
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, job["dtype"]))
    local = int(os.environ.get("LOCAL_RANK", rank))
    if job["device"] == "cuda":
        torch.cuda.set_device(local % torch.cuda.device_count())
    device, results, references = torch.device(job["device"]), [], {}
    sys.setswitchinterval(1e-4)  # so that a thread that sends does not wait for one that computes
    gc.collect()
    gc.freeze()  # collecting between iterations is then quick
    for number, program in enumerate(job["programs"]):
        state, own = Rank(job, program, rank, device), {"runs": []}
        own["seconds"] = state.seconds_of_kinds() if program["timed"] else None
        for repetition in range(program["warm_up"] + program["repetitions"]):
            own["runs"].append(state.iteration())
            if repetition == 0 and program["checked"]:
                own["stages"] = state.complete()
        state.close()
        found = [None] * len(program["rows"]) if rank == 0 else None
        dist.gather_object(own, found)
        if rank == 0:
            results.append(_result(program, found))
            if program["checked"]:
                key = state.num_stages, program["microbatches"], tuple(program["blocks"])
                if key not in references:
                    references[key] = stages.reference(state.workload, *key[:2], device, RATE)
                errors = [
                    (off(gradients, references[key][stage][0]), off(weights, references[key][stage][1]))
                    for each in found
                    for (_, stage), gradients, weights in each["stages"]
                ]
                of_gradients, of_weights = zip(*errors, strict=True)
                results[-1] |= {"gradient_error": max(of_gradients), "weight_error": max(of_weights)}
            say(number)
    return results if rank == 0 else None


def _result(program, found):
    """The result of a program, from those of all ranks."""
    runs = list(zip(*(each["runs"] for each in found), strict=True))[program["warm_up"] :]
    steps = [max(seconds for _, seconds, _ in run) for run in runs]
    median = runs[sorted(range(len(steps)), key=steps.__getitem__)[(len(steps) - 1) // 2]]
    seconds = None
    if program["timed"]:
        seconds = [
            of for _, of in sorted({stage: of for each in found for stage, of in each["seconds"].items()}.items())
        ]
    return {
        "steps": steps, "operations": [(rank, *row) for rank, (log, _, _) in enumerate(median) for row in log],
        "peaks": [peak for _, _, peak in median], "seconds": seconds, "gradient_error": None, "weight_error": None,
    }  # fmt: skip


def join(job, rank, say=print, method="env://"):
    """Execute a job as one of several processes, which torchrun or `launch` has started; as `execute`.

    Raises
    ------
    RuntimeError
        If they are not as many as the tables have ranks, or there is no GPU.
    """
    size = len(job["programs"][0]["rows"])
    if (world := int(os.environ.get("WORLD_SIZE", size))) != size:
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
    folder, rank = Path(folder), int(os.environ["RANK"])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    try:
        results = join(job, rank, lambda number: print(number, flush=True), f"file://{folder}/store")
        if rank == 0:
            (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        (folder / f"error-{rank}.json").write_text(json.dumps([time.time(), text]), encoding="utf-8")
        os._exit(2)
    os._exit(0)  # what PyTorch loads may complain when Python ends


def _end_with_parent():
    sys.stdin.buffer.read()
    os._exit(1)


def script(job):
    """Execute a job under torchrun; print each table's time, and write what `ppmodel replay` reads."""
    try:
        rank = int(os.environ["RANK"])
        results = join(job, rank, lambda number: print(f"{number + 1} of {len(job['programs'])}", file=sys.stderr))
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
