"""Options that change nothing: each changes the answer, is refused, or is named."""

import warnings

import numpy as np
import pytest

import ppmodel as pp
from ppmodel.cli import main
from ppmodel.clusters.specs.layout import LAYOUT_KEYWORDS, LAYOUT_OPTIONS
from ppmodel.errors import PPModelError
from ppmodel.studies.points import NUMBERS, NoEffectWarning, compared
from ppmodel.studies.points.columns import column_names

LLAMA = {"model": "llama3_8b", "system": "dgx_h100"}
LARGE = {"model": "llama3_70b", "system": "dgx_h100_nodes"}
BASES = {
    "plain": ("1f1b", LLAMA | {"layout": {}}),
    "one rank": ("gpipe", LLAMA | {"pp": 1, "layout": {}}),
    "tensor": ("1f1b", LLAMA | {"tp": 8}),
    "context": ("interleaved-1f1b", LLAMA | {"tp": 2, "cp": 2}),
    "data": ("zb-h1", LLAMA | {"dp": 4}),
    "sharded": ("gpipe", LLAMA | {"tp": 2, "dp": 4, "zero": 3}),
    "pairs": ("stp", LLAMA | {"tp": 4}),
    "experts": ("dualpipe", {"model": "deepseek_v3", "system": "dgx_h100_nodes", "ep": 8, "dp": 8}),
    "far experts": (
        "1f1b",
        {"model": "deepseek_v3", "system": "dgx_h100_nodes", "ep": 16, "dp": 32, "dispatcher": "hybridep"},
    ),
    "offloading": ("interleaved-1f1b", LLAMA | {"tp": 2, "offload": 0.5}),
    "replicas": ("chimera", LARGE | {"tp": 4, "dp": 2}),
    "slices": ("seq1f1b", LLAMA | {"layout": {}}),
    "lengths": ("1f1b", LLAMA | {"lengths": "1,2,5"}),
    "fp8": ("1f1b", LLAMA | {"system": "h100", "tp": 2, "precision": "fp8"}),
    "unfused": ("1f1b", {"model": "bloom_176b", "system": "h100_playbook", "tp": 4}),
}
OPTIONS = {
    "tp": 2, "cp": 2, "ep": 2, "etp": 2, "dp": 2, "gpus": 64, "microbatch_size": 2, "global_batch": 48,
    "sequence": 1024, "sequence_parallel": True, "expert_imbalance": 1.5,
    "expert_nodes": 1, "dispatcher": "deepep", "dispatch_precision": "fp8", "kept_precision": "fp8",
    "zero": 2, "recompute": "full", "precision": "fp8", "causal": False, "context_exchange": "all-gather",
    "overlap_tensor": True, "overlap_backward": True, "overlap_gradients": True, "overlap_parameters": True,
    "pairing": "best", "send_results": "when_ready", "offload": 0.5, "offload_warm_up": 0.5, "offload_chunks": "all",
    "slicing": "work", "quantised_weights": "alone", "cuda_graphs": "full", "lengths": "1,2", "arrangement": "paired",
    "layers": "even", "order": "tp-cp-ep-pp-dp", "p2p": "blocking", "allreduce": "blocking",
}  # fmt: skip
CONDITIONS = [name for name, option in LAYOUT_OPTIONS.items() if option.needs and name != "kept_precision"] + [
    "p2p",
    "layers",
]
"""Options that have an effect in some runs only; in fp8, which is tried here, `kept_precision` always has one."""


def answer(schedule, given):
    """The numbers of a row, what was named as without effect, and whether it is refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _, (row,) = compared(schedule, **{"pp": 4, "microbatches": 16} | given)
        except PPModelError:
            return {}, set(), True
    numbers = {name: row.get(name) for name in (*NUMBERS, *column_names("iteration"))}
    return numbers, {warning.message.field for warning in caught}, row["refused"] is not None


def test_every_option_is_tried():
    """Those of a layout, and the semantics."""
    assert set(OPTIONS) == {*LAYOUT_KEYWORDS, "p2p", "allreduce"}


@pytest.fixture(scope="module")
def outcomes():
    """For each base and option: whether the answer is refused, whether it differs, and whether the option is named."""
    outcomes = {}
    for base, (schedule, given) in BASES.items():
        before, idle, refused = answer(schedule, given)
        assert not refused
        assert not idle
        for name, value in OPTIONS.items():
            if name == "global_batch":
                value *= given.get("dp", 1)
            if given.get(name) == value:
                continue
            after, named, refused = answer(schedule, given | {name: value})
            pairs = [(before[key], after[key]) for key in before] if not refused else []
            differs = any(left != right and not np.isclose(left or 0, right or 0, rtol=1e-9) for left, right in pairs)
            outcomes[base, name] = refused, differs, name in named
    return outcomes


def test_an_option_changes_the_answer_is_refused_or_is_named(outcomes):
    """No option is taken in silence; what is named changes nothing, unless it is to save memory."""
    for (base, name), (refused, differs, is_named) in outcomes.items():
        assert refused or differs or is_named, (base, name)
        assert not (differs and is_named) or name.startswith("offload"), (base, name)


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_holds_for_some_bases_only(outcomes, name):
    """Where it holds, some answer differs; where it does not, the option is named."""
    _, differ, named = zip(*(outcomes[base, name] for base in BASES if (base, name) in outcomes), strict=True)
    assert any(differ)
    assert any(named)


def test_an_all_reduce_needs_a_table_that_sums_gradients():
    """Of replicas, as Chimera's; and it must take time."""
    size = {"forward": 1, "backward": 2, "allreduce": "blocking"}
    pp.simulate("chimera", 4, 8, reduction=0.5, **size)
    for schedule, seconds in (("1f1b", 0.5), ("chimera", 0)):
        with pytest.warns(NoEffectWarning, match="allreduce = blocking"):
            pp.simulate(schedule, 4, 8, reduction=seconds, **size)


