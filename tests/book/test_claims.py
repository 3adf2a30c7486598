"""The claims: the file is judged as it expects, a changed reference is noticed, quantities are what they say."""

import os
import pickle
import re
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

import ppmodel as pp
from ppbook import claims
from ppbook.claims import NINE, Bench, disagreements, judge, load_claims, measure, quantities, rows_of, turns
from ppbook.claims.executed_quantities import EXECUTED_QUANTITIES, runs_of
from ppbook.claims.quantities import QUANTITIES
from ppbook.claims.stp_quantities import STP_QUANTITIES
from ppbook.claims.verdicts import ANCHORS, assumptions
from ppbook.measured import megatron, pipemorph, schedules_measured, zero_bubble
from ppbook.measured.against import ordered_wrongly
from ppbook.parameters import load_setting
from ppmodel import build, replay
from ppmodel.cli import main
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.specs import DATA, load_model, load_system, packaged
from ppmodel.errors import PPModelError
from ppmodel.metrics import idle_ratio
from ppmodel.schedules.cases import as_case
from ppmodel.simulation import BUFFERED, compile_graph, run_graph, uniform_costs
from ppmodel.studies.measured import predict, run_of
from ppmodel.studies.points.change import Change

SIZE = ["model", "microbatches"]
ROWS, STP_ROWS, EXECUTED_ROWS = (rows_of(load_claims(about=about)) for about in ("paper", "stp", "executed"))
EVERY_ROW = [*ROWS, *STP_ROWS, *EXECUTED_ROWS]


@pytest.fixture(scope="module")
def model():
    return load_model("paper")


@pytest.fixture(scope="module")
def bench(model):
    return Bench.of(model, load_setting("default"))


@pytest.fixture(scope="session")
def judged(tmp_path_factory):
    """Judgements by row under both settings, and of STP's claims, which processes side by side make once for all."""
    folder = tmp_path_factory.getbasetemp()
    path = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "judgements.pickle"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            under = {name: judge(load_claims(), load_model("paper"), load_setting(name)) for name in ANCHORS}
            under["stp"] = claims.judge_stp(load_claims(about="stp"))
            under["executed"] = claims.judge_executed(load_claims(about="executed"))
            path.write_bytes(pickle.dumps({name: {each.row.id: each for each in rows} for name, rows in under.items()}))
    return pickle.loads(path.read_bytes())


@pytest.fixture(scope="module")
def judgements(judged):
    return judged["default"]


@pytest.fixture(scope="module")
def everything(judged):
    """The judgements with those of STP's claims and of executed tables."""
    return judged["default"] | judged["stp"] | judged["executed"]


def row(name):
    return next(row for row in ROWS if row.id == name)


def only(*names):
    """Claims with these rows alone, which are judged as fast."""
    return [
        claim.model_copy(update={"rows": rows})
        for claim in load_claims()
        if (rows := [row for row in claim.rows if row.id in names])
    ]


@pytest.mark.long
def test_every_claim_comes_to_what_the_file_expects(everything):
    """No verdict and no margin has moved; the three verdicts all occur."""
    assert disagreements(everything.values()) == []
    assert {one.verdict for one in everything.values()} == {"holds", "depends", "fails"}


def test_a_changed_reference_is_noticed(everything):
    """Every reference value that is off by twice its tolerance disagrees, in either direction."""
    assert len(everything) == len(EVERY_ROW)
    for name, sign in product(everything, (-1, 1)):
        one = everything[name]
        changed = one.row.model_copy(update={"value": one.row.value + sign * 2 * one.row.tolerance})
        again = one._replace(row=changed, margin=float(changed.margin(one.measured)))
        assert disagreements([again]) == [again], (name, sign)


def test_every_claim_of_the_paper_is_there():
    """Claims 1 to 11, rows with names of their own and a page to read on, and every quantity asked for by some row."""
    assert len({one.id for one in EVERY_ROW}) == len(EVERY_ROW)
    assert [claim.number for claim in load_claims()] == list(range(1, 12))
    notebooks = {path.stem for path in (DATA.parent / "notebooks").glob("*.ipynb")}
    assert {one.page.removeprefix("nb/") for one in EVERY_ROW} <= notebooks
    assert {one.criterion["quantity"] for one in ROWS} == {*QUANTITIES, "flips"}
    assert {one.criterion["quantity"] for one in STP_ROWS} == {*STP_QUANTITIES}
    assert {one.criterion["quantity"] for one in EXECUTED_ROWS} == {*EXECUTED_QUANTITIES}


