"""Arguments of training frameworks: those that their versions have, and whatever has none is listed."""

import json
import os
import re
import shlex
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from refusals import refused

from ppmodel import schedules
from ppmodel.cli import main
from ppmodel.cli.launched import started
from ppmodel.clusters.launch import launch, launch_values
from ppmodel.clusters.specs import LAYOUT_OPTIONS, LayoutSpec, load_model, packaged, parse_layers
from ppmodel.clusters.specs.launcher import load_launcher
from ppmodel.clusters.specs.layout import RECOMPUTE
from ppmodel.errors import CostError, SpecificationError
from ppmodel.studies.points.grid import resolve_point

NAMES = Path(__file__).parents[1] / "launchers"
LAYOUTS = [
    {},
    {"tp": 8, "sequence_parallel": True, "dp": 2, "zero": 1, "overlap_gradients": True, "overlap_parameters": True},
    {"tp": 4, "cp": 2, "dp": 4, "zero": 3, "recompute": "full", "overlap_tensor": True, "microbatch_size": 2},
    {"dp": 8, "zero": 2, "recompute": "selective", "context_exchange": "all-gather", "cp": 2, "causal": False},
    {"recompute": "light"},
    {"tp": 2, "recompute": 1, "offload": 0.5, "overlap_parameters": True, "zero": 1, "overlap_backward": False},
]


def names_of(arguments):
    """The names in arguments, without their values."""
    words = [re.sub(r"^(export |'|\")", "", argument) for argument in arguments]
    return {re.split("[ =]", word)[0] for word in words}


def listed_names(launcher):
    lines = (NAMES / f"{launcher}.txt").read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


def point_of(schedule, pp=4, microbatches=16, model="llama3_8b", **layout):
    return resolve_point(schedule, pp, microbatches, model=model, system="h100", **{"tp": 1} | layout)


@pytest.fixture(params=packaged("launchers"))
def launcher(request):
    return request.param


@pytest.mark.parametrize("schedule", schedules.names())
def test_every_argument_exists(schedule, launcher):
    """Each argument is one of the named version; each field is written or listed."""
    for layout in LAYOUTS:
        point = point_of(schedule, **layout | ({"microbatches": 4} if schedule == "hanayo" else {}))
        written = launch(point, load_launcher(launcher))
        assert names_of(written.arguments) <= listed_names(launcher)
        assert not any("$" in argument for argument in written.arguments)
        assert not any("light" in argument for argument in written.arguments)  # a word of ours
        if layout.get("offload"):
            assert "offload" in written.without
        if layout.get("causal") is False:
            assert "causal" in written.without


def test_every_rule_writes_arguments_that_exist(launcher):
    """Also those that no layout of the test above reaches; what they depend on is a field."""
    values = launch_values(point_of("1f1b")).keys() | {"etp"}
    for field, rules in load_launcher(launcher).fields.items():
        assert field in values
        for rule in rules:
            assert rule.when.keys() <= values
            assert names_of(rule.write or ()) <= listed_names(launcher)
            assert rule.write is None or not rule.lacks


@pytest.mark.parametrize("recompute", [*RECOMPUTE, 0, 2])
def test_a_new_way_to_recompute_needs_rules_of_that_field_alone(recompute, launcher):
    """Where others depend on it, it is on whether whole layers are recomputed, all of them or some."""
    point = point_of("combined-1f1b", recompute=recompute)
    assert launch_values(point)["whole_layers"] is (recompute in ("full", 0, 2))
    rules = [rule for field, rules in load_launcher(launcher).fields.items() if field != "recompute" for rule in rules]
    assert all("recompute" not in rule.when for rule in rules)


