"""Models and systems: read by name, type and unit, refused with the line."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused, require_refused
from ruamel.yaml import YAML

from ppmodel import build, simulate
from ppmodel.clusters.costs.transfers import pipeline_links
from ppmodel.clusters.specs import DATA, PLACEMENTS, NodeSpec, load_layout, load_model, load_system, packaged
from ppmodel.errors import CostError, SpecificationError

BAD = Path(__file__).parents[1] / "bad" / "systems"
GOOD = DATA / "systems" / "mid_cp_mid_nw.yaml"
EXPECTED = {
    "anchor.yaml": (1, "text", "has an anchor, an alias or a tag"),
    "beyond.yaml": (9, "network_bandwidth.value", "must be less", "1e+30"),
    "brace.yaml": (6, "text", "has a bracket or quotation", "close it"),
    "circle.yaml": (1, "text", "has an anchor, an alias or a tag"),
    "colon.yaml": (1, "text", "is not YAML", "in quotes"),
    "comma.yaml": (6, "network_bandwidth.value", "has a comma", "0.5"),
    "deep.yaml": (None, "text", "is nested too deeply"),
    "digits.yaml": (None, "text", "is not YAML"),
    "duplicate.yaml": (6, "network_latency", "is given twice"),
    "indented.yaml": (3, "text", "is not YAML", "indent the line"),
    "infinite.yaml": (None, "network_bandwidth.value", "must be a finite number"),
    "kind.yaml": (None, "memory_capacity.kind", "must be 'stated', 'digest', 'inferred'"),
    "latin1.yaml": (1, "text", "is not UTF-8"),
    "laughs.yaml": (1, "text", "has an anchor, an alias or a tag"),
    "list.yaml": (None, "document", "must be a mapping"),
    "missing.yaml": (None, "network_latency", "is missing", "add the key"),
    "model.yaml": (None, "file", "looks like a model file", "as the model"),
    "nan.yaml": (None, "network_bandwidth.value", "must be a finite number"),
    "negative.yaml": (None, "network_bandwidth.value", "must be greater than 0"),
    "nodes_empty.yaml": (11, "nodes.devices_per_node", "is missing"),
    "nodes_flag.yaml": (15, "nodes.shared_nic.value", "must be a valid boolean", "true or false"),
    "nodes_full.yaml": (16, "nodes.placement", "puts 5 ranks on"),
    "nodes_half.yaml": (12, "nodes.devices_per_node.value", "must be a whole number"),
    "nodes_missing.yaml": (11, "nodes.node_latency", "is missing"),
    "nodes_number.yaml": (16, "nodes.placement", "must be blocked, round-robin, folded"),
    "nodes_plain.yaml": (11, "nodes", "must be a block"),
    "nodes_unknown.yaml": (16, "nodes.node_latancy", "is not a known key", "node_latency"),
    "nodes_word.yaml": (16, "nodes.placement", "must be blocked, round-robin, folded"),
    "nounit.yaml": (None, "network_bandwidth.unit", "is missing"),
    "numeric_key.yaml": (11, "2026", "is not a known key"),
    "plain.yaml": (None, "network_bandwidth", "must be a mapping", "value: 50, unit: B/s or GB/s"),
    "space.yaml": (2, "text", "is not YAML", "a space after"),
    "tab.yaml": (3, "indentation", "has a tab where YAML"),
    "text.yaml": (None, "network_bandwidth.value", "must be a valid number"),
    "unit.yaml": (None, "network_bandwidth.unit", "must be 'B/s', 'GB/s', 'TB/s'"),
    "unknown.yaml": (None, "network_bandwith", "is not a known key", "network_bandwidth"),
    "zero.yaml": (None, "network_bandwidth.value", "must be greater than 0"),
}


def test_every_bad_file_has_its_message():
    """The folder of bad systems and the messages here name the same files."""
    assert {path.name for path in BAD.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_bad_files_are_refused(name):
    """Each broken file is refused in one line with file, line, field, value, rule and remedy."""
    require_refused(load_system, BAD / name, SpecificationError, EXPECTED[name])


def test_what_is_no_ordinary_file_is_refused_unread(tmp_path):
    """Devices, pipes, folders and files of absurd size are refused without being read."""
    os.mkfifo(tmp_path / "pipe.yaml")
    with open(tmp_path / "huge.yaml", "wb") as file:
        file.truncate(2**30)
    for path in ("/dev/zero", tmp_path / "pipe.yaml", tmp_path):
        with refused(SpecificationError, rule="file"):
            load_system(path)
    with refused(SpecificationError, "file", "more than 10000000"):
        load_system(tmp_path / "huge.yaml")


def test_messages_are_short_and_plain():
    """Whatever a value is, a message is one short line without control characters."""
    for value in ("x" * 10**6, "\x1b[31mred\n", 10**5000, list(range(10**5))):
        text = str(SpecificationError("field", value, "is wrong", "mend it"))
        assert len(text) < 300
        assert text.isprintable()


@pytest.mark.parametrize("name", ["negative.yaml", "unit.yaml", "unknown.yaml", "text.yaml"])
def test_the_line_is_the_fields(name):
    """The line that a message names is the line on which the field's key stands."""
    with pytest.raises(SpecificationError) as caught:
        load_system(BAD / name)
    line = int(caught.value.where.split(":")[1])
    assert "network_band" in (BAD / name).read_text().splitlines()[line - 1]