def test_every_figure_of_the_paper_is_there(judgements):
    """Figures 1 to 6 and Table I, each with ours on its page; without rows there is no verdict, else it follows."""
    figures = claims.load_figures()
    assert [figure.figure for figure in figures] == [*(f"Fig. {number}" for number in range(1, 7)), "Table I"]
    for figure in figures:
        assert f"#| label: {figure.label}\\n" in (DATA.parent / "notebooks" / f"{figure.page[3:]}.ipynb").read_text()
    table = claims.headline_table([], judgements.values(), figures).set_index("claim")
    assert set(table.verdict[table["rows"] == 0]) == {"no number"}
    for figure in filter(lambda figure: figure.rows, figures):
        found = {judgements[name].verdict for name in figure.rows}
        assert (table.verdict[figure.figure] == "holds") == (found == {"holds"})
        assert table.row[figure.figure] in figure.rows


def test_what_a_verdict_depends_on_is_named(judgements):
    """The kinds of assumptions that reverse the weakest row's answer; of rows that never hold, which comes nearest."""
    table = claims.headline_table(load_claims(), judgements.values()).set_index("claim")
    assert table.depends[5] == "transfers, setting"
    assert table.depends[2] == "concatenation, setting"
    assert (table.depends == "").equals(table.verdict == "holds")
    judgement = judgements["fig6_gain_s4"]
    tried, count = judgement.outcomes, judgement.tried
    best = max(tried, key=tried.get)
    near = f"nearest, with a margin of {100 * tried[best]:.3g} %, under .*{re.escape(best.value)}"
    assert re.fullmatch(f"holds under none of {count}; {near}", claims.nearest(judgement))
    assert table.depends[9] == f"nothing of {count}"
    rows = claims.claims_table(load_claims(), judgements.values()).set_index("id")
    assert rows.depends["fig6_gain_s4"] == claims.nearest(judgement)


def test_the_sentence_counts_every_row(judged):
    """Under both settings; what holds under all, or fails under all, does so under each."""
    found = {name: claims.counted([*judged[name].values()]) for name in ANCHORS}
    for name, (facts, sentence) in found.items():
        assert facts["hold"] + facts["fail"] == facts["rows"] == len(ROWS)
        assert f"hold under the setting {name}, " in sentence
    paper, default = found["paper"][0], found["default"][0]
    assert {key: paper[key] for key in ("hold_all", "fail_all", "tried")}.items() <= default.items()
    assert paper["hold"] > default["hold"] > paper["hold_all"]


def test_every_verdict_leads_to_its_explanation(judged):
    """Each kind that may turn a row, and where a row that fails is explained, has an anchor in its page."""
    anchors, folder = {}, DATA.parent
    for path in [*(folder / "notebooks").glob("*.ipynb"), *(folder / "book").glob("*.md")]:
        page = f"nb/{path.stem}" if path.suffix == ".ipynb" else path.stem
        anchors |= dict.fromkeys(re.findall(r"\(([a-z-]+)\)=", path.read_text()), page)
    kinds = {*claims.tables.AXES, "transfers", "all-reduce"} - {"semantics", "costs"}  # those of STP have no page
    assert anchors.keys() >= {f"assumed-{kind}" for kind in kinds}
    for judgement in judged["paper"].values():
        assert anchors[f"against-{judgement.row.page.removeprefix('nb/')}"] == judgement.row.page
        assert judgement.row.unmet or judgement.reproduced != "does not hold"


@pytest.mark.parametrize("name", ["hanayo_effective", "reversals_by_network", "fig3_table"])
def test_the_command_that_turns_a_row_turns_it(name, judged, monkeypatch, capsys):
    """Each that `--row` prints judges the row with the other answer, on the setting that it names or changes."""
    judgements = judged["paper"]
    (claim,) = [claim for claim in load_claims() if any(row.id == name for row in claim.rows)]
    alone = [claim.model_copy(update={"rows": [row for row in claim.rows if row.id == name]})]
    monkeypatch.setattr(claims, "load_claims", lambda **_: alone)
    assert main(["claims", "--row", name]) == 0
    commands = re.findall(r"turned by .*: ppmodel (.*)", capsys.readouterr().out)
    assert [*claims.commands(judgements[name]).values()] == [f"ppmodel {command}" for command in commands] != []
    for command in commands:
        main(command.split())
        (word,) = re.findall(rf"^. {name}: (does not hold|holds) under", capsys.readouterr().out)
        assert word == ("does not hold" if judgements[name].holds_here else "holds")


@pytest.mark.parametrize("verdict", ["fails", "holds"])
def test_a_row_that_nothing_turns_says_so(verdict, judgements, capsys):
    """With the number of assumptions that were tried; if it fails, with the one that comes nearest, as on the page."""
    name = next(row for row, judgement in judgements.items() if judgement.verdict == verdict)
    main(["claims", "--row", name])
    tried = len({assumption.setting for assumption in judgements[name].outcomes})
    lines = {"fails": f"holds under none of {tried}; nearest", "holds": f"turned by none of {tried} settings"}
    printed = capsys.readouterr().out
    assert lines[verdict] in printed
    assert f"\nmeasured: {judgements[name].row.statement}\n" in printed
    assert ("needed: " in printed) == (verdict == "fails")


