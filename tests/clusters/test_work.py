"""What one GPU does and keeps under a layout, against the closed forms of the literature."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from ppmodel.clusters.costs import (
    Kernel,
    block_operations,
    embedding_operations,
    head_operations,
    logits_bytes,
    model_flops,
    parameters,
)
from ppmodel.clusters.specs import DATA, ExpertSpec, LatentAttentionSpec, LayoutSpec, load_model
from ppmodel.clusters.specs.recompute import Module
from ppmodel.errors import SpecificationError

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = pd.read_csv(FOLDER / "collectives.csv", comment="#")
SHARES = pd.read_csv(FOLDER / "share_work.csv", comment="#")
PAPER = load_model("paper")
PHASES = ("forward", "input_grad", "weight_grad")
SIZES = st.sampled_from([1, 2, 4, 8])
EXPERTS = ExpertSpec(number=8, experts_per_token=2, shared=1, hidden=48, dense_layers=1)
LATENT = LatentAttentionSpec(query_rank=24, key_value_rank=16, rope_head_size=4, nope_head_size=12, value_head_size=8)


def gpt(heads, size, sequence, **other):
    """Megatron's GPT: 4h wide MLP, dropout, biases, materialised attention, no grouping."""
    hidden = heads * size
    sizes = {"hidden": hidden, "heads": heads, "kv_heads": heads, "head_size": size, "mlp_hidden": 4 * hidden}
    return replace(PAPER, sequence=sequence, **(sizes | other))


models = st.builds(gpt, st.sampled_from([8, 16, 40]), st.sampled_from([16, 64, 51]), st.sampled_from([8, 128, 2048]))
KINDS = {
    "plain": {},
    "grouped": {"kv_heads": 8, "gated_mlp": True, "norm": "rmsnorm", "bias": False, "dropout": False},
    "fused": {"attention": "fused"},
    "experts": {"experts": EXPERTS, "gated_mlp": True, "bias": False},
    "latent": {"latent_attention": LATENT, "attention": "fused", "experts": EXPERTS},
    "latent without rank": {"latent_attention": replace(LATENT, query_rank=0)},
}
kinds = st.sampled_from(sorted(KINDS))


def of_kind(kind):
    return gpt(16, 16, 64, vocabulary=1024, **KINDS[kind])


def whole(model, sequences, layout=None):
    """Embedding, a block and the head."""
    return [
        *embedding_operations(model, sequences, layout),
        *block_operations(model, sequences, layout),
        *head_operations(model, sequences, layout),
    ]


def products(operations, phase):
    return sum(getattr(one, phase).flops for one in operations if one.is_product or one.kernel == Kernel.ATTENTION)


def kept(operations, recompute="none"):
    """Bytes that a block keeps, as recomputation has it."""
    if recompute == "full":
        return operations[0].saved_bytes
    return sum(one.saved_bytes + (one.core_bytes if recompute == "none" else 0) for one in operations)


@given(kinds, st.integers(1, 7), st.booleans())
def test_a_layout_of_ones_changes_no_bit(kind, sequences, split):
    """One GPU under a layout does what it does without one, and waits for nothing."""
    model = of_kind(kind)
    assert whole(model, sequences, LayoutSpec(sequence_parallel=split, causal=False)) == whole(model, sequences)


@given(models, st.integers(1, 5), SIZES)
def test_saved_bytes_are_those_of_korthikanti(model, b, t):
    """Every row of Table 2 of Korthikanti et al. (2022), exactly."""
    s, h, a = model.sequence, model.hidden, model.heads
    alone, tensor, both = (
        block_operations(model, b, LayoutSpec(tp=size, sequence_parallel=split))
        for size, split in ((1, False), (t, False), (t, True))
    )
    assert kept(alone) == s * b * (34 * h + 5 * a * s)
    scale = s * b * h
    assert kept(tensor) * t == scale * ((10 * t if t > 1 else 10) + 24) + 5 * a * s * s * b
    assert kept(both) * t == scale * 34 + 5 * a * s * s * b
    assert kept(tensor, "selective") * t == scale * (10 * t + 24)
    assert kept(both, "selective") * t == scale * 34
    assert kept(tensor, "full") == 2 * scale
    assert kept(both, "full") * t == 2 * scale