@pytest.mark.parametrize(
    ("name", "message"), [("unknown.yaml", "network_bandwith is not"), ("missing.yaml", "network_latency is missing")]
)
def test_an_unknown_or_missing_key_stands_alone(name, message):
    """The message has the key, not what stands below it; a key that a file does not have is on no line of it."""
    with pytest.raises(SpecificationError) as caught:
        load_system(BAD / name)
    line = "" if name == "missing.yaml" else r":\d+"
    assert re.match(rf"{re.escape(str(BAD / name))}{line}: {message}", str(caught.value))


@pytest.mark.parametrize("text", ["[" * 800, "title: x\n<<: {a: 1}\n", "", "\n", "---\n---\n", "{", "? a\n"])
def test_strange_yaml_costs_one_line(tmp_path, text):
    """Brackets without end, merged keys, nothing at all, two documents: one line, no traceback."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with refused(SpecificationError):
        load_system(path)


def test_units_are_converted_once():
    """Inside, everything is in SI; the file's own value and unit stay in the provenance."""
    system = load_system(GOOD)
    assert system.peak_compute_flops == 1e15
    assert system.memory_bandwidth_bytes_per_s == 34e12
    assert system.memory_latency_s == pytest.approx(50e-9)
    assert system.network_latency_s == pytest.approx(500e-9)
    given = {entry.field: (entry.value, entry.unit) for entry in system.provenance}
    assert given["network_bandwidth"] == (50, "GB/s")
    assert load_system("dgx_h100").network_bandwidth_bytes_per_s == 50e9  # 400 Gbit/s


def test_numbers_may_be_written_in_any_form(tmp_path):
    """Whole numbers, decimals and powers of ten are numbers (not so in older YAML)."""
    for written in ("50", "50.0", "5e1", "5.0E+1"):
        path = tmp_path / "mine.yaml"
        path.write_text(GOOD.read_text().replace("{value: 50, unit: GB/s", "{value: " + written + ", unit: GB/s"))
        assert load_system(path).network_bandwidth_bytes_per_s == 50e9


