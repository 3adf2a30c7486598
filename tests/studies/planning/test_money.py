"""Days, money and failures of a whole run, and many questions at once."""

import numpy as np
import pytest
from refusals import refused

import ppmodel as pp
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.studies.planning import Training, plans
from ppmodel.studies.planning.money import daly_interval, useful_share, young_interval

SMALL = {"model": "llama3_8b", "system": "h100", "global_batch": 16, "schedules": "1f1b", "fix": {"tp": 2, "cp": 1}}
ILLEGAL = "", " ", "x", "0", "-1", "1e99", "5x", "NaN", "inf", "1,000", "ten", True, -1, 0, float("nan"), 10**400, [1]
HOUR_S = 3600


@pytest.mark.parametrize(("write_s", "mtbf_s"), [(3, 11_000), (30, 11_000), (300, 11_000), (60, 3e6), (3000, 11_000)])
def test_the_interval_of_the_higher_order_is_the_best(write_s, mtbf_s):
    """Of all intervals, none leaves a larger share useful than Daly's; Young's is no better, and near if failures are
    rare."""
    intervals = np.geomspace(write_s / 10, 10 * mtbf_s, 4000)
    shares = [useful_share(interval, write_s, mtbf_s, 600) for interval in intervals]
    daly, young = (useful_share(of(write_s, mtbf_s), write_s, mtbf_s, 600) for of in (daly_interval, young_interval))
    assert max(shares) == pytest.approx(daly, rel=1e-3)
    assert young <= daly * (1 + 1e-9)
    assert young == pytest.approx(daly, rel=0.01 if write_s < mtbf_s / 100 else 0.1)


def test_the_useful_share_is_that_of_a_simulated_run():
    """Failures at random times, each of which loses what was done since the last checkpoint, and a restart."""
    interval_s, write_s, mtbf_s, restart_s = 500.0, 40.0, 4000.0, 300.0
    generator, clock, done = np.random.default_rng(0), 0.0, 0
    left = generator.exponential(mtbf_s)
    while done < 20_000:
        for step, is_work in ((interval_s + write_s, True),):
            if left >= step:
                clock, left, done = clock + step, left - step, done + is_work
                continue
            clock, left = clock + left, generator.exponential(mtbf_s)
            while left < restart_s:
                clock, left = clock + left, generator.exponential(mtbf_s)
            clock, left = clock + restart_s, left - restart_s
    assert done * interval_s / clock == pytest.approx(useful_share(interval_s, write_s, mtbf_s, restart_s), rel=0.01)


def test_failures_are_those_that_were_published():
    """Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs, and more than 90 % effective training time
    (The Llama 3 Herd of Models, 2024, section 3.3.4), written to storage of 2 TB/s (section 3.3.1)."""
    model, gpus, days, interruptions = load_model("llama3_405b"), 16_384, 54, 419
    mtbf_s = days * 24 * HOUR_S * gpus / interruptions
    assert mtbf_s == pytest.approx(50_000 * HOUR_S, rel=0.02)
    failures = Training(mtbf=mtbf_s, checkpoint_bandwidth="2 TB/s").failures(model, gpus)
    assert days * 24 * HOUR_S / failures["failure_every_s"] == pytest.approx(interruptions)
    assert 0.90 < failures["useful_share"] < 0.95


def test_failures_that_leave_nothing_are_refused():
    """A run that fails every few seconds never ends."""
    with refused(PPModelError, "mtbf", "leaves less than 1 %"):
        Training(mtbf="10s", checkpoint_bandwidth="2 TB/s").failures(load_model("llama3_405b"), 64)


def test_money_is_time_by_gpus_by_price():
    """Days, GPU-hours and money follow from the tokens per second, and failures lengthen all of them alike."""
    given = SMALL | {"gpus": 8, "tokens": "1T"}
    row = pp.plan(**given, price=2.5).iloc[0]
    seconds = 1e12 / (row.tokens_per_s_per_gpu * 8)
    assert row.days == pytest.approx(seconds / 86_400)
    assert row.gpu_hours == pytest.approx(8 * seconds / HOUR_S)
    assert row.money == pytest.approx(2.5 * row.gpu_hours) == pytest.approx(1000 * row.money_per_billion_tokens)
    failing = pp.plan(**given, price={"h100": 2.5}, mtbf="1000h", checkpoint_bandwidth="10 GB/s").iloc[0]
    for name in ("days", "gpu_hours", "money", "money_per_billion_tokens"):
        assert failing[name] == pytest.approx(row[name] / failing.useful_share)
    assert failing.useful_share < 0.999
    assert failing.iteration_s == row.iteration_s