def test_single_modules_are_written_by_their_names():
    """One or several; a framework without them has an argument for none."""
    point = point_of("1f1b", 2, 4, "deepseek_v3", recompute="moe_act+mla_up_proj")
    assert "--recompute-modules moe_act mla_up_proj" in launch(point, load_launcher("megatron")).arguments
    written = " ".join(launch(point, load_launcher("megatron-bridge")).arguments)
    assert "model.recompute_modules=[moe_act,mla_up_proj]" in written
    assert "recompute" in launch(point, load_launcher("torchtitan")).without
    point = point_of("1f1b", 2, 4, "deepseek_v3", offload="moe_act+expert_fc1")
    written = launch(point, load_launcher("megatron")).arguments
    assert {
        "export NVTE_CPU_OFFLOAD_V1=1",
        "--fine-grained-activation-offloading",
        "--offload-modules moe_act expert_fc1",
    } <= {*written}
    assert "model.offload_modules=[moe_act,expert_fc1]" in " ".join(
        launch(point, load_launcher("megatron-bridge")).arguments
    )
    assert launch(point, load_launcher("nemo")).without["offload"] == (
        "moe_act+expert_fc1",
        "it copies whole layers, no single modules",
    )


@pytest.mark.parametrize(
    ("precision", "recipe"),
    [("fp8", "--fp8-format hybrid"), ("fp8-blockwise", "--fp8-recipe blockwise"), ("mxfp8", "--fp8-recipe mxfp8"),
     ("nvfp4", "--fp4-recipe nvfp4")],
)  # fmt: skip
def test_each_number_format_has_its_recipe(precision, recipe):
    """What the format leaves is computed in bf16; weights are kept in it by the distributed optimizer alone."""
    given = {"model": "llama3_8b", "system": "gb200", "precision": precision, "quantised_weights": "alone"}
    for zero in (0, 1):
        made = launch(resolve_point("1f1b", 2, 4, dp=2, zero=zero, **given), load_launcher("megatron"))
        assert {"--bf16", recipe} <= {*made.arguments}
        assert (
            (f"--{recipe[2:5]}-param-gather" in made.arguments) == (zero == 1) != ("quantised_weights" in made.without)
        )


def test_whole_layers_are_offloaded_without_a_pipeline():
    """By their number; a share is of no framework."""
    written = [launch(point_of("1f1b", pp, 4, offload=8), load_launcher("megatron")) for pp in (1, 4)]
    assert "--cpu-offloading-num-layers 8" in written[0].arguments
    assert written[1].without["offload"][1] == "it copies whole layers only without a pipeline"
    share = launch(point_of("1f1b", 1, 4, offload=0.5), load_launcher("megatron")).without["offload"]
    assert share == (0.5, "it copies modules or whole layers, no share of activations")


def test_every_field_is_written_or_listed(launcher):
    """A switch or a word that differs from the default is not dropped: if no rule is about it, it is listed.

    So it is in every run in which it has an effect; where nothing is sliced, slices are not missing.
    """
    spec, size = load_launcher(launcher), {"model": "mixtral_8x7b", "tp": 2, "cp": 2, "ep": 2, "dp": 2}
    size |= {"offload": 0.5, "lengths": "4096,8192"}
    for name, option in LAYOUT_OPTIONS.items():
        default = getattr(LayoutSpec, name)
        if name in spec.fields or option.entry.type not in (bool, str) or default is None:
            continue
        value = next(value for value in option.texts.values() if value != default) if option.texts else "4096,8192"
        pairs, slices = (
            launch(point_of(schedule, **size | {name: value}), spec).without for schedule in ("dualpipev", "seq1f1b")
        )
        assert (slices if name == "slicing" else pairs)[name] == (value, "")
        assert "slicing" not in pairs


