"""One rank: walks its row of each table of a job, and times every operation.

Started by `launch` on this machine or by torchrun. Needs PyTorch and `stages` alone.
"""

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
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException, start_processes
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ppmodel.execution import stages

F, B, I, W, S, T, R, O = range(8)  # noqa: E741 - the letters of `OpKind`
NONE = -1
RATE = 0.1
_AHEAD_S = 5e-3  # between the agreement on a start and the start


def sleep_until(moment):
    """Wait for a moment of `time.perf_counter`."""
    if (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


def settle(device):
    """Wait until a GPU has done what this thread gave it; only then are times taken and results passed on."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # not all of its streams: in others, receives wait


def _use_own_stream(device):
    if device.type == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream(device))


class Groups(dict):
    """Process groups, made by all ranks when first needed: of a link, by a tuple; of replicas, by a frozenset.

    NCCL knows no tags, so each directed link has its group, where messages leave and arrive in the order of their
    numbers. A rendezvous goes both ways at once, and has one group for both. What a rank broadcasts has a group of its
    own, too: a tuple of the rank, then all.
    """

    def __init__(self, job):
        self.device, self.limit = torch.empty(0, device=job["device"]).device, timedelta(seconds=job["limit_s"])

    def __missing__(self, ranks):
        self[ranks] = group = dist.new_group(sorted({*ranks}), self.limit)
        # NCCL connects at the first use, for which all have to be there
        peers = [peer for peer in {*ranks} if peer != dist.get_rank()] if dist.get_rank() in ranks else ()
        posted = [dist.P2POp(move, torch.zeros(1, device=self.device), peer, group)
                  for peer in peers for move in (dist.isend, dist.irecv)]  # fmt: skip
        for request in dist.batch_isend_irecv(posted) if posted else ():
            request.wait()
        return group


class Rank:
    """A rank that executes one program; what its row names are methods."""

    def __init__(self, job, program, rank, groups):
        self.program, self.rank, self.device, parts = program, rank, groups.device, program["parts"]
        size, self.barriers = len(program["rows"]), {number: makers for number, *makers in program["barriers"]}
        self.workload = workload = job["workload"] | {"blocks": program["blocks"], "shards": size * bool(self.barriers)}
        self.last, self.slices = len(program["shares"]) - 1, program["slices"]
        self.homes = list(zip(*program["placement"], strict=True))  # of each stage, by replica
        here = [stage for stage, homes in enumerate(self.homes) if rank in homes]
        here += [self.last + 1 + stage for stage in here if stage < workload["shards"]]
        self.modules = {stage: stages.stage_module(workload, stage, self.last + 1).to(self.device) for stage in here}
        numbers = range(program["microbatches"] * parts * self.slices if 0 in here or max(here) >= self.last else 0)
        pairs = [stages.first_input(workload, parts, self.slices, number) for number in numbers]
        self.data = [[each.to(self.device) for each in pair] for pair in pairs]
        self.like = torch.empty(workload["rows"] // parts, *workload["shape"], device=self.device)
        self.like = self.like.chunk(self.slices, int(workload["model"] is not None))[0]
        least = workload["message_bytes"] / parts / self.slices / self.like.element_size()
        self.padding = self.like.new_zeros(max(0, math.ceil(least) - self.like.numel()))
        self.messages = {}
        for number, *ends, busy, delay in program["messages"]:
            group = groups[tuple(sorted(ends) if program["p2p"] == "rendezvous" else ends)]
            if rank in ends:
                self.messages[number] = ends[rank == ends[0]], rank == ends[0], busy, delay, group
        self.received = [number for number, (_, sends, *_) in self.messages.items() if not sends]
        self.roots = [groups[(root, *range(size))] for root in range(workload["shards"])]
        makers = sorted(set().union(*self.barriers.values()))
        self.shared = {number: program["placement"][0][program["operations"][number][1]] for number in makers}
        self.with_gradient = T not in {program["operations"][number][0] for number in makers}  # S
        self.token_share = stages.token_share(workload, program["microbatches"])
        self.groups = [groups[frozenset(homes)] for homes in self.homes if len(homes) > 1]
        # a thread for each peer, and one for sums of gradients
        self.threads = defaultdict(lambda: ThreadPoolExecutor(1, initializer=_use_own_stream, initargs=[self.device]))

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
        self.log, self.stored, self.kept, self.peak = [], {}, defaultdict(dict), 0.0
        self.shards, self.tasks, self.free_at, self.reductions, self.stepped = {}, {}, Counter(), Counter(), set()
        for module in self.modules.values():
            module.zero_grad(set_to_none=False)
        length = self.like.numel() + len(self.padding)
        self.results = {number: self.like.new_empty(length) for number in self.received}
        self.arrivals = {number: self.post([number]) for number in self.received if self.program["buffered"]}
        for number, root in self.shared.items():  # in the order in which each rank sends
            if root != self.rank:
                width, is_first = self.like.shape[-1], self.program["operations"][number][0] == S
                width = 1 + 2 * width * self.with_gradient if is_first else width
                self.results[number] = self.like.new_empty(*self.like.shape[:-1], width)
                self.arrivals[number] = self.broadcast(number)
        gc.collect()
        dist.barrier()
        start = torch.tensor([time.perf_counter() + _AHEAD_S], dtype=torch.float64, device=self.device)
        if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]:  # ranks of one machine share a clock
            dist.broadcast(start, 0)
        self.zero = float(start)
        sleep_until(self.zero)
        for what, entry in self.program["rows"][self.rank]:
            getattr(self, what)(entry)
        self.finish("sums")
        seconds = time.perf_counter() - self.zero
        self.finish(*self.tasks)
        return self.log, seconds, self.peak

    # ---- operations ----

    def cell(self, numbers):
        """Run the operations of one cell once all have their inputs; then hand on their results."""
        operations, results = [self.program["operations"][number] for number in numbers], []
        values = [self.value(number, *operation[::2]) for number, operation in zip(numbers, operations, strict=True)]
        start = time.perf_counter() - self.zero
        for number, operation, value in zip(numbers, operations, values, strict=True):
            results.append(self.operate(*operation[:4], value))
            self.log.append((number, start, start := time.perf_counter() - self.zero))
        for number, result in zip(numbers, results, strict=True):
            is_sent = number in self.messages
            self.results[number] = torch.cat([result.detach().flatten(), self.padding]) if is_sent else result
            if number in self.shared:
                self.results[number] = result.detach()
                self.broadcast(number)
        settle(self.device)
        self.log[-1] = (*self.log[-1][:2], time.perf_counter() - self.zero)

    def value(self, number, kind, microbatch, source):
        """The input of an operation, if it has one."""
        if number in self.barriers:
            for maker in self.arrivals.keys() & self.barriers[number]:
                self.arrivals[maker]()
            return torch.stack([self.results[maker] for maker in self.barriers[number]])
        if source == NONE:
            return self.data[microbatch][0] if kind == F else None
        if source in self.arrivals:
            self.arrivals[source]()
        return self.results.pop(source).flatten()[: self.like.numel()].view(self.like.shape)

    def operate(self, kind, stage, microbatch, replica, value):
        """Run one operation, for as long as its stage sleeps; return its result."""
        until = time.perf_counter() + self.program["seconds"][kind][stage]
        key, result = (replica, stage, microbatch), None
        kept = self.kept[replica, stage, microbatch // self.slices]
        if self.homes[stage][replica] != self.rank:
            raise RuntimeError(f"stage {stage} of replica {replica} is not placed here")
        if kind == F:
            value = value.detach().requires_grad_(stage > 0)
            result = stages.forward(self.modules[stage], value, kept if self.slices > 1 else None)
            if stage == self.last and not self.barriers:
                result = stages.loss(result, self.data[microbatch][1], self.workload, self.program["microbatches"])
            self.stored[key] = value, result
            self.peak = max(self.peak, sum(self.program["shares"][stage] for _, stage, _ in self.stored))
        elif kind == S:
            shard, targets = self.modules[self.last + 1 + stage], self.data[microbatch][1]
            result, self.shards[key] = stages.shard_forward(shard, value[0], targets, stage, self.with_gradient)
        elif kind == T:
            result = stages.shard_backward(self.shards.pop(key), value, self.token_share)
        elif kind == R:
            self.reduce(stage)
        elif kind == O:
            self.update(stage)
        if kind in (B, I):
            inputs, output = self.stored[key]
            if stage == self.last and self.barriers:
                value = stages.last_gradient(value, self.token_share) if self.with_gradient else value.sum(0)
            self.stored[key] = stages.backward(output, value, kept)
            result = inputs.grad
        if kind in (B, W):
            stages.add_weight_gradients(self.stored.pop(key))
        settle(self.device)
        sleep_until(until)
        return result

    def reduce(self, stage):
        """Sum the gradients of a stage over all ranks; once, after the last of the replicas that are placed here."""
        self.reductions[stage] += 1
        if not self.groups or self.reductions[stage] < self.homes[stage].count(self.rank):
            return
        gradients = [weight.grad for weight in self.modules[stage].parameters()]
        total, seconds = parameters_to_vector(gradients), self.program["seconds"][R][stage]
        request = dist.all_reduce(total, group=self.groups[stage], async_op=True)

        def arrive():
            request.wait()
            vector_to_parameters(total, gradients)
            settle(self.device)
            time.sleep(seconds)

        arrive() if self.program["allreduce"] == "blocking" else self.start("sums", arrive)

    def update(self, stage):
        """Take the optimizer step of a stage, with gradients that are summed; once, for all of its replicas."""
        while self.groups and self.reductions[stage] < self.homes[stage].count(self.rank):
            self.reduce(stage)
        self.finish("sums")
        if stage not in self.stepped:
            self.stepped.add(stage)
            stages.step(self.modules[stage], RATE)

    def complete(self):
        """Sum and update what the row has not; return each stage with its gradients and weights."""
        for stage in self.modules:
            self.update(stage)
        return [(stage, *stages.gradients_and_weights(module)) for stage, module in self.modules.items()]

    # ---- messages ----

    def start(self, thread, function, *arguments):
        """Call a function on a thread, after all that was started there."""
        self.tasks[thread] = self.threads[thread].submit(function, *arguments)
        return self.tasks[thread]

    def finish(self, *threads):
        """Wait until some threads have done everything."""
        for thread in self.tasks.keys() & threads:
            self.tasks[thread].result()

    def post(self, numbers):
        """Begin to exchange messages with one peer; return a function that waits until that is done."""
        posted = []
        for number in numbers:
            peer, sends, _, _, group = self.messages[number]
            message = self.results.pop(number) if sends else self.results[number]
            posted.append(dist.P2POp(dist.isend if sends else dist.irecv, message, peer, group))
        requests = dist.batch_isend_irecv(posted)

        def wait(_kept=posted):  # with the messages in it
            while requests:
                requests.pop().wait()
            settle(self.device)

        return wait

    def broadcast(self, number):
        """Begin to pass a result on to all ranks, beside computing; return a function that waits until that is done."""
        root = self.shared[number]
        return dist.broadcast(self.results[number], root, self.roots[root], async_op=True).wait

    def move(self, numbers, start=0.0, seconds=0.0):
        """Exchange messages from a moment on, and wait until that is done and for some seconds more."""
        sleep_until(start)
        self.post(numbers)()
        time.sleep(seconds)

    def send(self, number):
        """Send a message, which occupies nothing (``latency``), its link (``overlapped``) or the rank."""
        peer, _, busy, delay, _ = self.messages[number]
        leaves = time.perf_counter() + busy
        if self.program["p2p"] == "overlapped":
            leaves = self.free_at[peer] = max(leaves, self.free_at[peer] + busy)
        sent = self.start(peer, self.move, [number], leaves + delay)
        if self.program["p2p"] == "blocking_send":
            sent.result()

    def exchange(self, numbers):
        """Exchange a batch of messages with one peer, those of one direction one after another (``rendezvous``)."""
        seconds = Counter()
        for _, sends, busy, delay, _ in map(self.messages.get, numbers):
            seconds[sends] += busy + delay
        self.move(numbers, seconds=max(seconds.values()))

    def issue(self, number):
        """Begin a transfer once the thread of the peer is free, a sender by the link's delay later (``streams``)."""
        peer, sends, busy, delay, _ = self.messages[number]
        self.finish(peer)
        time.sleep(delay * sends)
        self.arrivals[number] = self.start(peer, self.move, [number], 0.0, busy).result


def relative_error(values, expected):
    """The largest difference between two lists of tensors, relative to the largest number of each; NaN if one is."""
    pairs = zip(values, expected, strict=True)
    errors = [(value - other).abs().max() / other.abs().max().clamp(min=1e-30) for value, other in pairs]
    return float(torch.stack(errors).max())


def execute(job, say=print, method="env://"):
    """Execute a job as one of several processes, which torchrun or `launch` has started.

    Parameters
    ----------
    job : dict
        As `comparison.execute` makes it.
    say : callable
        Told the number of each program that has ended.
    method : str
        How the processes find each other.

    Returns
    -------
    list of dict, or None on all ranks but the first
        For each program ``steps``, the sorted seconds of its iterations; ``operations``, those of the median one: rank,
        number, start and end; ``first``, those of the one that is not timed; ``peaks`` of the ranks; and
        ``gradient_error`` and ``weight_error``, relative differences from one process, or None.

    Raises
    ------
    RuntimeError
        If they are not as many as the tables have ranks, or there is no GPU.
    """
    rank, world, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), len(job["programs"][0]["rows"])
    if world != size:
        raise RuntimeError(f"world size = {world}: the tables have {size} ranks; start as many processes")
    if is_cuda := job["device"] == "cuda":
        # no kernel waits for a receive on another link, be it in a queue or to be loaded
        os.environ.update({"CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"})
        if not torch.cuda.is_available():
            raise RuntimeError("device = cuda: PyTorch finds no GPU; pass cpu")
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, job["dtype"]))
    groups, results, references = Groups(job), [], {}
    dist.init_process_group("nccl" if is_cuda else "gloo", method, groups.limit, size, rank)
    sys.setswitchinterval(1e-4)  # so that a thread that sends does not wait for one that computes
    gc.disable()
    gc.freeze()  # collecting between iterations is then quick
    for number, program in enumerate(job["programs"]):
        state = Rank(job, program, rank, groups)
        runs = [state.iteration()]
        complete = state.complete() if program["checked"] else []
        runs += [state.iteration() for _ in range(program["repetitions"])]
        gathered = [None] * size if rank == 0 else None
        dist.gather_object((runs, complete), gathered)
        if rank == 0:
            key = len(program["shares"]), program["microbatches"], tuple(program["blocks"]), state.workload["shards"]
            if program["checked"] and key not in references:
                references[key] = stages.reference(state.workload, *key[:2], groups.device, RATE)
            results.append(_result(*zip(*gathered, strict=True), references.get(key)))
            say(number)
    dist.barrier()
    dist.destroy_process_group()
    return results if rank == 0 else None


