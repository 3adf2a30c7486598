"""Run layouts: what a file, a mapping or keywords may say, and how layers are cut into stages."""

import re
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused, require_refused

from ppmodel import build, compare, simulate
from ppmodel.cli import main
from ppmodel.clusters.costs import check_layout, slowest_over_mean, stage_blocks
from ppmodel.clusters.costs.partition import LayerTimes, stage_layers
from ppmodel.clusters.specs import DATA, LayoutSpec, load_layout, load_model, load_system, packaged, parse_layers
from ppmodel.clusters.specs.layers import format_layers
from ppmodel.clusters.specs.layout import LAYOUT_KEYWORDS
from ppmodel.clusters.specs.layouts import as_layouts
from ppmodel.errors import CostError, PPModelError, SpecificationError
from ppmodel.studies.points import compared
from ppmodel.studies.sweep import load_sweep
from ppmodel.studies.sweep.rows import compute_rows

BAD = Path(__file__).parents[1] / "bad" / "layouts"
REFUSED = {
    "ep": (2, "ep", "must divide tp x cp x dp"),
    "exchange": (None, "context_exchange.value", "must be 'ring' or 'all-gather'"),
    "fraction": (None, "pp.value", "must be a whole number"),
    "global_batch": (6, "global_batch", "must be a multiple"),
    "gpus": (2, "gpus", "must be tp"),
    "gpus_of_a_rank": (2, "gpus", "must be a multiple"),
    "huge": (None, "dp.value", "must be less"),
    "kind": (None, "tp.kind", "must be 'stated', 'digest', 'inferred'"),
    "layers_bracket": (None, "layers", "has characters that stand for", "write, for example, Et*2"),
    "layers_empty": (None, "layers", "has no transformer layer t", "write, for example, Et*2"),
    "layers_endless": (None, "layers", "has more than 100000 layers", "write, for example, Et*2"),
    "layers_fractions": (None, "layers", "must be balanced, even"),
    "layers_letter": (None, "layers", "has characters that stand for", "write, for example, Et*2"),
    "layers_loss_early": (None, "layers", "must end with the loss", "write, for example, Et*2"),
    "layers_mapping": (None, "layers", "must be balanced, even"),
    "layers_losses": (None, "layers", "has 2 losses L for 2 MTP layers m", "write, for example, Et*2"),
    "layers_mtp_early": (None, "layers", "has a transformer layer t", "write, for example, Et*2"),
    "layers_negative": (None, "layers", "must be balanced, even"),
    "layers_no_embedding": (None, "layers", "must begin with its only", "write, for example, Et*2"),
    "layers_no_loss": (None, "layers", "must end with the loss", "write, for example, Et*2"),
    "layers_no_times": (None, "layers", "has characters that stand for", "write, for example, Et*2"),
    "layers_none": (None, "layers", "must be balanced, even"),
    "layers_two_losses": (None, "layers", "must end with the loss", "write, for example, Et*2"),
    "layers_word": (None, "layers", "must be balanced, even"),
    "list": (None, "document", "must be a mapping"),
    "megatron": (2, "tensor_model_parallel_size", "is not a known key", "tp"),
    "misspelt": (2, "tq", "is not a known key", "tp"),
    "negative_dp": (None, "dp.value", "must be greater"),
    "no_source": (2, "tp.source", "is missing"),
    "no_title": (None, "title", "is missing"),
    "overlap_number": (None, "overlap_tensor.value", "must be a valid boolean", "write true or false"),
    "plain": (2, "tp", "must be a mapping", "write 'tp: {value: 8, kind: ..., source: ...}'"),
    "precision": (None, "precision.value", "must be 'bf16', 'fp8',"),
    "recompute_fraction": (2, "recompute", "must be 'none'"),
    "recompute_negative": (2, "recompute", "must be 'none'"),
    "recompute_word": (2, "recompute", "must be 'none'"),
    "switch_for_number": (None, "tp.value", "must be a whole number"),
    "text_for_number": (None, "tp.value", "must be a whole number"),
    "twice": (4, "tp", "is given twice"),
    "unit": (None, "tp.unit", "is not a known key"),
    "word_for_switch": (None, "sequence_parallel.value", "must be a valid boolean"),
    "zero_stage": (None, "zero.value", "must be less"),
    "zero_tp": (None, "tp.value", "must be greater"),
    "zero_word": (None, "zero.value", "must be a whole number"),
}