@pytest.mark.parametrize(
    ("schedule", "launchers"),
    [
        ("1f1b", {"deepspeed", "megatron", "megatron-bridge", "nemo", "torchtitan"}),
        ("interleaved-1f1b", {"megatron", "megatron-bridge", "nemo", "torchtitan"}),
        ("gpipe", {"torchtitan"}), ("zb-v", {"torchtitan"}), ("zb-h1", {"torchtitan"}), ("dualpipev", {"torchtitan"}),
        ("chimera", set()), ("dualpipe", set()),
    ],
)  # fmt: skip
def test_who_runs_a_schedule(schedule, launchers):
    """The frameworks without an argument for a schedule say so."""
    point = point_of(schedule)
    assert {
        name for name in packaged("launchers") if "schedule" not in launch(point, load_launcher(name)).without
    } == launchers


@pytest.mark.parametrize(
    ("schedule", "layers", "text"),
    [
        ("1f1b", [8, 8, 8, 8], "Et*8|(t*8|)*2t*8L"), ("1f1b", [7, 9, 9, 7], "Et*7|(t*9|)*2t*7L"),
        ("1f1b", [1, 10, 20, 1], "Et|t*10|t*20|tL"), ("1f1b", "Et*7|t*9|t*9|t*7L", "Et*7|(t*9|)*2t*7L"),
        ("interleaved-1f1b", [4] * 8, "Et*4|(t*4|)*6t*4L"),
    ],
)  # fmt: skip
def test_layout_strings(schedule, layers, text):
    """They are what Megatron-LM's notation means, and are written only where stages are not alike."""
    values = launch_values(point_of(schedule, layers=layers))
    assert values["layers"] == text
    blocks = [stage.blocks for stage in parse_layers(text)]
    assert isinstance(layers, str) or blocks == layers
    written = names_of(launch(point_of(schedule, layers=layers), load_launcher("megatron")).arguments)
    assert ("--pipeline-model-parallel-layout" in written) == (len(set(blocks)) > 1)
    assert ("--num-virtual-stages-per-pipeline-rank" in written) == (len(blocks) == 8)


@pytest.mark.parametrize("launcher", ["megatron", "megatron-bridge", "nemo"])
def test_one_connection_hides_nothing_that_the_answer_does_not(launcher):
    """Without sequence parallelism tensor collectives are not overlapped, and the variable would hide others."""
    point = point_of("1f1b", tp=2, overlap_tensor=True, overlap_backward=False)
    made = launch(point, load_launcher(launcher))
    assert not any("CUDA_DEVICE_MAX_CONNECTIONS" in argument for argument in made.arguments)


def test_known_commands():
    """What a known layout is in Megatron-LM and torchtitan."""
    point = point_of(
        "interleaved-1f1b", tp=4, dp=2, zero=1, sequence_parallel=True, precision="fp8", recompute="full", layers="even"
    )
    assert launch(point, load_launcher("megatron")).arguments == [
        "export CUDA_DEVICE_MAX_CONNECTIONS=1", "--pipeline-model-parallel-size 4",
        "--num-virtual-stages-per-pipeline-rank 2", "--tensor-model-parallel-size 4", "--sequence-parallel",
        "--context-parallel-size 1", "--micro-batch-size 1", "--global-batch-size 32", "--seq-length 8192",
        "--max-position-embeddings 8192", "--use-distributed-optimizer", "--recompute-granularity full",
        "--recompute-method uniform", "--recompute-num-layers 1", "--bf16", "--fp8-format hybrid",
        "--num-layers 32", "--hidden-size 4096", "--num-attention-heads 32", "--group-query-attention",
        "--num-query-groups 8", "--kv-channels 128", "--ffn-hidden-size 14336", "--swiglu", "--normalization RMSNorm",
        "--disable-bias-linear", "--attention-dropout 0", "--hidden-dropout 0", "--position-embedding-type rope",
        "--untie-embeddings-and-output-weights",
    ]  # fmt: skip
    ends = launch(point_of("1f1b", layers=[7, 9, 9, 7]), load_launcher("torchtitan")).arguments
    assert {"--parallelism.pipeline_parallel_layers_per_stage 9", "--training.local_batch_size 16"} <= set(ends)
    assert "--parallelism.pipeline_parallel_first_stage_less_layers 2" in ends


