"""The built pages, opened in a real browser."""

import json
import re

import pandas as pd
import pytest
from books import HTML
from bs4 import BeautifulSoup, SoupStrainer

import ppmodel
from ppbook.claims import UNKNOWNS
from ppbook.parameters import load_setting
from ppmodel.cli.process import cli

NOTEBOOK_PAGES = sorted(path.relative_to(HTML).as_posix() for path in (HTML / "nb").glob("*.html"))


def test_search_finds_a_page(page):
    """The search works from the file system."""
    page.goto((HTML / "search.html").as_uri() + "?q=hanayo")
    page.wait_for_selector("#search-results li")
    assert "Hanayo" in page.locator("#search-results").inner_text()


def test_dark_mode_is_dark(page):
    """The switch gives a dark page with a dark version of each figure, that has no ground of its own."""
    page.goto((HTML / "nb" / "bubble.html").as_uri())
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in colour.strip("rgba()").split(",")[:3]) < 3 * 80
    (shown,) = page.locator("article figure img:visible").all()
    assert shown.evaluate("image => image.currentSrc").endswith(".dark.png")
    assert shown.evaluate("image => getComputedStyle(image).backgroundColor") == "rgba(0, 0, 0, 0)"
    page.set_viewport_size({"width": 390, "height": 844})
    assert shown.evaluate("image => image.currentSrc").endswith(".narrow.dark.png")
    page.goto((HTML / "index.html").as_uri())
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    for first in page.locator(".race img:visible").all():  # its colours are those of the text below
        assert first.evaluate("image => image.currentSrc").endswith(".dark.png")
        assert first.evaluate("image => getComputedStyle(image).filter") == "none"
    page.goto((HTML / "nb" / "tutorial.html").as_uri())
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    drawn = page.locator("article .text_html", has=page.locator(".slots"))
    assert drawn.evaluate("part => getComputedStyle(part).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert drawn.locator("th").first.evaluate("part => getComputedStyle(part).color") == page.evaluate(
        "getComputedStyle(document.body).color"
    )


def test_every_figure_of_a_notebook_has_its_versions():
    """Whoever draws it: none is without a dark and a narrow one, and a text that says its point and what it shows."""
    for name in NOTEBOOK_PAGES:
        page = BeautifulSoup((HTML / name).read_text(), "html.parser", parse_only=SoupStrainer("figure"))
        for picture in page.select("figure picture.only-light"):
            assert ".narrow.png" in picture.source["srcset"], name
            point, _, shown = picture.img["alt"].partition(". ")
            assert min(len(point), len(shown)) > 20, f"{name}: {point}"
        assert not page.select("figure > p > img, figure > a > img"), name


def test_tables_are_cards_on_a_phone(page):
    """Each cell then says the name of its column; on a wide page it is a table."""
    page.goto((HTML / "nb" / "hanayo.html").as_uri())
    table = page.locator("article table").first
    assert "cards" not in (table.get_attribute("class") or "").split()
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector("article table.cards")
    heads = [head.text_content().strip() for head in table.locator("thead th").all()]
    cards = [card.locator("td").all() for card in table.locator("tbody tr:visible").all()]
    assert [cell.get_attribute("data-label") for cell in cards[0]] == heads
    for column in zip(*cards, strict=True):  # the eye can run down a column
        assert len({cell.bounding_box()["x"] for cell in column}) == 1
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in (one.bounding_box() for one in cards[0]))


