"""Training steps of a small transformer over gloo: what `ppmodel measure` and a prediction of it are held against.

    OMP_NUM_THREADS=1 sudo -E chrt -r 20 torchrun --nproc-per-node 2 -m benchmarks.own_step

trains the model of ``data/reference/own_step/model.yaml`` in fp32 with Adam, first as two replicas and then as two
stages in 1F1B, and writes the seconds of each step to ``runs.json`` there. Needs the extra `execute`.
"""

import json
import platform
import time
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "reference" / "own_step"
HIDDEN, HEADS, BLOCKS, VOCABULARY, SEQUENCE = 512, 8, 4, 8192, 512
MICROBATCHES, SEQUENCES = 4, 2
WARM_UP, STEPS = 2, 10


def stage(torch, blocks, is_first, is_last):
    """Some blocks of the model, with the embedding if they are its first, and the output projection if its last."""
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
            self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
            self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

        def forward(self, x):
            batch, tokens, _ = x.shape
            q, k, v = self.qkv(self.norms[0](x)).view(batch, tokens, HEADS, -1).transpose(1, 2).chunk(3, dim=-1)
            met = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(met.transpose(1, 2).reshape(batch, tokens, HIDDEN))
            return x + self.down(functional.gelu(self.up(self.norms[1](x))))

    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            if is_first:
                self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
                self.positions = nn.Parameter(torch.zeros(SEQUENCE, HIDDEN))
            self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
            if is_last:
                self.norm, self.projection = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)

        def forward(self, x):
            x = self.blocks(self.embedding(x) + self.positions if is_first else x)
            return self.projection(self.norm(x)) if is_last else x

    return Stage()


def loss(logits, labels):
    """Cross-entropy, mean over tokens."""
    from torch.nn import functional

    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def step_of(torch, name, rank, ranks):
    """A function that trains one step, on its own data or as one of the stages."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    tokens, labels = torch.randint(VOCABULARY, (2, MICROBATCHES * SEQUENCES, SEQUENCE))
    if name == "pipeline":
        module = stage(torch, BLOCKS // ranks, rank == 0, rank == ranks - 1)
        place = PipelineStage(module, rank, ranks, torch.device("cpu"))
        schedule = Schedule1F1B(place, MICROBATCHES, loss_fn=loss)

        def passes():
            schedule.step(tokens) if rank == 0 else schedule.step(target=labels)
    else:
        module = stage(torch, BLOCKS, True, True)
        replica = torch.nn.parallel.DistributedDataParallel(module)

        def passes():
            for number, rows in enumerate(torch.arange(MICROBATCHES * SEQUENCES).split(SEQUENCES)):
                replica.require_backward_grad_sync = number == MICROBATCHES - 1
                (loss(replica(tokens[rows]), labels[rows]) / MICROBATCHES).backward()

    optimizer = torch.optim.Adam(module.parameters())

    def step():
        optimizer.zero_grad()
        passes()
        optimizer.step()

    return step


def main():
    """Train both, and write the steps on the first rank."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    runs = {}
    for name in ("replicas", "pipeline"):
        step, seconds = step_of(torch, name, dist.get_rank(), dist.get_world_size()), []
        for _ in range(WARM_UP + STEPS):
            dist.barrier()
            start = time.perf_counter()
            step()
            dist.barrier()
            seconds.append(round(time.perf_counter() - start, 4))
        runs[name] = seconds[WARM_UP:]
    if dist.get_rank() == 0:
        record = {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": platform.machine()}
        (FOLDER / "runs.json").write_text(json.dumps(record | {"seconds": runs}, indent=1) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
