"""Answers judged again: random plans through `compare`, and random operations through a simulator of a few lines."""

import csv
import io
import json
import math
import random
import warnings

from ppmodel import build
from ppmodel.clusters.specs import framework_names, launcher_names, model_names, system_names
from ppmodel.clusters.specs.layout import MULTIPLIED, STAGE_GROUPS
from ppmodel.errors import PPModelError
from ppmodel.schedules import names

from .attempt import Attack

_SEED = 31
FIXED = {
    "pp": (1, 2, 4, 8), "tp": (1, 2, 4, 8), "cp": (1, 2), "ep": (1, 2, 8), "etp": (1, 2), "dp": (1, 2, 4),
    "zero": (0, 1, 2, 3), "microbatch_size": (1, 2, 3), "recompute": ("none", "selective", "light", "full", 1),
    "layers": ("even", "balanced"), "chunks": (2, 3),
    "sequence_parallel": ("true", "false"), "offload": (0.5, 1.0),
    "precision": ("fp8", "bf16"),
}  # fmt: skip
_KEPT = (
    *STAGE_GROUPS,
    "ep",
    "dp",
    "microbatch_size",
    "zero",
    "recompute",
    "layers",
    "sequence_parallel",
    "order",
    "precision",
)


def plans(count=120, seed=_SEED):
    """Questions to `plan`: each answer fits, is what was fixed, and takes the same seconds and bytes in `compare`."""
    chance = random.Random(seed)
    for number in range(count):
        gpus = chance.choice([1, 2, 3, 4, 6, 8, 8, 12, 16, 16, 32])
        batch = gpus * chance.choice([1, 2, 4, 8]) if chance.random() < 0.9 else chance.randrange(1, 99)
        given = {"model": chance.choice(model_names()), "system": chance.choice(system_names())}
        if chance.random() < 0.3:
            given["framework"] = chance.choice(framework_names())
        if chance.random() < 0.2:
            given["link"] = chance.choice(["0-1:delay=10ms", "1>0:bandwidth=1GB/s", "0-9:delay=.1s"])
        fixed = {name: chance.choice(values) for name, values in FIXED.items() if chance.random() < 0.1}
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        words += [word for name, value in fixed.items() for word in ("--fix", f"{name}={value}")]
        words += ["--schedules", ",".join(chance.sample(list(names()), chance.choice([1, 1, 2, 4])))]
        if chance.random() < 0.2:
            words += ["--memory-limit", f"{chance.choice([20, 40, 79.5, 141])} GiB"]
        words += ["--launch", chance.choice(launcher_names())]
        words = ["plan", *words, "--gpus", str(gpus), "--global-batch", str(batch), "--json"]
        holds = _planned(given, fixed, gpus, batch)
        yield Attack("plans", f"{' '.join(words)} ({number})", words, codes=(0, 2), seconds=120, holds=holds)


def _planned(given, fixed, gpus, batch):
    def holds(_, done):
        if done.code:
            return None
        written = json.loads(done.out)
        if any("$" in argument for argument in written["launch"]["arguments"]):
            return "a launch argument without its value"
        for row in written["answers"][:3]:
            fault = _wrong(row, given, fixed, gpus, batch)
            if fault:
                return f"{fault}: {row['schedule']} {row['options']} {[row[name] for name in ('pp', *_KEPT)]}"
        return None

    return holds


def _wrong(row, given, fixed, gpus, batch):
    """What is wrong with an answer."""
    if math.prod(row[name] for name in ("pp", *MULTIPLIED)) != gpus:
        return "other GPUs"
    if row["dp"] * row["microbatch_size"] * row["microbatches"] != batch:
        return "another batch"
    if row["peak_memory_bytes"] > row["memory_capacity_bytes"]:
        return "does not fit"
    low, high = row["fastest_s"], row["slowest_s"]
    if low is not None and low == low and not low <= row["iteration_s"] <= high:
        return "out of its range"
    if other := [name for name in fixed.keys() & {"pp", *_KEPT} if str(row[name]).lower() != str(fixed[name]).lower()]:
        return f"fixed, and another: {other}"
    again = _compared(row, given, fixed, batch)
    for name in ("iteration_s", "peak_memory_bytes"):
        if isinstance(again.refused, str) or not math.isclose(again[name], row[name], rel_tol=1e-9):
            return f"{name} {row[name]} in plan, {again[name]} in compare ({again.refused})"
    return None


