"""The planner: a page of its own, which works from a file, with answers of plans from a grid."""

import json
from itertools import product

from ppbook import ROOT
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.studies.planning import planned

PAGE = "planner.html"
GRID = [
    ({"llama3_8b": [256, 512]}, ["h100", "h200", "b200"], [8, 16, 32, 64]),
    ({"qwen3_32b": [512], "llama3_70b": [512, 1024]}, ["h100", "h200", "b200"], [64, 128, 256]),
    ({"qwen3_30b_a3b": [512]}, ["h100", "h200", "b200"], [32, 64]),
]
"""Models with their sequences per iteration, systems and numbers of GPUs: every combination is a question."""

SCHEDULES = "1f1b", "interleaved-1f1b"
"""What public frameworks run on most clusters; all schedules would take minutes for a large model."""

_ROWS = 12
_SIZES = "pp", "tp", "cp", "ep", "dp"


def write_planner(path, grid=GRID):
    """Write the page.

    Parameters
    ----------
    path : Path
        Of the page.
    grid : list of (dict, list, list)
        As in `GRID`.
    """
    questions = [
        (model, system, gpus, batch)
        for models, systems, counts in grid
        for model, batches in models.items()
        for system, gpus, batch in product(systems, counts, batches)
    ]
    models, systems, counts, batches = (list(dict.fromkeys(values)) for values in zip(*questions, strict=True))
    asked = {
        "model": [{"value": name, "title": load_model(name).title} for name in models],
        "system": [{"value": name, "title": load_system(name).title.partition(",")[0]} for name in systems],
        "gpus": [{"value": count, "title": count} for count in sorted(counts)],
        "global_batch": [{"value": batch, "title": batch} for batch in sorted(batches)],
    }
    answers = {" ".join(map(str, question)): _answer(*question) for question in questions}
    data = json.dumps({"asked": asked, "answers": answers}, separators=(",", ":"), allow_nan=False)
    template = (ROOT / "book" / "planner" / "planner.html").read_text(encoding="utf-8")
    path.write_text(template.replace("{{ data }}", data.replace("<", "\\u003c")), encoding="utf-8")


def _answer(model, system, gpus, global_batch):
    """The answers to a question, and the steps from the first; or why there is none."""
    more = f"--schedules {' '.join(SCHEDULES)}"
    try:
        plan = planned(model, system, gpus, global_batch, schedules=SCHEDULES)
    except PPModelError as error:
        return {"more": more, "refused": str(error)}
    frame, steps = plan.frame[:_ROWS], plan.steps()
    steps = steps[steps.iteration_s.notna()]
    numbers = [str(place + 1) for place in plan.proposed if place < len(frame)]
    advice = f"Run rows {', '.join(numbers)} first: too close to tell." if len(numbers) > 1 else ""
    rows = [_row(row, _name(row), row.over_best) for _, row in frame.iterrows()]
    return {
        "more": more, "advice": advice, "capacity": frame.memory_capacity_bytes[0] / 2**30, "rows": rows,
        "steps": [_row(row, row.step, row.over) for _, row in steps.iterrows()],
    }  # fmt: skip


def _row(row, name, over):
    """What the page shows of a row, in plain values; what is not known is None."""
    numbers = {
        "seconds": row.iteration_s, "over": over, "fastest_s": row.fastest_s, "slowest_s": row.slowest_s,
        "rate": row.tokens_per_s_per_gpu, "mfu": row.model_flops_utilization, "gib": row.peak_memory_bytes / 2**30,
    }  # fmt: skip
    known = {key: None if number != number else float(f"{number:.6g}") for key, number in numbers.items()}
    return known | {"name": name, "fit": row.fit}


def _name(row):
    sizes = ", ".join(f"{name} {row[name]}" for name in _SIZES if row[name] > 1)
    schedule = row.label if row.pp > 1 else "no pipeline"
    recompute = "" if row.recompute == "none" else f", recompute {row.recompute}"
    return f"{schedule}, {sizes or 'one GPU'}, microbatches of {row.microbatch_size}, ZeRO {row.zero}{recompute}"
