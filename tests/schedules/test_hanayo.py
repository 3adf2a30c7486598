"""Hanayo: the zigzag, the times, the regime."""

import pytest
from refusals import refused

from ppmodel import build
from ppmodel.errors import ScheduleError
from ppmodel.metrics import messages_sent, peak_activations, table_slots


def test_stages_zigzag():
    """Odd segments of stages run backwards over the ranks, so that every turn is local."""
    placement = build("hanayo", 3, 3, waves=2).placement[0].tolist()
    assert placement == [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]


def test_known_lengths():
    """At (8, 8) without communication: 38, 31.5 and 27.75 forward-times for 1, 2 and 4 waves."""
    lengths = [table_slots(build("hanayo", 8, 8, waves=waves)) / (2 * waves) for waves in (1, 2, 4)]
    assert lengths == [38, 31.5, 27.75]


def test_traffic_and_memory():
    """4W(S-1) messages a microbatch, and at most S units of activations."""
    for waves in (1, 2, 3):
        schedule = build("hanayo", 6, 6, waves=waves)
        assert messages_sent(schedule).sum() == 6 * 4 * waves * 5
        assert peak_activations(schedule).max() <= 6


@pytest.mark.parametrize(
    ("size", "waves", "field", "rule"),
    [
        ((8, 16), 1, "microbatches", "must equal pp"),
        ((4, 4), 0, "waves", "at least 1"),
        ((4, 4), 1.5, "waves", "at least 1"),
        ((8, 8), 10**6, "pp x microbatches", "at most"),
    ],
)
def test_other_regimes_are_refused(size, waves, field, rule):
    """As many microbatches as ranks, and whole waves."""
    with refused(ScheduleError, field, rule):
        build("hanayo", *size, waves=waves)
