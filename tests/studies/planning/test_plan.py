"""Plans: pruned as good as exhaustive, the same every time, and refused where nothing can be planned."""

import json
import re
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from refusals import refused

import ppmodel as pp
from ppmodel.cli import main
from ppmodel.cli.planned import answer_text
from ppmodel.clusters.specs import ORDERS, load_framework, load_model, load_system
from ppmodel.clusters.specs.available import error_of_differences
from ppmodel.clusters.specs.layout import DISPATCHERS, LAYOUT_KEYWORDS
from ppmodel.clusters.specs.lengths import SLICINGS
from ppmodel.errors import PPModelError, SweepError, TableError
from ppmodel.schedules import small
from ppmodel.schedules.cases import as_case
from ppmodel.studies.planning import Candidate, asked, front, planned, search
from ppmodel.studies.planning.answer import Plan
from ppmodel.studies.planning.candidate_search import Limits, _latest, _Search, candidates_of
from ppmodel.studies.planning.candidates import all_sizes, cases_at, divisions
from ppmodel.studies.planning.risk import chances
from ppmodel.studies.points import NoEffectWarning, resolve, rows_of
from ppmodel.studies.points.grid import resolve_point

SMALL = {"model": "llama3_8b", "system": "h100", "gpus": 8, "global_batch": 16}
SOME = ["1f1b", "interleaved-1f1b:chunks=2", "zb-v", "zb-h1", "chimera", "dualpipev"]


def every_candidate(question):
    """Each candidate of a question that fits, simulated."""
    for sizes in all_sizes(question):
        for case, (zero, layers), recompute, order, slicing in product(
            cases_at(question, sizes.pp), divisions(question, sizes), ["none", "selective", "full", *range(1, 9)],
            ORDERS, SLICINGS,
        ):  # fmt: skip
            if slicing != SLICINGS[0] and small(case.name).slices == 1:
                continue
            layout = {name: value for name, value in sizes._asdict().items() if name not in ("pp", "etp")}
            points = resolve(
                case, sizes.pp, model=question.model, system=question.system, zero=zero, layers=layers,
                recompute=recompute, sequence_parallel=sizes.tp > 1, global_batch=question.global_batch,
                order=order, slicing=slicing, **layout,
            ).points()  # fmt: skip
            (row,) = rows_of(points)
            if row["refused"] is None and row["fits"]:
                is_run = case.name == "1f1b" and zero <= 1
                bytes_and_s = row["peak_memory_bytes"], row["iteration_s"]
                yield Candidate(case, sizes, is_run, zero, recompute, layers, order, *bytes_and_s, slicing)


def same(candidate):
    """What two candidates share that differ at most in words: layers that are divided alike take as long."""
    return candidate[:5], candidate.slicing, f"{candidate.iteration_s:.9e}"


def test_the_order_in_which_schedules_are_named_decides_nothing():
    """Where one rank has the whole model, all take the same time."""
    named = ["zb-v", "interleaved-1f1b"]
    question = {"gpus": 4, "global_batch": 12, "framework": "nemo"}
    first, second = (pp.plan("llama2_13b", "h100", schedules=names, **question) for names in (named, named[::-1]))
    assert first.equals(second)


@pytest.mark.parametrize(("limit", "devices", "more"), [
    (None, 8, {}), ("60 GiB", 8, {}), (None, 2, {}),
    (None, 8, {"gpus": 8, "global_batch": 4, "sequence": 32768, "schedules": ["1f1b", "seq1f1b:chunks=1"], "pp": 4}),
])  # fmt: skip
def test_pruned_is_as_good_as_exhaustive(limit, devices, more):
    """Every simulated candidate within the share of its kind's best is found; with recomputation, none is faster."""
    system = load_system("h100")
    system = replace(system, nodes=replace(system.nodes, devices_per_node=devices))
    given = SMALL | {"system": system, "gpus": 4, "schedules": ["1f1b", "zb-v", "dualpipev"]}
    given |= {"memory_limit": limit, "within": 0.5} | more
    given["fix"] = {"microbatch_size": 1} | ({"pp": given.pop("pp")} if "pp" in more else {})
    question = asked(**given)
    pruned, exhaustive, limits = search(question), list(every_candidate(question)), Limits(question)
    limits.add(exhaustive)
    for is_run, best in limits.best.items():
        of_kind = [candidate.iteration_s for candidate in pruned if candidate.is_run is is_run]
        if limits.accepts(best):
            assert min(of_kind) == pytest.approx(best.iteration_s, rel=1e-12)
    wanted = list(filter(limits.accepts, exhaustive))
    assert {same(candidate) for candidate in pruned if candidate.recompute in ("none", "full")} <= set(
        map(same, wanted)
    )
    plain = {same(candidate) for candidate in wanted if candidate.recompute == "none"}
    assert plain == {same(candidate) for candidate in pruned if candidate.recompute == "none"}
    assert len(plain) > (3 if limit is None else 0)
    assert {candidate.order for candidate in pruned} == set(ORDERS[: 1 + (devices < question.gpus)])
    assert {candidate.slicing for candidate in pruned} == set(SLICINGS[: 1 + ("sequence" in more)])