def test_rows_about_stp_turn_by_costs_which_no_setting_has(judged, capsys):
    """`--row` prints them, without commands."""
    judgements = judged["stp"].values()
    assert claims.headline_table(load_claims(about="stp"), judgements).depends.eq("costs").any()
    turned = next(judgement for judgement in judgements if judgement.turned)
    assert main(["claims", "--of", "stp", "--row", turned.row.id]) == 0
    assert "turned by" not in capsys.readouterr().out


def test_a_changed_value_of_a_setting_is_checked(capsys):
    """As those of its file are; a name that it does not have is refused with the one that was meant."""
    for given, rule in ((("waves", "0"), "greater than or equal to 1"), (("memory", "1"), "did you mean memory_")):
        assert main(["claims", "--row", "fig3_table", "-p", *given]) == 2
        assert rule in capsys.readouterr().err


def test_the_page_of_verdicts_has_every_row(judged):
    """A line for each figure and claim, which unfolds into its rows, in words, with both settings' numbers."""
    judgements, beside = judged["paper"], [*judged["default"].values()]
    table = claims.headline_table(load_claims(), judgements.values(), claims.load_figures())
    page = claims.verdict_page(table, load_claims(), judgements.values(), beside)
    assert page.count("<details") == page.count("</details>") == len(table)
    assert page.count("`ppmodel run ") == (table.label != "").sum()
    assert all(re.search(f"`ppmodel claims --row {name}[ `]", page) for name in judgements)
    red = [judgement.row.id for judgement in judgements.values() if judgement.reproduced == "does not hold"]
    figures = [name for figure in claims.load_figures() for name in figure.rows]
    assert page.count("{ref}`Why <") == len(red) + sum(name in red for name in figures) > 6
    assert r"**ours 26\.2 \%** (setting default: 27\.3 \%)" in page
    assert "{numref}`fig-hanayo`" in page


def test_a_row_says_whose_claim_it_checks(judgements):
    """The paper's are those that it states; a review's and the book's own are told apart, row by row."""
    table = claims.claims_table(load_claims(), judgements.values()).set_index("id")
    by_claim = {claim.number: claim.by for claim in load_claims()}
    assert [by_claim[number] for number in (9, 10, 11)] == ["paper", "review", "book"]
    assert set(table.by[table.claim == 11]) == {"book"}
    assert table.by["equivalent"] == "paper" != table.by["eager_restores"]
    assert set(table.by[list(claims.TARGETS)]) == {"paper"}
    assert not table["where"][table.by == "paper"].isin(["review", "recomputed"]).any()
    assert not table.kind[table.by == "paper"].eq("inferred").any()
    assert {one.by for one in load_claims(about="stp")} == {"paper", "answers"}


def test_quantities_are_single_simulations(bench, model):
    """Gain, idle ratio and memory by arrays are what one simulation gives."""
    name, system = "mid_cp_slow_nw", load_system("mid_cp_slow_nw")
    column = NINE.index(name)
    timelines = {}
    for schedule in ("gpipe", "1f1b"):
        table = build(schedule, 4, 16)
        timelines[schedule] = run_graph(compile_graph(table, "overlapped"), model_costs(table, model, system))
    spans = [timelines[schedule].makespan_s for schedule in ("1f1b", "gpipe")]
    gain = QUANTITIES["gain"](bench, (4, 16), "1f1b", "gpipe")
    assert gain[0, column] == pytest.approx(1 - spans[0] / spans[1], rel=1e-12)
    assert QUANTITIES["idle"](bench, (4, 16), "1f1b")[0, column] == pytest.approx(idle_ratio(timelines["1f1b"]))


