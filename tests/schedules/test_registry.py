"""Schedules by name: found, refused, and legal exactly where they say."""

import pytest

from ppmodel import build, names
from ppmodel.errors import ScheduleError
from ppmodel.schedules import get


def test_the_papers_schedules_are_registered():
    """The six schedules of the paper's study are there, each with a title and its legal sizes."""
    assert set(names()) >= {"gpipe", "1f1b", "eager-1f1b", "chimera", "asymmetric-chimera", "hanayo"}
    assert all(get(name).title and get(name).legal for name in names())


def test_unknown_names_get_the_nearest():
    """A misspelt name is refused with the nearest known one."""
    with pytest.raises(ScheduleError, match="did you mean chimera"):
        build("chimaera", 4, 4)


@pytest.mark.parametrize(("stages", "microbatches"), [(0, 4), (4, 0), (-1, 4), (2.0, 4), (4, "4"), (True, 4)])
def test_sizes_are_whole_and_positive(stages, microbatches):
    """Neither zero nor fractions nor text are sizes."""
    with pytest.raises(ScheduleError, match="whole number of at least 1"):
        build("gpipe", stages, microbatches)


def test_absurd_sizes_are_refused_at_once():
    """A size that would not fit into memory is refused before anything is built."""
    with pytest.raises(ScheduleError, match="at most"):
        build("gpipe", 10**6, 10**6)


def test_options_of_other_schedules_are_refused():
    """An option that a schedule does not have is refused, with those that it has."""
    with pytest.raises(ScheduleError, match="not an option of gpipe"):
        build("gpipe", 4, 4, waves=2)
    with pytest.raises(ScheduleError, match="its options: waves"):
        build("hanayo", 4, 4, split=(1, 2))
