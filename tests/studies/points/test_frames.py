"""Frames of points: each row against a base, the fastest of each point, and reversed orders."""

import pandas as pd
import pytest
from refusals import refused

import ppmodel as pp
from ppmodel.errors import PPModelError
from ppmodel.studies.analysis import relative_to, reversals, winners
from ppmodel.studies.points.change import Change

SYSTEMS = ["mid_cp_mid_nw", "fast_cp_slow_nw"]


@pytest.fixture(scope="module")
def frame():
    return pp.compare(["gpipe", "1f1b", "chimera"], 4, [2, 4, 8], model="paper", system=SYSTEMS)


def test_relative_times_are_against_the_base(frame):
    """Value / base - 1 at the same point; the base itself and points that are not defined are not among the rows."""
    relative = relative_to(frame, "GPipe")
    assert set(relative.label) == {"1F1B", "Chimera"}
    assert set(relative[relative.label == "Chimera"].microbatches) == {4, 8}
    assert ((relative.relative + 1) * relative.base).tolist() == pytest.approx(relative.makespan_s.tolist())
    one = relative.query("label == 'Chimera' and microbatches == 8 and system == 'mid_cp_mid_nw'").relative.item()
    spans = [pp.simulate(name, 4, 8, model="paper", system="mid_cp_mid_nw").makespan_s for name in ("chimera", "gpipe")]
    assert one == pytest.approx(spans[0] / spans[1] - 1)


def test_a_base_that_is_not_there_is_refused(frame):
    """Not an empty frame; the labels that are there are named."""
    with refused(PPModelError, "base", "is not among the schedules", value="gpipe", remedy="choose one of GPipe, 1F1B"):
        relative_to(frame, "gpipe")


def test_memory_is_of_the_system_of_the_row_whatever_came_before():
    """Also of a model without a vocabulary, whose layers are spread evenly: systems keep more of it, or less."""
    systems = ["a100_layouts", "h100_mlperf", "h100_playbook"]
    there, back = (
        pp.compare("1f1b", 8, 16, model="paper", system=order, p2p="overlapped").activations_bytes.tolist()
        for order in (systems, systems[::-1])
    )
    assert len(set(there)) == 3
    assert there == back[::-1]


def test_changes_are_compared_with_the_base_under_the_same_change():
    """What is changed is part of the point."""
    changes = [Change(bandwidth=factor) for factor in (0.5, 2.0)]
    frame = pp.compare(["gpipe", "1f1b"], 4, 8, model="paper", system=SYSTEMS[1], changes=changes)
    assert relative_to(frame, "GPipe").change.tolist() == [repr(change) for change in changes]


def points(rows):
    frame = pd.DataFrame(rows, columns=["label", "table_bubble_ratio", "makespan_s", "peak_activations"])
    return frame.assign(schedule=frame.label, pp=4, microbatches=8)


def test_reversals_are_pairs_in_opposite_order():
    """A smaller bubble with a longer time is one; equal bubbles or equal times are none."""
    frame = points(
        [("a", 0.1, 3.0, 1), ("b", 0.2, 2.0, 1), ("c", 0.2, 1.0, 1), ("d", 0.3, 4.0, 1), ("e", 0.05, 3.0, 1)]
    )
    assert "by_network" not in reversals(frame)
    found = reversals(frame.assign(without_network_s=[1, 2, 0.5, 3, 1]))
    pairs = {(row.smaller_bubble, row.faster): row.by_network for row in found.itertuples()}
    assert pairs == {("a", "b"): True, ("a", "c"): False, ("e", "b"): True, ("e", "c"): False}
    first = found.iloc[0]
    assert (first.bubble_smaller, first.makespan_smaller_s, first.makespan_faster_s) == (0.1, 3.0, 2.0)


def test_the_winner_of_a_tie_needs_less_memory():
    """Times that differ by rounding are one; the lead is over the next that takes longer."""
    tie = points([("a", 0.1, 2.0, 8), ("b", 0.1, 2.0 * (1 + 1e-12), 4), ("c", 0.1, 3.0, 1)])
    assert winners(tie)[["label", "lead"]].values.tolist() == [["b", 0.5]]
    assert winners(tie.head(2)).lead.isna().all()


def test_every_winner_is_the_fastest_of_its_point(frame):
    """A row a point, those without some schedule among them."""
    found = winners(frame)
    assert len(found) == 3 * 2
    fastest = frame.groupby(["microbatches", "system"]).makespan_s.min()
    for row in found.itertuples():
        same = frame.query("label == @row.label and microbatches == @row.microbatches and system == @row.system")
        assert same.makespan_s.item() == pytest.approx(fastest[row.microbatches, row.system], rel=1e-9)