def test_reversals_and_negations_are_those_of_a_frame(bench, model):
    """Counting by arrays and by the rows of a frame come to the same."""
    counts, network = [8, 16, 32], [Change(), Change(network=False)]
    frame = pp.compare(
        ["gpipe", "1f1b", "chimera"], 8, counts, model=model, system=NINE, allreduce=["excluded", "blocking"],
        changes=network,
    )  # fmt: skip
    rows = frame.set_index(["allreduce", "change", "system", "microbatches", "schedule"])
    bubble, seconds = rows.table_bubble_ratio.unstack(), rows.makespan_s.unstack()
    points = list(seconds.loc["excluded", "Change()"].index)

    def reversed_by_network(point, one, other):
        bubbles, with_it, without = (
            part[other] - part[one]
            for part in (
                bubble.loc[("excluded", "Change()", *point)],
                seconds.loc[("excluded", "Change()", *point)],
                seconds.loc[("excluded", "Change(network=False)", *point)],
            )
        )
        return bubbles > 1e-9 and with_it < -1e-9 and without >= -1e-9

    by_rows = sum(any(reversed_by_network(point, *pair) for pair in permutations(seconds, 2)) for point in points)
    by_arrays = sum(QUANTITIES["reversals"](bench, (8, b), ["gpipe", "1f1b", "chimera"], "table").sum() for b in counts)
    assert by_arrays == by_rows > 0
    blocking = replace(bench, setting=replace(bench.setting, allreduce="blocking"))
    found = sum(QUANTITIES["negations"](blocking, (8, b), "chimera", "gpipe").sum() for b in counts)
    slower, smaller = (part.loc["blocking", "Change()"] for part in (seconds, bubble))
    negated = (smaller.chimera < smaller.gpipe - 1e-9) & (slower.chimera > slower.gpipe * (1 - 1e-9))
    assert found == negated.sum() > 0


def test_changes_are_judged_one_by_one(bench):
    """An axis of changes gives each what it gives alone; half the bandwidth is a system with half the bandwidth."""
    changes = (Change(), Change(bandwidth=0.5), Change(compute=2.0), Change(backward=1.0), Change(straggler=2.0))
    together = measure(row("fig4_chimera_gain"), replace(bench, changes=changes))
    alone = [measure(row("fig4_chimera_gain"), replace(bench, changes=(change,)))[0] for change in changes]
    assert together.tolist() == alone
    assert len(set(alone)) == len(alone)
    system = load_system("mid_cp_slow_nw")
    halved = replace(system, network_bandwidth_bytes_per_s=system.network_bandwidth_bytes_per_s / 2)
    assert Change(bandwidth=0.5).system(system) == halved


def test_a_setting_acts_on_the_nine_and_not_on_ones_own(model):
    """The setting's memory takes the place of the nine's; a system of one's own keeps what its file says."""
    slow = replace(load_setting("default"), memory_bandwidth_bytes_per_s=3.4e12)
    assert Bench.of(model, slow).applied[0].memory == pytest.approx(0.1)
    assert Bench.of(model, slow, load_system("dgx_h100")).applied == (Change(),)
    even = replace(slow, memory_follows=False)
    changed = [Bench.of(model, even).applied[0].system(load_system(f"{word}_cp_mid_nw")) for word in ("slow", "fast")]
    assert [one.memory_bandwidth_bytes_per_s for one in changed] == pytest.approx([3.4e12, 3.4e12])


def test_ones_own_system_takes_the_place_of_all_groups():
    """Every row is judged on it, without memory among the assumptions."""
    own = judge(load_claims(), load_model("llama3_70b"), load_setting("default"), load_system("dgx_h100"))
    assert len(own) == len(ROWS)
    assert {each.axis for each in own[0].outcomes} == {"semantics", "concat", "waves"}
    assert next(one for one in own if one.row.id == "fig3_formula").verdict == "holds"


def test_a_model_that_does_not_fit_is_no_case(bench, model):
    """Too few blocks, or a batch that divides into no B, is said and not hidden as a verdict."""
    few, odd = replace(model, blocks=16), replace(model, global_batch=7)
    asked = only("hanayo_effective", "fig3_table")
    for small, reason in ((few, "too few"), (odd, "divides into none")):
        own = {one.row.id: one for one in judge(asked, small, bench.setting, load_system("dgx_h100"))}
        assert own["hanayo_effective"].verdict == "no case"
        assert reason in own["hanayo_effective"].reason
        assert own["fig3_table"].verdict == "depends"


@pytest.mark.parametrize(
    ("holds", "semantics"),
    [
        (lambda p2p, _: p2p.startswith("blocking"), ["blocking_send", "blocking_recv", "blocking"]),
        (lambda _, sums: sums != "excluded", [f"{p2p} (overlapped, blocking)" for p2p in BUFFERED]),
        (
            lambda p2p, sums: p2p == "latency" or sums == "excluded",
            [f"{p2p} (overlapped, blocking)" for p2p in BUFFERED[1:]],
        ),
    ],
)
def test_what_reverses_an_answer_is_listed(bench, holds, semantics):
    """Semantics by transfer, with the all-reduces in parentheses if not all of them do."""
    grid = [each for each in assumptions(bench) if (each.anchor, each.axis) == ("default", "semantics")]
    outcomes = {each: 1.0 if holds(each.setting.p2p, each.setting.allreduce) else -1.0 for each in grid}
    here = outcomes[next(each for each in grid if each.setting == bench.setting)]
    judgement = claims.verdicts.Judgement(ROWS[0], 0.0, here, "depends", "default", outcomes)
    assert judgement.reversed_by() == {"semantics": semantics}