def test_of_many_cards_the_first_are_shown(page):
    """A click or a key shows all rows and takes them back; printed, and without a script, all are there."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((HTML / "nb" / "tensor-pipeline.html").as_uri())
    table = page.locator("article table", has=page.locator("tbody tr:nth-child(30)"))
    shown, rows = table.locator("tbody tr:visible"), table.locator("tbody tr").count()
    button = table.locator("xpath=following-sibling::button")
    for folded, toggle in ((True, button.click), (False, lambda: button.press("Enter")), (True, None)):
        assert button.get_attribute("aria-expanded") == str(not folded).lower()
        assert shown.count() == (3 if folded else rows)
        if toggle:
            assert str(rows if folded else 3) in button.inner_text()
            toggle()
    page.emulate_media(media="print")
    assert shown.count() == rows
    assert not button.is_visible()
    plain = page.context.browser.new_page(java_script_enabled=False, viewport={"width": 390, "height": 844})
    plain.goto((HTML / "nb" / "tensor-pipeline.html").as_uri())
    assert plain.locator("article table tbody tr:visible").count() == plain.locator("article table tbody tr").count()
    plain.close()


UNFOLD = "document.querySelectorAll('article details').forEach(one => { one.open = true })"


@pytest.mark.parametrize("name", ["measured", "which-layout"])
def test_cards_of_a_kind_are_under_one_heading(page, name):
    """A click or a key opens one, a button opens all; printed, sideways, and without a script, every row is there."""
    page.goto((HTML / "nb" / f"{name}.html").as_uri())
    page.evaluate(UNFOLD)
    written = page.locator("article tbody tr").all_text_contents()
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector("article table.grouped")
    table = page.locator("article table.grouped", has=page.locator("tr.group:nth-child(3)")).first
    rows, opened = table.locator("tbody tr:not(.group)"), table.locator("tbody tr:not(.group):visible")
    button, all_rows = table.locator("tr.group button").last, table.locator("xpath=following-sibling::button")
    last = rows.last.locator("td, th")
    assert last.first.text_content().strip() in button.text_content()
    before = opened.count()
    for toggle in (button.click, lambda: button.press("Enter")):
        is_open = rows.last.is_visible()
        assert button.get_attribute("aria-expanded") == str(is_open).lower()
        toggle()
        assert rows.last.is_visible() != is_open
    assert opened.count() == before < rows.count()
    page.emulate_media(media="print")
    assert last.nth(1).is_visible()
    assert opened.count() == rows.count()
    page.emulate_media(media="screen")
    all_rows.press("Enter")
    assert opened.count() == rows.count()
    page.set_viewport_size({"width": 844, "height": 390})
    page.wait_for_selector("article table.grouped", state="detached")
    assert page.locator("article tbody tr").all_text_contents() == written
    plain = page.context.browser.new_page(java_script_enabled=False, viewport={"width": 390, "height": 844})
    plain.goto(page.url)
    unfolded = plain.locator("article tbody tr:not(details tr)").all_text_contents()
    assert plain.locator("article tbody tr:visible").all_text_contents() == unfolded
    plain.close()


def test_a_wide_table_uses_the_margin(page):
    """It reaches beyond the text, not beyond the page, and the list of headings gives way while it is beside it."""
    page.goto((HTML / "nb" / "measured.html").as_uri())
    page.evaluate(UNFOLD)
    frame, listed = page.locator(".wide").first, page.locator(".bd-sidebar-secondary")
    text, box = page.locator("article > section").bounding_box(), frame.bounding_box()
    assert text["x"] + text["width"] < box["x"] + box["width"] <= 1280
    assert listed.is_visible()
    frame.evaluate("frame => frame.scrollIntoView()")
    listed.wait_for(state="hidden")
    page.evaluate("scrollTo(0, 0)")
    listed.wait_for(state="visible")
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_function("!document.querySelector('.wide')")


def test_long_tables_are_sorted_by_the_keyboard(page):
    """A key on a heading puts rows in order, and says so; a second one turns the order."""
    page.goto((HTML / "schedules.html").as_uri())
    head = page.locator("article table.sortable th").nth(3)
    shares = []
    for order in ("ascending", "descending"):
        head.locator("button").focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == order
        shares.append([float(text) for text in page.locator("article table td:nth-child(4)").all_inner_texts()])
    assert shares == [sorted(shares[0]), sorted(shares[0], reverse=True)]


def test_times_are_shown_for_the_book_that_they_belong_to(page, tmp_path):
    """The artefact appendix shows its build's seconds; beside the record of another build, or none, it says so."""
    page.goto((HTML / "appendix.html").as_uri())
    page.wait_for_selector(".run-record table")
    assert "notebook claims" in page.locator(".run-record").inner_text()
    (tmp_path / "html").symlink_to(HTML)
    for record in (None, 'ppmodelRun = {"id": "another"};'):
        if record:
            (tmp_path / "run.js").write_text(record)
        page.goto((tmp_path / "html" / "appendix.html").as_uri())
        page.wait_for_load_state("load")
        assert "No duration is recorded" in page.locator(".run-record").inner_text()
    assert page.elsewhere == []


