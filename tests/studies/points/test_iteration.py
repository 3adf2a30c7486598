"""A whole iteration under a layout: its parts, its rates, and what it is without one."""

import json
from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from refusals import refused

import ppmodel as pp
from ppmodel.cli import main
from ppmodel.clusters.specs import LayoutSpec
from ppmodel.errors import PPModelError
from ppmodel.studies.points import MEMORY_PARTS, PARTS, compared

LLAMA = {"model": "llama3_70b", "system": "dgx_h100_nodes", "microbatches": 16}


EXTREME = st.sampled_from([1e-4, 0.03, 1.0, 50.0, 1e4])
CHANGES = {
    "bandwidth": EXTREME, "latency": EXTREME, "compute": EXTREME, "memory": EXTREME, "straggler": EXTREME,
    "backward": EXTREME, "collectives": EXTREME, "overlap": EXTREME, "network": st.booleans(),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::ppmodel.studies.points.NoEffectWarning")
@settings(max_examples=60, deadline=None)
@given(
    schedule=st.sampled_from(pp.names()), change=st.fixed_dictionaries({}, optional=CHANGES),
    tp=st.sampled_from([1, 2, 8]), dp=st.integers(1, 4), cp=st.sampled_from([1, 2]), zero=st.integers(0, 3),
    sequence_parallel=st.booleans(), overlap=st.booleans(), recompute=st.sampled_from(["none", "selective", "full"]),
    p2p=st.sampled_from(["latency", "overlapped", "blocking_recv", "blocking"]),
)  # fmt: skip
@example(schedule="dualpipe", change={"backward": 0.01}, tp=8, dp=2, cp=1, zero=3, sequence_parallel=False,
         overlap=False, recompute="full", p2p="blocking")  # fmt: skip
def test_parts_sum_to_the_iteration(schedule, change, p2p, overlap, **layout):
    """Seconds by part sum to the iteration, bytes by part to the peak, none is negative, with any constants."""
    overlaps, changes = {"overlap_gradients": overlap, "overlap_parameters": overlap}, pp.Change(**change)
    _, (row,) = compared(schedule, 4, p2p=p2p, changes=changes, **overlaps, **LLAMA, **layout)
    if row["refused"] is None:  # as an order for extreme times is
        assert sum(row[name] for name in PARTS) == pytest.approx(row["iteration_s"], rel=1e-9)
        assert sum(row[name] for name in MEMORY_PARTS) == pytest.approx(row["peak_memory_bytes"], rel=1e-12)
        assert min(row[name] for name in PARTS) >= -1e-9 * row["iteration_s"]
        assert row["iteration_s"] >= row["makespan_s"]


@pytest.mark.parametrize("allreduce", ["overlapped", "blocking", "overlapped_links"])
def test_a_layout_reduces_gradients_after_the_pipeline(allreduce):
    """Beside a layout, all-reduces in the pipeline are refused: the iteration would be shorter than its pipeline."""
    with refused(PPModelError, "allreduce", "cannot be combined with a layout"):
        pp.compare(["chimera", "dualpipe"], 4, allreduce=["excluded", allreduce], tp=4, overlap_gradients=True, **LLAMA)


@pytest.mark.parametrize("schedule", ["dualpipe", "stp"])
def test_what_a_factor_saves_beyond_the_collectives_it_saves_of_computing(schedule):
    """Pairs at half their time: nothing is exposed in them, they compute less, and all sums up."""
    plain, halved = pp.compare([schedule], pp=4, tp=8, changes=[pp.Change(), pp.Change(overlap=0.5)], **LLAMA).iloc
    assert halved["computing_s"] < 0.8 * plain["computing_s"]
    assert halved["tensor_s"] < plain["tensor_s"]
    for row in (plain, halved):
        assert sum(row[name] for name in PARTS) == pytest.approx(row["iteration_s"], rel=1e-9)
        assert min(row[name] for name in PARTS) >= -1e-9 * row["iteration_s"]


def test_a_row_of_compare_is_the_run():
    """`compare` and `simulate` give the same numbers for the same layout, and their columns are the same."""
    frame = pp.compare("1f1b", 4, tp=[4, 8], dp=2, zero=1, **LLAMA)
    run = pp.simulate("1f1b", 4, tp=8, dp=2, zero=1, **LLAMA)
    row = run.to_dict()
    assert frame["tp"].tolist() == [4, 8]
    assert {name: frame.iloc[1][name] for name in PARTS} == {name: row[name] for name in PARTS}
    assert set(frame.columns) - {"refused"} == row.keys()  # a part that is no column would be missing in the sum
    assert run.iteration_s == row["iteration_s"] > run.makespan_s


def test_rates_follow_from_the_iteration():
    """Tokens and utilization are those of the whole iteration, over all GPUs."""
    run = pp.simulate("1f1b", 4, tp=8, dp=2, **LLAMA)
    row = run.to_dict()
    tokens = 2 * 16 * run.model.sequence
    assert row["gpus"] == 64
    assert row["global_batch"] == 32
    assert row["tokens_per_s_per_gpu"] == pytest.approx(tokens / 64 / row["iteration_s"])
    dense = 6 * 70.6e9 + 12 * 80 * 8192 * 8192  # FLOP of a token: 6N + 12lhs
    assert row["model_flops_utilization"] == pytest.approx(row["tokens_per_s_per_gpu"] * dense / 989.4e12, rel=0.02)


def test_the_layout_says_the_size():
    """Ranks and microbatches that are not given follow from the layout; what contradicts it is refused."""
    layout = {"pp": 4, "tp": 8, "dp": 2, "global_batch": 64}
    size = {"model": "llama3_70b", "system": "dgx_h100_nodes", "layout": layout}
    assert pp.simulate("1f1b", **size).table.num_microbatches == 32
    with refused(PPModelError, "global_batch", "must be dp"):
        pp.simulate("1f1b", 4, 8, **size)


def test_the_command_tells_where_the_time_goes(capsys):
    """One command prints iteration time, utilization, parts and memory."""
    command = "simulate 1f1b --pp 4 --model llama3_70b --system h100 --tp 8 --dp 2 --zero 1 --sequence-parallel"
    command += " --global-batch 64"
    assert main(command.split()) == 0
    said = capsys.readouterr().out
    assert "64 GPUs: pp 4, tp 8, cp 1, ep 1, dp 2, zero 1" in said
    assert "tensor parallel" in said
    assert "without masked scores" in said
    assert "of 79.65: fits\n" in said
    assert main([*command.split(), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert sum(row[name] for name in PARTS) == pytest.approx(row["iteration_s"], rel=1e-9)
    assert len(row["memory_by_rank"]) == row["pp"]
    assert max(held["peak_memory_bytes"] for held in row["memory_by_rank"]) == row["peak_memory_bytes"]
    for held in row["memory_by_rank"]:
        assert sum(held[name] for name in MEMORY_PARTS) == pytest.approx(held["peak_memory_bytes"], rel=1e-12)


def test_the_chunks_of_a_layout_are_those_of_the_schedule(capsys):
    """A published layout names chunks and layers; the schedule that has chunks takes them."""
    line = "simulate interleaved-1f1b --layout llama3_405b_8k --model llama3_405b --system h100"
    assert main(line.split()) == 0
    assert "16 ranks, 128 stages" in capsys.readouterr().out


SAVING = [
    {"zero": 1}, {"zero": 2}, {"zero": 3}, {"recompute": "light"}, {"recompute": "full"}, {"cp": 2}, {"cp": 4},
    {"kept_precision": "fp8"},
]  # fmt: skip


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    schedule=st.sampled_from(["1f1b", "gpipe", "interleaved-1f1b", "chimera", "dualpipev", "zb-h1", "stp"]),
    model=st.sampled_from(["llama3_8b", "gpt3_175b", "mixtral_8x7b"]),
    system=st.sampled_from(["h100_mlperf", "a100_bigscience", "dgx_h100_nodes"]),
    tp=st.sampled_from([1, 2, 4]), dp=st.sampled_from([1, 2, 4]), zero=st.integers(0, 2),
    recompute=st.sampled_from(["none", "selective"]), change=st.sampled_from(SAVING),
)  # fmt: skip
def test_what_saves_memory_adds_none(schedule, model, system, tp, dp, zero, recompute, change):
    """With even layers: ZeRO, context parallelism and, unless the backward is split, recomputation."""
    layout = LayoutSpec(tp=tp, dp=dp, zero=zero, recompute=recompute, layers="even")
    assume(change.get("zero", 3) > zero)
    assume(not ("recompute" in change and schedule in ("zb-h1", "stp", "dualpipev")))
    peaks = []
    for changed in (layout, replace(layout, **change)):
        run = pp.simulate(schedule, 4, 12, model=model, system=system, layout=changed)
        peaks.append(run.to_dict()["peak_memory_bytes"])
    assert peaks[1] <= peaks[0] * (1 + 1e-12)
