"""Whatever a file or a command line holds comes back as a result or as one line: no traceback, no hang, no code run."""

import os
import re
import string

import pytest
from attack.attempt import Attack, tried
from attack.catalogue import CATEGORIES
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmodel.clusters.specs import DATA, load_layout, load_model, load_system
from ppmodel.errors import PPModelError
from ppmodel.studies.sweep.specification import load_sweep
from ppmodel.tables import parse_table

SYSTEM = (DATA / "templates" / "system.yaml").read_text()
MODEL = (DATA / "templates" / "model.yaml").read_text()
LAYOUT = (DATA / "templates" / "layout.yaml").read_text()
SWEEP = (DATA / "templates" / "sweep.yaml").read_text()
TABLE = (DATA / "templates" / "my_table.csv").read_text()
NASTY = [
    "", " ", "\t", "\n", "\0", "\x1b[31m", "\ufeff", "\u202e", "é", "日本", "😀", "*a", "&a [*a]", "<<: *a",
    "!!python/name:os.system", "{{ 7*7 }}", "<script>alert(1)</script>", "=1+1", "-", "---", "...", "[" * 100,
    "{" * 50, "]", "}", ":", "'", '"', "#", "|", ">", "1e309", "-1e309", "nan", ".inf", "-0", "0x10", "1_000",
    "9" * 5000, "true", "null", "~", "2026-01-01", "%", "@", "`", "0F0&", "0F0@99999", "0F999999999", "999999999F0",
    "R", "0R", "0I0", "~", ".", ",", ";", "OVERLAP_F_B", "(0F0;0B0)OVERLAP_F_B", "# stage_shares: 1e308 1e308",
    "# stage_shares: 1e-300 1", "# microbatches: 0", "# microbatches: 99999999999", "# letters: other",
]  # fmt: skip


@st.composite
def mutated(draw, text):
    """A good file with a few pieces cut out, doubled, swapped or replaced by something nasty."""
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 40)))
        piece = draw(st.sampled_from([*NASTY, text[begin:end] * 2, text[end : end + 30]]) | st.text(max_size=8))
        text = text[:begin] + piece + text[end:]
    return text


def refused_in_one_line(read, *given):
    """What reading comes to: a value, or an error that is one plain, short line."""
    try:
        read(*given)
    except PPModelError as error:
        line = str(error)
        assert line.isprintable()
        assert len(line) < 1500
        assert re.match(r".* = .*: .*; .*", line), line


FILES = {
    load_system: mutated(SYSTEM) | st.text(alphabet=string.printable, max_size=200), load_model: mutated(MODEL),
    load_layout: mutated(LAYOUT),
    load_sweep: mutated("".join(line for line in SWEEP.splitlines(keepends=True) if not line.startswith("#"))),
}  # fmt: skip


@pytest.mark.parametrize("load", FILES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_file_is_read_or_refused(load, data, tmp_path_factory):
    """A system, model, layout or sweep with anything in its file is read, or refused in one line."""
    path = tmp_path_factory.mktemp("files") / "mine.yaml"
    path.write_text(data.draw(FILES[load]), encoding="utf-8", errors="surrogateescape")
    refused_in_one_line(load, path)


@settings(max_examples=300)
@given(text=mutated(TABLE) | st.text(max_size=100))
def test_any_table_is_read_or_refused(text):
    """A table with anything in it is a schedule, or refused in one line."""
    refused_in_one_line(parse_table, text)


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"\x00" * 100, bytes(range(256))])
def test_bytes_that_are_no_text_are_refused(raw, tmp_path):
    """A file that is no text is refused with the line and the byte."""
    path = tmp_path / "mine.yaml"
    path.write_bytes(raw)
    with pytest.raises(PPModelError):
        load_system(path)


# ---- as processes ------------------------------------------------------------------------------------

EVERY = {
    "command line": 7, "injection": 9, "YAML": 31, "CSV": 23, "generators": 16, "paths and disks": 16,
    "streams and limits": 19, "measured rows": 20, "cells": 100, "plans": 40, "replays": 25, "doors": 47, "timings": 39,
}  # fmt: skip
"""Of `make attack`, which runs all and takes half an hour, every so many; those on notebooks are with the book's tests,
and those that kill, wait, go on with sweeps or start kernels run there alone."""


@pytest.mark.parametrize("category", EVERY)
def test_attacks_of_every_category(category, tmp_path):
    """A result or one line, in bounded time, memory and output; nothing of others is changed, and nothing is run."""
    for number, attack in enumerate(list(CATEGORIES[category]())[:: EVERY[category]]):
        faults, _ = tried(attack, tmp_path / str(number))
        assert not faults, (attack.name, attack.words, faults)


LINE = "simulate 1f1b --pp 4 --microbatches 8 --forward 1 --backward 2"


@pytest.mark.parametrize(
    ("attack", "fault"),
    [
        (Attack("", "", ["schedules"], codes=(2,)), "exit code 0"),
        (Attack("", "", f"{LINE} --trace a.json".split()), r"left: \['a.json'\]"),
        (Attack("", "", f"{LINE} --trace theirs/thesis.csv".split()), r"lost or changed: \['theirs/thesis.csv'\]"),
        (Attack("", "", ["schedules"], seconds=0.01), "has not ended after 0.01 s"),
        (Attack("", "", ["schedules"], during=lambda _, work: (work / "ran").touch()), r"ran: \['ran'\]"),
        (Attack("", "", ["schedules"], begin=lambda _: os.write(1, b"\x1b[2J")), "control"),
    ],
)
def test_attacks_can_fail(attack, fault, tmp_path):
    """What would be wrong is found."""
    assert re.search(fault, "; ".join(tried(attack, tmp_path / "a")[0]))
