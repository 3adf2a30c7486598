"""Write the orders of PyTorch's schedules as it gives them; run where torch is installed: python make.py [FOLDER]."""

import csv
import io
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

FOLDER = Path(__file__).parent
PAIRS = ((1, 1), (1, 3), (2, 2), (2, 3), (2, 4), (2, 7), (3, 3), (3, 4), (3, 6), (3, 8), (4, 4), (4, 6), (4, 8), (4, 9),
         (4, 12), (5, 5), (5, 10), (6, 6), (6, 13), (7, 8), (8, 8), (8, 11), (8, 16))  # fmt: skip
FEW = ((2, 1), (3, 2), (4, 2), (4, 3), (6, 4), (8, 5))
V_SHAPED = ((1, 2), (1, 4), (2, 4), (2, 5), (2, 6), (2, 9), (3, 6), (3, 7), (3, 8), (3, 12), (4, 8), (4, 9), (4, 10),
            (4, 12), (4, 16), (5, 10), (5, 11), (5, 14), (6, 12), (6, 13), (6, 15), (7, 14), (7, 17), (8, 16),
            (8, 17))  # fmt: skip
SHORT = ((1, 1), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (3, 4), (3, 5), (4, 1), (4, 4), (4, 5), (4, 6), (4, 7), (5, 3),
         (5, 9), (6, 5), (6, 11), (8, 4), (8, 8))  # fmt: skip
IN_ROUNDS = ((2, 2), (2, 4), (2, 6), (3, 3), (3, 4), (3, 6), (3, 8), (4, 4), (4, 6), (4, 8), (4, 10), (4, 12), (5, 5),
             (5, 10), (6, 6), (6, 7), (8, 8), (8, 10), (8, 16))  # fmt: skip


def with_chunks(*sizes):
    """Sizes with the number of stages of each rank, fewer of them where the tables are long."""
    return [(s, b, v) for (s, b), v in product(sizes, (1, 2, 3, 4)) if s * b * v <= 144 or (v == 2 and s * b <= 128)]


CASES = {
    "gpipe": ("ScheduleGPipe", [(*size, 1) for size in PAIRS + FEW]),
    "1f1b": ("Schedule1F1B", [(*size, 1) for size in PAIRS]),
    "1f1b-run": ("Schedule1F1B", [(*size, 1) for size in PAIRS]),
    "interleaved-1f1b": ("ScheduleInterleaved1F1B", with_chunks((1, 3), *FEW, *IN_ROUNDS)),
    "looped-bfs": ("ScheduleLoopedBFS", with_chunks(*PAIRS[::2], *FEW)),
    "interleaved-zb": ("ScheduleInterleavedZeroBubble", with_chunks((1, 3), *FEW, *IN_ROUNDS)),
    "zb-v": ("ScheduleZBVZeroBubble", [(*size, 2) for size in V_SHAPED + SHORT]),
    "dualpipev": ("ScheduleDualPipeV", [(*size, 2) for size in V_SHAPED]),
}


def stages(num_ranks, chunks, rank=0, **more):
    """Stand-ins for the stages of a rank: what a schedule asks of them to find its order, without a process group."""
    same = {"num_stages": num_ranks * chunks, "group_size": num_ranks, "group_rank": rank, "submod": None}
    return [SimpleNamespace(stage_index=rank + chunk * num_ranks, **same, **more) for chunk in range(chunks)]


def planned(schedule_class, num_ranks, num_microbatches, chunks):
    """Each rank's computing operations and idle steps, as the schedule's constructor plans them."""
    from torch.distributed.pipelining import schedules

    made = getattr(schedules, schedule_class)
    single = issubclass(made, schedules.PipelineScheduleSingle)
    held = stages(num_ranks, chunks)
    order = made(held[0] if single else held, num_microbatches).pipeline_order
    return [[action for action in order[rank] if action is None or action.is_compute_op] for rank in sorted(order)]


def run(schedule_class, num_ranks, num_microbatches, chunks):
    """Each rank's operations in the order in which `step` calls them, where a schedule does not run its plan."""
    from torch.distributed.pipelining import schedules

    rows = []
    for rank in range(num_ranks):
        calls = []
        (stage,) = stages(num_ranks, chunks, rank, **_recorder(rank, calls), is_last=rank == num_ranks - 1)
        schedule = getattr(schedules, schedule_class)(stage, num_microbatches)
        schedule._initialize_stage = lambda *_: None
        schedule._step_microbatches()
        rows.append(calls)
    return rows


def _recorder(rank, calls):
    """The methods of a stage that computes nothing, sends nothing and notes what it is asked for."""
    transfers = ("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops", "perform_reduce_grad")
    return {
        "forward_one_chunk": lambda microbatch, *_, **__: calls.append(f"{rank}F{microbatch}"),
        "backward_one_chunk": lambda microbatch, **_: calls.append(f"{rank}B{microbatch}"),
        **dict.fromkeys(transfers, lambda _: []),
    }


def text(name):
    """The text of a file: a head line for each size, then PyTorch's CSV rows, one a rank."""
    (schedule_class, sizes), rows_of = CASES[name], run if name.endswith("-run") else planned
    out = io.StringIO()
    for num_ranks, num_microbatches, chunks in sizes:
        out.write(f"# S={num_ranks} B={num_microbatches} chunks={chunks}\n")
        rows = rows_of(schedule_class, num_ranks, num_microbatches, chunks)
        csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def main(folder=FOLDER):
    """Write every file anew."""
    for name in CASES:
        (Path(folder) / f"{name}.csv").write_text(text(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
