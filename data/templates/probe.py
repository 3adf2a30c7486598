"""Times the kernels, copies, launches and collectives of a machine, for `ppmodel measure`. Needs PyTorch alone.

On one GPU or CPU:        python probe.py
On all GPUs of a node:    torchrun --nproc-per-node 8 probe.py
On two nodes, on each:    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 probe.py

It takes at most about two minutes and writes probe.json on the first rank. Then, with a system of the same peaks:
ppmodel measure --system h100 --probe probe.json --out mine.yaml
"""

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import time
import warnings

import torch
import torch.distributed as dist
from torch.nn import functional

SECTION_S = 15
"""Seconds for each kind of timing; what is left of its sizes then, the largest, is left out."""
TIMING_S, MOST_REPEATS, OPERANDS = 0.2, 50, 4
MIB = 2**20
GPU_SIZES = {
    "rows": (1024, 2048, 4096, 8192, 16384), "widths": (1024, 2048, 4096, 8192, 16384), "passes": (8192, 4096, 32768),
    "heads": 32, "head_size": 128, "tokens": 16384, "sequences": (1024, 2048, 4096, 8192, 16384),
    "copies": (64, 256, 1024), "least_flops": 2e10,  # others end before the next one is launched
    "collectives": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
}  # fmt: skip
CPU_SIZES = {
    "rows": (128, 256, 512, 1024, 2048), "widths": (128, 256, 512, 1024, 2048), "passes": (1024, 512, 8192),
    "heads": 8, "head_size": 64, "tokens": 1024, "sequences": (128, 256, 512, 1024),
    "copies": (16, 64, 256), "least_flops": 0, "collectives": (0.0625, 0.25, 1, 2, 4, 8, 16, 32, 64),
}  # fmt: skip


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(function, device, group=None):
    """The median time of a call: on a GPU of batches of calls, so that launches are hidden as in training.

    With a group, all its ranks make the same number of calls, and start each together.
    """
    for _ in range(2):
        function()
    synchronize(device)
    start = time.perf_counter()
    function()
    synchronize(device)
    repeats = torch.tensor(max(3, min(MOST_REPEATS, int(TIMING_S / max(time.perf_counter() - start, 1e-6)))))
    if group is not None:
        repeats = repeats.to(device)
        dist.broadcast(repeats, dist.get_global_rank(group, 0), group=group)
    batch, times = 1 if device.type == "cpu" or group is not None else 10, []
    for _ in range(max(3, int(repeats) // batch)):
        if group is not None:
            dist.barrier(group)
        synchronize(device)
        start = time.perf_counter()
        for _ in range(batch):
            function()
        synchronize(device)
        times.append((time.perf_counter() - start) / batch)
    return statistics.median(times)


def timed(cases, device):
    """Time cases, each a row and a function, from the cheapest on until the section's seconds are over."""
    rows, start = [], time.perf_counter()
    for row, prepare in cases:
        if time.perf_counter() - start > SECTION_S:
            break
        try:
            rows.append(row | {"seconds": seconds_of(prepare(), device)})
        except (RuntimeError, NotImplementedError) as error:  # too little memory, or no such kernel on this device
            print(f"left out {row}: {str(error).splitlines()[0]}", flush=True)
    return rows


def products(device, sizes, precisions):
    """Cases of matrix products."""
    dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32}

    def product(precision, m, n, k):
        dtype, scale = torch.float8_e4m3fn if precision == "fp8" else dtypes[precision], torch.ones((), device=device)
        operands = itertools.cycle(  # several, because in training those of the last product leave the cache
            [tuple(torch.randn(rows, k, device=device).to(dtype) for rows in (m, n)) for _ in range(OPERANDS)]
        )

        def multiply():
            left, right = next(operands)
            if precision == "fp8":
                return torch._scaled_mm(left, right.t(), scale, scale, out_dtype=torch.bfloat16)
            return left @ right.t()

        return multiply

    shapes = [(m, n, k) for m in sizes["rows"] for n in sizes["widths"] for k in sizes["widths"]]
    for m, n, k in sorted(shapes, key=lambda shape: shape[0] * shape[1] * shape[2]):
        for precision in precisions if 2 * m * n * k >= sizes["least_flops"] else ():
            row = {"m": m, "n": n, "k": k, "precision": precision}
            yield row, lambda p=precision, m=m, n=n, k=k: product(p, m, n, k)


def attention(device, sizes, dtype):
    """Cases of causal attention, forward and backward, with the same number of tokens at every length."""
    heads, size = sizes["heads"], sizes["head_size"]

    def prepared(batch, sequence, backward):
        shape = batch, heads, sequence, size
        inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=backward) for _ in range(3)]

        def forward():
            return functional.scaled_dot_product_attention(*inputs, is_causal=True)

        if not backward:
            return forward
        result, gradient = forward(), torch.randn(shape, device=device, dtype=dtype)
        return lambda: torch.autograd.grad(result, inputs, gradient, retain_graph=True)

    for sequence in sizes["sequences"]:
        for direction in ("forward", "backward"):
            batch = sizes["tokens"] // sequence
            row = {"batch": batch, "heads": heads, "sequence": sequence, "head_size": size, "causal": True}
            yield row | {"pass": direction}, lambda b=batch, s=sequence, d=direction: prepared(b, s, d == "backward")


