"""The paper's figures under a setting: as the claims measure them, and with the same labels."""

import pandas as pd
import pytest

import ppmodel
from ppbook.claims import NINE
from ppbook.claims.paper import under
from ppmodel.plot import plot_bars, plot_lines

SCHEDULES = ["gpipe", "chimera", ["hanayo", {"waves": 2}]]


@pytest.mark.parametrize("setting", ["default", "paper"])
def test_pages_and_claims_have_the_same_times(setting):
    """A comparison under a setting is what the claims' bench measures, and so is a run."""
    paper = under(setting, "paper")
    frame = paper.compare(SCHEDULES, 8, 8, list(NINE))
    times = [second for schedule in SCHEDULES for second in paper.bench.times(schedule, 8, 8).makespan_s[0]]
    assert frame.makespan_s.tolist() == pytest.approx(times, rel=1e-12)
    assert frame.label.unique().tolist() == ["GPipe", "Chimera", "Hanayo W = 2"]
    assert paper.simulate("chimera", 8, 8, NINE[3]).makespan_s == pytest.approx(frame.makespan_s[9 + 3], rel=1e-12)


def test_the_default_setting_is_a_plain_comparison():
    """Row by row and column by column."""
    plain = ppmodel.compare(["gpipe", "chimera"], 4, [4, 8], model="paper", system=["h100", "mid_cp_mid_nw"])
    ours = under("default", "paper").compare(["gpipe", "chimera"], 4, [4, 8], ["h100", "mid_cp_mid_nw"])
    key = ["label", "microbatches", "system"]
    pd.testing.assert_frame_equal(ours.sort_values(key, ignore_index=True), plain.sort_values(key, ignore_index=True))


def test_other_systems_keep_their_hardware():
    """A setting changes what a transfer occupies on them, and no more."""
    plain = ppmodel.compare("gpipe", 4, 8, model="paper", system="h100", p2p="blocking")
    assert under("paper", "paper", "blocking").compare(["gpipe"], 4, 8, "h100").makespan_s[0] == plain.makespan_s[0]


def test_published_numbers_are_marked():
    """In the panel and on the bar that they belong to."""
    frame = ppmodel.compare(["gpipe", "1f1b"], [2, 4], [4, 8], forward=1, backward=2)
    marks = pd.DataFrame([{"pp": 4, "microbatches": 8, "makespan_s": 30.0, "label": "1F1B", "mark": "published"}])
    figure = plot_lines(frame, "microbatches", "makespan_s", "Lines", panel="pp", marks=marks)
    assert [line.get_xydata().tolist() for line in figure.axes[1].lines if line.get_marker() == "D"] == [[[8, 30]]]
    figure = plot_bars(frame[frame.pp == 4], "microbatches", "makespan_s", "Bars", marks=marks)
    ((x, y),) = next(line.get_xydata() for line in figure.axes[0].lines if line.get_marker() == "D")
    assert (1 < x < 1.4, y) == (True, 30)
