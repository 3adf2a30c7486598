"""Published runs of vocabulary parallelism on A100 (Yeung et al., 2025, Table 5) beside what is predicted from sizes.

Models are like GPT-3, with fused attention. Their scripts leave out dropout, recomputation and the fusion of the loss
(sail-sg/VocabularyParallelism, 6191c3bf, pretrain_gpt.sh). The authors count 320 TFLOP/s for a GPU: so the MFU of runs
gives the iterations that their artefact prints. Redis gives blocks of the last rank to those right before it, as its
stage times say. No time is fitted.
"""

from dataclasses import replace
from functools import cache

import pandas as pd

from ppbook.measured import zero_bubble
from ppmodel.clusters.costs import model_flops
from ppmodel.clusters.specs import DATA, load_framework, load_system
from ppmodel.studies.points.grid import resolve_point

PEAK_FLOPS, LOSS_BYTES = 320e12, {"Vocab-1": 60, "Vocab-2": 66}
# 52 are Megatron-LM's: a cast, maximum, difference, exponent, sum and quotient (38), and a product and a cast backward
# (14). Behind its barrier, T multiplies all once more (8); with one barrier, S has a cast of its own (6).
"""What they count for a GPU; and bytes of a logit that S and T move, where a whole loss moves 52, a fused one 12."""

_DIVIDED = {"Vocab-1": "vocab-1f1b:barriers=2", "Vocab-2": "vocab-1f1b", "Interlaced": "interlaced"}


@cache
def predicted():
    """Simulate every run of the table.

    Returns
    -------
    DataFrame
        Columns ``method, gpus, seq, vocab``; ``measured_s, predicted_s, error`` of an iteration, and ``measured_gib,
        predicted_gib, memory_error`` of the peak without what a system reserves, missing where there is no number;
        ``fits``, as predicted.
    """
    rows, system = pd.read_csv(DATA / "reference/schedules_measured/vocab_parallel_tables.csv"), load_system("a100")
    rows["method"], results = rows.note.str.extract(r": ([\w-]+)")[0], []
    for row in rows.itertuples():
        unfused = replace(load_framework("megatron"), loss_passes=LOSS_BYTES.get(row.method, 52) / 12)
        given = zero_bubble.like_gpt3(row, row.pp) | {"system": system, "framework": unfused, "recompute": "none"}
        model = replace(given["model"], vocabulary=1000 * int(row.vocab[:-1]), attention="fused", dropout=False)
        given["model"] = model
        if row.method == "Redis":
            *first, last = resolve_point("1f1b", row.pp, **given | {"layers": "balanced"}).run().costs.stages.blocks
            given["layers"] = [*sorted(first), last]
        numbers = resolve_point(_DIVIDED.get(row.method, "1f1b"), row.pp, **given).run().to_dict()
        measured_s = model_flops(model, sequences=row.m) / (row.value / 100 * PEAK_FLOPS * row.pp)
        held_gib = (numbers["peak_memory_bytes"] - system.reserve_bytes) / 2**30
        results.append((measured_s, numbers["iteration_s"], row.memory, held_gib, numbers["fits"]))
    names = "measured_s", "predicted_s", "measured_gib", "predicted_gib", "fits"
    frame = rows[["method", "gpus", "seq", "vocab"]].join(pd.DataFrame(results, columns=names))
    frame["error"] = frame.predicted_s / frame.measured_s - 1
    return frame.assign(memory_error=frame.predicted_gib / frame.measured_gib - 1)