def _compared(row, given, fixed, batch):
    from ppmodel import compare
    from ppmodel.schedules.cases import case_of_data

    case = case_of_data(row["schedule"] + (f":{row['options'].replace(' ', ',')}" if row["options"] else ""))
    layout = {name: row[name] for name in _KEPT} | {"global_batch": batch}
    layout |= {"offload": fixed["offload"]} if "offload" in fixed else {}
    if row["etp"] and row["etp"] == row["etp"] and row["etp"] != row["tp"]:
        layout["etp"] = int(row["etp"])
    if str(layout["recompute"]).isdecimal():
        layout["recompute"] = int(layout["recompute"])
    door = {name: value for name, value in given.items() if name != "link"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which of these have no effect is known
        return compare(case, row["pp"], **door, links=given.get("link"), **layout).iloc[0]


# ---- replays -------------------------------------------------------------------------------------

CASES = [
    "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "interleaved-1f1b:chunks=2", "zb-v", "v-half",
    "looped-bfs:chunks=2", "interleaved-zb:chunks=2",
]  # fmt: skip
CELLS = [
    "", "0", "-1", "1e-320", "1e308", "1e400", "nan", "inf", "1,5", "1_0", "0x1", "=1+1", "1 s", "８", "9" * 400,
    "None",
    "0F0", "0B0", "0W0", "F", "B", "F0", "99F0", "0F99", "0F0@1", "0R", "PP:0F0", "Forward 0", "4096", "\x1b[2J", '"',
    "a\nb",
]  # fmt: skip


def replays(count=250, seed=_SEED):
    """Operations of random seconds: replayed as a simulator of a few lines has them; every other file has odd cells."""
    from ppmodel.schedules.cases import case_of_data

    chance = random.Random(seed)
    for number in range(count):
        text, ranks, batch, comm = (
            chance.choice(CASES),
            chance.choice([2, 3, 4]),
            chance.choice([4, 6, 8]),
            chance.random(),
        )
        case = case_of_data(text)
        try:
            table = build(case.name, ranks, batch, **dict(case.options))
        except PPModelError:  # not defined at this size
            continue
        seconds = [chance.choice([1, 2, 0.5]) * (1 + chance.random()) for _ in range(table.num_operations)]
        rows = [[str(table.rank[at]), str(table.op(at)), repr(time_s)] for at, time_s in enumerate(seconds)]
        for _ in range(chance.choice([1, 2]) if number % 2 else 0):
            chance.choice(rows)[chance.randrange(3)] = chance.choice(CELLS)
        chance.shuffle(rows)
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([["rank", "operation", "seconds"], *rows])
        line = (
            f"replay mine.csv --schedule {text} --pp {ranks} --microbatches {batch} --p2p latency --comm {comm} --json"
        )
        expected = None if number % 2 else _end_s(table, seconds, comm)
        codes, files = (0, 2) if number % 2 else (0,), {"mine.csv": out.getvalue()}
        yield Attack("replays", str(number), line.split(), files, codes=codes, holds=_as(expected))


def _end_s(table, seconds, comm):
    """The makespan: what is next on a rank starts once its inputs have arrived, until nothing is left."""
    orders = [[at for at in range(table.num_operations) if table.rank[at] == rank] for rank in range(table.num_ranks)]
    sources, free_s, ends = table.dependencies.source, [0.0] * table.num_ranks, {}
    while any(orders):
        for rank, order in enumerate(orders):
            while order:
                needed = [source for source in sources[order[0]].ravel().tolist() if source >= 0]
                if not ends.keys() >= set(needed):
                    break
                arrivals = [ends[source] + comm * (table.rank[source] != rank) for source in needed]
                free_s[rank] = ends[order[0]] = max([free_s[rank], *arrivals]) + seconds[order[0]]
                order.pop(0)
    return max(free_s)


def _as(expected):
    def holds(_, done):
        if done.code:
            return None
        row = json.loads(done.out)[0]
        causes = sum(row[name] for name in ("bubble_s", "slower_ranks_s", "transfers_s", "head_of_line_s"))
        if not math.isclose(causes, row["idle_s"], rel_tol=1e-6, abs_tol=1e-6 * row["makespan_s"]):
            return f"causes of {causes} s for {row['idle_s']} s"
        is_same = expected is None or math.isclose(row["makespan_s"], expected, rel_tol=1e-9)
        return None if is_same else f"{row['makespan_s']} s, and {expected} s by the plain simulator"

    return holds


__all__ = ["plans", "replays"]
