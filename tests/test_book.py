"""The built pages, opened in a real browser."""

import json

import pandas as pd
import pytest
from conftest import HTML

import ppmodel
from ppmodel.artefact.claims import UNKNOWNS, load_claims
from ppmodel.cli.process import cli
from ppmodel.specs import load_setting

_NOT_PAGES = ("search.html", "genindex.html")
PAGES = sorted(
    path.relative_to(HTML).as_posix()
    for path in HTML.rglob("*.html")
    if "_static" not in path.parts and path.name not in _NOT_PAGES
)
_HARMLESS = "THEBE_JS_URL"  # the theme declares it twice; nothing uses it


def test_the_book_is_built():
    """Pages of prose and of the notebooks; 'make test' builds them first."""
    assert {"index.html", "nb/bubble.html", "sources.html"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_sound(page, name):
    """Nothing is loaded from elsewhere, nothing fails, every image is there with a text, nothing overflows."""
    page.goto((HTML / name).as_uri())
    page.wait_for_load_state("load")
    assert page.elsewhere == []
    assert [error for error in page.thrown if _HARMLESS not in error] == []
    assert page.locator("article h1").count() == 1
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth)")
    assert page.evaluate("[...document.querySelectorAll('article img')].every(image => image.alt.length > 20)")
    assert page.locator("mjx-merror, .sphinx-error, .problematic").count() == 0
    assert "{{" not in page.locator("article").inner_text()
    assert "Traceback" not in page.locator("article").inner_text()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("nb/")])
def test_figures_have_captions_and_data(page, name):
    """Each figure carries a numbered caption; the notebook's parameters stand on its page."""
    page.goto((HTML / name).as_uri())
    assert "results = " in page.locator("article").inner_text()
    for caption in page.locator("article figure figcaption").all():
        assert caption.inner_text().startswith("Fig. ")


def test_formulas_are_set(page):
    """Mathematics is typeset by the script that the book brings along."""
    page.goto((HTML / "method.html").as_uri())
    page.wait_for_selector("mjx-container")
    assert page.locator("mjx-container").count() >= 5


def test_search_finds_a_page(page):
    """The search works from the file system."""
    page.goto((HTML / "search.html").as_uri() + "?q=hanayo")
    page.wait_for_selector("#search-results li")
    assert "Hanayo" in page.locator("#search-results").inner_text()


def test_dark_mode_is_dark(page):
    """The switch gives a dark page on which figures keep a light ground."""
    page.goto((HTML / "nb" / "bubble.html").as_uri())
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in colour.strip("rgba()").split(",")[:3]) < 3 * 80
    ground = page.evaluate("getComputedStyle(document.querySelector('article figure img')).backgroundColor")
    assert all(int(part) > 180 for part in ground.strip("rgb()").split(","))


def test_times_are_shown_for_the_book_that_they_belong_to(page, tmp_path):
    """The provenance page shows its build's seconds; beside the record of another build, or none, it says so."""
    page.goto((HTML / "nb" / "provenance.html").as_uri())
    page.wait_for_selector(".run-record table")
    assert "notebook provenance" in page.locator(".run-record").inner_text()
    (tmp_path / "html").symlink_to(HTML)
    for record in (None, 'ppmodelRun = {"id": "another"};'):
        if record:
            (tmp_path / "run.js").write_text(record)
        page.goto((tmp_path / "html" / "nb" / "provenance.html").as_uri())
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
    """The picture of the finding first; what to take; a marked sentence for each claim, with a link to its page."""
    page.goto((HTML / "index.html").as_uri())
    assert "first_race" in page.locator("article img").first.get_attribute("src")
    assert (
        page.locator("article table tbody tr").count() == json.loads((HTML / "results/take.json").read_text())["cases"]
    )
    for about in ("claims_headline", "stp_verdicts"):
        facts = json.loads((HTML / f"results/{about}.json").read_text())
        marked = [facts.get(f"claims_{key}", 0) for key in ("hold", "depend", "part", "fail")]
        assert sum(marked) == facts["claims"]
    items = page.locator(".claim-marks li")
    assert items.count() == len(load_claims()) + len(load_claims(about="stp"))
    for item in items.all():
        assert item.inner_text()[0] in "✓◐◔✗"
        assert item.locator("a").first.get_attribute("href").startswith("nb/")


def test_every_public_name_and_every_command_has_its_entry(page):
    """The Python reference has all that `import ppmodel` gives, the other one every command with its help."""
    page.goto((HTML / "api.html").as_uri())
    for name in set(ppmodel.__all__) - {"__version__"}:
        assert page.locator(f"dt[id='ppmodel.{name}']").count() == 1, name
    page.goto((HTML / "commands.html").as_uri())
    shown = page.locator("article").inner_text()
    for name in cli.list_commands(None):
        assert f"Usage: ppmodel {name}" in shown