def passes(device, sizes, dtype):
    """Cases of passes over memory, forward and backward together, with the bytes that `ppmodel` counts for them."""
    rows, width, vocabulary = sizes["passes"]

    def both(function, *shape):
        x, y = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(2))
        return lambda: torch.autograd.grad(function(x), x, y if function is not loss else None)

    def loss(logits):
        return functional.cross_entropy(logits.float(), torch.zeros(rows, device=device, dtype=torch.long))

    def copied(size):
        x, y = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
        return lambda: x.copy_(y)

    def updated(tensors=8):
        weights = [torch.zeros(rows, width, device=device, requires_grad=True) for _ in range(tensors)]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        return torch.optim.Adam(weights).step

    value, elements = dtype.itemsize, rows * width
    norm = torch.nn.LayerNorm(width, device=device, dtype=dtype)
    for mib in sizes["copies"]:
        yield {"kernel": "copy", "bytes": 2 * mib * MIB}, lambda n=mib * MIB: copied(n)
    yield {"kernel": "stream", "bytes": 7 * value * elements}, lambda: both(norm, rows, width)
    yield {"kernel": "activation", "bytes": 20 * value * elements}, lambda: both(functional.gelu, rows, 4 * width)
    yield {"kernel": "loss", "bytes": 2 * (value + 4) * rows * vocabulary}, lambda: both(loss, rows, vocabulary)
    yield {"kernel": "optimizer", "bytes": 8 * 24 * elements}, updated


def host(device, blocks=8, repeats=20):
    """Seconds to launch the forward of a transformer block, and half of its backward: the block itself is tiny."""
    options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
    layers = [torch.nn.TransformerEncoderLayer(64, 4, 256, device=device, **options) for _ in range(blocks)]
    model, x = torch.nn.Sequential(*layers), torch.randn(1, 8, 64, device=device)
    rows = []
    for repeat in range(repeats + 3):
        synchronize(device)
        start = time.perf_counter()
        loss = model(x).sum()
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        if repeat >= 3:
            rows.append({"phase": "forward", "seconds": (forward - start) / blocks})
            rows += [{"phase": "half of the backward", "seconds": (backward - forward) / blocks / 2}] * 2
    return rows


def collectives(device, sizes, dtype):
    """Time collectives among the ranks of each node and among all, and messages in pairs, on all ranks at once."""
    rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    groups = {(local, 1): [range(first, first + local) for first in range(0, world, local)]}
    if world > local:
        groups[world, world // local] = [range(world)]
        groups[world // local, world // local] = [range(first, world, local) for first in range(local)]
    rows = []
    for (gpus, nodes), members in groups.items():
        made = [dist.new_group(list(ranks)) for ranks in members]
        group = next(group for group, ranks in zip(made, members, strict=True) if rank in ranks)
        start = time.perf_counter()
        for mib in sizes["collectives"] if gpus > 1 else ():
            is_over = torch.tensor(float(time.perf_counter() - start > SECTION_S), device=device)
            dist.broadcast(is_over, 0)  # all ranks stop together
            if is_over:
                break
            count = max(int(mib * MIB) // dtype.itemsize // gpus, 1)
            cases = collective_cases(count, group, device, dtype)
            if nodes not in (1, gpus):  # some neighbours share a node, and some do not
                del cases["sendrecv"]
            for op, function in cases.items():
                try:
                    seconds = seconds_of(function, device, group)
                except (RuntimeError, NotImplementedError, ValueError) as error:  # not in this backend
                    if rank == 0 and mib == sizes["collectives"][0]:
                        print(f"left out {op}: {str(error).splitlines()[0]}", flush=True)
                    continue
                size = count * gpus * dtype.itemsize
                rows.append({"op": op, "gpus": gpus, "nodes": nodes, "bytes": size, "seconds": seconds})
    return rows


def collective_cases(count, group, device, dtype):
    """Collectives and messages of a group, by name, with so many numbers from each rank."""
    whole, part = (torch.zeros(n, device=device, dtype=dtype) for n in (count * dist.get_world_size(group), count))
    other = torch.zeros_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "alltoall": lambda: dist.all_to_all_single(other, whole, group=group),
        "sendrecv": lambda: shift(whole, other, group),
    }


def shift(sent, received, group):
    """Send to the next rank of a group, and receive from the previous."""
    ranks = dist.get_process_group_ranks(group)
    place = ranks.index(dist.get_rank())
    sending = dist.P2POp(dist.isend, sent, ranks[(place + 1) % len(ranks)], group)
    for request in dist.batch_isend_irecv([sending, dist.P2POp(dist.irecv, received, ranks[place - 1], group)]):
        request.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="probe.json", help="where the first rank writes (default: %(default)s)")
    out, begin = parser.parse_args().out, time.perf_counter()
    is_gpu, rank = torch.cuda.is_available(), int(os.environ.get("RANK", 0))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if is_gpu else torch.device("cpu")
    if is_gpu:
        torch.cuda.set_device(device)
    warnings.simplefilter("ignore", FutureWarning)  # collectives have new names in PyTorch 2.13, old ones in others
    sizes, dtype, precisions = CPU_SIZES, torch.float32, ["fp32"]
    if is_gpu:
        sizes, dtype, precisions = GPU_SIZES, torch.bfloat16, ["bf16"]
        precisions += ["fp8"] if torch.cuda.get_device_capability(device) >= (8, 9) else []
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if is_gpu else "gloo", timeout=datetime.timedelta(minutes=5))
    result = {
        "probe": 1, "device": torch.cuda.get_device_name(device) if is_gpu else "cpu",
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__, "threads": torch.get_num_threads(), "date": str(datetime.date.today()),
        "products": timed(products(device, sizes, precisions), device),
        "attention": timed(attention(device, sizes, dtype), device),
        "passes": timed(passes(device, sizes, dtype), device), "host": host(device),
    }  # fmt: skip
    if dist.is_initialized():
        dist.barrier()
        result["collectives"] = collectives(device, sizes, dtype)
        dist.destroy_process_group()
    if rank == 0:
        with open(out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
        print(f"{out}: written after {time.perf_counter() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