def test_other_settings_count_where_they_reverse_an_answer(judgements):
    """As a whole beside single changes of the setting itself; with one thing changed, by name, if nothing else does."""
    assert judgements["levels_agree"].reversed_by() == {}
    assert judgements["table1_gain_low"].reversed_by() == {"setting": ["paper"]}
    assert judgements["fig3_table"].reversed_by() == {"concat": ["overlapping"], "setting": ["paper"]}
    assert judgements["hanayo_sensitive"].reversed_by() == {"setting": ["paper, memory: 3.4 TB/s, fixed"]}


def test_the_setting_does_not_move_a_verdict(judged, judgements):
    """Verdicts are over the same assumptions, whichever setting the numbers are of; margins are expected for both."""
    implied = [*judged["paper"].values()]
    assert disagreements(implied) == []
    assert [one.margin for one in implied] != [one.margin for one in judgements.values()]
    moved = implied[0]._replace(margin=implied[0].margin + implied[0].row.tolerance)
    assert disagreements([moved]) == [moved]


def test_a_claims_verdict_is_that_of_its_weakest_row(judged):
    """All hold under all, under the setting, or one does not; that row is shown."""
    judgements = judged["paper"]
    table = claims.headline_table(load_claims(), judgements.values()).set_index("claim")
    for claim in load_claims():
        behind = [judgements[row.id] for row in claim.rows]
        weakest = min(behind, key=lambda each: ["does not hold", "depends", "holds"].index(each.reproduced))
        assert table.verdict[claim.number] == weakest.reproduced == judgements[table.row[claim.number]].reproduced
        assert table.holding[claim.number] == sum(each.holds_here for each in behind)
        assert (table.verdict[claim.number] == "does not hold") == (table.holding[claim.number] < len(behind))


@pytest.mark.parametrize("name", ["hanayo_effective", "asymmetric_gains"])
def test_rows_hold_under_a_setting_as_they_are_judged(model, judgements, name):
    """Under every setting that an assumption gives, those under which the row does not hold included."""
    outcomes = judgements[name].outcomes
    assert {margin >= 0 for margin in outcomes.values()} == {True, False}
    fields = [{field: getattr(each.setting, field) for field in claims.UNKNOWNS} for each in outcomes]
    held = claims.holding(model, pd.DataFrame(fields), [name])
    assert held[name].tolist() == [margin >= 0 for margin in outcomes.values()]


def test_an_assumption_that_a_model_cannot_have_is_left_out(bench, model):
    """Four waves need more blocks than two: without them the row is still judged."""
    small, system = replace(model, blocks=48), load_system("mid_cp_mid_nw")
    (hanayo,) = judge(only("hanayo_effective"), small, bench.setting, system)
    assert hanayo.verdict != "no case"
    assert {each.value for each in hanayo.outcomes if each.axis == "waves"} == {"1", "2"}


def test_turns_are_the_nearest_values_with_another_answer(model):
    """At the value found the answer is another, and between it and no change it is not."""
    knobs = {"bandwidth": (0.5, 2.0, 3.3, 10.0), "straggler": (1.05, 1.2)}
    asked = only("table1_slow_nw_fast_cp", "equivalent_near", "levels_agree")
    table = turns(asked, model, load_setting("default"), knobs=knobs).set_index(["id", "knob"])
    assert table.above["table1_slow_nw_fast_cp", "bandwidth"] == 10.0
    assert table.above["equivalent_near", "straggler"] == 1.2
    assert np.isnan(table.below["levels_agree", "bandwidth"])