@pytest.mark.parametrize("more", [
    {"schedules": SOME}, {"sequence": 1024, "schedules": "1f1b"},
    {"model": "mixtral_8x7b", "system": "h200", "schedules": "1f1b", "fix": {"cp": 1}},
    {"global_batch": 4, "sequence": 65536, "schedules": ["seq1f1b:slices=4,chunks=1"]},
], ids=["schedules", "sequence", "experts", "slices"])  # fmt: skip
def test_an_answer_is_a_point_that_anybody_can_simulate(more):
    """Each row, given back as it is, takes the same time and memory, and none is idle for less than no time."""
    given = SMALL | {"within": 0.2} | more
    frame = pp.plan(**given)
    assert "model" not in more or {type(etp) for etp in frame.etp} == {int, type(None)}
    for _, row in frame.iterrows():
        values = {name: row[name] for name in LAYOUT_KEYWORDS if name in row.dropna()}
        run = resolve_point(
            row.schedule + (f":{row.options.replace(' ', ',')}" if row.options else ""), row.pp, model=given["model"],
            system=given["system"], **values,
        ).run().to_dict()  # fmt: skip
        assert run["iteration_s"] == pytest.approx(row.iteration_s, rel=1e-9)
        assert run["peak_memory_bytes"] == row.peak_memory_bytes
    assert (frame.filter(like="ratio") >= 0).all(axis=None)


def test_links_that_nothing_searched_crosses_are_named():
    """One that only the best avoids is not: it decides where that is."""
    links = "0-1:delay=1s 0-3:delay=1ms 1-2:delay=1ms 2-99:delay=1ms"
    with pytest.warns(NoEffectWarning) as caught:
        frame = pp.plan(**SMALL | {"gpus": 4, "schedules": "1f1b", "links": links})
    assert [warning.message.value for warning in caught] == ["0-3:delay=0.001", "2-99:delay=0.001"]
    assert frame.pp[0] == 1


def test_fixed_chunks_leave_no_answer_without_a_pipeline():
    """What is fixed holds in every answer."""
    frame = pp.plan(**SMALL | {"gpus": 2, "fix": {"chunks": 2}})
    assert {(row.pp, row.options.removeprefix("slices=2 ")) for row in frame.itertuples()} == {(2, "chunks=2")}
    with refused(field="fix", rule="no schedule"):
        pp.plan(**SMALL | {"gpus": 2, "fix": {"chunks": 2, "pp": 1}})


@pytest.mark.parametrize(
    ("system", "more"),
    [("h100", {"fix": {"offload": 0.5}, "schedules": ["1f1b", "zb-v"]}), ("b200_simumax", {"schedules": ["zb-2p"]})],
)
def test_memory_of_a_candidate_is_that_of_its_run(system, more):
    """Also where it depends on times: of copies that are under way, or of an order that is searched for them."""
    plan = planned("stp_12b", system, 6, 12, within=0.2, **more)
    assert plan.rows(plan.candidates).peak_memory_bytes.tolist() == [entry.peak_bytes for entry in plan.candidates]
    assert len(plan.candidates) > 3


def test_what_is_offloaded_leaves_room():
    """A fixed offloading lets plans fit."""
    given = SMALL | {"fix": {"offload": 0.9, "pp": 4, "cp": 1}, "schedules": ["gpipe"], "memory_limit": "45 GiB"}
    assert planned(**given).candidates
    with pytest.raises(PPModelError, match="in every layout of these schedules"):
        planned(**given | {"fix": {"pp": 4, "cp": 1}})