def _result(runs, complete, reference):
    """The result of a program, from those of all ranks."""
    first, *timed = zip(*runs, strict=True)
    timed = sorted(timed or [first], key=lambda ranks: max(seconds for _, seconds, _ in ranks))
    median = timed[(len(timed) - 1) // 2]
    pairs = [(values, reference[stage]) for of_rank in complete for stage, *values in of_rank]
    errors = [list(map(relative_error, values, expected)) for values, expected in pairs]
    gradient_error, weight_error = torch.tensor(errors).amax(0).tolist() if errors else (None, None)
    operations = [[(rank, *row) for rank, (log, *_) in enumerate(ranks) for row in log] for ranks in (first, median)]
    return {
        "steps": [max(seconds for _, seconds, _ in ranks) for ranks in timed], "first": operations[0],
        "operations": operations[1], "peaks": [peak for *_, peak in median], "gradient_error": gradient_error,
        "weight_error": weight_error,
    }  # fmt: skip


def main(folder):
    """Execute the job of a folder in processes of this machine, forked so that PyTorch is loaded once."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    try:
        start_processes(_run, (folder, job, os.dup(0)), len(job["programs"][0]["rows"]), start_method="fork")
    except ProcessExitedException as error:
        file, killed = folder / f"error-{error.error_index}", f"was killed by {error.signal_name}"
        ended = killed if error.signal_name else f"has failed: {file.read_text(encoding='utf-8')}"
        sys.exit(f"rank {error.error_index}: {ended}")


def _run(rank, folder, job, life_line):
    """Be one of these processes, and leave the results or an error in the folder."""
    threading.Thread(target=lambda: [os.read(life_line, 1), os._exit(1)], daemon=True).start()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        results = execute(job, lambda number: (folder / f"done-{number}").touch(), f"file://{folder}/store")
        (folder / f"results-{rank}.json").write_text(json.dumps(results), encoding="utf-8")
    except Exception as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        time.sleep("by peer" in text)  # causes before effects
        (folder / f"error-{rank}").write_text(text, encoding="utf-8")
        os._exit(2)
    os._exit(0)  # what PyTorch loads may complain when Python ends


def script(job):
    """Execute a job under torchrun; print each table's time, and write what `ppmodel replay` reads."""
    try:
        results = execute(job, lambda number: print(f"{number + 1} of {len(job['programs'])}", file=sys.stderr))
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
    main(Path(sys.argv[1]))