def test_the_command_ends_with_1_where_a_verdict_is_not_the_expected_one(monkeypatch, capsys):
    """Both verdicts are shown; with what is expected it ends with 0."""
    first = load_claims()[:1]
    monkeypatch.setattr(claims, "load_figures", list)
    monkeypatch.setattr(claims, "load_claims", lambda **_: first)
    assert main(["claims"]) == 0
    good = capsys.readouterr().out
    assert first[0].title in good
    assert good.startswith("2 of 2 numbers and statements hold under the setting paper, 2 of them under all ")
    assert "expected" not in good
    assert main(["claims", "--rows"]) == 0
    assert "levels_agree_gpipe" in capsys.readouterr().out
    assert main(["claims", "--row", "levels_agree"]) == 0
    assert re.findall(r"levels_agree\w*", capsys.readouterr().out) == ["levels_agree"]
    with monkeypatch.context() as before:
        before.setattr(claims, "judge", None)  # it takes a minute
        assert main(["claims", "--row", "levels_agre"]) == 2
    wrong = first[0].rows[0].model_copy(update={"expected": claims.Expected(verdict="fails", margin=0.0)})
    changed = [first[0].model_copy(update={"rows": [wrong]})]
    monkeypatch.setattr(claims, "load_claims", lambda **_: changed)
    assert main(["claims"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split() == ["levels_agree", "holds", "does", "not", "hold", "exact", "exact"]
    assert main(["claims", "--json"]) == 1
    assert '"expected": "fails"' in capsys.readouterr().out
    assert main(["claims", "--setting", "papre"]) == 2
    assert "did you mean paper" in capsys.readouterr().err
    assert main(["claims", "--of", "stp", "--setting", "default"]) == 2


@pytest.mark.parametrize("name", packaged("settings"))
def test_settings_are_named_after_their_files(name):
    """Each has a kind and a source beside every value."""
    setting = load_setting(name)
    assert setting.name == name
    assert len(setting.provenance) == len(type(setting).__dataclass_fields__) - 3  # name, title, provenance
    assert all(entry.kind and entry.source for entry in setting.provenance)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bandwidth": 0},
        {"latency": -1},
        {"collectives": -2},
        {"backward": -1.0},
        {"straggling": 7},
        {"compute": np.inf},
        {"overlap": 0},
        {"bandwidth": [0.5, 2]},
        {"bandwidth": "2x"},
        {"network": "no"},
    ],
)
def test_a_change_that_cannot_be_is_refused(wrong):
    """Negative and infinite factors, a stage outside the pipeline, and what is no number."""
    with pytest.raises(PPModelError, match=next(iter(wrong))):
        Change(**wrong)


# ---- measured elsewhere ------------------------------------------------------------------------------

RATES, MEMORIES = (
    {row.id for row in ROWS if row.criterion["quantity"] == quantity}
    for quantity in ("measured_rate", "measured_memory")
)
WRONG_TIMES = {
    "transfers x5": (lambda times: times | {"comm": 5 * times["comm"]}, {"1f1b", "interleaved_1f1b", "zb_1p"}),
    "a backward of five forwards": (
        lambda times: times | dict.fromkeys(("input_grad", "weight_grad"), 2.5 * times["forward"]), RATES
    ),
    "weight gradients + 30 %": (lambda times: times | {"weight_grad": 1.3 * times["weight_grad"]}, RATES),
}  # fmt: skip
WRONG_SCHEDULES = {
    "GPipe in place of 1F1B": ({"1f1b": "gpipe"}, {"1f1b", "measured_memory_1f1b"}),
    "1F1B in place of interleaved": (
        {"interleaved_1f1b": "1f1b"}, {"interleaved_1f1b", "measured_memory_interleaved_1f1b"}
    ),
    "ZB-H1 in place of ZB-2p": ({"zb_2p": "zb-h1"}, {"zb_2p", "measured_memory_zb_2p"}),
}  # fmt: skip


def with_schedules(monkeypatch, others):
    """Let other schedules than ran be simulated for Zero Bubble's runs."""
    ran = zero_bubble.case_of
    monkeypatch.setattr(
        zero_bubble, "case_of", lambda run: as_case(others[run.schedule]) if run.schedule in others else ran(run)
    )


@pytest.mark.parametrize("wrong", [None, *WRONG_TIMES, *WRONG_SCHEDULES])
def test_a_wrong_model_turns_claim_11_red(monkeypatch, bench, wrong):
    """The rows that hold measured rates and memories notice wrong times and wrong schedules, each those it concerns."""
    changed, expected = WRONG_TIMES.get(wrong, (dict, set()))
    monkeypatch.setattr(
        zero_bubble, "uniform_costs",
        lambda table, forward, **times: uniform_costs(table, **changed({"forward": forward, **times})),
    )  # fmt: skip
    if wrong in WRONG_SCHEDULES:
        others, expected = WRONG_SCHEDULES[wrong]
        with_schedules(monkeypatch, others)
        memories = zero_bubble.memories()
        monkeypatch.setattr(quantities, "_memories", lambda: memories)
    rates = zero_bubble.simulated("latency", 1e-3)
    monkeypatch.setattr(quantities, "_simulated", lambda *_: rates)
    red = {name for name in RATES | MEMORIES if row(name).margin(measure(row(name), bench))[0] < 0}
    assert red == {name if name in RATES | MEMORIES else f"throughput_{name}" for name in expected}