LLAMA, PAPER = load_model("llama3_70b"), load_model("paper")
H100 = load_system("dgx_h100")
NEVER_FITS = {
    "tp = 16": ({"tp": 16}, "tp", "must divide mlp_hidden"),
    "heads": ({"tp": 3}, "tp", "must divide heads"),
    "kv_heads": ({"tp": 4}, "tp", "must divide kv_heads"),
    "cp": ({"cp": 3}, "cp", "must divide half of the sequence"),
    "sequence": ({"tp": 8, "sequence_parallel": True}, "sequence_parallel", "needs a sequence divisible by"),
    "ep": ({"ep": 2, "dp": 2}, "ep", "has no effect"),
    "etp": ({"etp": 1}, "etp", "has no effect"),
    "expert_imbalance": ({"expert_imbalance": 1.5}, "expert_imbalance", "has no effect"),
    "fp8": ({"precision": "fp8"}, "precision", "needs a system with a peak in fp8"),
    "pp": ({"pp": 8}, "pp", "is the layout's; the schedule's is 4"),
    "microbatches": ({"dp": 2, "global_batch": 32}, "global_batch", "must be dp (2) x"),
    "gpus": ({"dp": 2, "gpus": 16}, "gpus", "= 8"),
}
ODD_MODELS = {
    "tp = 16": {"mlp_hidden": 28680}, "kv_heads": {"heads": 60, "kv_heads": 6}, "sequence": {"sequence": 8196}
}  # fmt: skip
NEVER_CUT = {
    (20, 20, 40): "must be 4 stages with 80 blocks, but has 3",
    (20, 20, 20, 19): "but has 4 with 79",
    "Et*20|t*20|t*20|t*21L": "but has 4 with 81",
    "Et*20|t*20|t*20|t*20mL": "has 1 MTP layers m",
}


# ---- files, mappings, keywords -------------------------------------------------------------------


def test_every_bad_file_has_its_message():
    """The folder of bad layouts and the messages here name the same files, forty and more."""
    assert {path.stem for path in BAD.iterdir()} == set(REFUSED)
    assert len(REFUSED) >= 40


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused(name):
    """Each broken file is refused in one line with file, line, field, value, rule and remedy."""
    require_refused(load_layout, BAD / f"{name}.yaml", SpecificationError, REFUSED[name])


def test_the_template_is_a_layout_with_every_key():
    """It names every field, in a comment where two would exclude each other, and loads as it stands."""
    text = (DATA / "templates" / "layout.yaml").read_text()
    layout = load_layout(DATA / "templates" / "layout.yaml")
    assert (layout.gpus, layout.microbatches, layout.layers) == (64, 512, "balanced")
    keys = {field.name for field in fields(LayoutSpec)} - {"name", "title", "provenance"}
    assert {key for key in keys if f"\n{key}:" in text or f"\n# {key}:" in text} == keys


def test_every_field_of_a_layout_is_a_keyword():
    """But what the schedule says itself, and the names."""
    own = {field.name for field in fields(LayoutSpec)}
    assert set(LAYOUT_KEYWORDS) == own - {"name", "title", "pp", "chunks", "provenance"}


@pytest.mark.parametrize("name", packaged("layouts"))
def test_published_layouts_are_whole(name):
    """They state GPUs, ranks and batch; at their own size they are what they were."""
    layout = load_layout(name)
    assert layout.gpus == layout.tp * layout.cp * layout.pp * layout.dp
    assert layout.at(layout.pp, layout.microbatches, layout.chunks) == layout.under()
    assert as_layouts(name) == [layout]