def test_the_nine_systems_are_a_grid():
    """Slow and fast are ten times worse and better than the middle, latency included."""
    middle = load_system("mid_cp_mid_nw")
    for word, factor in (("slow", 0.1), ("mid", 1), ("fast", 10)):
        compute, network = load_system(f"{word}_cp_mid_nw"), load_system(f"mid_cp_{word}_nw")
        assert compute.peak_compute_flops == pytest.approx(factor * middle.peak_compute_flops)
        assert compute.memory_bandwidth_bytes_per_s == pytest.approx(factor * middle.memory_bandwidth_bytes_per_s)
        assert compute.memory_latency_s == pytest.approx(middle.memory_latency_s / factor)
        assert network.network_bandwidth_bytes_per_s == pytest.approx(factor * middle.network_bandwidth_bytes_per_s)
        assert network.network_latency_s == pytest.approx(middle.network_latency_s / factor)
    assert {"slow", "mid", "fast"} == {name.split("_")[0] for name in packaged("systems") if name.endswith("_nw")}
    assert len([name for name in packaged("systems") if name.endswith("_nw")]) == 9


ROOMS = "layouts", "models", "starts", "systems"
PACKAGED = [path for room in ROOMS for path in sorted((DATA / room).glob("*.yaml"))]


@pytest.mark.parametrize("path", PACKAGED, ids=lambda path: path.stem)
def test_files_are_named_after_what_they_hold(path):
    """Each specification loads under its file's name, with a kind and a source beside every value."""
    loads = {"systems": load_system, "models": load_model, "layouts": load_layout}
    spec = load_system(path) if path.parent.name == "starts" else loads[path.parent.name](path.stem)
    assert spec.name == path.stem
    document = YAML().load(path)
    entries = set()
    for key, value in document.items():
        if isinstance(value, dict):
            entries |= {key} if "value" in value else {f"{key}.{one}" for one in value}
    differ = {entry.field for entry in spec.provenance} ^ entries
    remedy = f"only files of users are like {document['like']}: copy these" if "like" in document else "add these"
    assert not differ, f"{path.name}: {remedy}, with kind and source: {', '.join(sorted(differ))}"
    assert all(entry.kind and entry.source for entry in spec.provenance)


def with_nodes(**changed):
    return NodeSpec(**{
        "devices_per_node": 4, "node_bandwidth_bytes_per_s": 1e9, "node_latency_s": 0.0, "shared_nic": True,
        "placement": "blocked",
    } | changed)  # fmt: skip


