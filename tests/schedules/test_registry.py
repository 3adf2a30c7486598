"""Schedules by name: found, refused, and legal exactly where they say."""

import re
from itertools import product

import pytest
from refusals import refused
from strategies import refusal

from ppmodel import build, names
from ppmodel.errors import ScheduleError
from ppmodel.schedules import get, registry
from ppmodel.schedules.registry import Option

REMEDY = re.compile(r"pass (pp|microbatches) (\d+)(?: or (\d+|more))?(?:, or use (\S+))?")


def followed(name, size, error):
    """Sizes and schedules that the remedy of a refusal names."""
    field, first, second, other = REMEDY.fullmatch(error.remedy).groups()
    assert field == error.field
    for number in (first, second):
        if (number or "").isdigit():
            yield name, (int(number), size[1]) if field == "pp" else (size[0], int(number))
    if other:
        yield other, size


def check_refusals(name):
    """A size is built, or refused with a rule and a remedy that helps; and "B >= 1" means all sizes."""
    refused = {size: refusal(name, size) for size in product(range(1, 7), range(1, 14))}
    for size, error in refused.items():
        if error is None:
            table = build(name, *size)
            assert (table.num_ranks, table.num_microbatches) == size
            continue
        assert error.rule.startswith("must ")
        for other, remedied in followed(name, size, error):
            left = refusal(other, remedied)
            assert left is None or (error.field, left.field) == ("pp", "microbatches"), (size, error.remedy)
    assert get(name).legal.startswith("B >= 1") == (not any(refused.values())), get(name).legal


def test_the_papers_schedules_are_registered():
    """The six schedules of the paper's study are there, each with a title and its legal sizes."""
    assert set(names()) >= {"gpipe", "1f1b", "eager-1f1b", "chimera", "asymmetric-chimera", "hanayo"}
    assert all(get(name).title and get(name).legal for name in names())


def test_unknown_names_get_the_nearest():
    """A misspelt name is refused with the nearest known one."""
    with refused(ScheduleError, "schedule", "not a known", remedy="chimera"):
        build("chimaera", 4, 4)
    with refused(ScheduleError, "schedule", "not a known", remedy="interleaved-1f1b or interleaved-zb"):
        build("interleaved", 4, 8)


@pytest.mark.parametrize(
    ("pp", "microbatches", "field"),
    [(0, 4, "pp"), (4, 0, "microbatches"), (-1, 4, "pp"), (2.0, 4, "pp"), (4, "4", "microbatches"), (True, 4, "pp")],
)
def test_sizes_are_whole_and_positive(pp, microbatches, field):
    """Neither zero nor fractions nor text are sizes."""
    with refused(ScheduleError, field, "at least 1"):
        build("gpipe", pp, microbatches)


def test_absurd_sizes_are_refused_at_once():
    """A size that would not fit into memory is refused before anything is built."""
    with refused(ScheduleError, "pp x microbatches", "at most"):
        build("gpipe", 10**6, 10**6)


def test_options_of_other_schedules_are_refused():
    """An option that a schedule does not have is refused, with those that it has."""
    with refused(ScheduleError, "waves", "not an option"):
        build("gpipe", 4, 4, waves=2)
    with refused(ScheduleError, "split", "not an option", remedy="waves"):
        build("hanayo", 4, 4, split=(1, 2))


@pytest.mark.parametrize("name", names())
def test_refusals_are_about_sizes_and_their_remedies_help(name):
    """What refuses a size names a number or a schedule with which it is legal."""
    check_refusals(name)


def test_options_are_checked_whatever_made_them():
    """A value that no text gives is refused like a text, by the rule and with an example."""
    option = Option("times", str, (1, 1), "A:B", "must be two numbers", "", lambda value: len(value) == 2)
    assert option.checked("ab") == "ab"
    assert option.checked([2, 3]) == (2, 3)
    with pytest.raises(ValueError, match="must be two numbers"):
        option.checked("abc")
    with refused(ScheduleError, "times", "must be two numbers", remedy="1:1"):
        option.checked((1, 2, 3))


def test_other_names_of_a_schedule_lead_to_ours():
    """What papers and frameworks call it is no name here, and the remedy has one that is."""
    for other, ours in registry.ALSO_CALLED.items():
        assert other not in names()
        assert set(re.split(r", | or ", ours)) <= set(names())
    with refused(ScheduleError, "schedule", "is not a known schedule", remedy="zb-h1"):
        build("Zero_Bubble", 4, 8)