def test_single_values_replace_those_of_a_layout():
    """A list stands for several layouts, in order; numbers of layers are one value; sizes leave the GPUs open."""
    several = as_layouts("bloom_176b", {"dp": [8, 16], "zero": (0, 1), "layers": [6, 6], "cp": None})
    assert [(one.dp, one.zero, one.gpus) for one in several] == [(8, 0, 384), (8, 1, 384), (16, 0, None), (16, 1, None)]
    assert {(one.layers, one.name, one.tp) for one in several} == {((6, 6), "", 4)}
    assert [one.tp for one in as_layouts(["bloom_176b", {"tp": 2}], {"microbatch_size": 1})] == [4, 2]
    assert as_layouts("bloom_176b", {"tp": 4})[0].name == "bloom_176b"
    assert as_layouts(None, {"tp": None}) == [None]


def test_keys_of_version_0_1_are_read():
    """In mappings, keywords, options and files."""
    given = {"pp": 4, "microbatches": 12, "model": "llama3_8b", "system": "dgx_h100", "dp": 2}
    runs = [simulate("dualpipev", **given, **{key: "when_ready"}) for key in ("hand_on", "send_results")]
    assert runs[0].layout == runs[1].layout != simulate("dualpipev", **given).layout
    assert as_layouts({"hand_on": "when_ready"})[0].send_results == "when_ready"
    line = "simulate dualpipev --hand-on when_ready --microbatches 12 --pp 4 --model llama3_8b --system h100"
    assert main(line.split()) == 0


def test_ranks_asked_for_take_the_place_of_a_layouts():
    """As other values do."""
    ranks = as_layouts(["bloom_176b", {"ep": 4}], {"dp": [8, 4]}, [6, 12])
    assert [(one.pp, one.dp, one.gpus) for one in ranks] == [
        (6, 8, None), (12, 8, 384), (6, 4, None), (12, 4, None), (None, 8, None), (None, 4, None),
    ]  # fmt: skip
    assert as_layouts("bloom_176b", {"dp": 4, "gpus": 384}, 24)[0].gpus == 384
    on = {"layout": "gpus_64", "model": "llama3_70b", "system": "dgx_h100"}
    frame = compare("1f1b", [4, 8], **on)
    assert frame[["pp", "gpus", "layout"]].values.tolist() == [[4, 64, "gpus_64"], [8, 128, ""]]
    assert simulate("1f1b", 8, **on).iteration_s == frame.iteration_s[1]


@pytest.mark.parametrize(
    ("layout", "keywords", "field", "rule", "remedy"),
    [
        ("blom_176b", {}, "layout", "neither a known name", "bloom_176b"),
        ({"tq": 2}, {}, "tq", "not a known value", ""),
        (pd.DataFrame({"tp": [1]}), {}, "layout", "neither a name nor a path", ""),
        (None, {"tp": True}, "tp", "must be a whole number", ""),
        (None, {"zeros": 1}, "zeros", "not a known value", "zero"),
        (None, {"tp": []}, "tp", "must have an entry", ""),
        (None, {"tp": 2.0}, "tp", "must be a whole number", ""),
        (None, {"tp": True, "dp": 2}, "tp", "must be a whole number", ""),
        (None, {"zero": 7}, "zero", "less than or equal to 3", ""),
        (None, {"precision": "fp4"}, "precision", "'mxfp8' or 'nvfp4'", ""),
        (None, {"sequence_parallel": 2}, "sequence_parallel", "valid boolean", ""),
        (7, {}, "layout", "is neither a name nor a path", ""),
    ],
)
def test_what_is_no_layout_is_refused(layout, keywords, field, rule, remedy):
    """By name, by mapping and by keyword, in one line."""
    with refused(PPModelError, field, rule, remedy=remedy):
        as_layouts(layout, keywords)


sizes = st.integers(1, 64)


@given(sizes, sizes, sizes, sizes, sizes, st.integers(1, 500))
def test_a_layout_fills_in_what_it_leaves_open(tp, cp, dp, pp, microbatch_size, microbatches):
    """GPUs and batch are the products, and saying so once more changes nothing."""
    layout = LayoutSpec(tp=tp, cp=cp, dp=dp, microbatch_size=microbatch_size)
    whole = layout.at(pp, microbatches)
    assert (whole.gpus, whole.global_batch) == (tp * cp * dp * pp, dp * microbatch_size * microbatches)
    assert whole.at(pp, microbatches) == whole
    assert whole.microbatches == microbatches
    assert replace(layout, global_batch=whole.global_batch).at(pp, microbatches) == whole
    with refused(SpecificationError, "global_batch", "schedule"):
        whole.at(pp, microbatches + 1)
    with refused(SpecificationError, "pp", "is the layout's; the schedule's"):
        whole.at(pp + 1, microbatches)