@pytest.mark.parametrize(("model", "lacking", "has"), [
    ("llama3_70b", "moe_act+mla_up_proj", "moe_act+mlp"), ("qwen3_30b_a3b", "shared_experts", "moe_act"),
    ("deepseek_v3", "none", "mla_up_proj"),
])  # fmt: skip
def test_modules_that_a_model_lacks_do_not_run_again(model, lacking, has):
    """Of several, one that it has is enough."""
    given = {"model": model, "system": "h100", "pp": 4, "microbatches": 8, "tp": 1}
    assert answer("1f1b", given | {"recompute": lacking})[1] == {"recompute"}
    assert answer("1f1b", given | {"recompute": has})[1] == set()


def test_a_grid_names_an_option_once():
    """An option that matters to one of many points is not named; a list of values never is."""
    size = {"microbatches": 8, **LLAMA}
    pp.compare(["gpipe", "1f1b"], [2, 4], tp=[1, 2], sequence_parallel=True, **size)
    pp.compare("1f1b", 4, sequence_parallel=[False, True], **size)
    with pytest.warns(NoEffectWarning) as caught:
        frame = pp.compare(["gpipe", "1f1b"], [2, 4], dp=[1, 2], layout={"sequence_parallel": True}, **size)
    (warning,) = caught
    assert str(warning.message) == "sequence_parallel = true: changes nothing here; leave it out"
    assert len(frame) == 8


def test_the_default_is_the_frameworks():
    """Under a framework whose transfers occupy the receiver, `overlapped` is a choice like others."""
    size = {"microbatches": 8, **LLAMA, "framework": "nanotron", "layout": {}}
    with pytest.warns(NoEffectWarning, match="p2p = overlapped: changes nothing"):
        pp.simulate("gpipe", 1, p2p="overlapped", **size)
    pp.simulate("gpipe", 1, p2p="blocking_recv", **size)
    pp.simulate("gpipe", 4, p2p="overlapped", **size)


def test_a_sweep_names_them_once(tmp_path, capsys):
    """Neither an option that matters to one of its points, nor one with several values, nor a value of a named file."""
    specification, out = tmp_path / "sweep.yaml", tmp_path / "out.parquet"
    base = "schedules: [gpipe, 1f1b]\npp: [2, 4]\nmicrobatches: 8\nmodels: llama3_8b\nsystems: dgx_h100\n"
    specification.write_text(
        base + "layouts: [{dp: [1, 2], tp: 1, sequence_parallel: true, zero: 1, send_results: [at_end, when_ready]}]\n"
    )
    note = "note: sequence_parallel = true: changes nothing here; leave it out"
    for _ in range(2):
        assert main(["sweep", str(specification), "--out", str(out)]) == 0
        assert [line for line in capsys.readouterr().err.splitlines() if "note" in line] == [note]


def test_offloading_that_saves_nothing_is_named():
    """It costs time: the most loaded rank has nothing to copy, or copies while memory is fullest."""
    with pytest.warns(NoEffectWarning, match="offload = 0.5: saves no memory"):
        run = pp.simulate("chimera", 4, 16, offload=0.5, tp=4, dp=2, **LARGE)
    assert run.iteration.parts["offload_s"] >= 0


def test_the_command_names_them_on_standard_error(capsys):
    """By the option as typed, without a mark in what a pipe reads."""
    command = "simulate 1f1b --pp 4 --microbatches 8 --model llama3_8b --system dgx_h100 --json"
    assert main(command.split()) == 0
    plain = capsys.readouterr()
    assert main(f"{command} --tp 1 --sequence-parallel --context-exchange all-gather".split()) == 0
    named = capsys.readouterr()
    assert plain.err == ""
    assert named.err.splitlines() == [
        "note: --context-exchange = all-gather: changes nothing here; leave it out",
        "note: --sequence-parallel = true: changes nothing here; leave it out",
    ]
    assert named.out.startswith("{")
