"""Orders of schedules, where they disagree, fronts, and where curves cross."""

import numpy as np
import pandas as pd
import pytest

from ppmodel import build, compare
from ppmodel.studies.analysis import (
    crossings,
    every_two,
    largest_share,
    negated,
    order_of_amounts,
    order_of_bubbles,
    pareto_front,
    relative_to,
    winners,
)
from ppmodel.studies.analysis.orders import behind, kendall_tau, reversed_pairs
from ppmodel.tables import FAMILIES, family


def test_families_are_told_by_structure():
    """Two directions, several stages in a zigzag or in laps, halves of a backward, or none of these."""
    known = {
        "1f1b": 0, "zb-h1": 1, "zb-1p": 1, "interleaved-1f1b": 2, "looped-bfs": 2, "hanayo": 3, "zb-v": 3,
        "dualpipe": 4,
    }  # fmt: skip
    assert {name: family(build(name, 4, 4 * (1 + (name != "hanayo")))) for name in known} == {
        name: FAMILIES[place] for name, place in known.items()
    }


def test_kendall_is_concordant_less_discordant_pairs():
    """Tau-b against a count of pairs, with ties on both sides."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        first, second = rng.integers(1, 6, size=(2, 7)) / 8
        signs = [
            (np.sign(first[a] - first[b]), np.sign(second[a] - second[b])) for a in range(7) for b in range(a + 1, 7)
        ]
        ordered = [sum(sign[side] != 0 for sign in signs) for side in (0, 1)]
        expected = sum(a * b for a, b in signs) / np.sqrt(ordered[0] * ordered[1])
        found = kendall_tau(every_two(order_of_bubbles, first), every_two(order_of_amounts, second))
        assert found == pytest.approx(expected)
    assert np.isnan(kendall_tau(np.zeros((2, 2)), np.zeros((2, 2))))


def test_rounding_is_no_order():
    """Neither bubbles nor times that differ by a billionth are reversed; missing bubbles are no order at all."""
    assert not reversed_pairs([0.1, 0.1 + 1e-12], [2.0, 1.0]).any()
    assert not reversed_pairs([0.1, 0.2], [1.0 + 1e-12, 1.0]).any()
    assert not reversed_pairs([np.nan, 0.2], [2.0, 1.0]).any()
    assert reversed_pairs([0.1, 0.2], [2.0, 1.0]).tolist() == [[False, True], [False, False]]
    assert not reversed_pairs([0.1, 0.2], [2.0, 1.0], without_network=[2.0, 1.0]).any()


def test_a_negated_bubble_is_smaller_and_no_shorter_time():
    """As long counts, a billionth does not, and neither does a bubble that is no smaller."""
    seconds = [2.0, 2.0 * (1 - 1e-12), 1.9, 3.0]
    assert negated([0.1, 0.1, 0.1, 0.2 - 1e-12], 0.2, seconds, 2.0).tolist() == [True, True, False, False]


def test_points_differ_in_their_layouts():
    """A time is compared with that of the same layout, with and without a value for its sequences."""
    layouts = {"tp": [1, 2], "sequence": [None, 4096], "global_batch": 64}
    frame = compare(["1f1b", "zb-v"], 4, model="llama3_8b", system="h100", **layouts)
    times = frame.set_index(["label", "tp", "sequence"]).makespan_s
    apart = relative_to(frame, "1F1B").set_index(["tp", "sequence"]).relative
    pd.testing.assert_series_equal(apart, times["ZB-V"] / times["1F1B"] - 1, check_names=False)
    assert len(winners(frame)) == 4


def test_equal_points_are_on_the_front_together():
    """A copy of a point beats it as little as the point itself; one that is as fast with more bytes is beaten."""
    assert pareto_front([1, 1, 1], [2, 2, 3]).tolist() == [True, True, False]
    assert behind([1, 1, 1], [2, 2, 3]).tolist() == [0, 0, 0]


def test_crossings_lie_between_their_points():
    """A line on a logarithmic axis is met exactly, also on a point; touching 0 and rounding are no change of sign."""
    ratios = np.geomspace(0.01, 100, 9)
    assert crossings(ratios, np.log(ratios / 0.7)) == pytest.approx([0.7])
    assert crossings([1, 10, 100, 1000], [-1.0, 0.0, 0.0, 1.0]) == pytest.approx([10])
    assert crossings([1, 2, 3], [1.0, 0.0, 1.0]) == crossings([1, 2], [1e-12, -1e-12]) == []


def test_the_largest_share_is_found_to_its_precision():
    """The condition holds at the share, and no longer one step above it."""
    share = largest_share(lambda value: value <= 0.3)
    assert share <= 0.3 < share + 2**-12