@given(kinds, SIZES, SIZES, st.sampled_from([1, 2, 4]), st.booleans())
def test_splitting_loses_no_arithmetic(kind, tp, cp, ep, causal):
    """Products of all GPUs of a replica are those of the whole, in every phase."""
    model = of_kind(kind)
    layout = LayoutSpec(tp=tp, cp=cp, ep=ep, dp=4, sequence_parallel=True, causal=causal)
    one = LayoutSpec(causal=causal)
    for phase in PHASES:
        split = products(whole(model, 2, layout), phase) * tp * cp
        assert split == pytest.approx(products(whole(model, 2, one), phase), rel=1e-12)


@given(kinds, SIZES, SIZES)
def test_passes_over_memory_are_split_by_sequence_parallelism(kind, tp, cp):
    """Norms, dropout and residuals do their whole work on every GPU of a group, or their part of it."""
    model, names = of_kind(kind), ("norm 1", "residual and dropout 1", "norm 2", "last norm")
    parts = {
        split: [o for o in whole(model, 2, LayoutSpec(tp=tp, cp=cp, sequence_parallel=split)) if o.name in names]
        for split in (False, True)
    }
    for plain, split in zip(parts[False], parts[True], strict=True):
        assert split.forward.bytes * tp == plain.forward.bytes
        assert split.saved_bytes * tp == plain.saved_bytes