@given(st.integers(1, 9), st.integers(1, 40), st.sampled_from(["blocked", "round-robin"]))
def test_nodes_are_as_few_as_hold_all_ranks(room, num_ranks, placement):
    """Blocked and round-robin use as few nodes as there is room for, numbered from 0, and overfill none."""
    nodes = with_nodes(devices_per_node=room, placement=placement).of_ranks(num_ranks)
    assert sorted(set(nodes.tolist())) == list(range(-(-num_ranks // room)))
    assert np.bincount(nodes).max() <= room


@given(st.integers(2, 9), st.integers(1, 40))
def test_folded_nodes_hold_both_ends(room, num_ranks):
    """Devices d and S-1-d share a node, as few nodes as there is room for whole pairs, and none is overfull."""
    nodes = with_nodes(devices_per_node=room, placement="folded").of_ranks(num_ranks).tolist()
    assert nodes == nodes[::-1]
    assert sorted(set(nodes)) == list(range(-(-((num_ranks + 1) // 2) // (room // 2))))
    assert np.bincount(nodes).max() <= room


def test_every_word_for_a_placement_is_one_of_a_file(tmp_path):
    """A file may name each of the words; a fold needs room for a pair."""
    text = (DATA / "systems" / "a2_highgpu_8g.yaml").read_text()
    path = tmp_path / "mine.yaml"
    for word in PLACEMENTS:
        path.write_text(text.replace("value: blocked", f"value: {word}"))
        assert load_system(path).nodes.placement == word
    with refused(SpecificationError, "nodes.placement", "puts 2 ranks on a node"):
        with_nodes(devices_per_node=1, placement="folded")


def test_placements_say_which_ranks_share_a_node():
    """Blocked keeps neighbours together, round-robin apart; a list is taken as it is, whatever its nodes are called."""
    assert with_nodes().of_ranks(6).tolist() == [0, 0, 0, 0, 1, 1]
    assert with_nodes(placement="round-robin").of_ranks(6).tolist() == [0, 1, 0, 1, 0, 1]
    folded = with_nodes(placement=(7, 3, 3, 7)).of_ranks(4)
    assert folded.tolist() == [0, 1, 1, 0]


def test_a_list_of_nodes_is_for_its_number_of_ranks():
    """A list for another number of ranks is refused where it is used, one that overfills a node at once."""
    with refused(SpecificationError, "nodes.placement", "gives the nodes of 2 ranks"):
        with_nodes(placement=(0, 1)).of_ranks(3)
    with refused(SpecificationError, "nodes.placement", "puts 3 ranks on a node"):
        with_nodes(devices_per_node=2, placement=(0, 0, 0))
    with refused(SpecificationError, "nodes.placement", "must be blocked, round-robin, folded"):
        with_nodes(placement="snake")


def test_nics_are_shared_where_messages_leave_nodes_that_share_one():
    """Cards are the nodes; there are none without nodes, on a single node, with own links, or where nothing queues."""
    shared, own, flat = (load_system(name) for name in ("a2_highgpu_8g", "dgx_h100_nodes", "dgx_h100"))
    in_16, in_8 = (pipeline_links(build("gpipe", ranks, 4), load_model("paper"), shared) for ranks in (16, 8))
    assert list(in_16.nics) == shared.nodes.of_ranks(16).tolist() == [0] * 8 + [1] * 8
    others = [pipeline_links(build("gpipe", 16, 4), load_model("paper"), system).nics for system in (own, flat)]
    assert [in_8.nics, *others] == [None] * 3


def test_systems_with_nodes_can_be_looked_up():
    """A specification with a list of nodes is a key of a dictionary, as all others are."""
    system = load_system("a2_highgpu_8g")
    listed = replace(system, nodes=replace(system.nodes, placement=(0, 1)))
    assert {system: 1, listed: 2}[replace(system)] == 1


def test_unknown_names_get_the_nearest(tmp_path, monkeypatch):
    """A misspelt name is refused with the nearest, one without its suffix with the file, a missing file as missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m30b.yaml").touch()
    with refused(SpecificationError, "model", "known name", remedy="m30b.yaml"):
        load_model("m30b")
    with refused(SpecificationError, "system", "known name", remedy="mid_cp_slow_nw"):
        load_system("mid_cp_slow")
    with refused(SpecificationError, "model", "known name", remedy="bloom_176b, deepseek_v2, deepseek_v3, "):
        load_model("zzz")
    with refused(SpecificationError, "system", "is not a file"):
        load_system("nowhere/mine.yaml")


def test_key_value_heads_divide_the_heads(tmp_path):
    """Grouped attention shares each key-value head among equally many heads."""
    path = tmp_path / "mine.yaml"
    text = (DATA / "models" / "llama3_70b.yaml").read_text()
    path.write_text(text.replace("{value: 8, kind", "{value: 7, kind"))
    with refused(SpecificationError, "kv_heads", "must divide heads", where=":11", remedy="a divisor of 64"):
        load_model(path)


def test_models_are_listed():
    """Every file of the folder is a model that loads under its name."""
    assert {"bloom_176b", "deepseek_v3", "gpt3_175b", "llama3_405b", "mixtral_8x7b", "paper"} <= set(packaged("models"))
    assert [load_model(name).name for name in packaged("models")] == sorted(packaged("models"))


CONFIG = {
    "num_hidden_layers": 60, "hidden_size": 5120, "num_attention_heads": 128, "intermediate_size": 12288,
    "vocab_size": 102400, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000, "attention_dropout": 0.0,
    "max_position_embeddings": 163840, "num_key_value_heads": 128, "tie_word_embeddings": False, "rope_scaling": None,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 160, "num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1536,
    "first_k_dense_replace": 1,
}  # fmt: skip


def test_a_published_configuration_is_a_model(tmp_path):
    """The config.json of DeepSeek-V2 has the sizes of the packaged file, and a batch of our choice."""
    (path := tmp_path / "config.json").write_text(json.dumps(CONFIG))
    packaged = load_model("deepseek_v2")
    assert replace(load_model(path), name=packaged.name, title=packaged.title, global_batch=9216) == packaged
    for kind in ({"model_type": "qwen2"}, {"model_type": "glm4", "attention_bias": True}):
        path.write_text(json.dumps(CONFIG | kind))
        assert (load_model(path).qkv_bias, load_model(path).bias) == (True, False)
    dense = {name: CONFIG[name] for name in [*CONFIG][:5]} | {"attention_dropout": 0.1, "hidden_act": "gelu"}
    path.write_text(json.dumps({"text_config": dense}))
    model = load_model(path)
    assert (model.norm, model.learned_positions, model.dropout, model.gated_mlp) == ("layernorm", True, True, False)
    assert (model.head_size, model.kv_heads, model.sequence, model.experts) == (40, 128, 4096, None)


@pytest.mark.parametrize(
    ("changed", "window", "every"),
    [
        ({"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 18}, (128, 2), 1),
        ({"sliding_window": 4096}, (4096, 0), 1),
        ({"sliding_window": 4096, "use_sliding_window": False, "decoder_sparse_step": 1}, (0, 0), 1),
        ({"intermediate_size_mlp": 16384, "interleave_moe_layer_step": 2}, (0, 0), 2),
    ],
)
def test_a_configuration_names_the_blocks_that_differ(tmp_path, changed, window, every):
    """Those with a window, as in gpt-oss and Mistral, and those with experts, as in Llama 4."""
    (path := tmp_path / "config.json").write_text(json.dumps(CONFIG | changed))
    model = load_model(path)
    assert ((model.window, model.global_every), model.experts.every) == (window, every)
    assert model.mlp_hidden == changed.get("intermediate_size_mlp", CONFIG["intermediate_size"])


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"hidden_size": None}, "hidden_size"), ({"hidden_size": "5120"}, "config"), ({"text_config": 3}, "config"),
     ({"vocab_size": -1}, "vocabulary.value"), ({"attention_dropout": "no"}, "config"),
     ({"n_routed_experts": 4}, "experts.experts_per_token"), ({"head_dim": 97}, "head_dim"),
     ({"mamba_d_state": 16}, "mamba_d_state"), ({"linear_conv_kernel_dim": 4}, "linear_conv_kernel_dim"),
     ({"layer_types": ["full_attention", "conv"]}, "layer_types")],
)  # fmt: skip
def test_a_configuration_with_a_mistake_is_refused(tmp_path, changed, field):
    """In one line that names the file and the key."""
    (path := tmp_path / "mine.json").write_text(json.dumps(CONFIG | changed))
    with refused(SpecificationError, field, where="mine.json"):
        load_model(path)
    with refused(SpecificationError, "system", "must end in"):
        load_system(path)


def test_a_configuration_cut_off_is_said_not_to_be_json(tmp_path):
    """At its line, without a word about YAML or entries."""
    (path := tmp_path / "config.json").write_text('{"hidden_size": 4096,\n')
    with refused(SpecificationError, "text", "is not JSON", where="config.json:2", remedy="the whole config.json"):
        load_model(path)


STRANGE = [True, 10**400, "1", "1_0", float("nan"), -1, {}, [1]]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: str(value)[:9])
@pytest.mark.parametrize(
    ("specification", "field"),
    [
        ("a100", "peak_compute_flops"), ("a100", "memory_latency_s"), ("a100.kernels", "product_half_rows"),
        ("a100.collectives", "data_sharing"), ("llama3_8b", "hidden"), ("llama3_8b", "gradient_bytes"),
    ],
)  # fmt: skip
def test_callers_give_numbers_that_a_file_could(specification, field, value):
    """Whoever makes a specification: no switch, text, NaN, number without an end or below zero."""
    name, _, block = specification.partition(".")
    whole = load_model(name) if name in packaged("models") else load_system(name)
    with refused(SpecificationError, field):
        replace(getattr(whole, block) if block else whole, **{field: value})


@pytest.mark.parametrize("written", ["1_0", "１", "0x10", "4,096", "9" * 400, "true", "1e400"])
def test_numbers_of_files_are_plain_digits(tmp_path, written):
    """What only some readers take for a number is none."""
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.read_text().replace("{value: 50, unit: GB/s", "{value: " + written + ", unit: GB/s"))
    with refused(SpecificationError, "network_bandwidth.value", where=str(path)):
        load_system(path)


@pytest.mark.parametrize("block", ["", "links:\n"])
def test_of_thousands_of_mistakes_the_first_is_named(tmp_path, block):
    """The first is named."""
    path = tmp_path / "mine.yaml"
    path.write_text(block + "".join(f"{' ' * len(block)}{number}: {number}\n" for number in range(12000)))
    with refused(SpecificationError, where=f"mine.yaml:{2 if block else 1}"):
        load_system(path)


@pytest.mark.parametrize(
    "constants",
    [{"host_exponent": 0.1, "block_host_s": 1e30}, {"weight_grad_efficiency": 1e-30, "product_half_rows": 1e30}],
)
def test_constants_never_keep_a_model_from_ending(constants):
    """Times without measure are refused before layers are balanced by them."""
    system = load_system("a100")
    system = replace(system, kernels=replace(system.kernels, **constants))
    with refused(CostError):
        simulate("1f1b", 4, 8, model="llama3_8b", system=system, dp=2, zero=3)
    with refused(SpecificationError, "host_exponent"):
        replace(system.kernels, host_exponent=0.0005)
    with refused(SpecificationError, "data_sharing"):
        replace(system.collectives, data_sharing=400)


def test_a_system_like_a_packaged_one_takes_what_its_file_leaves_open(tmp_path):
    """Value by value, in blocks as well, with a source that says so; errors of a fit stay with what was fitted."""
    mine, entry = tmp_path / "mine.yaml", '{value: 4, kind: our choice, source: "counted"}'
    mine.write_text(f"title: mine\nlike: a100_vtrain\nnodes:\n  devices_per_node: {entry}\n")
    system, other = load_system(mine), load_system("a100_vtrain")
    assert system.nodes == replace(other.nodes, devices_per_node=4)
    assert replace(system, name=other.name, title=other.title, nodes=other.nodes) == other
    assert system.errors is None
    assert other.errors is not None
    sources = {value.field: value.source for value in system.provenance}
    assert sources.pop("nodes.devices_per_node") == "counted"
    assert all(source.startswith("as a100_vtrain: ") for source in sources.values())
    mine.write_text(mine.read_text().replace("a100_vtrain", "h20O"))
    with pytest.raises(SpecificationError, match=r"mine.yaml:2: like = h20O: .* mean h200"):
        load_system(mine)


def test_gpus_have_the_memory_that_their_drivers_show():
    """In the source of each packaged system of a GPU; the paper's systems name none."""
    shown = {}
    for name in packaged("systems"):
        (entry,) = [value for value in load_system(name).provenance if value.field == "memory_capacity"]
        if match := re.search("shows ([0-9,]+) (MiB|bytes)", entry.source):
            size = int(match[1].replace(",", "")) * (2**20 if match[2] == "MiB" else 1)
            shown[name] = load_system(name).memory_capacity_bytes / size
    assert {"a100", "h100", "h200", "b200", "gb200", "gb300", "mi300x"} < shown.keys()
    assert list(shown.values()) == pytest.approx([1] * len(shown), rel=1e-4)