def test_as_many_layers_are_offloaded_as_any_division_has():
    """Balanced, a stage has two of four layers; even, one."""
    given = {"gpus": 2, "global_batch": 4, "schedules": "interleaved-1f1b:chunks=2", "within": 1}
    fix = {"pp": 2, "offload": 2, "microbatch_size": 1}
    frame = pp.plan(replace(load_model("llama3_8b"), blocks=4), "h200", fix=fix, **given)
    assert {*frame.layers} == {"balanced"}


def test_ties_are_counted_and_the_simplest_is_named(capsys):
    """What differs from the first by less than differences are off; and why the first is not the fastest."""
    question = ["--model", "llama3_8b", "--system", "h100", "--gpus", "8", "--global-batch", "16", "--within", "0.3"]
    assert main(["plan", *question, "--schedules", "1f1b", "zb-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    advice, why = (next(line for line in lines if line.startswith(head)) for head in ("run ", "why "))
    plan = planned(**SMALL, schedules=["1f1b", "zb-v"], within=0.3)
    frame = plan.frame
    ties = frame[frame.is_run & (frame.over_best <= error_of_differences())]
    assert frame.is_tie.sum() == len(ties) < frame.is_run.sum()
    assert why.startswith(f"why     {len(ties)} of {frame.is_run.sum()} answers")
    assert -0.01 < frame[frame.is_run].over_best.min() <= 0
    assert any(line.startswith("order: row 1 is the simplest within 1% of the fastest") for line in lines)
    first, steadiest, *_ = plan.tried
    assert frame.fit[0] == "fits"
    assert ties.fit.eq("tight").any()
    ties = ties[ties.fit == "fits"]  # what may not fit is not proposed
    assert (first, steadiest) == (0, plan.risk.disturbed_s.reindex(ties.index).idxmin())
    assert f"is row {steadiest + 1} ({plan.risk.disturbed_s[steadiest]:.4g} s disturbed)" in advice
    assert plan.proposed == sorted({0, 1, 2, *plan.tried})
    numbers = [str(place + 1) for place in plan.proposed]
    assert advice.startswith(f"run     row{'s' * (len(numbers) > 1)} {', '.join(numbers)} first")
    simplest = frame.iloc[int(advice.rsplit(maxsplit=1)[1]) - 1]
    assert simplest.name in ties.index
    assert (simplest[["cp", "ep", "tp", "pp"]] > 1).sum() == (ties[["cp", "ep", "tp", "pp"]] > 1).sum(axis=1).min()


def test_a_row_that_is_not_the_first_for_its_memory_says_so(capsys):
    """Under a framework that slows down in much memory, a faster row may fit: its memory is above what is named."""
    question = ["--model", "llama3_8b", "--system", "h100", "--gpus", "8", "--global-batch", "16"]
    assert main(["plan", *question, "--framework", "nanotron", "1f1b", "--json"]) == 0
    first, *others = json.loads(capsys.readouterr().out)["answers"]
    assert main(["plan", *question, "--framework", "nanotron", "1f1b"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("order: row 1 is")]
    least_gib = float(line.split(" GiB")[0].rsplit(maxsplit=1)[1])
    faster = [row for row in others if row["iteration_s"] < first["iteration_s"] / 1.01]
    assert min(row["peak_memory_bytes"] for row in faster) > least_gib * 2**30 > first["peak_memory_bytes"]


def test_steps_lead_away_from_the_best_only_where_it_is_no_better_or_does_not_fit():
    """No step that fits, of a schedule that was tried, is faster by more than a tie."""
    question = asked(**SMALL, schedules=["1f1b", "interleaved-1f1b"])
    steps = Plan(question, search(question)).steps()
    fitting = steps[steps.refused.isna() & steps.fits.eq(True) & ~steps.step.isin(["ZB-V", "DualPipeV"])]
    assert len(fitting) > 3
    assert fitting.over.min() >= -0.011


def test_a_lost_cluster_is_not_the_end_of_a_front(monkeypatch):
    """Only where nothing fits any more there is no further row."""

    def lost(*_):
        raise SweepError("--scheduler", "tcp://host:8786", "is gone", "restart it")

    monkeypatch.setattr(sys.modules[front.__module__], "search", lost)
    with pytest.raises(SweepError, match="is gone"):
        front(asked(**SMALL))


def test_the_front_holds_less_and_takes_longer():
    """Each has less memory than the one before, and nothing that holds as little is faster."""
    question = asked(**SMALL, schedules=["1f1b"], fix={"cp": 1, "microbatch_size": 1})
    fastest = front(question)
    held, seconds = ([getattr(entry, name) for entry in fastest] for name in ("peak_bytes", "iteration_s"))
    assert len(fastest) > 2
    assert held == sorted(held, reverse=True)
    assert seconds == sorted(seconds)


def test_chances_follow_times_and_ranges():
    """They sum to 1; who is always faster is first; a wide range makes any order possible."""
    seconds = np.array([[1.0, 1.1], [1.02, 1.12], [2.0, 2.2]])
    narrow, wide = chances(seconds, (0.999, 1.001)), chances(seconds, (0.5, 2.0))
    assert narrow.tolist() == [1.0, 0.0, 0.0]
    assert wide.sum() == pytest.approx(1.0)
    assert 0 < wide[2] < wide[1] < 0.5
    assert np.isnan(chances(seconds, None)).all()


def test_a_slow_device_and_jitter_cost_time():
    """Every disturbed run of an answer takes longer than the undisturbed one, at most as much as a slow run."""
    question = asked(**SMALL, schedules=["1f1b"], fix={"pp": 2, "cp": 1})
    answers = Plan(question, search(question))
    risk = answers.risk
    assert ((risk.disturbed_s / risk.iteration_s - 1).between(0.0, 0.15)).all()
    assert risk.chance.sum() == pytest.approx(1.0)


def test_a_tight_best_is_not_alone():
    """If the fastest leaves less free than predictions are off, the fastest that leaves more is among the answers."""
    question = asked(**SMALL, schedules=["1f1b"], memory_limit="60 GiB", within=0.0)
    limits, answers = Limits(question), Plan(question, search(question)).answers
    usual = [candidate for candidate in answers if candidate.is_run]
    assert not all(map(limits.is_tight, usual))


def test_recomputing_more_so_that_a_layout_is_not_tight_is_tried():
    """The fewest layers with which it fits leave it tight; one more is an answer, too, and comes first."""
    given = {"model": "zero_bubble_6_2b", "system": "a100", "gpus": 8, "global_batch": 24, "sequence": 4096}
    given |= {"schedules": "gpipe", "framework": "nanotron", "memory_limit": "74 GiB"}
    frame = pp.plan(**given, fix={"microbatch_size": 1, "cp": 1, "pp": 2})
    tight = frame[frame.fit == "tight"].iloc[0]
    best = frame.iloc[0]
    assert best.fit == "fits"
    assert (best.tp, best.dp, int(best.recompute)) == (tight.tp, tight.dp, int(tight.recompute) + 1)


def test_a_number_of_recomputed_layers_may_be_fixed():
    """Also where cells hold two operations."""
    frame = pp.plan(**SMALL, schedules="dualpipev", fix={"recompute": 2, "pp": 2, "microbatch_size": 1}, within=1)
    assert {*frame.recompute} == {"2"}


def test_a_fixed_order_leaves_out_what_it_refuses():
    """Ranks inside replicas leave experts the GPUs of a stage; what else has the same table keeps its time."""
    fix = {"order": ORDERS[1], "pp": 1, "tp": 2, "cp": 1, "microbatch_size": 1}
    given = {"gpus": 4, "global_batch": 8, "schedules": "1f1b", "fix": fix, "within": 1}
    frame = pp.plan(replace(load_model("qwen3_30b_a3b"), blocks=4), "h100", **given)
    assert {(row.ep, row.etp or row.tp) for row in frame.itertuples()} == {(2, 1), (1, 2)}


def test_what_may_be_crowded_counts_as_tight():
    """Under a framework whose runs go on without enough memory: it is first only if the rest is much slower."""
    crowded, chosen = replace(load_framework("nanotron"), slow_above_memory_share=0.8), []
    given = SMALL | {"schedules": ["1f1b"], "fix": {"dp": 2}, "memory_limit": "64 GiB", "within": 0.25}
    for framework in (crowded, replace(crowded, slow_above_memory_share=None)):
        question = asked(**given, framework=framework)
        chosen.append(Plan(question, search(question)).answers[0])
    comfortable, fastest = chosen
    assert comfortable.peak_bytes < 0.8 * question.system.memory_capacity_bytes < fastest.peak_bytes
    assert fastest.iteration_s < comfortable.iteration_s < 1.25 * fastest.iteration_s


@pytest.mark.parametrize(("fix", "field"), [({}, "global_batch"), ({"tp": 3}, "tp")])
def test_no_size_is_blamed_that_nobody_gave(fix, field):
    """Where GPUs and batch leave no layout, they are named; a size only if it is fixed."""
    with refused(field=field):
        all_sizes(asked("bloom_176b", "b200", 6, 32, fix={"pp": 2, "microbatch_size": 1} | fix))


@pytest.mark.parametrize("fix", [{}, {"etp": 1}, {"etp": 2}])
def test_without_sequence_parallelism_experts_are_split_as_the_rest(fix):
    """Of the sizes of experts, those are tried that `sequence_parallel=False` leaves; one of a plain rank is free."""
    question = asked("mixtral_8x7b", "b200", 16, 64, sequence=4096, fix={"sequence_parallel": False} | fix)
    groups = {(sizes.tp, sizes.etp) for sizes in all_sizes(question)}
    assert groups
    assert all(tp in (1, etp) for tp, etp in groups)


@pytest.mark.parametrize(("framework", "most"), [("fsdp", 3), ("deepspeed", 1), ("megatron", 1)])
def test_pipelines_shard_as_much_as_the_framework_does(framework, most):
    """What fits with a ZeRO stage that the framework has beside a pipeline fits where the stage is open."""
    fix = {"pp": 2, "cp": 4, "dp": 2, "tp": 1}
    given = {"framework": framework, "schedules": "interleaved-zb", "fix": fix}
    question = asked("llama3_70b", "b200", 16, 16, **given)
    (sizes, *_) = all_sizes(question)
    assert max(zero for zero, _ in divisions(question, sizes)) == most
    if framework == "fsdp":
        assert pp.plan("llama3_70b", "b200", 16, 16, **given).zero[0] == 3


def test_schedules_that_gather_weights_shard_them():
    """ZeRO 3 is tried for them alone, whatever the framework has beside pipelines."""
    given = SMALL | {"schedules": ["1f1b", "interleaved-1f1b:chunks=2,fsdp=keep"], "fix": {"pp": 2, "tp": 1, "cp": 1}}
    frame = pp.plan(**given, within=1)
    assert frame[~frame.is_run].zero.tolist() == [3] * (~frame.is_run).sum() != []
    assert frame[frame.is_run].zero.max() == 1


def test_a_tight_answer_that_is_faster_has_its_row():
    """Where what fits comes first though it is slower, it hides nothing faster in the same groups of GPUs."""
    given = {"schedules": ["combined-1f1b", "interleaved-zb"], "fix": {"pp": 2, "tp": 4}, "within": 0.2}
    given |= {"sequence": 4096, "memory_limit": "36.9 GiB"}
    frame = pp.plan("llama2_13b", "a2_highgpu_8g", 8, 48, **given)
    assert frame.fit.tolist()[:2] == ["fits", "tight"]
    assert frame.over_best[1] < -0.05
    assert (frame[["pp", "tp", "cp", "dp"]].nunique() == 1).all()


def test_what_the_framework_does_not_run_is_compared_with_the_first_answer():
    """Not with a tight one that is faster: what is faster than the first is listed, and what is slower is not."""
    question = asked(**SMALL)
    limits, any_of_them = Limits(question), search(question)[0]
    candidates = [
        any_of_them._replace(is_run=is_run, peak_bytes=share * limits.comfortable_bytes, iteration_s=seconds)
        for is_run, share, seconds in ((True, 1.01, 1.0), (True, 0.5, 1.04), (False, 0.5, 1.02), (False, 0.5, 1.045))
    ]
    limits.add(candidates[:2])
    assert list(map(limits.accepts, candidates[2:])) == [True, False]
    assert [answer.iteration_s for answer in Plan(question, candidates).answers] == [1.04, 1.0, 1.02]


def test_microbatches_of_every_size_up_to_eight_are_tried():
    """Those that divide the batch of a replica, not powers of two alone."""
    sizes = {sizes.microbatch_size for sizes in all_sizes(asked("qwen2_57b_a14b", "gb300", 32, 96)) if sizes.dp == 4}
    assert sizes == {1, 2, 3, 4, 6, 8}


@pytest.mark.parametrize(("field", "value"), [
    ("fix", 4), ("fix", ["tp"]), ("fix", np.array([])), ("most", "pp"), ("within", "0.1"), ("within", None),
    ("within", [4]), ("within", pd.NA), ("memory_limit", [4]), ("memory_limit", pd.NA),
    ("resume", 4), ("gpus", 2.0), ("gpus", pd.Timestamp(2)),
])  # fmt: skip
def test_what_is_no_value_is_refused_at_the_door(field, value):
    """In one line, which names the argument."""
    with refused(field={"resume": "--resume"}.get(field, field)):
        pp.plan(**SMALL | {"schedules": "1f1b", field: value})


def test_what_is_searched_has_arguments():
    """Of a model without experts no answer recomputes what no framework can: activations alone."""
    question = asked(**SMALL | {"memory_limit": "40 GiB", "schedules": ["1f1b"]})
    assert "light" not in {candidate.recompute for candidate in search(question)}


def test_orders_that_never_end_are_left_out():
    """Ranks of a V wait for each other where transfers hold sender and receiver; alone, that is what is said."""
    waiting = SMALL | {"framework": "scaling", "fix": {"pp": 4}}
    rows = pp.plan(**waiting, schedules=["1f1b", "zb-v"])
    assert set(rows.schedule) == {"1f1b"}
    with pytest.raises(TableError, match="deadlock"):
        pp.plan(**waiting, schedules="zb-v")


def test_an_interrupted_plan_goes_on_where_it_was(tmp_path, monkeypatch):
    """What is done is not computed again, the answer is the same to the last digit, and another question is refused."""
    folder, chunks, compute = tmp_path / "plan", [], _Search.chunk

    def stopped(self, *rows):
        if len(chunks) == stop_after:
            raise KeyboardInterrupt
        chunks.append(rows)
        with refused(field="--resume", rule="is in use"):  # two commands on the same folder
            pp.plan(**given, resume=folder)
        return compute(self, *rows)

    given = SMALL | {"schedules": SOME, "within": 0.2}
    expected = pp.plan(**given).to_csv()
    monkeypatch.setattr(_Search, "chunk", stopped)
    stop_after = 1
    with pytest.raises(KeyboardInterrupt, match=r"1 of at most \d+ parts searched; the same command goes on"):
        pp.plan(**given, resume=folder)
    stop_after = None
    assert pp.plan(**given, resume=folder).to_csv() == expected
    assert len(chunks) == len(set(chunks)) > 1
    stop_after = len(chunks)
    assert pp.plan(**given, resume=folder).to_csv() == expected
    with refused(field="--resume", rule="another specification"):
        pp.plan(**given | {"global_batch": 32}, resume=folder)
    for other in ("/dev/full", tmp_path):
        with refused(field="--resume", rule="no folder of parts"):
            pp.plan(**given, resume=other)


def test_other_processes_search_within_the_limits_known_here():
    """A process that begins with a task knows the best candidates so far, and wants no more than this one."""
    question = asked("llama3_8b", "h100", 8, 64, schedules=["1f1b", "gpipe"])
    limits = Limits(question)
    limits.add(search(question))
    _latest.clear()
    assert candidates_of(limits, 0, 0) == []
    (there,) = _latest
    assert there.limits.best == limits.best
    assert there.limits.comfortable == limits.comfortable


def test_a_fitted_system_runs_what_the_framework_of_its_fit_runs():
    """No ZeRO stage above the framework's, and the same code, as if the framework were named."""
    named = load_framework("nemo").system(load_system(SMALL["system"]))
    fitted = replace(named, framework=replace(named.framework, name="", profile="nemo"))
    given = SMALL | {"gpus": 4, "schedules": ["1f1b", "zb-h1", "dualpipev"], "within": 0.5}
    frames = [pp.plan(**given | {"system": system}).drop(columns="range_from") for system in (named, fitted)]
    assert frames[0].equals(frames[1])
    assert set(frames[1].schedule[frames[1].is_run]) == {"1f1b"}


def test_the_line_of_an_answer_has_what_computes_it_again():
    """With the tensor parallelism of experts, also where they are in no groups of their own."""
    fixed = {"pp": 8, "tp": 2, "ep": 1, "etp": 1, "recompute": "full", "layers": "even"}
    row = planned("mixtral_8x7b", "h100", 64, 16, schedules="1f1b", fix=fixed).frame.iloc[0]
    text = re.sub(r"ep (\d+) x (\d+)", r"ep \1, etp \2", answer_text(row))
    sizes = {name: int(size) for name, size in re.findall(r"(pp|tp|cp|ep|etp|dp|zero) (\d+)", text)}
    sizes |= {"microbatch_size": int(row.microbatch_size), "sequence_parallel": True}
    named = {"model": "mixtral_8x7b", "system": "h100", "recompute": "full", "global_batch": 16}
    again = pp.compare("1f1b", **named, **sizes).iloc[0]
    assert again.iteration_s == pytest.approx(row.iteration_s, rel=1e-12)


@pytest.mark.parametrize(("tried", "warm_ups"), [("", [None]), (", tried=3", [3]), (", tried=(1, 3)", [1, 3])])
def test_an_option_is_tried_as_its_own_schedule_declares(tried, warm_ups, tmp_path):
    """Whatever an option of that name is for another schedule: STP's warm-up is a word."""
    (tmp_path / "mine.py").write_text(
        "from ppmodel import build\nfrom ppmodel.schedules.registry import Option, schedule\n"
        "@schedule('mine', label='mine', title='GPipe', legal='B >= 1',\n"
        f"          options=[Option.count('warm_up', 1, 'N', 'forwards ahead'{tried}),\n"
        "                   Option.count('chunks', 2, 'V', ''), Option.count('order', 1, 'N', '')])\n"
        "def mine(num_ranks, num_microbatches, **_):\n"
        "    return build('gpipe', num_ranks, num_microbatches)\n"
    )
    cases = cases_at(asked(**SMALL, schedules=["stp", tmp_path / "mine.py"]), 4)
    assert [dict(case.options).get("warm_up") for case in cases] == [*warm_ups, "full", "memory-saving"]
    fix = {"chunks": 4, "order": ORDERS[0]}  # the layout's order, which is not the schedule's
    fixed = cases_at(asked(**SMALL, schedules=["stp", tmp_path / "mine.py"], fix=fix), 4)
    assert [dict(case.options)["chunks"] for case in fixed] == [4] * len(warm_ups)


def test_one_chunk_leaves_out_what_takes_no_such_number():
    """Fixed chunks that one schedule refuses are no error where others have them, or no chunks."""
    names = ["1f1b", "combined-1f1b", "interleaved-1f1b"]
    cases = cases_at(asked(**SMALL, schedules=names, fix={"chunks": 1}), 2)
    assert [(case.name, case.options) for case in cases] == [("1f1b", ()), ("interleaved-1f1b", (("chunks", 1),))]
    with refused(PPModelError, "fix", "leaves no schedule with such chunks"):
        planned(**SMALL, schedules="combined-1f1b", fix={"chunks": 1, "pp": 2})


def test_without_a_pipeline_there_are_no_slices_and_no_chunks():
    """One rank runs 1F1B, whichever schedules are asked for; its options are kept."""
    for names, alone in ((["seq1f1b", "zb-v"], "1f1b"), (["zb-v", "1f1b:fsdp=keep"], "1f1b:fsdp=keep")):
        assert cases_at(asked(**SMALL, schedules=names), 1) == [as_case(alone)]


def test_a_step_gives_one_gpu_more_tokens_for_its_experts_than_the_others():
    """As if that imbalance were fixed; only where experts are spread over GPUs, and from what is fixed already."""
    question = {"model": "mixtral_8x7b", "system": "h100", "gpus": 16, "global_batch": 16, "schedules": "1f1b"}
    fixed = {"pp": 2, "tp": 1, "cp": 1, "ep": 8, "etp": 1, "zero": 1, "recompute": "full", "microbatch_size": 1}
    step = planned(**question, fix=fixed).steps().set_index("step").loc["expert_imbalance 1.25"]
    crowded = planned(**question, fix=fixed | {"expert_imbalance": 1.25})
    assert step.iteration_s == crowded.frame.iteration_s[0]
    assert step.over > 0.02
    assert crowded.steps().step.iloc[-1] == "expert_imbalance 1.5625"
    assert not planned(**SMALL, schedules="1f1b").steps().step.str.startswith("expert").any()


def test_a_front_goes_on_from_its_folders(tmp_path, monkeypatch):
    """Each of its searches has one; a file in the place of one is refused, and left as it is."""
    question = asked("llama3_8b", "h100", 8, 16, schedules="1f1b", fix={"tp": 2, "cp": 1})
    kept = tmp_path / "kept"
    fastest = front(question, resume=kept)
    monkeypatch.setattr(_Search, "chunk", None)  # nothing is computed again
    assert front(question, resume=kept) == fastest
    assert len(fastest) <= len([*tmp_path.iterdir()]) <= len(fastest) + 1
    (tmp_path / "kept.2").rename(tmp_path / "away")
    (tmp_path / "kept.2").write_text("mine")
    with refused(field="--resume"):
        front(question, resume=kept)
    assert (tmp_path / "kept.2").read_text() == "mine"


def test_each_value_of_a_list_is_tried(tmp_path):
    """The answer is the best of them, its row says which, and computes it again; a step shows another dispatcher."""
    given = {"model": "mixtral_8x7b", "system": "h100", "gpus": 16, "global_batch": 16, "schedules": "1f1b"}
    fix = {"pp": 2, "tp": [1, 2], "cp": 4, "microbatch_size": 1, "zero": 1, "etp": 1}
    listed = fix | {"dispatcher": ["all-to-all", "deepep"], "precision": ["bf16", "fp8"]}
    plan = planned(**given, fix=listed, within=0.0, resume=tmp_path / "kept")
    assert len([*tmp_path.iterdir()]) == 8
    first = plan.frame.iloc[0]
    each = [pp.plan(**given, fix=fix | {"tp": tp, "dispatcher": word, "precision": "fp8"}, within=0.0).iteration_s.min()
            for tp, word in product((1, 2), DISPATCHERS[:2])]  # fmt: skip
    assert first.iteration_s == pytest.approx(min(each), rel=0.01)
    assert first.variant == f"dispatcher={first.dispatcher} precision=fp8"
    assert first.variant in answer_text(first)
    values = {name: first[name] for name in LAYOUT_KEYWORDS if name in first.dropna()}
    again = resolve_point("1f1b", 2, model="mixtral_8x7b", system="h100", **values).run().to_dict()
    assert again["iteration_s"] == pytest.approx(first.iteration_s, rel=1e-12)
    steps = plan.steps().set_index("step")
    (step,) = [step for step in steps.index if step.startswith("dispatcher")]
    assert first.dispatcher not in step
    assert steps.dispatcher[step] == step.split()[1]
    other = steps.loc[f"tp {3 - first.tp}"]  # a step leaves the value that was listed
    values = {name: other[name] for name in LAYOUT_KEYWORDS if name in other.dropna()}
    again = resolve_point("1f1b", 2, model="mixtral_8x7b", system="h100", **values).run().to_dict()
    assert other.tp != first.tp
    assert again["iteration_s"] == pytest.approx(other.iteration_s, rel=1e-12)
    with refused(PPModelError, "fix dispatcher", "must be"):
        asked(**given, fix={"dispatcher": ["deepep", "depep"]})


def test_both_words_for_layers_are_tried_as_if_nothing_were_fixed():
    """A list of them is no division, which stays a single value."""
    given = SMALL | {"schedules": "1f1b", "fix": {"pp": 4}}
    listed = pp.plan(**given | {"fix": {"pp": 4, "layers": ["even", "balanced"]}})
    assert listed.iteration_s.min() == pp.plan(**given).iteration_s.min()
    (first, *_) = pp.plan(**given | {"fix": {"pp": 4, "layers": [7, 9, 9, 7]}}).layers
    assert first == (7, 9, 9, 7)


def test_variants_in_which_nothing_fits_have_no_answers():
    """Unless there are no others."""
    given = SMALL | {"schedules": "1f1b", "memory_limit": "20 GiB", "fix": {"recompute": ["none", "full"], "pp": 1}}
    assert set(pp.plan(**given).recompute) == {"full"}
    with refused(PPModelError, "memory_limit", "is too little"):
        pp.plan(**given | {"fix": {"recompute": ["none", "selective"], "pp": 1}})
