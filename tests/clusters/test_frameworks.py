"""Training frameworks: profiles over a system, one default, the same answer at every door."""

from dataclasses import replace

import pytest
from refusals import refused

import ppmodel as pp
from ppmodel.clusters.specs import (
    DATA,
    FrameworkSpec,
    LayoutSpec,
    load_framework,
    load_model,
    load_system,
    packaged,
    with_framework,
)
from ppmodel.errors import CostError, PPModelError, SpecificationError
from ppmodel.studies.analysis import relative_to
from ppmodel.studies.measured import read_rows
from ppmodel.studies.measured.predict import point_of, predicted
from ppmodel.studies.measured.rows import COLUMNS, run_of, system_of
from ppmodel.studies.measured.start import start_under
from ppmodel.studies.measured.stated_run import stated_run

RUN = {"model": "llama3_70b", "system": "h100", "tp": 8, "dp": 2, "zero": 1, "global_batch": 64}


@pytest.mark.parametrize("name", packaged("frameworks"))
def test_packaged_frameworks_change_only_what_they_say(name):
    """A value that is left open stays the system's, the model's, or off."""
    framework, system, model = load_framework(name), load_system("h100"), load_model("llama3_70b")
    under = framework.system(system)
    assert under.framework == framework
    links = system.collectives if framework.data_factor != 1 else under.collectives
    assert replace(under, framework=None, kernels=system.kernels, memory=system.memory, collectives=links) == system
    fields = {entry.field for entry in framework.provenance}
    assert ("gradient_bytes" in fields) or framework.model(model) == model
    assert framework.system(load_system("mid_cp_mid_nw")).kernels is None  # a plain roofline stays one


def test_the_default_is_stated_and_overridden_by_a_fitted_system():
    """Systems that nobody fitted run under Megatron-LM's defaults; others as they were fitted."""
    for name in packaged("systems"):
        system = load_system(name)
        expected = system.framework or load_framework("megatron")
        assert with_framework(system).framework == expected
    assert pp.simulate("1f1b", 4, **RUN).to_dict()["framework"] == "megatron"
    assert pp.simulate("1f1b", 4, **RUN, framework="nemo").to_dict()["framework"] == load_framework("nemo").label


def test_a_framework_decides_alike_wherever_the_ranks_are_stated():
    """In a layout, as an argument, and in a plan's row: nanotron hides gradients of one rank without ZeRO."""
    given = {"model": "llama3_8b", "system": "h100", "framework": "nanotron"}
    sizes = {"tp": 4, "dp": 2, "global_batch": 64}
    times = [
        pp.simulate("1f1b", layout={"pp": 1} | sizes, **given).iteration_s,
        pp.simulate("1f1b", 1, **sizes, **given).iteration_s,
        *pp.plan(
            "llama3_8b", "h100", 8, 64, framework="nanotron", schedules="1f1b",
            fix={"pp": 1, "tp": 4, "zero": 0, "microbatch_size": 1, "recompute": "none", "sequence_parallel": False},
        ).iteration_s,
    ]  # fmt: skip
    assert len(times) > 2
    assert set(times) == {times[0]}


def test_a_layout_overrides_its_framework():
    """What a layout says holds; what it leaves open is the framework's."""
    hidden = pp.simulate("1f1b", 4, **RUN, framework="nemo")
    shown = pp.simulate("1f1b", 4, **RUN, framework="nemo", overlap_tensor=False)
    overlaps = {"overlap_tensor": True, "overlap_gradients": True, "overlap_parameters": True}
    plain = pp.simulate("1f1b", 4, **RUN, framework=FrameworkSpec(), **overlaps)
    assert hidden.layout.overlap_tensor
    assert not shown.layout.overlap_tensor
    assert hidden.to_dict()["tensor_s"] < shown.to_dict()["tensor_s"]
    assert hidden.makespan_s == plain.makespan_s  # narrower gradients cost the pipeline nothing
    assert LayoutSpec().under(load_framework("nemo")).at(4, 8) == LayoutSpec().under(load_framework("nemo")).at(4, 8)