@given(kinds, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_splitting_loses_no_parameters(kind, tp, ep):
    """Split weights sum to the whole; norms, routers, latents and biases of sums are whole on every GPU."""
    model = replace(of_kind(kind), bias=False)
    alone = whole(model, 1)
    split = {o.name: o for o in whole(model, 1, LayoutSpec(tp=tp, ep=ep, dp=4, sequence_parallel=True))}
    copied = {"router", "query down", "key-value down"}
    for one in alone:
        parts = 1 if "norm" in one.name or one.name in copied else tp * (ep if one.experts else 1)
        assert split[one.name].parameters * parts == pytest.approx(one.parameters, rel=1e-12)


@given(kinds, SIZES, SIZES)
def test_more_gpus_never_keep_more(kind, tp, cp):
    """Kept bytes fall with tp and cp, and again with sequence parallelism."""
    model = of_kind(kind)

    def of(**sizes):
        operations = block_operations(model, 2, LayoutSpec(**sizes))
        return sum(operation.saved_bytes + operation.core_bytes for operation in operations)

    assert of(tp=2 * tp, cp=cp) < of(tp=tp, cp=cp)
    assert of(tp=tp, cp=2 * cp) < of(tp=tp, cp=cp)
    assert of(tp=2 * tp, cp=cp, sequence_parallel=True) < of(tp=2 * tp, cp=cp)


TINY = replace(gpt(4, 4, 8), kv_heads=2)
TINY_EXPERTS = replace(TINY, experts=ExpertSpec(4, 2, shared=1, hidden=12, dense_layers=0))
TINY_LATENT = replace(
    TINY, kv_heads=4, attention="fused",
    latent_attention=LatentAttentionSpec(6, 4, rope_head_size=2, nope_head_size=2, value_head_size=6),
)  # fmt: skip
WITH_WORDS = replace(TINY, vocabulary=40, learned_positions=True)
CASES = {
    "tensor": (WITH_WORDS, {"tp": 2}),
    "sequence": (WITH_WORDS, {"tp": 2, "sequence_parallel": True}),
    "ring": (WITH_WORDS, {"cp": 2}),
    "gathered": (WITH_WORDS, {"cp": 2, "context_exchange": "all-gather"}),
    "tensor and ring": (WITH_WORDS, {"tp": 2, "cp": 2}),
    "experts": (TINY_EXPERTS, {"ep": 2, "dp": 2}),
    "experts and tensor": (TINY_EXPERTS, {"tp": 2, "ep": 2, "dp": 2}),
    "experts and sequence": (TINY_EXPERTS, {"tp": 2, "ep": 2, "dp": 2, "sequence_parallel": True}),
    "folded experts": (TINY_EXPERTS, {"tp": 2, "ep": 4, "etp": 1, "dp": 2, "sequence_parallel": True}),
    "latent": (TINY_LATENT, {"tp": 2, "sequence_parallel": True}),
    "latent ring": (TINY_LATENT, {"cp": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_collective_has_the_volume_derived_by_hand(case):
    """Collectives of every phase stand in the order of the forward, with their kind, group and bytes, and no others."""
    model, sizes = CASES[case]
    found = [
        (one.name, phase, *collective[:3])
        for one in whole(model, 2, LayoutSpec(**sizes))
        for phase in PHASES
        if (collective := getattr(one, f"{phase}_comm"))
    ]
    rows = GOLDEN[GOLDEN.case == case].drop(columns="case").itertuples(index=False)
    assert found == [tuple(row) for row in rows]


@pytest.mark.parametrize("row", list(SHARES.itertuples(index=False)), ids=lambda row: f"{row.case}: {row.operation}")
def test_one_gpus_share_has_the_work_derived_by_hand(row):
    """FLOPs, traffic, kept bytes and parameters of what a layout splits."""
    model, sizes = CASES[row.case]
    one = {o.name: o for o in whole(model, 2, LayoutSpec(**sizes))}[row.operation]
    kept_bytes = one.saved_bytes, one.core_bytes, one.weight_grad_bytes
    assert (*one.forward, *one.input_grad, *kept_bytes, one.parameters) == row[2:]


@given(kinds, SIZES, SIZES, st.booleans())
def test_collectives_stand_apart_from_work(kind, tp, cp, split):
    """An entry either works or waits, names are unique, and a weight's input is gathered behind its product."""
    operations = block_operations(of_kind(kind), 2, LayoutSpec(tp=tp, cp=cp, sequence_parallel=split))
    names = [one.name for one in operations]
    assert len(set(names)) == len(names)
    for place, one in enumerate(operations):
        waits = any(getattr(one, f"{phase}_comm") for phase in PHASES)
        works = any(getattr(one, phase).bytes for phase in PHASES)
        assert waits is (one.kernel is None)
        assert works is not waits
        if one.weight_grad_comm:
            assert operations[place - 1].weight_grad.flops > 0


def test_shapes_are_those_of_one_gpus_products():
    """Rows, columns and depth give the FLOPs of a product; experts count, each with its share of the copies."""
    model = of_kind("experts")
    for sizes in ({}, {"tp": 4, "sequence_parallel": True}, {"tp": 2, "cp": 2, "ep": 4, "dp": 2}):
        for one in block_operations(model, 2, LayoutSpec(**sizes)):
            if one.is_product:
                rows, columns, depth = one.shape
                assert one.forward.flops == pytest.approx(2 * one.count * rows * columns * depth)
    up = {o.name: o for o in block_operations(model, 2, LayoutSpec(tp=2, ep=4, dp=4))}["experts up"]
    tokens = 2 * 64 * 2 * 4 / 8  # copies of four groups on eight experts
    assert (up.count, up.shape) == (2, (tokens, 2 * 48 / 2, 256))


@pytest.mark.parametrize("sizes", [{}, {"tp": 4}, {"tp": 4, "ep": 4, "etp": 1}, {"tp": 2, "ep": 2, "etp": 4}])
def test_experts_have_the_same_work_wherever_they_are(sizes):
    """All GPUs together hold all experts, once per expert replica, and multiply every copy of a token once."""
    model, layout = of_kind("experts"), LayoutSpec(**{"dp": 8, "sequence_parallel": True} | sizes)
    up = {o.name: o for o in block_operations(model, 2, layout)}["experts up"]
    alone = {o.name: o for o in block_operations(model, 2)}["experts up"]
    assert up.forward.flops * layout.rank_gpus == pytest.approx(layout.dp * alone.forward.flops)
    assert up.parameters * layout.rank_gpus == pytest.approx(layout.expert_replicas * alone.parameters)


def test_imbalance_is_the_most_loaded_gpus():
    """Its experts, what they keep and what it exchanges grow; parameters, and everything else, do not."""
    model, sizes = of_kind("experts"), {"dp": 4, "ep": 4, "tp": 2, "sequence_parallel": True}
    even, uneven = (
        {o.name: o for o in block_operations(model, 2, LayoutSpec(expert_imbalance=factor, **sizes))}
        for factor in (1.0, 1.5)
    )
    for name, one in even.items():
        grows = "copies" in name or "all-to-all" in name or name.startswith("experts")
        factor, other = 1.5 if grows else 1.0, uneven[name]
        assert other.forward.flops == pytest.approx(factor * one.forward.flops), name
        assert other.saved_bytes == pytest.approx(factor * one.saved_bytes), name
        assert other.parameters == one.parameters
        if one.forward_comm:
            assert other.forward_comm.bytes == pytest.approx(factor * one.forward_comm.bytes)


def test_only_what_goes_to_experts_is_sent_in_fp8():
    """Tokens in the forward, gradients of outputs in the backward; what comes back keeps its precision."""
    sizes = {"dp": 4, "ep": 4}
    wide, narrow = (
        {o.name: o for o in block_operations(of_kind("experts"), 2, LayoutSpec(dispatch_precision=precision, **sizes))}
        for precision in ("bf16", "fp8")
    )
    for name, there, back in (("to", "forward_comm", "input_grad_comm"), ("from", "input_grad_comm", "forward_comm")):
        before, after = (operations[f"all-to-all {name} experts"] for operations in (wide, narrow))
        assert getattr(after, there).bytes == pytest.approx((1 + 1 / 32) / 2 * getattr(before, there).bytes)
        assert getattr(after, back) == getattr(before, back)


def test_fused_attention_alone_skips_the_masked_half():
    """A causal kernel computes half of the scores; where they are materialised all of them are computed."""
    for attention, share in (("fused", 0.5), ("materialised", 1.0), ("fused-softmax", 1.0)):
        model = gpt(8, 16, 128, attention=attention)
        both = (block_operations(model, 1, LayoutSpec(causal=causal)) for causal in (True, False))
        causal, full = ([o for o in ops if o.module is Module.SCORES or o.kernel == Kernel.ATTENTION] for ops in both)
        assert sum(o.forward.flops for o in causal) == share * sum(o.forward.flops for o in full)
        assert [o.forward.bytes for o in causal] == [o.forward.bytes for o in full]


def test_a_window_skips_what_is_outside_it():
    """A query meets w - w(w-1)/2s keys in the mean; of two blocks, one has the window; memory stays."""
    model = gpt(8, 16, 128, attention="fused")
    full, within, both = (
        block_operations(replace(model, window=window, global_every=every), 1, LayoutSpec())
        for window, every in ((0, 0), (32, 0), (32, 2))
    )
    flops = [sum(o.forward.flops for o in ops if o.kernel == Kernel.ATTENTION) for ops in (full, within, both)]
    assert flops[1] == pytest.approx(flops[0] * 32 * (2 - 32 / 128) / 128)
    assert flops[2] == pytest.approx((flops[0] + flops[1]) / 2)
    assert kept(full) == kept(within) == pytest.approx(kept(both))
    wide = replace(model, window=512, global_every=0)
    assert [o.works for o in block_operations(wide, 1, LayoutSpec())] == [o.works for o in full]


def test_blocks_that_take_turns_are_priced_as_their_mean():
    """With experts in every other block: half of the parameters and of the work of either kind."""
    every_other = load_model("llama4_maverick_400b")
    always = replace(every_other, experts=replace(every_other.experts, every=1))
    layout = LayoutSpec(ep=8, dp=8)
    mean, experts = (block_operations(model, 1, layout) for model in (every_other, always))
    dense = block_operations(always, 1, layout, dense=True)
    for total in (kept, lambda ops: sum(o.parameters for o in ops), lambda ops: sum(o.forward.flops for o in ops)):
        assert total(mean) == pytest.approx((total(experts) + total(dense)) / 2)


def test_a_fused_softmax_moves_less_and_keeps_the_same():
    """Softmax, mask and dropout in one kernel spare a write and a read of the scores, not a byte that is kept."""
    apart, fused = (block_operations(gpt(8, 16, 128, attention=word), 3) for word in ("materialised", "fused-softmax"))
    assert kept(apart) == kept(fused)
    assert kept(apart, "selective") == kept(fused, "selective")
    scores = 3 * 8 * 128**2
    saved = sum(o.forward.bytes for o in apart) - sum(o.forward.bytes for o in fused)
    assert saved == 2 * scores
    assert len(fused) == len(apart) - 1


def test_key_value_heads_are_copied_where_there_are_too_few():
    """With more GPUs in a tensor group than key-value heads, each has one of them."""
    model = replace(gpt(16, 16, 64), kv_heads=4)
    shapes = [{o.name: o for o in block_operations(model, 1, LayoutSpec(tp=tp))} for tp in (4, 8, 16)]
    assert [one["query-key-value"].shape[1] for one in shapes] == [(4 + 2) * 16, (2 + 2) * 16, (1 + 2) * 16]


def test_dense_blocks_stand_before_those_with_experts():
    """The first blocks of a mixture have an MLP of their own width."""
    model = load_model("deepseek_v3")
    dense, mixed = ([o.name for o in block_operations(model, 1, dense=word)] for word in (True, False))
    assert ("MLP up" in dense, "router" in dense) == (True, False)
    assert ("MLP up" in mixed, "router" in mixed) == (False, True)
    assert (model.dense_blocks, load_model("llama3_8b").dense_blocks) == (3, 32)


def test_tied_embeddings_are_held_once_where_they_can_be():
    """On one stage the head has no weights of its own, at the end of a pipeline it has a copy."""
    model = replace(of_kind("plain"), tied_embeddings=True)
    alone, last = (head_operations(model, 1, LayoutSpec(pp=pp, tp=2))[2].parameters for pp in (1, 4))
    assert (alone, last) == (0, 1024 * 256 / 2)
    both = parameters(model), parameters(replace(model, tied_embeddings=False))
    assert both[1].total - both[0].total == 1024 * 256
    assert parameters(replace(model, vocabulary=0)) == parameters(replace(model, vocabulary=0, tied_embeddings=False))


def test_logits_are_split_by_vocabulary_and_context():
    """Two and four bytes for each logit of a GPU."""
    assert logits_bytes(of_kind("plain"), 2, LayoutSpec(tp=4, cp=2)) == 6 * (2 * 64 / 2) * (1024 / 4)


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("gpt3_175b", "175e9"), ("llama3_8b", "8.0e9"), ("llama3_70b", "70.6e9"), ("llama3_405b", "405.9e9"),
        ("mixtral_8x7b", "46.7e9"), ("deepseek_v3", "671.0e9"), ("bloom_176b", "176.2e9"),
        ("qwen2_5_32b", "32.8e9"), ("qwen2_5_72b", "72.7e9"), ("qwen3_32b", "32.8e9"), ("deepseek_v2", "236e9"),
        ("qwen3_30b_a3b", "30.5e9"),
    ],
)  # fmt: skip
def test_parameters_have_the_published_digits(name, total):
    """Whole models come to their publishers' numbers, to the last digit of these."""
    digits = len(total.partition("e")[0].partition(".")[2])
    assert f"{parameters(load_model(name)).total / 1e9:.{digits}f}e9" == total


def test_active_parameters_have_the_published_digits():
    """12.9 billion of Mixtral; 36.6 of DeepSeek-V3, whose authors leave the embedding out, the head not."""
    assert f"{parameters(load_model('mixtral_8x7b')).active / 1e9:.1f}" == "12.9"
    found = parameters(load_model("deepseek_v3"))
    assert f"{(found.active - found.embedding) / 1e9:.1f}" == "36.6"


@pytest.mark.parametrize("size", ["1.5", "6.2", "14.6", "28.3"])
def test_zero_bubbles_models_have_the_size_of_their_names(size):
    """With the embedding counted once."""
    model = load_model(f"zero_bubble_{size.replace('.', '_')}b")
    assert f"{(parameters(model).total - model.vocabulary * model.hidden) / 1e9:.1f}" == size


@given(models, st.integers(1, 9), st.integers(1, 96), st.integers(1, 10**5))
def test_model_flops_are_those_of_narayanan(model, batch, layers, words):
    """72 Bslh^2 (1 + s/6h + V/12lh) and, recomputed in full, 96 Bslh^2 (1 + s/6h + V/16lh), exactly."""
    model = replace(model, global_batch=batch, blocks=layers, vocabulary=words)
    s, h = model.sequence, model.hidden
    forward, head = batch * s * layers * (24 * h**2 + 4 * s * h), 2 * batch * s * h * words
    assert model_flops(model) == 3 * forward + 3 * head
    assert model_flops(model) == pytest.approx(
        72 * batch * s * layers * h**2 * (1 + s / (6 * h) + words / (12 * layers * h)), rel=1e-12
    )
    assert model_flops(model, recompute="full") == pytest.approx(
        96 * batch * s * layers * h**2 * (1 + s / (6 * h) + words / (16 * layers * h)), rel=1e-12
    )
    assert model_flops(model, recompute="selective") - model_flops(model) == batch * s * layers * 4 * s * h
    assert model_flops(model) - model_flops(model, causal=True) == 3 * batch * s * layers * 2 * s * h
    assert model_flops(model, sequences=2) * batch == pytest.approx(2 * model_flops(model), rel=1e-12)


def test_model_flops_are_palms():
    """6N + 12lhs for a token, where N are the parameters of products, however the attention is computed."""
    for name in ("llama3_8b", "llama3_70b"):
        model = load_model(name)
        norms = (2 * model.blocks + 1) * model.hidden
        products_alone = parameters(model).total - parameters(model).embedding - norms
        token = 6 * products_alone + 12 * model.blocks * model.heads * model.head_size * model.sequence
        assert model_flops(model, sequences=1) == model.sequence * token
        assert model_flops(replace(model, attention="materialised")) == model_flops(model)


def edited(tmp_path, name, *changes):
    """A copy of a packaged model in which values are changed."""
    text = (DATA / "models" / f"{name}.yaml").read_text()
    for key, old, new in changes:
        text, number = re.subn(rf"(\b{key}:\n\s+\{{value: ){old}\b", rf"\g<1>{new}", text)
        assert number == 1, key
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "change", "field", "rule"),
    [
        ("mixtral_8x7b", ("experts_per_token", 2, 9), "experts.experts_per_token", "must be at most experts.number"),
        ("mixtral_8x7b", ("dense_layers", 0, 32), "experts.dense_layers", "must be fewer than blocks"),
        ("mixtral_8x7b", ("number", 8, 0), "experts.number.value", "greater than or equal to 1"),
        ("deepseek_v3", ("head_size", 192, 128), "head_size", "must equal rope_head_size + nope_head_size"),
        ("deepseek_v3", ("kv_heads", 128, 8), "kv_heads", "must equal heads"),
        ("llama3_8b", ("attention", "fused", "flash"), "attention.value", "must be"),
        ("llama3_8b", ("kv_heads", 8, 7), "kv_heads", "must divide heads"),
    ],
)
def test_contradictory_models_are_refused(tmp_path, name, change, field, rule):
    """One line with the file, the field, its value, the rule and a remedy."""
    path = edited(tmp_path, name, change)
    with refused(SpecificationError, field, rule, where="mine.yaml"):
        load_model(path)


