"""What a page leaves behind, and the tables that it shows."""

import pandas as pd

import ppmodel as pp
from ppmodel.artefact.report import record, show
from ppmodel.plot import plot_lines


def test_records_are_the_same_bytes_every_time(tmp_path):
    """Figure, table and facts written twice are equal, and the numbers keep all their digits."""
    frame = pp.compare(["gpipe", "chimera"], 4, [4, 8], model="paper", system="mid_cp_mid_nw")
    for folder in ("one", "two"):
        figure = plot_lines(frame, "microbatches", "makespan_s", "title", "context")
        record("x", tmp_path / folder, figure, frame, answer=1 / 3)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["x.csv", "x.json", "x.png", "x.svg"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    again = pd.read_csv(tmp_path / "one" / "x.csv")
    assert again.makespan_s.tolist() == frame.makespan_s.tolist()
    assert show(frame).to_html() == show(frame).to_html()


def test_numbers_share_a_form_but_for_those_that_have_their_own():
    """One format for all columns of numbers, another for one of them; words and whole numbers in headings stay."""
    table = pd.DataFrame({"system": ["a"], 8: [0.25], "least": [0.5]})
    page = show(table, {"least": "least c / F"}, "{:.1%}", least="{:g}").to_html()
    for said in (">a<", ">25.0%<", ">0.5<", ">least c / F<", ">8<"):
        assert said in page


def test_facts_without_a_number_are_null(tmp_path):
    """JSON has no NaN: what strict readers take."""
    record("x", tmp_path, gain=float("nan"), points=[1, 2])
    assert (tmp_path / "x.json").read_text() == '{\n "gain": null,\n "points": [\n  1,\n  2\n ]\n}\n'
