"""A recommendation is the fastest of what fits, and says what it would take where nothing does."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppmodel import build
from ppmodel.artefact.claims import judge, load_claims
from ppmodel.cli import main
from ppmodel.costs import model_costs, stages
from ppmodel.metrics import memory
from ppmodel.plot import plot_candidates
from ppmodel.plot.recommend import _ticks
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.specs import DATA, load_model, load_setting, load_system
from ppmodel.studies import (
    balance_study,
    candidate_study,
    recommend_study,
    recommendation_table,
    recommendation_text,
    runtime_study,
)

CASES = ["gpipe", "1f1b", "chimera", ("hanayo", {"waves": 2})]
SIZES = ([4, 8], [8, 16, 24])
GIB = 2**30


@pytest.fixture(scope="module")
def model():
    return load_model("llama3_70b")


@pytest.fixture(scope="module")
def system():
    return load_system("dgx_h100")


@pytest.fixture(scope="module")
def candidates(model, system):
    return candidate_study(model, system, *SIZES, CASES)


def test_candidates_are_single_simulations(model, system, candidates):
    """Time with the all-reduce, and the bytes of the rank that holds most; sizes without a schedule are left out."""
    assert len(candidates) == 3 * 2 * 2 + 1  # B = 24 does not divide the batch, and Hanayo is defined at (8, 8) only
    row = candidates.query("schedule == 'Chimera' and stages == 8 and microbatches == 16").iloc[0]
    schedule = build("chimera", 8, 16)
    timeline = run_graph(compile_graph(schedule, "overlapped", "blocking"), model_costs(schedule, model, system))
    held = memory(schedule, model, stages(schedule, model, system))
    assert row.t_sim_s == pytest.approx(timeline.makespan_s, rel=1e-12)
    assert row.total_bytes == held.total.max() == row.activations_bytes + row.persistent_bytes
    assert row.tokens_per_s * row.t_sim_s == pytest.approx(model.global_batch * model.sequence)


@pytest.mark.parametrize("limit", [3000 * GIB, 5600 * GIB, 6000 * GIB, 50000 * GIB])
def test_the_fastest_that_fits_is_taken(candidates, limit):
    """By exhaustion: nothing that fits is faster, and nothing of another schedule than the next is."""
    for row in recommend_study(candidates, SIZES[0], limit).itertuples():
        here = candidates[candidates.stages == row.stages]
        fits = here[here.total_bytes <= limit]
        assert pd.isna(row.take_schedule) == fits.empty
        assert row.unlimited_t_sim_s == pytest.approx(here.t_sim_s.min(), rel=1e-9)
        assert row.smallest_total_bytes == here.total_bytes.min()
        if not fits.empty:
            assert row.take_t_sim_s == pytest.approx(fits.t_sim_s.min(), rel=1e-9)
            assert row.take_total_bytes <= limit
            others = fits[fits.schedule != row.take_schedule].t_sim_s
            assert others.empty or row.next_t_sim_s == pytest.approx(others.min(), rel=1e-9)


def test_more_memory_is_never_slower(candidates):
    """The time of what is taken falls, or stays, as the limit rises."""
    limits = sorted(candidates.total_bytes)
    times = pd.DataFrame([recommend_study(candidates, SIZES[0], limit).take_t_sim_s for limit in limits])
    assert (times.diff().fillna(0) <= 1e-6).all(axis=None)
    assert times.nunique().max() > 2


def test_ties_go_to_fewer_bytes_then_to_the_name():
    """Rounding is no order; what is left is decided by the written rule."""
    rows = [("b", 8, 1.0, 5), ("a", 16, 1.0, 5), ("a", 8, 1.0 + 1e-12, 5), ("c", 8, 1.0 - 1e-12, 6)]
    table = pd.DataFrame(rows, columns=["schedule", "microbatches", "t_sim_s", "total_bytes"]).assign(
        stages=4, tokens_per_s=1.0, activations_bytes=0.0, persistent_bytes=0.0
    )
    row = recommend_study(table, [4], 10).iloc[0]
    assert (row.take_schedule, row.take_microbatches, row.next_schedule) == ("a", 8, "b")


def test_words_say_what_is_taken_and_what_is_missing(candidates):
    """Each S has its line: what to take, that nothing fits and how much would be needed, or that nothing is defined."""
    limit = candidates.loc[candidates.stages == 8, "total_bytes"].min()
    study = recommend_study(candidates, [4, 8, 5000], limit)
    four, eight, none = recommendation_text(study, limit).splitlines()
    assert "nothing fits" in four
    assert f"The least is {study.smallest_total_bytes[0] / GIB:.4g} GiB" in four
    assert f"take {study.take_schedule[1]} with B = {study.take_microbatches[1]:.0f}" in eight
    assert "No other schedule fits" in eight
    assert "none of the schedules" in none
    table = recommendation_table(study)
    assert table.fits.tolist() == ["no", "yes", "no"]
    assert table["total (GiB)"][0] == study.smallest_total_bytes[0] / GIB


def test_the_picture_has_every_candidate_and_the_limit(candidates):
    """One panel for each S, one point a candidate, a ring for what is taken."""
    limit = candidates.total_bytes.median()
    figure = plot_candidates(candidates, recommend_study(candidates, SIZES[0], limit), limit, "title", "context")
    assert len(figure.axes) == 2
    for axis, size in zip(figure.axes, SIZES[0], strict=True):
        *points, ring, line = axis.lines
        assert sum(len(line.get_xdata()) for line in points) == (candidates.stages == size).sum()
        assert len(ring.get_xdata()) == 1
        assert line.get_xdata()[0] == limit / GIB


@given(st.floats(0, 4), st.floats(0.02, 5))
def test_labels_of_memory_stand_apart(low, decades):
    """Whatever the range of the logarithmic axis: two to four labels, in it, none nearer than a seventh of it."""
    ticks = _ticks(10**low, 10 ** (low + decades))
    places = (np.log10(ticks) - low) / decades
    assert 2 <= len(ticks) <= 4
    assert -1e-9 <= places.min() <= places.max() <= 1 + 1e-9
    assert np.diff(places).min() > 1 / 7


def test_a_changed_system_is_never_answered_from_memory(tmp_path, model, capsys):
    """The same file name with other values gives other numbers, in one process."""
    path = tmp_path / "mine.yaml"
    text = (DATA / "systems" / "mid_cp_slow_nw.yaml").read_text()
    found = []
    for bandwidth in ("value: 5,", "value: 50,", "value: 5,"):
        path.write_text(text.replace("value: 5,", bandwidth))
        system = load_system(path)
        assert main(["simulate", "1f1b", "--pp", "4", "--microbatches", "8", "--model", "paper", "--system",
                     str(path), "--json"]) == 0  # fmt: skip
        found.append((
            runtime_study(model, [system], 4, [8], ["1f1b"]).t_sim_s[0],
            candidate_study(model, system, [4], [8], ["1f1b"]).t_sim_s[0],
            judge([load_claims()[4]], load_model("paper"), load_setting("default"), system)[0].measured,
            capsys.readouterr().out,
        ))  # fmt: skip
    slow, fast, again = found
    assert all(one != other for one, other in zip(slow, fast, strict=True))
    assert slow == again


def test_the_slowest_stage_is_the_one_with_the_most_work(model, system):
    """Even blocks are even work; a loss head makes the last stage the slowest."""
    even = balance_study(replace(model, vocabulary=0), system, [model.blocks // 2], 8).iloc[0]
    assert even.over_mean == pytest.approx(0)
    headed = balance_study(replace(model, vocabulary=10**6), system, [model.blocks // 2, 10**4], 8)
    assert headed.slowest_stage.tolist() == [model.blocks // 2 - 1]
    assert headed.over_mean.item() > 0.1
