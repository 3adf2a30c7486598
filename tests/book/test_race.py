"""The race in the text: its slider, driven as a reader would, against the library."""

import re

import numpy as np
import pandas as pd
import pytest
from books import HTML

import ppmodel as pp
from ppbook.pages.explorer import offer, times_of
from ppbook.pages.race import Race
from ppmodel.errors import PPModelError
from ppmodel.schedules.cases import as_case

PAGE = HTML / "nb" / "timeline.html"
RACERS = "v-half", "interleaved-1f1b", "gpipe"
MOST_BYTES = 300_000


KEYS = {as_case(racer).label: racer for racer in RACERS}


def simulated(comm):
    return {
        label: pp.simulate(racer, 4, 8, forward=1, backward=2, comm=comm).makespan_s for label, racer in KEYS.items()
    }


_ROWS = """() => [...document.querySelectorAll('.racing-row')].map(row => ({
    place: Number(row.querySelector('p span').innerText), label: row.querySelector('b').innerText,
    makespan: Number(row.dataset.makespan), drawn: row.querySelector('text').textContent,
    longer: row.querySelector('small').innerText,
}))"""


def shown(page):
    """Makespans in full by label, in the order of the places on the page; what a reader sees are their first digits."""
    rows = pd.DataFrame(page.evaluate(_ROWS)).sort_values("place")
    assert rows.place.tolist() == [1, 2, 3]
    assert rows.drawn.tolist() == rows.makespan.map("{:.1f}".format).tolist()
    return rows.set_index("label")


def test_the_slider_reverses_the_order(page):
    """From end to end by keyboard: numbers and places are the library's, the order turns, the explorer follows."""
    loaded = []
    page.on("requestfinished", lambda request: loaded.append(request.url))
    page.goto(PAGE.as_uri())
    page.wait_for_selector(".racing[data-ready]")
    ours = {url for url in loaded if "/html/explorer/" in url}
    assert sum((HTML / "explorer" / url.partition("/html/explorer/")[2]).stat().st_size for url in ours) < MOST_BYTES
    slider, orders = page.get_by_role("slider", name="Transfer time, in forwards"), []
    slider.focus()
    for keys in (["Home"], ["ArrowRight"] * 3, ["PageUp"] * 4, ["End"]):
        for key in keys:
            page.keyboard.press(key)
        comm, rows = float(slider.input_value()), shown(page)
        assert rows.makespan.to_dict() == pytest.approx(simulated(comm), rel=1e-9)
        order = Race(list(RACERS), 4, 8, comm, 1).order
        assert rows.index.tolist() == order.label.tolist()
        percent = zip((100 * order.longer + 0.5).astype(int), 100 * order.table_bubble_ratio, strict=True)
        assert rows.longer.tolist() == [f"+{longer} %; bubble {bubble:.0f} %" for longer, bubble in percent]
        assert slider.get_attribute("aria-valuetext") == f"{comm:.2f} of a forward: {', '.join(order.label)}"
        assert page.locator(".racing-strip .now").inner_text() == order.label[1]
        first, last = KEYS[order.label[1]], KEYS[order.label[len(order)]]
        assert f"#schedule={first}&against={last}&" in page.locator(".racing a").get_attribute("href")
        orders.append(rows.index.tolist())
    assert float(slider.input_value()) == 1
    assert orders[0] == order.sort_values("table_bubble_ratio").label.tolist() == orders[-1][::-1]
    page.locator(".racing a").click()
    page.wait_for_selector("#explorer-page[data-ready]")
    state = page.evaluate("ppmodelExplorer.state()")
    assert (state["schedule"], state["against"], state["comm"]) == ("gpipe", "v-half", 1)
    assert page.thrown == page.elsewhere == []


_BOXES = """boxes => boxes.map(box => ['x', 'width'].map(key => parseFloat(box.getAttribute(key))))"""