def test_results_come_with_the_pages():
    """Numbers and pictures of every figure lie beside the pages."""
    stems = {path.stem for path in (HTML / "results").glob("fig*.csv")}
    assert {"fig2_timeline", "fig3_bubble", "fig4_runtime", "fig4_nine", "fig5_memory", "fig6_shallow"} <= stems
    assert all((HTML / "results" / f"{stem}.svg").exists() for stem in ("fig1_table", "fig3_bubble", "table1_hanayo"))


def test_the_preset_is_the_best_setting_of_the_search():
    """The whole search of the book finds data/settings/paper.yaml first."""
    best = pd.read_csv(HTML / "results" / "implied_search.csv").iloc[0]
    preset = load_setting("paper")
    assert {name: best[name] for name in UNKNOWNS} == {name: getattr(preset, name) for name in UNKNOWNS}


def test_the_first_page_says_what_stands(page):
    """The picture of the measured finding first; then the plan's answer, how far off, and nothing for long."""
    page.goto((HTML / "index.html").as_uri())
    assert "measured_reversal" in page.locator("article img").first.get_attribute("src")
    facts = {name: json.loads((HTML / f"results/{name}.json").read_text()) for name in ("which", "measured_pairs")}
    text = page.locator("article").inner_text()
    assert re.sub(r"\W+", " ", facts["which"]["answer"]) in re.sub(r"\W+", " ", text)
    assert f"{facts['measured_pairs']['judged']} measured pairs" in text
    ((low, high),) = re.findall(r"([\d.]+) to ([\d.]+) %", page.locator("#how-far-to-trust-it").inner_text())
    assert 0 < float(low) < float(high) < 20
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.querySelector('article').scrollHeight") <= 3 * 844


def test_a_fact_is_quoted_as_it_was_recorded(page):
    """With its comma, its sign and its unit: nothing of its way through the configuration is left."""
    page.goto((HTML / "nb" / "which-layout.html").as_uri())
    shown = page.locator("article").inner_text().replace("\u00a0", " ")
    facts = json.loads((HTML / "results/which.json").read_text())
    assert "," in facts["pairs"]
    assert facts["pairs"] in shown


def test_every_public_name_and_every_command_has_its_entry(page):
    """The Python reference has all that `import ppmodel` gives, the other one every command with its help."""
    page.goto((HTML / "api.html").as_uri())
    for name in set(ppmodel.__all__) - {"__version__"}:
        assert page.locator(f"dt[id='ppmodel.{name}']").count() == 1, name
    entry = page.locator("dl:has(> dt[id='ppmodel.compare'])")  # a name and a sentence; the rest unfolds
    assert entry.locator("p").first.is_visible()
    assert not entry.get_by_text("Returns", exact=False).nth(1).is_visible()
    entry.locator("summary").press("Enter")
    assert entry.locator("dl.field-list").is_visible()
    page.goto((HTML / "commands.html").as_uri())
    shown = page.locator("article").inner_text()
    for name in cli.list_commands(None):
        assert f"Usage: ppmodel {name}" in shown
