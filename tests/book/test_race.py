"""The race in the text: its slider, driven as a reader would, against the library."""

import re

import numpy as np
import pandas as pd
import pytest
from books import HTML

import ppmodel as pp
from ppbook.explorer import link, offer, times_of
from ppbook.race import Race, levels, sentence
from ppmodel.errors import PPModelError
from ppmodel.metrics import table_bubble_ratio
from ppmodel.schedules.cases import as_case

PAGE = HTML / "nb" / "timeline.html"
RACERS = "v-half", "interleaved-1f1b", "gpipe"
MOST_BYTES = 300_000


def simulated(comm):
    return {as_case(one).label: pp.simulate(one, 4, 8, forward=1, backward=2, comm=comm).makespan_s for one in RACERS}


_ROWS = """() => [...document.querySelectorAll('.racing-row')].map(row => ({
    place: row.querySelector('p').innerText, label: row.querySelector('b').innerText,
    number: Number(row.dataset.makespan), shown: row.querySelector('text').textContent,
}))"""


def shown(page):
    """Makespans in full by label, in the order of the places on the page; what a reader sees are their first digits."""
    rows = sorted(page.evaluate(_ROWS), key=lambda row: row["place"])
    assert [row["place"] for row in rows] == [f"{place}. {row['label']}" for place, row in enumerate(rows, 1)]
    assert [row["shown"] for row in rows] == [f"{row['number']:.1f}" for row in rows]
    return {row["label"]: row["number"] for row in rows}


def test_the_slider_reverses_the_order(page):
    """From end to end by keyboard: numbers and sentences are the library's, the order turns, the explorer follows."""
    loaded = []
    page.on("requestfinished", lambda request: loaded.append(request.url))
    page.goto(PAGE.as_uri())
    page.wait_for_selector(".racing[data-ready]")
    ours = {url for url in loaded if "/explorer/" in url}
    assert sum((HTML / "explorer" / url.partition("/explorer/")[2]).stat().st_size for url in ours) < MOST_BYTES
    bubbles = {as_case(one).label: float(table_bubble_ratio(pp.build(one, 4, 8))) for one in RACERS}
    slider, orders, keys_of = (
        page.get_by_role("slider", name="Transfer time, in forwards"),
        [],
        {as_case(one).label: one for one in RACERS},
    )
    slider.focus()
    for keys in (["Home"], ["ArrowRight"] * 3, ["PageUp"] * 4, ["End"]):
        for key in keys:
            page.keyboard.press(key)
        comm, numbers = float(slider.input_value()), shown(page)
        times = simulated(comm)
        assert numbers == pytest.approx(times, rel=1e-9)
        assert page.locator(".racing-said").inner_text() == sentence(times, bubbles)
        assert f"{comm:.2f}" in slider.get_attribute("aria-valuetext")
        assert page.locator(".racing-strip .now").inner_text() == levels(times)[0][0]
        first, last = (keys_of[level[0]] for level in (levels(times)[0], levels(times)[-1]))
        assert f"#schedule={first}&against={last}&" in page.locator(".racing a").get_attribute("href")
        orders.append(list(numbers))
    assert float(slider.input_value()) == 1
    assert orders[0] == sorted(bubbles, key=bubbles.get) == orders[-1][::-1]
    assert page.locator(".racing-said").get_attribute("aria-live") == "polite"
    page.locator(".racing a").click()
    page.wait_for_selector("#explorer-page[data-ready]")
    said = page.evaluate("ppmodelExplorer.state()")
    assert (said["schedule"], said["against"], said["comm"]) == ("gpipe", "v-half", 1)
    assert page.thrown == page.elsewhere == []


_BOXES = """boxes => boxes.map(box => ['x', 'width'].map(key => parseFloat(box.getAttribute(key))))"""


def test_the_race_without_scripts(page):
    """The picture and its numbers stand there, box by box as a script would draw them, and no slider without use."""
    plain = page.context.browser.new_page(java_script_enabled=False, viewport={"width": 390, "height": 844})
    plain.goto(PAGE.as_uri())
    assert not plain.locator(".racing input").is_visible()
    comm = float(plain.locator(".racing output").inner_text())
    found = [float(one) for one in plain.locator(".racing text").all_text_contents()]
    assert found == pytest.approx(list(simulated(comm).values()), abs=0.05)
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


def test_a_race_is_data_too():
    """A row for each position of the slider; a size that the explorer lacks gives the picture without a slider."""
    race = Race(list(RACERS), 4, 8, 0.5, 1)
    assert race.frame.groupby("label").comm.nunique().eq(101).all()
    by_label = race.frame.pivot(index="comm", columns="label", values="makespan_s")
    pd.testing.assert_series_equal(by_label.loc[0.5], pd.Series(simulated(0.5)), check_names=False, check_like=True)
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
    """A variant that it does not offer, or semantics that nothing simulates."""
    figure = type("Figure", (), {})()
    for schedules, given in ((["hanayo:waves=8", "gpipe"], {}), (["gpipe"], {"p2p": "overlapped-nic"})):
        with pytest.raises(PPModelError):
            link(schedules[0], 4, 8, *schedules[1:], **given)
        offer(figure, schedules, 4, 8, **given)
        assert figure.explorer == ""
    offer(figure, ["hanayo:waves=2", "gpipe"], 4, 8)
    assert figure.explorer.startswith("../explorer.html#schedule=hanayo:waves=2&against=gpipe")