DELAYED = {row.id for row in ROWS if row.criterion["quantity"] in ("measured_delay", "measured_ratio")}
RATIOS = {"measured_before_reversal", "measured_reversal"}
STREAMS = "measured_delay_streams"
WRONG_DELAYS = {
    "no delay": ({}, DELAYED),
    "transfers that occupy nothing": ({"p2p": "latency"}, {*RATIOS, "measured_delay_batched", STREAMS}),
    "ZB in the order that hosts ran": (
        {"ran": (("ZB", (("zb-2p", {"delays": (0,)}), "streams")),)}, {"measured_reversal", STREAMS}
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", [None, *WRONG_DELAYS])
def test_a_wrong_mechanism_turns_runs_under_a_delay_red(monkeypatch, bench, wrong):
    """The rows that hold PipeMorph's runs notice a missing delay, wrong semantics and another order."""
    given, expected = WRONG_DELAYS.get(wrong, ({}, set()))
    if wrong == "no delay":
        monkeypatch.setattr(pipemorph, "links_of", lambda *_: None)
    runs = pipemorph.predicted(**given)
    monkeypatch.setattr(quantities, "_delayed", lambda: runs)
    assert {name for name in DELAYED if row(name).margin(measure(row(name), bench))[0] < 0} == expected


def test_times_of_other_ranks_turn_replayed_stages_red(monkeypatch, bench):
    """Measured times of stages meet the iteration only on the ranks where they were taken."""

    def of_other_ranks(operations, schedule, pp, microbatches, **measured):
        shifted = operations.assign(rank=(operations["rank"] + 3) % pp)
        return replay(shifted, schedule, pp, microbatches, **measured)

    monkeypatch.setattr(schedules_measured, "replay", of_other_ranks)
    runs = schedules_measured.vocabulary()
    assert runs.error.abs().max() > 0.02
    monkeypatch.setattr(quantities, "_vocabulary", lambda: runs)
    assert row("measured_stages").margin(measure(row("measured_stages"), bench))[0] < 0


def slower(system, **factors):
    """A system of which some rates are smaller by factors; those of its nodes with the word nodes before them."""
    nodes = {name.removeprefix("nodes_"): by for name, by in factors.items() if name.startswith("nodes_")}
    nodes = replace(system.nodes, **{name: getattr(system.nodes, name) / by for name, by in nodes.items()})
    own = {name: by for name, by in factors.items() if not name.startswith("nodes_")}
    return replace(system, nodes=nodes, **{name: getattr(system, name) / by for name, by in own.items()})


THROUGHPUTS = {row.id for row in ROWS if row.criterion["quantity"] == "measured_throughput"}
WRONG_SYSTEMS = {
    "transfers x5": {"network_bandwidth_bytes_per_s": 5},
    "all-reduces x5": {"nodes_node_bandwidth_bytes_per_s": 5},
    "products 10 % faster": {},
    "kernels of half the memory's speed": {"memory_bandwidth_bytes_per_s": 2},
}


@pytest.mark.parametrize("wrong", [None, *WRONG_SYSTEMS, "1F1B in place of interleaved", "ZB-H1 in place of 1F1B"])
def test_a_wrong_model_turns_megatrons_rows_red(monkeypatch, bench, wrong):
    """Absolute throughput notices wrong rates, and a wrong schedule where it ran; GPT-3's row for 1F1B is red anyway.

    Of messages that tensor-parallel ranks share, an eighth crosses: five times as slow, it is still no 3 % of the time.
    """
    of_1f1b = {"throughput_sc21_stages", "throughput_sc21_1f1b"}
    swapped = {
        None: ({}, {"throughput_sc21_1f1b"}),
        "transfers x5": ({}, of_1f1b),
        "1F1B in place of interleaved": ({"interleaved-1f1b": "1f1b"}, THROUGHPUTS - {"throughput_sc21_stages"}),
        "ZB-H1 in place of 1F1B": ({"1f1b": "zb-h1"}, of_1f1b),
    }
    others, expected = swapped.get(wrong, ({}, THROUGHPUTS))

    def run_under(row, framework=None):
        other = others.get(row["schedule"])
        return run_of(row | {"schedule": other, "chunks": "1"} if other else row, framework)

    for module in (megatron, predict):
        monkeypatch.setattr(module, "run_of", run_under)
    system = slower(load_system("a100"), **WRONG_SYSTEMS.get(wrong, {}))
    monkeypatch.setattr(megatron, "load_system", lambda _: system)
    runs = megatron.throughput(0.82 / 0.9 if wrong == "products 10 % faster" else 0.82)
    monkeypatch.setattr(quantities, "_throughput", lambda _: runs)
    assert {name for name in THROUGHPUTS if row(name).margin(measure(row(name), bench))[0] < 0} == expected


# ---- executed here -----------------------------------------------------------------------------------


def swapped(*names):
    """Two schedules have each other's names."""
    return lambda runs: runs.assign(label=runs.label.replace(dict(zip(names, names[::-1], strict=True))))


def undelayed(runs):
    """No delay makes a difference."""
    return runs.assign(fastest_s=runs.groupby(["p2p", "pp", "label", "forward_s"]).fastest_s.transform("first"))


def longer(label):
    """A schedule takes half as long again."""
    return lambda runs: runs.assign(fastest_s=runs.fastest_s * np.where(runs.label == label, 1.5, 1.0))


OF_DELAY = {"hanayo_sensitive", "negated_v_half", "other_order", "reversals"}
WRONG_RUNS = {
    "a gradient off by a billionth": (lambda runs: runs.assign(gradient_error=1e-9), {"gradients"}),
    "one more microbatch stored": (lambda runs: runs.assign(peak_activations=runs.peak_activations + 1), {"stored"}),
    "5 % slower": (lambda runs: runs.assign(fastest_s=1.05 * runs.fastest_s), {"simulated"}),
    "no delay": (undelayed, {*OF_DELAY, "asymmetric_gain", "equivalent_delayed", "simulated"}),
    "delays in reverse order": (
        lambda runs: runs.assign(delay=2 - runs.delay),
        {*OF_DELAY, "chimera_fades", "equivalent", "hanayo_gain", "same_order"},
    ),
    "ZB-H1's times for 1F1B": (swapped("ZB-H1", "1F1B"), {"equivalent", "negated"}),
    "V-Half's for eager 1F1B": (swapped("V-Half", "eager 1F1B"), {"eager_restores", "negated_v_half"}),
    "one wave's for two": (swapped("Hanayo", "Hanayo W = 2"), {"hanayo_gain"}),
    "Chimera slower": (
        longer("Chimera"), {"chimera_gains", "hanayo_one_wave", "negated", "same_order", "simulated"}
    ),
    "asymmetric Chimera slower": (
        longer("asymmetric Chimera"), {"asymmetric_deep", "asymmetric_gain", "simulated"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", [None, *WRONG_RUNS])
def test_other_runs_turn_executed_rows(tmp_path, judged, wrong):
    """A recording of one's own is judged in place of ours; the rows notice what is wrong with it."""
    change, expected = WRONG_RUNS.get(wrong, (pd.DataFrame, set()))
    change(runs_of()).to_csv(tmp_path / "mine.csv")
    found = claims.judge_executed(load_claims(about="executed"), str(tmp_path / "mine.csv"))
    turned = {each.row.id for each in found if each.holds_here != judged["executed"][each.row.id].holds_here}
    assert turned == {f"executed_{name}" for name in expected}


def test_executed_rows_are_counted_apart(tmp_path, capsys):
    """With their way of sending; each can turn; a recording that lacks schedules has no case."""
    assert {f"executed_{name}" for _, names in WRONG_RUNS.values() for name in names} == {r.id for r in EXECUTED_ROWS}
    assert main(["claims", "--of", "executed"]) == 0
    rows = len(EXECUTED_ROWS)
    assert f"of {rows} numbers and statements hold under transfers by host threads, " in capsys.readouterr().out
    runs_of()[lambda runs: runs.label == "GPipe"].to_csv(tmp_path / "mine.csv")
    ask = ["claims", "--of", "executed", "--row", "executed_negated", "-p"]
    main([*ask, "recording", str(tmp_path / "mine.csv")])
    assert "no case: the recording lacks its schedules" in capsys.readouterr().out
    assert main([*ask, "waves", "2"]) == 2


def test_the_measured_runs_are_told_apart():
    """Pair by pair; a fixed cost slows schedules of more operations more."""
    plain, fixed = (zero_bubble.simulated("overlapped", seconds) for seconds in (0.0, 0.7e-3))
    assert len(plain) == len(zero_bubble.points()) == 48
    assert ordered_wrongly(plain, SIZE, "samples_per_gpu_s", "simulated") == (5, 71)
    slower = 1 - (fixed.simulated / plain.simulated).groupby(plain.schedule).mean()
    assert slower["interleaved_1f1b"] == slower.max()


def test_two_fixed_costs_meet_the_48_runs(monkeypatch):
    """Every schedule within 3 %, no pair that differs by 1 % in a wrong order; nearly so for models left out."""
    found = zero_bubble.with_fixed_costs()
    assert found.groupby("schedule").error.mean().abs().max() < 0.01
    assert found.error.abs().mean() < 0.02
    assert ordered_wrongly(found, SIZE, "samples_per_gpu_s", "simulated", over=0.01) == (0, 70)
    assert found.groupby("schedule").unseen_error.mean().abs().max() < 0.01
    assert ordered_wrongly(found, SIZE, "samples_per_gpu_s", "unseen", over=0.01)[0] <= 1
    assert zero_bubble.memories().error.abs().mean() < 0.05
    cost = found.per_operation_s[0]
    with_schedules(monkeypatch, {"zb_2p": "1f1b"})
    other = zero_bubble.simulated("overlapped", cost).groupby("schedule").error.mean()
    assert other["zb_2p"] < other["1f1b"] - 0.1