@pytest.mark.filterwarnings("ignore:layers = even:ppmodel.studies.points.effect.NoEffectWarning")
def test_every_door_gives_the_same_seconds():
    """`simulate`, `compare` and `predict` agree on a run under each framework."""
    row = dict.fromkeys(COLUMNS, "1") | {
        "hidden": "4096", "heads": "32", "kv_heads": "8", "layers": "32", "mlp_hidden": "14336", "gated_mlp": "true",
        "vocabulary": "128256", "sequence": "8192", "attention": "flash", "schedule": "1f1b", "pp": "4", "tp": "2",
        "dp": "2", "zero": "1", "recompute": "none", "sequence_parallel": "true", "global_batch": "64",
    }  # fmt: skip
    for name in packaged("frameworks"):
        system = load_system("h100")
        of_row = predicted(row, system, load_framework(name))["predicted_iteration_s"]
        assert of_row == predicted(row | {"framework": name}, system)["predicted_iteration_s"]
        model = replace(load_model("llama3_8b"), tied_embeddings=False)
        given = {"model": model, "system": system, "framework": name, "tp": 2, "dp": 2, "zero": 1}
        given |= {"sequence_parallel": True, "layers": "even", "global_batch": 64}
        assert pp.simulate("1f1b", 4, **given).iteration_s == pytest.approx(of_row, rel=1e-12)
        assert pp.compare("1f1b", 4, **given).iteration_s[0] == pp.simulate("1f1b", 4, **given).iteration_s


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("dgxc-benchmarking v25", "nemo"),
        ("llm-foundry", "fsdp"),
        ("Ultra-Scale Playbook", "nanotron"),
        ("vTrain", "vtrain"),
        ("Megatron-DeepSpeed", "bigscience"),
        ("", "megatron"),
    ],
)
def test_sources_of_rows_name_frameworks(source, name):
    """Unless a column does, or the system was fitted with one."""
    assert system_of({"source": source}, load_system("h100")).framework.name == name
    assert system_of({"source": source, "framework": "fsdp"}, load_system("h100")).framework.name == "fsdp"
    fitted = load_system("a100_vtrain")
    assert system_of({"source": source}, fitted) == fitted


@pytest.mark.parametrize("framework", ["nemo", "nanotron"])
def test_what_a_row_names_counts_on_a_fitted_system(framework):
    """As in a simulation; a calibration takes it for all its rows, and then it is the system's own."""
    _, row = stated_run(f"llama3_8b pp=2 tp=2 dp=2 global_batch=8 zero=1 framework={framework}")
    system, layout = load_system("b200_simumax"), {"tp": 2, "dp": 2, "global_batch": 8, "zero": 1}
    run = pp.simulate("1f1b", 2, model="llama3_8b", system=system, framework=framework, **layout)
    assert predicted(row, system)["predicted_iteration_s"] == pytest.approx(run.iteration_s)
    start = start_under(system, rows=[row])
    assert start.framework.packaged == framework
    assert predicted(row, start)["predicted_iteration_s"] == pytest.approx(run.iteration_s)
    with refused(PPModelError, "framework", value=framework):
        start_under(system, load_framework("fsdp"), [row])


def test_bad_frameworks_are_refused(tmp_path):
    """By name, by file, and in rows (which never name a file)."""
    with refused(SpecificationError, "framework", "neither a known name"):
        pp.simulate("1f1b", 4, **RUN, framework="nope")
    with refused(CostError, "framework", "costs in seconds"):
        pp.simulate("1f1b", 4, 8, forward=1, backward=2, framework="nemo")
    own = tmp_path / "own.yaml"
    own.write_text("title: Own\noverlap_tensor: {value: 3, kind: stated, source: here}\n")
    with refused(SpecificationError, "overlap_tensor.value", "boolean"):
        load_framework(own)
    refused_row = predicted(dict.fromkeys(COLUMNS, "1") | {"framework": str(own)}, load_system("h100"))["refused"]
    assert "is not a known framework" in refused_row