@pytest.mark.parametrize("block", ["experts", "latent_attention"])
def test_the_templates_blocks_are_legal_and_explained(tmp_path, block):
    """Without its comment signs each optional block of the template is legal, with every key after a comment."""
    text = (DATA / "templates" / "model.yaml").read_text()
    start = text.index(f"# {block}:\n")
    lines = text[start:].partition("# ---- marker")[0]
    lines = re.sub(r"^# ?", "", lines, flags=re.MULTILINE)
    heads = text[:start]
    if block == "latent_attention":
        heads = heads.replace("kv_heads:\n  {value: 8,", "kv_heads:\n  {value: 32,")
    path = tmp_path / "mine.yaml"
    path.write_text(heads + lines)
    model = load_model(path)
    assert getattr(model, block) is not None
    explained = re.findall(r"^  # .+\n(?:  # .+\n)*  (\w+):", lines, re.MULTILINE)
    assert [f"{block}.{key}" for key in explained] == [e.field for e in model.provenance if "." in e.field]


@pytest.mark.parametrize("tp", [1, 2])
def test_norms_of_queries_and_keys_see_the_heads_of_a_gpu(tp):
    """As wide as these are, of all tokens; each GPU has the two weights of a head."""
    model = load_model("qwen3_30b_a3b")
    layout = LayoutSpec(tp=tp, sequence_parallel=tp > 1)
    (norm,) = (one for one in block_operations(model, 1, layout) if one.name == "query and key norms")
    assert norm.saved_bytes == 2 * model.sequence * (32 + 4) * 128 / tp
    assert norm.parameters == 2 * 128