@pytest.mark.parametrize("model", packaged("models"))
def test_a_models_arguments_say_all_of_its_sizes(model):
    """Experts and latents where it has them, and nowhere else; no value is left open."""
    spec, written = load_model(model), launch(point_of("1f1b", 2, model=model), load_launcher("megatron")).arguments
    assert not any("None" in argument for argument in written)
    arguments = dict(argument.partition(" ")[::2] for argument in written)
    assert arguments["--num-layers"] == str(spec.blocks)
    assert ("--add-qkv-bias" in arguments) == model.startswith(("qwen2", "stp"))
    assert ("--num-experts" in arguments, "--kv-lora-rank" in arguments) == (
        spec.experts is not None,
        spec.latent_attention is not None,
    )
    if spec.experts and spec.experts.dense_layers:
        assert sum(eval(arguments["--moe-layer-freq"][1:-1])) == spec.blocks - spec.experts.dense_layers


@pytest.mark.parametrize("launcher", ["megatron", "megatron-bridge", "nemo"])
def test_experts_are_exchanged_as_they_are_priced(launcher):
    """In one all-to-all, not the all-gather that is the default; tensor parallelism needs sequence parallelism."""
    sizes = {"model": "mixtral_8x7b", "tp": 2, "ep": 4, "dp": 4}
    written = launch(point_of("1f1b", sequence_parallel=True, **sizes), load_launcher(launcher))
    arguments = " ".join(written.arguments).replace("=", " ").replace("_", "-")
    assert "moe-token-dispatcher-type alltoall" in arguments
    assert "moe-grouped-gemm" in arguments
    assert "sequence_parallel" not in written.without
    assert "sequence_parallel" in launch(point_of("1f1b", **sizes), load_launcher(launcher)).without


@pytest.mark.parametrize("way", RECOMPUTE)
def test_no_way_to_recompute_is_taken_for_a_number_of_layers(launcher, way):
    """A launcher's last rule writes a number: words have rules of their own."""
    arguments = launch(point_of("1f1b", recompute=way), load_launcher(launcher)).arguments
    assert not any(re.search(rf"layers[ =]{way}$", argument) for argument in arguments)


def test_light_recomputation_is_that_of_the_model():
    """What a model has of it runs again; other frameworks have none."""
    point = point_of("1f1b", 16, 32, "deepseek_v3", ep=8, dp=8, recompute="light")
    assert "--recompute-modules layernorm moe_act mla_up_proj" in launch(point, load_launcher("megatron")).arguments
    assert "recompute" in launch(point_of("1f1b", recompute="light"), load_launcher("megatron")).without


@pytest.mark.parametrize("group", [(8, 4), (9, 5), (10, 5), (3, 0)])
def test_groups_of_microbatches(group):
    """The size of a group is written where it is not the number of ranks; fewer microbatches than ranks are refused."""
    microbatches, size = group
    written = launch(point_of("interleaved-1f1b", microbatches=microbatches), load_launcher("megatron"))
    argument = f"--microbatch-group-size-per-virtual-pipeline-stage {size}"
    assert (argument in written.arguments) == (size not in (0, 4))
    assert ("group" in written.without) == (size == 0)


def test_how_weights_are_gathered_is_written_or_listed(launcher):
    """On its own; behind a schedule that the framework lacks, with that."""
    for fsdp in ("keep", "drop"):
        written = launch(point_of(f"1f1b:fsdp={fsdp},lookahead=1", dp=8, zero=3), load_launcher(launcher))
        assert written.without["lookahead"] == (1, "")
        reshards = f"--parallelism.fsdp_reshard_after_forward {'never' if fsdp == 'keep' else 'always'}"
        assert (reshards in written.arguments) if launcher == "torchtitan" else written.without["fsdp"] == (fsdp, "")
    without = launch(point_of("chimera:fsdp=keep", dp=8, zero=3), load_launcher(launcher)).without
    assert without["schedule"][0] == "chimera:fsdp=keep"
    assert "fsdp" not in without


