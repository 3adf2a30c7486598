"""A section for every schedule: its facts, its drawing, and its place among the pages."""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import ppmodel as pp
from ppbook.pages.drawings import drawing
from ppbook.pages.schedule_pages import OVERVIEW, PAGES, SECTIONS, exercises, section, write
from ppmodel import schedules
from ppmodel.schedules.registry import schedule

BOOK = Path(__file__).parents[2] / "book"
_MOST_WORDS = 1500


@pytest.fixture
def book(tmp_path):
    """The book's pages on schedules, as they are written by hand."""
    shutil.copytree(BOOK / "schedules", tmp_path / "schedules")
    shutil.copy(BOOK / "schedules.md", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", pp.names())
def test_every_schedule_has_all_facts(name):
    """None is empty, and the source stands in the bibliography."""
    text = section(name)
    facts = dict(re.findall(r"^\* - (.+)\n  - (.*)$", text, re.MULTILINE))
    assert len(facts) == 10
    assert all(facts.values()), facts
    assert schedules.get(name).when
    assert f"{{{schedules.get(name).source}," in (BOOK / "references.bib").read_text()
    assert text.count(f"(schedule-{name})=") == 1


@pytest.mark.parametrize("name", ["gpipe", "chimera", "stp", "hanayo"])
def test_a_drawing_has_a_box_for_every_operation(name):
    """Wide and narrow, in the table and in the timeline, within the picture; a line for every transfer."""
    table = schedules.small(name)
    run = pp.simulate(table, forward=1, backward=2, comm=0.2)
    pictures = ElementTree.fromstring(drawing(table, run.timeline, name, "a < b")).findall("svg")
    timed = np.count_nonzero(run.timeline.end_s > run.timeline.start_s)
    assert [picture.get("class") for picture in pictures] == ["wide", "narrow"]
    for picture in pictures:
        boxes = [box for box in picture.findall("rect") if not box.get("fill").startswith("url")]
        assert len(boxes) == table.num_operations + timed
        assert max(float(box.get("x")) + float(box.get("width")) for box in boxes) <= float(picture.get("width"))
        assert len(picture.findall("path")) == np.count_nonzero(table.dependencies.remote)
        assert picture.get("aria-label") == "a < b"


def test_a_new_schedule_has_its_section_at_once(book):
    """Registered anywhere, it stands on the page of its family and in the table, with what can be computed."""

    @schedule("mirrored", label="Mirrored", title="a schedule of this test", legal="B >= 1")
    def mirrored(num_ranks, num_microbatches):
        return schedules.build("gpipe", num_ranks, num_microbatches)

    write(book)
    page = (book / "schedules" / f"{PAGES['one chunk']}.md").read_text()
    assert "(schedule-mirrored)=" in page
    assert "Drawn here it takes" in page.partition("(schedule-mirrored)=")[2]
    assert "#schedule-mirrored" in (book / "schedules.md").read_text()


def test_exercises_count_what_transfers_cost_each_schedule(book):
    """Two on each page; their answers are the drawings' times with transfers, less those without."""
    write(book)
    for page in (book / "schedules").glob("*.md"):
        guess, compute = page.read_text().partition("## Exercises")[2].split("**Compute.**")
        assert guess.count("dropdown answer") == compute.count("dropdown answer") == 1
    names, runs = ["gpipe", "1f1b", "eager-1f1b"], {}
    for name in names:
        table = schedules.small(name)
        spans = (pp.simulate(table, forward=1, backward=2, comm=comm).makespan_s for comm in (0.2, 0))
        runs[schedules.get(name).label] = round(np.subtract(*spans) / 0.2)
    text = exercises([schedules.get(name) for name in names])
    assert ", ".join(f"{label} {count}" for label, count in runs.items()) in text
    assert f"Most {max(runs, key=runs.get)}," in text


@pytest.mark.parametrize(("family", "answer"), [
    ("one chunk", "GPipe 32 and 64; 1F1B 8 and 8; eager 1F1B 15 and 15; Seq1F1B 2.75 and 2.75."),
    ("one chunk, split backward", "ZB\\-H1 7 F and 14 F; ZB\\-H2 7 F and 10.5 F."),
    ("loop", "interleaved 1F1B 10.5 F and 5.25 F, with transfers 16.5 F and 17.7 F, for 960 and 1984 messages;"),
])  # fmt: skip
def test_a_page_asks_for_its_idea(book, family, answer):
    """What is held, by ranks or by microbatches; what of a bubble is left; that chunks shorten it, and what they send.

    The expected: B, S and 2 S - 1; (S - 1)(F + I - W); (S - 1)(F + B) / V, and B (S V - 1) messages in each direction.
    """
    write(book)
    page = (book / "schedules" / f"{PAGES[family]}.md").read_text()
    assert answer in page.partition("**Compute.**")[2].partition(":::\n")[0]


def test_sections_stand_on_pages_of_a_reader_s_length(book):
    """Every schedule once, with what is to be said beside its facts; no page is left open, and none is too long."""
    write(book)
    pages = [book / "schedules.md", *sorted((book / "schedules").glob("*.md"))]
    texts = [page.read_text() for page in pages]
    whole = "\n".join(texts)
    assert SECTIONS not in whole
    assert OVERVIEW not in whole
    for name in pp.names():
        assert whole.count(f"(schedule-{name})=") == 1
    for path in (BOOK / "schedules" / "notes").iterdir():
        assert path.stem in pp.names()
        assert path.read_text().partition("<!--")[0] in whole
    for page, text in zip(pages, texts, strict=True):
        words = re.sub(r"```\{raw\}.*?```", "", text, flags=re.DOTALL).split()
        assert len(words) < _MOST_WORDS, page