# ---- against model, system and schedule ----------------------------------------------------------


@pytest.mark.parametrize("case", NEVER_FITS)
def test_what_cannot_be_split_is_refused(case):
    """Field, value, the model's number and a remedy, in one line."""
    values, field, rule = NEVER_FITS[case]
    model = replace(LLAMA, name="small", **ODD_MODELS.get(case, {}))
    with refused(PPModelError, field, rule):
        check_layout(LayoutSpec(**values), model, replace(H100, name="plain"), build("1f1b", 4, 8))


@pytest.mark.parametrize(
    ("values", "field", "rule"),
    [
        ({"tp": 4, "dp": 2, "ep": 8}, "ep", "must divide tp x cp x dp / etp"),
        ({"tp": 4, "dp": 2, "ep": 8, "etp": 1}, "etp", "must be tp"),
        ({"dp": 32, "etp": 32}, "etp", "must divide experts.hidden"),
        ({"dp": 16, "ep": 16}, "ep", "must divide the experts"),
        ({"dp": 8, "ep": 8, "expert_imbalance": 9.0}, "expert_imbalance", "must be at most ep"),
    ],
)
def test_experts_that_cannot_be_spread_are_refused(values, field, rule):
    """With a remedy each; folded over a node with sequence parallelism they are not."""
    mixtral = load_model("mixtral_8x7b")
    mixtral = replace(mixtral, experts=replace(mixtral.experts, hidden=14000))
    given = mixtral, H100, build("1f1b", 4, 8)
    with refused(PPModelError, field, rule):
        check_layout(LayoutSpec(**values), *given)
    folded = LayoutSpec(tp=4, dp=2, ep=8, etp=1, sequence_parallel=True)
    assert check_layout(folded, *given).gpus == 32


def test_combinations_that_do_not_divide_are_rows_of_their_own():
    """A batch or experts that one combination does not divide end no other; a single point is refused."""
    given = {"model": "mixtral_8x7b", "system": "h100", "global_batch": 16}
    frame = compare("1f1b", 2, dp=[1, 3, 8], ep=[1, 2], **given)
    assert frame.refused.isna().tolist() == [True, False, False, False, True, True]
    assert frame.refused.str.contains("must divide tp x cp x dp|must be a multiple of dp").sum() == 3
    with refused(PPModelError, "global_batch", "must be a multiple"):
        simulate("1f1b", 2, dp=3, **given)


def test_few_key_value_heads_are_held_several_times():
    """tp may be a multiple of them, and sequence parallelism of one GPU is allowed."""
    table = build("1f1b", 4, 8)
    assert check_layout(LayoutSpec(tp=16, sequence_parallel=True), LLAMA, H100, table).gpus == 64
    assert check_layout(LayoutSpec(sequence_parallel=True), LLAMA, H100, table).tp == 1


LINE = "simulate 1f1b --model llama3_70b --system dgx_h100"
LINES = {
    "--tp 8": "pp is missing",
    "--layout bloom_176b": r"layers = Et\*5.*: must be 12 stages with 80 blocks, but has 12 with 70",
    "--layout bloom_176b --pp 4": r"layers = Et\*5.*: must be 4 stages",
    "--layout nowhere --pp 4": "--layout = nowhere: is neither a known name nor a path",
    "--pp 4 --microbatches 8 --recompute 50": "--recompute = 50: is more than any stage has",
    "--pp 4 --microbatches 8 --offload 50": "--offload = 50: is more than any stage has",
    "--pp 4 --microbatches 8 --gpus 9": "--gpus = 9: must be .* = 4",
    "--pp 4 --microbatches 8 --layers 20,20,40": r"--layers = \[20, 20, 40\]: must be 4 stages with 80 blocks",
    "--pp 4 --microbatches 8 --layers Ett|L|": r"--layers = Ett\|L\|: must be 4 stages .*, but has 3 with 2",
}