def test_a_schedule_of_a_file_is_listed(launcher):
    """Whatever its name, it is not the registered one."""
    table = schedules.build("1f1b", 4, 16)
    point = resolve_point(table, model="llama3_8b", system="h100", tp=1)
    assert "schedule" in launch(point, load_launcher(launcher)).without


def test_refusals(tmp_path):
    """Seconds have no layout; a launcher's file is checked like any other."""
    with refused(CostError, "launch"):
        launch(resolve_point("1f1b", 4, 8, forward=1, backward=2), load_launcher("nemo"))
    (tmp_path / "mine.yaml").write_text("title: mine\nversion: '1'\nsource: here\nfields: {tp: [{wrote: []}]}\n")
    with refused(SpecificationError, "fields.tp.0.wrote"):
        load_launcher(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("words", "--a $nope"),
        ("words", "$(x)"),
        ("words", "--a $"),
        ("words", ""),
        ("words", "--a '$tp"),
        ("words", "A.b=exec('x')"),
        ("words", "A.b=(c)"),
        ("json", "a"),
        ("json", "a=["),
    ],
)
def test_what_is_no_argument_is_refused(form, text, tmp_path):
    """A launcher's argument that names no field, or is no JSON where JSON is written, is refused with its field."""
    document = {"title": "t", "version": "1", "source": "s", "form": form, "fields": {"tp": [{"write": [text]}]}}
    (tmp_path / "mine.yaml").write_text(json.dumps(document))
    with refused(SpecificationError, "fields.tp.write"):
        launch(point_of("1f1b"), load_launcher(tmp_path / "mine.yaml"))


def test_a_launchers_file_prints_no_shell_code(tmp_path):
    """Each word is quoted, whatever the file or the name of a schedule's file says."""
    path = tmp_path / "mine.yaml"
    texts = ["--a $tp; touch x", "$$(touch x) `touch x`", "--b '$$(x)' \"$schedule's\" | sh"]
    path.write_text(json.dumps({"title": "t", "version": "1", "source": "s", "fields": {"tp": [{"write": texts}]}}))
    assert launch(point_of("1f1b"), load_launcher(path)).arguments == [
        "--a '1;' touch x", "'$(touch' 'x)' '`touch' 'x`'", """--b '$(x)' "1f1b's" '|' sh""",
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["title", "version", "yours", "fields.tp.0.lacks", "fields.tp.0.write.0"])
@pytest.mark.parametrize("control", ["\n", "\x1b", "\u2028"])
def test_texts_of_more_than_a_line_are_refused(field, control, tmp_path):
    """A launcher's file puts no line of its own into what is printed."""
    text = f"a{control}rm -rf ."
    rule = {field.split(".")[-1]: text} if field.endswith("lacks") else {"write": [text]}
    document = {"title": "t", "version": "1", "source": "s", "yours": "", "fields": {"tp": [rule]}}
    if field in document:
        document |= {field: text, "fields": {}}
    (tmp_path / "mine.yaml").write_text(json.dumps(document))
    with refused(SpecificationError, field, "must be one line"):
        load_launcher(tmp_path / "mine.yaml")


@pytest.mark.parametrize("fields", [{"moe_etp": "--a"}, {"tp": [{"when": {"nope": 1}, "write": ["--a"]}]}])
def test_a_field_that_no_run_has_is_refused(fields, tmp_path):
    """Whether or not its rule holds."""
    document = {"title": "t", "version": "1", "source": "s", "fields": fields}
    (tmp_path / "mine.yaml").write_text(json.dumps(document))
    with refused(SpecificationError, f"fields.{next(iter(fields))}", "is no field"):
        launch(point_of("1f1b"), load_launcher(tmp_path / "mine.yaml"))


