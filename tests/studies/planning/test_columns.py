"""Candidates as columns cost what each costs as a point, and their bounds hold."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from ppmodel.clusters.specs import load_model
from ppmodel.clusters.specs.layout import ORDERS
from ppmodel.clusters.specs.lengths import SLICINGS
from ppmodel.errors import PPModelError
from ppmodel.schedules.cases import built
from ppmodel.simulation import makespans
from ppmodel.studies.planning import Candidate, asked
from ppmodel.studies.planning.candidate_search import Limits, entries_of
from ppmodel.studies.planning.candidates import all_sizes
from ppmodel.studies.planning.columns import Columns
from ppmodel.studies.planning.fitting import Rows, is_timed, point_of
from ppmodel.studies.points.iteration import memory_of, step_graph

COLUMNS = (
    "forward_s", "input_grad_s", "weight_grad_s", "activation_bytes", "weight_grad_bytes", "logits_bytes",
    "working_bytes", "parameters", "expert_parameters", "optimizer_s", "gather_s",
)  # fmt: skip

_DIVIDED, _SLICED = ["vocab-1f1b", "interlaced"], ["seq1f1b"]


@pytest.mark.parametrize(("model", "system", "gpus", "framework", "schedules", "fixed"), [
    ("llama3_8b", "h100", 8, "megatron", None, {}), ("mixtral_8x7b", "h200", 16, None, None, {}),
    ("deepseek_v2", "b200_simumax", 64, None, None, {}), ("zero_bubble_1_5b", "a100", 8, "nanotron", None, {}),
    ("llama3_8b", "h100", 8, "megatron", None, {"causal": False, "pp": 4}),
    ("llama3_8b", "h100", 16, "megatron", _DIVIDED, {}), ("deepseek_v2", "b200_simumax", 64, None, _DIVIDED, {}),
    ("llama3_8b", "h100", 16, "megatron", _SLICED, {}), ("deepseek_v2", "b200_simumax", 64, None, _SLICED, {}),
    ("zero_bubble_1_5b", "a100", 8, "nanotron", _SLICED, {}),
    ("llama3_8b", "h100", 8, None, _SLICED, {"causal": False}),
    ("qwen3_30b_a3b", "gb300", 16, "deepspeed", ["1f1b"], {"expert_imbalance": 3.0, "tp": 1}),
    ("moonlight_16b_a3b", "gb300", 4, "megatron", ["combined-1f1b"], {"lengths": "4,1,1", "pp": 1}),
    (replace(load_model("nemotron4_340b"), blocks=8), "a100", 8, "nemo", ["zb-v"], {"pp": 2}),
])  # fmt: skip
def test_columns_cost_what_points_cost(model, system, gpus, framework, schedules, fixed):
    """Every column of stages and the bytes to 1e-12; no simulation is below the bounds of time and memory."""
    sequence = 2**15 if schedules is _SLICED else None  # so that slices differ
    asks = {"framework": framework, "schedules": schedules, "fix": fixed, "sequence": sequence}
    question = asked(model, system, gpus, 2 * gpus, **asks)
    question = replace(question, system=replace(question.system, memory_capacity_bytes=1e15))
    columns, random, simulated, rows = Columns(question, all_sizes(question)), Random(0), 0, []
    for entry in random.sample(entries_of(question, columns), 12):
        table = columns.table(entry.case, entry.place)
        for way in columns.ways(table, entry.place) if table else ():
            _, zero, layers, *_ = way
            recompute, limits = random.choice(["none", "selective", "full", 1, 2]), Limits(question)
            slicing = random.choice(SLICINGS[: table.slices])
            ways = zero, recompute, layers, ORDERS[0]
            candidate = Candidate(entry.case, entry.sizes, True, *ways, 0.0, np.inf, slicing)
            try:
                point, whole = point_of(question, candidate), built(entry.case, *question.size(entry.sizes))
                costs = point.costs_of(whole)
            except PPModelError:
                continue
            before = [row for row in rows[-1:] if row[-1].table.has_shards == table.has_shards]
            rows = [*before, *[(0, entry, *way)] * 2]
            fitting, all_rows = Rows(columns, rows, limits), np.arange(len(rows))
            again = recompute if isinstance(recompute, str) else np.full(len(rows), recompute)
            priced = fitting.costs(all_rows, again)
            of_last = priced.spread.row == priced.places[-1]
            assert priced.places[-1] == priced.places[-2]
            assert priced.stages.blocks[of_last].tolist() == costs.stages.blocks.tolist()
            for name in COLUMNS:
                of_stages = getattr(priced.stages, name)[of_last]
                np.testing.assert_allclose(of_stages, getattr(costs.stages, name), rtol=1e-12)
            np.testing.assert_allclose(priced.stages.parts_s[of_last, :, :2], costs.stages.parts_s[..., :2], rtol=1e-12)
            graph = step_graph(point.graph, point.layout.overlap_gradients)
            seconds = makespans(graph, [point.costs])[0]
            assert max(entry.at_least_s, fitting.bounds(priced, fitting.has_pairs)[-1]) <= seconds
            if is_timed(columns, entry, slicing):
                simulated += bool(schedules)
                continue
            peak_bytes = memory_of(point).total.max()
            assert fitting.peaks(priced)[-2:] == pytest.approx(peak_bytes, rel=1e-12)
            fitting.most_s = np.full(len(rows), seconds)
            assert fitting.least_bytes(priced)[-1] <= peak_bytes * (1 + 1e-9)
            if recompute != "selective":
                tight = replace(question.system, memory_capacity_bytes=peak_bytes * (1 + 1e-9))
                fitting.question = replace(question, system=tight)
                assert fitting.may_fit(all_rows)[-1] == all_rows[-1]
            simulated += 1
    assert simulated > 4