@pytest.mark.parametrize("line", LINES)
def test_command_lines_are_refused(capsys, line):
    """One line, exit code 2, with the option as it is typed."""
    assert main([*LINE.split(), *line.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert re.search(LINES[line], err), err


def test_a_sweep_over_layouts_has_the_rows_of_a_comparison(tmp_path):
    """Lists of values give a layout each; sizes that the layouts state need not be listed, but override them."""
    (tmp_path / "sweep.yaml").write_text(
        "schedules: [1f1b, gpipe]\npp: [2, 4]\nmodels: llama3_70b\nsystems: dgx_h100\n"
        "layouts: [{pp: 2, tp: 8, dp: [1, 2], global_batch: 16, recompute: 3}, {tp: 3, global_batch: 16}]\n"
    )
    sweep = load_sweep(tmp_path / "sweep.yaml")
    rows = pd.DataFrame(compute_rows(sweep, 0, sweep.num_rows)).set_index(["schedule", "tp", "dp", "pp"])
    given = {"model": "llama3_70b", "system": "dgx_h100", "global_batch": 16}
    same = compare(["1f1b", "gpipe"], [2, 4], tp=8, dp=[1, 2], recompute=3, **given)
    same = same.set_index(["schedule", "tp", "dp", "pp"])
    assert len(rows) == 12
    assert rows.iteration_s[rows.refused.isna()].to_dict() == same.iteration_s.to_dict()
    assert rows.refused.dropna().str.startswith("tp = 3: must divide heads").sum() == 4
    assert [*rows.recompute.dropna()] == [*same.recompute] == ["3"] * 8  # text, as the words are
    assert compare("1f1b", 4, tp=8, dp=1, recompute="3", **given).iteration_s[0] == same.iteration_s["1f1b", 8, 1, 4]
    assert rows.microbatches.to_dict() == {key: 16 // key[2] for key in rows.index}


@pytest.mark.parametrize(
    ("written", "field", "rule"),
    [
        ("layouts: [{tp: 8}]", "microbatches", "is missing, also in a layout"),
        ("layouts: [{tq: 8, global_batch: 16}]", "layouts.0.tq", "not a known value"),
        ("layouts: [{tp: 0, global_batch: 16}]", "layouts.0.tp", "must be greater than or equal to 1"),
        ("layouts: nowhere", "layouts.0.layout", "neither a known name"),
        ("layouts: [bloom_176b, bloom_176b]", "layouts.1", "is listed twice"),
        ("layouts: bloom_176b\nnoise: {jitter: 0.1}\nseeds: 1", "noise", "cannot be combined with layouts"),
    ],
)
def test_layouts_of_a_sweep_are_refused_with_their_place(tmp_path, written, field, rule):
    """File, line, the place in the list, value, rule and remedy."""
    path = tmp_path / "sweep.yaml"
    path.write_text(f"schedules: 1f1b\npp: 4\nmodels: llama3_70b\nsystems: dgx_h100\n{written}\n")
    with refused(SpecificationError, field, rule, where=f"{path}:"):
        load_sweep(path)


# ---- layers of each stage ------------------------------------------------------------------------


@pytest.mark.parametrize("layers", NEVER_CUT, ids=str)
def test_layers_that_are_not_the_models_are_refused(layers):
    """Their number, that of the stages, and MTP layers of a model without any."""
    with refused(CostError, "layers", NEVER_CUT[layers]):
        stage_layers(build("1f1b", 4, 8), LLAMA, layout=LayoutSpec(layers=layers))


def test_no_more_layers_are_recomputed_than_a_stage_has():
    """The fullest stage sets the limit."""
    table = build("1f1b", 4, 8)
    assert stage_layers(table, LLAMA, layout=LayoutSpec(layers="even", recompute=20)).blocks.max() == 20
    with refused(CostError, "recompute", "is more than any stage", value="21"):
        stage_layers(table, LLAMA, layout=LayoutSpec(layers="even", recompute=21))


def test_megatrons_own_example():
    """DeepSeek-V3 on 16 ranks of two chunks, as the documentation of Megatron-LM tabulates it."""
    stages = parse_layers("Et*3|(tt|)*29,m|L")
    table = build("interleaved-1f1b", 16, 16, chunks=2)
    of_rank = {rank: [stages[s] for s in np.flatnonzero(table.placement[0] == rank)] for rank in range(16)}
    assert [stage.blocks for stage in of_rank[0]] == [3, 2]
    assert of_rank[0][0].embedding
    assert all([stage.blocks for stage in of_rank[rank]] == [2, 2] for rank in range(1, 14))
    assert [(stage.blocks, stage.mtp, stage.losses) for stage in of_rank[14]] == [(2, 0, 0), (0, 1, 0)]
    assert [(stage.blocks, stage.mtp, stage.losses) for stage in of_rank[15]] == [(2, 0, 0), (0, 0, 2)]


def test_losses_may_be_on_several_stages():
    """Megatron-LM's example of split losses: two of MTP layers on one rank, one of them and the model's on the last."""
    stages = parse_layers("E|(t|)*10m|m|m|LL|LL")
    assert len(stages) == 16
    assert [stage.mtp for stage in stages[-6:]] == [0, 1, 1, 1, 0, 0]
    assert [stage.losses for stage in stages[-6:]] == [0, 0, 0, 0, 2, 2]
    assert parse_layers("Et|mm|L")[-1].losses == 3
    assert format_layers(stages) == "E|(t|)*10(m|)*3LL|LL"


def test_a_prediction_layer_costs_a_block_and_a_loss():
    """Wherever it is, the sums over stages are the same, and each stage with losses holds one output projection."""
    from ppmodel.clusters.costs import stages

    model, table = replace(LLAMA, mtp_layers=2), build("1f1b", 4, 8)
    plain, last, split = (
        stages(table, of, H100, layout=check_layout(LayoutSpec(layers=text), of, H100, table))
        for of, text in ((LLAMA, "Et*20|t*30|t*30|L"), (model, "Et*20|t*30|t*30|mmL"), (model, "Et*20|t*30|t*30m|mLLL"))
    )
    assert last.forward_s.sum() == pytest.approx(split.forward_s.sum(), rel=1e-4)  # but for a copy of the embedding
    extra = last.forward_s[-1] - plain.forward_s[-1]
    block = plain.forward_s[1] / 30
    assert extra == pytest.approx(2 * (plain.forward_s[-1] + block), rel=0.1)
    projection = LLAMA.vocabulary * LLAMA.hidden
    copies = (last.parameters[-1] - plain.parameters[-1]) / projection
    assert copies == pytest.approx(1 + 2 * plain.parameters[1] / 30 / projection, rel=0.15)  # an embedding, two blocks


def test_the_embedding_is_copied_only_where_its_rank_does_not_have_it():
    """DualPipe's ranks have both ends of the model; with the same stages, those of 1F1B need a copy at the end."""
    from ppmodel.clusters.costs import stages

    model = replace(LLAMA, mtp_layers=1)
    held = {}
    for name in ("1f1b", "dualpipe"):
        table = build(name, 4, 8)
        layout = check_layout(LayoutSpec(layers="Et*20|t*20|t*20|t*20mL"), model, H100, table)
        held[name] = stages(table, model, H100, layout=layout).parameters
    assert held["1f1b"][-1] - held["dualpipe"][-1] == model.vocabulary * model.hidden
    assert (held["1f1b"][:-1] == held["dualpipe"][:-1]).all()


def test_stages_may_be_empty_where_they_are_written():
    """The stages of embedding and head are those that the string says."""
    layout = LayoutSpec(layers="E||t*80|L")
    cut = stage_layers(build("1f1b", 4, 8), LLAMA, layout=layout)
    assert (cut.blocks.tolist(), cut.embedding, cut.head) == ([0, 0, 80, 0], 0, 3)
    assert stage_layers(build("1f1b", 4, 8), LLAMA, layout=LayoutSpec(layers=(0, 40, 40, 0))).blocks[0] == 0


written = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8)


@given(written, st.integers(1, 5))
def test_a_layout_string_is_read_as_it_is_written(stages, times):
    """Repetitions, brackets and commas stand for what they repeat."""
    assume(any(count for count, _ in stages))
    inner = "".join(("t" * count if long else f"t*{count}") + "|," for count, long in stages)
    found = parse_layers(f"E({inner})*{times}L")
    assert [stage.blocks for stage in found] == [count for count, _ in stages] * times + [0]
    assert [stage.embedding for stage in found].index(True) == 0
    assert [stage.losses for stage in found].index(1) == len(found) - 1
    assert parse_layers(format_layers(found)) == found


TABLES = {
    "1f1b": build("1f1b", 4, 4), "interleaved": build("interleaved-1f1b", 2, 4, chunks=2), "zb-v": build("zb-v", 2, 4),
    "chimera": build("chimera", 4, 4), "one rank": build("gpipe", 1, 2),
}  # fmt: skip
weights = st.integers(0, 300).map(lambda hundredths: hundredths / 100)  # of a block, as they are balanced


def _rank_times(table, blocks, times):
    """The time of each rank, spelt out: each operation's stage, block by block."""
    kinds = [times.dense if place < times.dense_blocks else times.block for place in range(sum(blocks))]
    ends = np.cumsum(blocks)
    stages = [sum(kinds[end - count : end]) for end, count in zip(ends, blocks, strict=True)]
    stages[0] += times.embedding
    stages[-1] += times.head
    forward = table.kind == 0
    sums = np.bincount(table.rank[forward], np.array(stages)[table.stage[forward]], table.num_ranks)
    return sums / table.num_microbatches


@pytest.mark.parametrize("name", TABLES)
@given(num_blocks=st.integers(4, 12), embedding=weights, head=weights)
def test_balanced_layers_are_the_best_there_are(name, num_blocks, embedding, head):
    """No cut into stages of at least one block has a slowest rank faster by 3 %; the head may be a stage of its own."""
    table, times = TABLES[name], LayerTimes(1.0, embedding, head)
    model = replace(LLAMA, blocks=num_blocks)
    blocks = stage_layers(table, model, times=times).blocks
    assert blocks.sum() == num_blocks
    alone = head >= 1 and len(blocks) > 1
    assert blocks.min() >= (0 if alone else 1)
    ranges = [range(1, num_blocks + 1)] * (len(blocks) - 1) + [range(0 if alone else 1, num_blocks + 1)]
    cuts = [cut for cut in product(*ranges) if sum(cut) == num_blocks]
    best = min(_rank_times(table, cut, times).max() for cut in cuts)
    slowest, even = _rank_times(table, blocks, times).max(), stage_blocks(table, model)
    assert slowest == pytest.approx(best) or ((blocks == even).all() and slowest <= 1.03 * best)


def test_blocks_that_no_one_could_count_are_not_balanced():
    """Balancing places block by block: more than a stated number is refused at once, and divided evenly."""
    model = replace(LLAMA, blocks=10**9)
    with refused(CostError, "blocks", "must be at most 65536", 10**9, "even"):
        simulate("1f1b", 4, 8, model=model, system="dgx_h100")
    assert simulate("1f1b", 4, 8, model=model, system="dgx_h100", layers="even").makespan_s > 0


@given(st.sampled_from([1, 2, 3, 4]), st.integers(40, 90), weights, weights, weights.filter(bool), st.integers(0, 9))
def test_blocks_that_differ_are_balanced_too(chunks, num_blocks, embedding, head, dense, dense_blocks):
    """With a few dense blocks first the slowest rank is within a block of the mean, and never behind an even cut."""
    table = build("interleaved-1f1b", 4, 4, chunks=chunks)
    times = LayerTimes(1.0, embedding, head, dense, dense_blocks)
    model = replace(LLAMA, blocks=num_blocks)
    blocks = stage_layers(table, model, times=times).blocks
    ranks = _rank_times(table, blocks, times)
    assert blocks.sum() == num_blocks
    assert blocks.min() >= (0 if head >= 1 else 1)
    assert ranks.max() <= _rank_times(table, stage_blocks(table, model), times).max() * (1 + 1e-6)
    assert ranks.max() <= 1.03 * (ranks.mean() + max(1.0, dense) + 1e-9)


@pytest.mark.parametrize("name", ["gpipe", "interleaved-1f1b", "chimera", "asymmetric-chimera", "zb-v", "dualpipe"])
def test_the_papers_model_is_cut_as_it_always_was(name):
    """A model without a vocabulary is not balanced unasked, whatever its size; shares of a schedule's own decide."""
    table, times = build(name, 4, 8), LayerTimes(1.0, 0.5, 8.0)
    for blocks in (127, 128):
        model = replace(PAPER, blocks=blocks)
        assert (stage_layers(table, model, times=times).blocks == stage_blocks(table, model)).all()
    balanced = stage_layers(table, LLAMA, times=times).blocks
    assert (balanced != stage_blocks(table, LLAMA)).any() != (name == "asymmetric-chimera")
    even = stage_layers(table, LLAMA, layout=LayoutSpec(layers="even"), times=times).blocks
    assert (even == stage_blocks(table, LLAMA)).all()


def test_eighty_blocks_on_thirty_two_stages_are_ten_a_rank():
    """Where an even share gives some ranks 12 and others 8, which the slowest rank over the mean says."""
    table, times = build("interleaved-1f1b", 8, 16, chunks=4), LayerTimes(1.0)
    even, balanced = stage_blocks(table, LLAMA), stage_layers(table, LLAMA, times=times).blocks
    assert slowest_over_mean(table, even) == 1.2
    assert slowest_over_mean(table, balanced) == 1.0


def test_too_few_blocks_are_refused():
    """Balanced stages have a block each, but a stage that a head fills."""
    with refused(CostError, "blocks", "are too few for"):
        stage_layers(build("1f1b", 4, 8), replace(LLAMA, blocks=3), times=LayerTimes(1.0))


def test_rows_of_many_layouts_come_in_the_order_of_the_keywords():
    """The last keyword varies fastest, whichever was written first, in every process."""
    lists = {"zero": [0, 1], "tp": [2, 4], "microbatch_size": [1, 2], "dp": [1, 2], "sequence_parallel": [False, True]}
    for names in (list(lists), list(reversed(lists))):
        given = {name: lists[name] for name in names}
        _, rows = compared("1f1b", 4, 8, model="llama3_70b", system="h100", **given)
        assert [tuple(row[name] for name in names) for row in rows] == list(product(*given.values()))


def test_a_layout_with_a_name_of_ones_own_refuses_points_and_no_grid():
    """Only a file's GPUs must suit some number of ranks; values are held to those of each point."""
    frame = compare("1f1b", [2, 4], 8, model="paper", system="h100", layout={"name": "mine"}, tp=[1, 3], gpus=[8])
    assert frame.refused.str.startswith(("gpus = 8: must be tp (1)", "tp = 3: must divide")).tolist() == [True] * 4


def test_a_grid_of_layouts_keeps_those_that_miss_the_number_of_gpus():
    """Combinations with too many or too few GPUs are refused row by row, not all of them together."""
    values = {"model": "llama3_8b", "system": "h100", "tp": [1, 2, 4], "dp": [1, 2, 4, 8], "gpus": 8}
    frame = compare("1f1b", pp=[1, 2], microbatches=4, **values)
    gpus = frame.pp * frame.tp * frame.dp
    assert len(frame) == 24
    assert (frame.refused.isna() == (gpus == 8)).all()
    assert frame.refused[gpus != 8].str.startswith("gpus = 8: must be tp").all()


def test_a_layout_sets_the_length_of_sequences():
    """In its file or as a keyword, it replaces the model's, as a model of that length would."""
    model, on = load_model("llama3_405b"), {"system": "h100", "layout": "llama3_405b_128k"}
    long = simulate("interleaved-1f1b", model=model, **on)
    assert long.model == replace(model, sequence=131072)
    assert long.iteration_s == simulate("interleaved-1f1b", model=replace(model, sequence=131072), **on).iteration_s
    short = simulate("interleaved-1f1b", model=model, **on, sequence=8192)
    assert short.model == model
