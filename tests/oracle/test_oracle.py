"""A sample of the oracle: points of all schedules, semantics and layouts, two plans and some commands, to the digit."""

import pytest

import ppmodel as pp

from . import commands, points
from .recorded import differences, frame_values, read

SAMPLED = (
    "sizes gpipe", "sizes interleaved-1f1b:chunks=3", "sizes zb-2p:delays=1:2:1", "one rank", "large",
    "semantics 1f1b", "semantics dualpipe", "halves", "pairs", "links", "own", "system mid_cp_slow_nw",
    "model deepseek_v3", "change overlap 0.8", "slow links", "layout gpus_64", "values plain", "values three layers",
    "values offload all", "values fp8", "values zero 3", "values cp 2", "values wrong gpus", "experts ep 8, etp 1",
    "framework fsdp", "iteration mi300x_nodes", "unknown word", "no backward",
)  # fmt: skip
COMMANDS = (
    "help", "unknown", "help of compare", "list of schedules", "list of columns", "table", "table for pytorch",
    "own table", "refused table", "check", "check a deadlock", "simulate halves", "simulate a layout",
    "simulate a layout as json", "simulate a trace", "simulate and launch", "simulate own generator", "no number",
    "bad system", "wrong layout", "compare links", "compare a layout", "plan with a typo", "predict", "replay as json",
    "sweep with noise", "sweep with a typo",
)  # fmt: skip
PLANS = "one schedule", "of experts"


@pytest.fixture(scope="module")
def before():
    """What was recorded."""
    return read(("points", "timelines", "commands", "plans"))


def test_all_schedules_are_among_the_points():
    """A new schedule is recorded, too."""
    assert {case.partition(":")[0] for case in points.CASES} == set(pp.names())


@pytest.mark.parametrize(
    ("part", "name"), [*(("points", name) for name in SAMPLED), *(("timelines", case) for case in points.CASES)]
)
def test_frames(part, name, before):
    """Numbers, columns, refusals and warnings are those recorded."""
    now = frame_values(part, name)
    then = {key: row for key, row in before[part].items() if key == name or key.startswith(f"{name} [")}
    _require_equal(part, then, now)


@pytest.mark.parametrize(
    ("part", "name"), [*(("commands", name) for name in COMMANDS), *(("plans", name) for name in PLANS)]
)
def test_commands(part, name, before):
    """Exit code, output and files are those recorded."""
    _require_equal(part, {name: before[part][name]}, {name: commands.result(part, name)})


def _require_equal(part, then, now):
    found, _ = differences({part: then}, {part: now})
    assert not found, "\n".join(map(str, found[:5]))