def test_a_slow_link_is_used_as_the_framework_sends():
    """Without ``p2p``, by schedule, on every row; a link that is not slow, and another word, change nothing."""
    names, slow = ["1f1b", "zb-h1", "interleaved-1f1b"], "0-1:delay=1"
    sent = {"forward": 1, "backward": 2, "comm": 0.1}
    frame = pp.compare(names, 4, 8, **sent, links=[None, slow, "0-1:delay=0"])
    sending = ["rendezvous", "streams", "streams"]
    assert frame.p2p[frame.links == slow].tolist() == sending
    assert set(frame.p2p[frame.links != slow]) == {"overlapped"}
    apart = [pp.compare(name, 4, 8, **sent, links=slow, p2p=p2p) for name, p2p in zip(names, sending, strict=True)]
    assert frame.makespan_s[frame.links == slow].tolist() == [each.makespan_s[0] for each in apart]
    assert len(relative_to(frame, "1F1B")) == 6
    with pytest.warns(Warning, match="0-2"):  # a link that carries nothing
        assert pp.compare(names, 4, 8, **sent, links="0-2:delay=1").p2p.unique() == "overlapped"
    frame = pp.compare("1f1b", 4, **RUN, framework=["megatron", "nanotron", "plain"], links=slow)
    assert frame.p2p.tolist() == ["rendezvous", "blocking_recv", "overlapped"]
    for fitted, p2p in {"a100_vtrain": "rendezvous", "h100_playbook": "blocking_recv"}.items():
        system = load_system(fitted).with_links(slow)
        assert pp.simulate("1f1b", 4, 8, model="llama3_8b", system=system, tp=2).p2p == p2p
        _, row = stated_run("llama3_8b pp=4 tp=2 global_batch=8")
        assert point_of(run_of(row), system).semantics[0] == p2p


def test_the_old_name_of_a_framework_is_read():
    """As a name, in a row, and in the file of a system that was fitted under it."""
    assert load_framework("megatron_deepspeed") == load_framework("vtrain")
    row = {"framework": "megatron_deepspeed"}
    assert system_of(row, load_system("a100")).framework.name == "vtrain"
    assert FrameworkSpec(profile="megatron_deepspeed").packaged == "vtrain"


def test_a_range_is_that_of_its_framework():
    """Both ends in order; errors of a fit say nothing of another framework."""
    with refused(SpecificationError, "fastest", "is above slowest"):
        replace(load_framework("megatron"), fastest=2.0)
    with refused(SpecificationError, "slowest", "is missing beside fastest"):
        replace(load_framework("megatron"), slowest=None)
    fitted, nemo = load_system("h100_mlperf"), load_framework("nemo")
    assert with_framework(fitted).range == fitted.range
    assert with_framework(fitted, nemo).range == (nemo.fastest, nemo.slowest)


def test_a_run_of_a_kind_that_was_not_measured_has_a_reason_instead_of_a_range():
    """Under a framework, on a fitted system, and on one that names no runs; a link that is slow is such a kind, too."""
    llama, h100 = load_model("llama3_8b"), with_framework(load_system("h100"))
    fitted = load_system("h100_playbook")
    assert h100.range_of(llama, 8, "bf16")[0] == h100.range
    for system, gpus, precision, reason in (
        (h100, 8, "fp8", "no run under megatron in fp8 was measured"),
        (h100, 10**5, "bf16", "no run under megatron on more than 12288 GPUs was measured"),
        (h100.with_links("0-1:delay=20ms"), 8, "bf16", "no run under megatron with a slow link was measured"),
        (fitted, 8, "fp8", "no run in fp8 is among those that h100_playbook was fitted to"),
        (load_system("a800"), 8, "bf16", "a800 states none"),
    ):
        assert system.range_of(llama, gpus, precision) == (None, reason)


@pytest.mark.parametrize("layout", [{}, {"tp": 2}])
def test_every_row_of_a_model_names_its_framework(layout):
    """Also without a layout, since kernels and host times are the framework's; empty if it was fitted."""
    given = {"model": "llama3_8b", "system": ["h100", "a100_vtrain"], **layout}
    frame = pp.compare("1f1b", 4, 8, **given, framework=["megatron", "fsdp"], p2p="latency")
    assert frame.framework.tolist() == ["megatron", "megatron", "fsdp", "fsdp"]
    assert frame.makespan_s.nunique() == len(frame)
    assert pp.compare("1f1b", 4, 8, **given, p2p="latency").framework.tolist() == ["megatron", ""]


@pytest.mark.parametrize(("name", "most"), [("dgxc_h100", 1), ("mlperf_h100", 0), ("megatron_bridge", 0), ("nemo", 0)])
def test_runs_that_ran_on_h100_fit(name, most):
    """All in FP8, and all but one in bf16, which may fit."""
    system = load_system("h100")
    rows = [row for row in read_rows(DATA / "reference" / "measured" / f"{name}.csv")[1] if "H100" in row["device"]]
    words = [(predicted(row, system)["predicted_fit"], row["precision"]) for row in rows if row["status"] == "measured"]
    others = [(word, precision) for word, precision in words if word not in ("fits", "tight", None)]
    assert others == [("may not fit", "bf16")] * most