def test_the_price_may_stand_in_the_systems_file(tmp_path):
    """Another, given with the question, takes its place."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("title: Mine\nlike: h100\ngpu_hour_price: {value: 3, kind: stated, source: our contract}\n")
    frames = [pp.plan(**SMALL | {"system": mine, "gpus": 8}, price=price) for price in (None, 6, {"mine": 6})]
    first, second, third = (frame.money_per_billion_tokens[0] for frame in frames)
    assert second == third == pytest.approx(2 * first)


def test_many_questions_have_the_answers_of_each():
    """A row per combination, in order; a question without an answer says why, and the others do not mind."""
    frame = pp.plan(**SMALL | {"gpus": [3, 8, 4], "global_batch": [16, 32], "system": ["h100", "a100"]})
    assert frame[["system", "global_batch", "gpus"]].values.tolist() == [
        [system, batch, gpus] for system in ("h100", "a100") for batch in (16, 32) for gpus in (3, 8, 4)
    ]
    assert frame.refused.notna().tolist() == [True, False, False] * 4
    for _, row in frame[frame.refused.isna()].iterrows():
        alone = pp.plan(**SMALL | {name: row[name] for name in ("gpus", "global_batch", "system")}).iloc[0]
        for name in ("iteration_s", "peak_memory_bytes", "tp", "pp", "label", "tokens_per_s_per_gpu"):
            assert row[name] == alone[name]
        assert row.tokens_per_s == pytest.approx(row.global_batch * row.sequence / row.iteration_s)
    assert frame.scaling[1] == 1
    assert frame.scaling[2] == pytest.approx(frame.tokens_per_s_per_gpu[2] / frame.tokens_per_s_per_gpu[1])


def test_gpus_may_differ_from_system_to_system():
    """A pair of clusters is a pair of questions, not four; who asks sees each row as soon as it is known."""
    seen = []
    given = SMALL | {"system": ["h100", "a100"], "gpus": {"a100": 8, "h100": 4}, "on_progress": seen.append}
    frame = pp.plan(**given)
    assert frame[["system", "gpus"]].values.tolist() == [["h100", 4], ["a100", 8]]
    assert [row["iteration_s"] for row in seen] == frame.iteration_s.tolist()
    with refused(PPModelError, "gpus", "must name the systems asked for"):
        pp.plan(**given | {"gpus": {"h100": 4}})


def test_the_least_gpus_are_enough_and_fewer_are_not():
    """Of round numbers that are tried upwards; or of those given, in any order."""
    given = SMALL | {"global_batch": 64, "tokens": "100B", "finish": "10d", "price": 2}
    frame = pp.plan(**given, gpus=None)
    (answer,) = frame[frame.is_answer].gpus
    assert frame.days[frame.gpus < answer].gt(10).all()
    assert frame.days[frame.gpus == answer].le(10).all()
    assert frame.gpus.max() == answer
    listed = pp.plan(**given, gpus=[*frame.gpus[::-1]])
    assert listed[listed.is_answer].gpus.tolist() == [answer]
    money = frame[frame.is_answer].money.iloc[0]
    assert pp.plan(**given | {"finish": None, "budget": money}, gpus=[answer]).is_answer.tolist() == [True]
    with refused(PPModelError, "finish", f"{answer} GPUs"):
        pp.plan(**given | {"budget": 0.9 * money}, gpus=[answer])


@pytest.mark.parametrize("value", ILLEGAL, ids=repr)
@pytest.mark.parametrize("name", [
    "tokens", "price", "finish", "budget", "mtbf", "checkpoint", "checkpoint_bandwidth", "restart",
])  # fmt: skip
def test_illegal_values_are_refused_before_any_search(name, value):
    """One line with field, value, rule and what to write."""
    with refused(PPModelError, name, "must"):
        Training(**{"tokens": 1e12, "price": 1, "mtbf": 1e6, "checkpoint_bandwidth": 1e9} | {name: value})


@pytest.mark.parametrize(("given", "missing"), [
    ({"finish": "3d"}, "tokens"), ({"budget": 5}, "tokens"), ({"mtbf": "1h"}, "checkpoint_bandwidth"),
    ({"restart": "1h"}, "mtbf"), ({"checkpoint": "1 TB"}, "mtbf"), ({"checkpoint_bandwidth": "1 TB/s"}, "mtbf"),
], ids=str)  # fmt: skip
def test_what_needs_another_value_names_it(given, missing):
    """A value that would change nothing is not passed over."""
    with refused(PPModelError, missing, "is missing"):
        Training(**given)


@pytest.mark.parametrize(("given", "field"), [
    ({"gpus": None}, "gpus"), ({"training": Training(tokens=1, budget=1)}, "price"),
    ({"training": Training(price={"h1000": 3})}, "price"), ({"system": ["h100", "h1000"]}, "systems"),
], ids=["no GPUs", "no price", "no such price", "no such system"])  # fmt: skip
def test_a_bad_list_is_refused_before_any_search(given, field, monkeypatch):
    """Also where only the last of many questions is wrong."""
    monkeypatch.setattr("ppmodel.studies.planning.many.planned", lambda *_, **__: pytest.fail("searched"))
    with refused(PPModelError, None if field == "systems" else field):
        plans(**SMALL | {"gpus": [8, 16]} | given)


def test_questions_without_any_answer_say_why_the_first_has_none():
    """The reason is that of a single question."""
    with refused(PPModelError, "memory_limit"):
        pp.plan("llama3_405b", load_system("h100"), [8, 16], 16, schedules="1f1b")