def test_the_race_without_scripts(page):
    """The picture and its numbers stand there, box by box as a script would draw them, and no slider without use."""
    plain = page.context.browser.new_page(java_script_enabled=False, viewport={"width": 390, "height": 844})
    plain.goto(PAGE.as_uri())
    assert not plain.locator(".racing input").is_visible()
    comm = float(plain.locator(".racing output").inner_text())
    makespans = [float(text) for text in plain.locator(".racing text").all_text_contents()]
    assert makespans == pytest.approx(list(simulated(comm).values()), abs=0.05)
    last = plain.locator(".racing-row text").last.bounding_box()
    assert last["x"] + last["width"] <= 390
    drawn = plain.locator(".racing rect").evaluate_all(_BOXES)
    plain.close()
    page.goto(PAGE.as_uri())
    page.wait_for_selector(".racing[data-ready]")
    assert np.array(page.locator(".racing rect").evaluate_all(_BOXES)) == pytest.approx(np.array(drawn), abs=1e-3)


def test_no_other_page_loads_it():
    """One page has the race; the others, the explorer apart, load none of its scripts."""
    having = {path.name for path in HTML.rglob("*.html") if re.search(r'src="[./]*explorer/', path.read_text())}
    assert having == {"timeline.html", "explorer.html"}


def test_who_passes_whom():
    """As the page says: GPipe ends ahead of both others, and 1F1B, which has its bubble, of V-Half alone."""
    plain, end = pp.simulate("1f1b", 4, 8, forward=1, backward=2, comm=1).makespan_s, simulated(1)
    assert end["GPipe"] < end["interleaved 1F1B"] < plain < end["V-Half"]


def test_a_race_is_data_too():
    """A row for each position of the slider; a size that the explorer lacks gives the picture without a slider."""
    race = Race(list(RACERS), 4, 8, 0.5, 1)
    assert race.frame.groupby("label").comm.nunique().eq(101).all()
    by_label = race.frame.pivot(index="comm", columns="label", values="makespan_s")
    pd.testing.assert_series_equal(by_label.loc[0.5], pd.Series(simulated(0.5)), check_names=False, check_like=True)
    assert race.order.label.tolist() == list(by_label.loc[0.5].sort_values(kind="stable").index)
    assert "<script" in race._repr_html_()
    other = Race(["gpipe", "1f1b"], 3, 5, 0.5, 1)
    assert "<script" not in other._repr_html_()
    assert other._repr_html_().count("<rect") == 2 * 2 * 3 * 5
    with pytest.raises(PPModelError):
        Race(["nothing"], 4, 8, 0.5, 1)
    with pytest.raises(PPModelError, match="not defined at pp = 3"):
        Race(["chimera"], 3, 5, 0.5, 1)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-v", "interleaved-1f1b"])
def test_a_system_is_a_point_of_the_explorer(name):
    """Times in forwards, as captions link them, give the times on the system; where stages differ there is no link."""
    system = {"model": "paper", "system": "mid_cp_slow_nw"}
    one_stage = pp.simulate("gpipe", 8, 16, **system)
    there = pp.simulate(name, 8, 16, **times_of(one_stage.costs)).makespan_s * one_stage.costs.compute_s[0, 0]
    assert there == pytest.approx(pp.simulate(name, 8, 16, **system).makespan_s, rel=1e-9)
    layout = {"tp": 8, "microbatch_size": 1}
    assert times_of(pp.simulate(name, 8, 16, model="llama3_70b", system="dgx_h100", **layout).costs) == {}


def test_no_link_where_the_explorer_has_no_orders():
    """A variant that it does not offer."""
    figure = type("Figure", (), {})()
    offer(figure, ["hanayo:waves=8", "gpipe"], 4, 8)
    assert figure.explorer == ""
    offer(figure, ["hanayo:waves=2", "gpipe"], 4, 8)
    assert figure.explorer.startswith("../explorer.html#schedule=hanayo:waves=2&against=gpipe")