@pytest.mark.parametrize(
    ("row_id", "system", "layers"),
    [
        ("bridge-0005", "gb300", 20), ("bridge-0027", "gb200", 40), ("bridge-0036", "gb200", 40),
        ("bridge-0049", "gb200", 40), ("bridge-0062", "gb200", 95), ("nemo-0020", "gb200", 95),
    ],
)  # fmt: skip
def test_runs_that_offload_layers_fit_with_them(row_id, system, layers):
    """As many as NVIDIA's recipes say, and without them no run fits."""
    file = "nemo" if row_id.startswith("nemo") else "megatron_bridge"
    (row,) = (row for row in read_rows(DATA / "reference" / "measured" / f"{file}.csv")[1] if row["id"] == row_id)
    known = system_of(row, load_system(system))
    point = point_of(run_of(row, known.framework), known)
    assert point.layout.offload == layers
    assert replace(point, layout=replace(point.layout, offload=0)).run().to_dict()["fit"] == "does not fit"
    prediction = predicted(row, load_system(system))
    assert prediction["predicted_fit"] in ("fits", "tight")
    assert f"offload={layers}" in prediction["predicted_assuming"]
    assert abs(prediction["predicted_iteration_s"] / float(row["iteration_s"]) - 1) < 0.07  # copies are hidden


@pytest.mark.parametrize(
    ("precision", "kept"), [("fp8", "alone"), ("mxfp8", "alone"), ("fp8-blockwise", "beside"), ("nvfp4", "beside")]
)
def test_recipes_of_nvidia_keep_weights_alone_in_some_formats(precision, kept):
    """Those whose parameters are gathered in 8 bits; others have weights in 16 bits, too, unless a layout says more."""
    nemo = load_framework("nemo")
    assert LayoutSpec(precision=precision).under(nemo).quantised_weights == kept
    assert LayoutSpec().under(replace(nemo, precision=precision)).quantised_weights == kept
    assert LayoutSpec(precision=precision, quantised_weights="none").under(nemo).quantised_weights == "none"


@pytest.mark.parametrize("layout", ["llama3_405b_8k", "llama3_405b_8k_8192", "llama3_405b_128k"])
def test_llama_3_405b_fits_as_published(layout):
    """In the three layouts of its paper, under NVIDIA's recipes."""
    given = {"model": "llama3_405b", "system": "h100", "layout": layout, "framework": "nemo"}
    assert pp.simulate("interleaved-1f1b:chunks=8", **given).to_dict()["fit"] in ("fits", "tight")


def test_hosts_of_experts_take_as_long_as_in_the_runs_that_they_were_fitted_to():
    """Qwen3's experts on B200, whose launches CPUs hardly keep up with; runs on H100 ask for longer ones."""
    start = load_model("qwen2_57b_a14b")

    def qwen3(blocks, hidden, heads, width):
        experts = replace(start.experts, number=128, experts_per_token=8, hidden=width, shared=0)
        sizes = {"blocks": blocks, "hidden": hidden, "heads": heads, "kv_heads": 4, "head_size": 128}
        return replace(start, name="qwen3", experts=experts, **sizes)

    small, large = qwen3(48, 2048, 32, 768), qwen3(94, 4096, 64, 1536)
    vpp = ("interleaved-1f1b", {"chunks": 2})
    runs = [  # of 94 layers, embedding and head each take the place of one
        ("1f1b", small, {"pp": 1, "global_batch": 512, "precision": "fp8"}, 27.05),
        (vpp, large, {"pp": 8, "global_batch": 1024, "layers": "Et*5|" + "t*6|" * 14 + "t*5L"}, 16.0),
        (
            "1f1b",
            large,
            {"pp": 8, "global_batch": 1024, "precision": "fp8", "layers": "Et*11|" + "t*12|" * 6 + "t*11L"},
            16.9,
        ),
    ]
    ratios = [
        pp.compare(case, model=model, system="b200", framework="nemo", dp=8, ep=8, zero=1, **layout).iteration_s[0]
        / seconds
        for case, model, layout, seconds in runs
    ]
    assert sum(abs(ratio - 1) for ratio in ratios) / 3 < 0.06