@pytest.mark.parametrize("launcher_name", ["megatron", "nemo", "deepspeed"])
def test_the_command_prints_them(launcher_name, capsys):
    """As text to paste and in JSON."""
    arguments = "simulate 1f1b --pp 4 --microbatches 8 --model llama3_8b --system h100 --tp 2 --zero 3 --overlap-tensor"
    assert main([*arguments.split(), "--launch", launcher_name]) == 0
    assert load_launcher(launcher_name).version in capsys.readouterr().out


def test_a_plan_prints_those_of_the_answer_it_explains(capsys):
    """In JSON beside the answers, as the layout of that answer."""
    line = "plan 1f1b tp=2 --model llama3_8b --system h100 --gpus 8 --global-batch 32 --launch megatron --json"
    assert main(line.split()) == 0
    plan = json.loads(capsys.readouterr().out)
    assert f"--pipeline-model-parallel-size {plan['answers'][0]['pp']}" in plan["launch"]["arguments"]
    assert "--tensor-model-parallel-size 2" in plan["launch"]["arguments"]


@pytest.mark.parametrize("name", [name for name in packaged("launchers") if load_launcher(name).script])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_script_starts_what_the_arguments_say(name, layout, tmp_path):
    """Run with a torchrun that prints its words: those of the layout, and what the user set, each as it is; without a
    variable of the user's, it stops. It is clean for shellcheck, where that is installed."""
    launcher, point = load_launcher(name), point_of("interleaved-1f1b:chunks=2", **layout)
    (tmp_path / "torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "run.sh").write_text(started(launcher, point))
    yours = {name: f"/a b/$HOME;{name}" for name in launcher.script.yours}
    run = partial(subprocess.run, ["bash", "run.sh"], cwd=tmp_path, capture_output=True, text=True)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = run(env=environment | yours, check=True).stdout.splitlines()
    arguments = [argument for argument in launch(point, launcher).arguments if not argument.startswith("export ")]
    layout_words = shlex.split(" ".join(arguments))
    first = words.index(layout_words[0])
    assert words[first : first + len(layout_words)] == layout_words
    assert all(any(value in word for word in words) for value in yours.values())
    gpus, devices = point.complete_layout.gpus, int(words[words.index("--nproc-per-node") + 1])
    assert int(words[words.index("--nnodes") + 1]) * devices == gpus
    assert names_of(word for word in words[first:] if word.startswith("--")) <= listed_names(name)
    for missing in yours:
        done = run(env=environment | {name: value for name, value in yours.items() if name != missing})
        assert (done.returncode != 0, missing in done.stderr, done.stdout) == (True, True, "")
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", tmp_path / "run.sh"], check=True)


def test_a_plan_writes_the_script_of_a_row(tmp_path, capsys):
    """Beside the answer, for the layout of that row."""
    line = "plan 1f1b tp=2 --model llama3_8b --system h100 --gpus 8 --global-batch 32 --explain 2 --launch megatron"
    assert main([*line.split(), "--out", str(tmp_path / "run.sh"), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    text = (tmp_path / "run.sh").read_text()
    assert all(argument in text for argument in plan["launch"]["arguments"])
    assert f"--pipeline-model-parallel-size {plan['answers'][1]['pp']} " in text


@pytest.mark.parametrize(("field", "value"), [
    ("program", "$(rm)"), ("program", "a;b"), ("arguments", ["--a 'b"]), ("yours", {"a b": "x"}),
    ("yours", {"A": "x\ny"}),
])  # fmt: skip
def test_a_script_with_what_a_shell_would_run_is_refused(field, value, tmp_path):
    """Words, and names of variables."""
    script = {"program": "a", "arguments": [], "yours": {}} | {field: value}
    document = {"title": "t", "version": "1", "source": "s", "fields": {}, "script": script}
    (tmp_path / "mine.yaml").write_text(json.dumps(document))
    with refused(SpecificationError):
        load_launcher(tmp_path / "mine.yaml")
