"""The planner, from a file, in a real browser: its answers are those of `pp.plan`, and keys reach all of it."""

import json
import re

import pytest
from books import noting

import ppmodel as pp
from ppbook.pages import planner

SMALL = [({"llama3_8b": [32]}, ["h100"], [8, 16]), ({"llama3_405b": [32]}, ["h100"], [8])]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The page with a small grid, alone in a folder."""
    path = tmp_path_factory.mktemp("planner") / planner.PAGE
    planner.write_planner(path, SMALL)
    return path


def data_of(path):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text())[1])


def test_its_answers_are_those_of_a_plan(path):
    """Of each question in the grid, under the schedules that its command names."""
    answers = data_of(path)["answers"]
    frame = pp.plan("llama3_8b", "h100", 16, 32, schedules=planner.SCHEDULES)
    answer = answers["llama3_8b h100 16 32"]
    assert [row["seconds"] for row in answer["rows"]] == [float(f"{s:.6g}") for s in frame.iteration_s[:12]]
    assert answer["more"] == "--schedules 1f1b interleaved-1f1b"
    assert "memory_limit" in answers["llama3_405b h100 8 32"]["refused"]


def test_the_grid_is_small_enough_for_a_build():
    """At most 100 questions."""
    assert (
        sum(len(systems) * len(gpus) * sum(map(len, models.values())) for models, systems, gpus in planner.GRID) <= 100
    )


def test_it_answers_at_once_and_says_the_command_for_the_rest(path, page):
    """Without a request; a link opens the same question."""
    page.goto(path.as_uri())
    rows = data_of(path)["answers"]["llama3_8b h100 8 32"]["rows"]
    assert page.inner_text("#answer").startswith(f"{rows[0]['name']}: ")
    assert page.inner_text("#detail").startswith(f"Chosen: {rows[0]['name']}: ")
    assert "−0.0 %" not in page.inner_text("body")
    assert page.locator("#answers tbody tr").count() == len(rows)
    page.select_option("#gpus", "16")
    assert page.inner_text("#command") == (
        "ppmodel plan --model llama3_8b --system h100 --gpus 16 --global-batch 32 --schedules 1f1b interleaved-1f1b"
    )
    answer = page.inner_text("#answer")
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#model=llama3_405b&system=h100&gpus=8&global_batch=32")
    assert page.inner_text("#answer").startswith("No layout: memory_limit")
    page.select_option("#gpus", "16")
    assert page.inner_text("#answer").startswith("This was not computed")
    assert page.inner_text("#command") == "ppmodel plan --model llama3_405b --system h100 --gpus 16 --global-batch 32"
    assert not page.locator("#found").is_visible()
    page.select_option("#model", "llama3_8b")
    assert page.inner_text("#answer") == answer
    assert (page.thrown, page.elsewhere) == ([], [])


def test_one_far_point_does_not_squeeze_the_picture(tmp_path, monkeypatch, page):
    """It is at the edge with its name and number, clear of points, and the others keep their room."""
    row = {"over": 0, "fastest_s": None, "slowest_s": None, "rate": 1, "mfu": 0.4, "fit": "fits", "name": "first"}
    rows = [row | {"seconds": 10, "gib": 50}, row | {"seconds": 11, "gib": 70}]
    far = [row | {"seconds": 100, "gib": 60, "name": "zero 2"}]
    far += [row | {"seconds": 10.1, "gib": gib, "name": "zero 0"} for gib in (90, 200)]
    answer = {"more": "", "advice": "", "capacity": 80, "rows": rows, "steps": far}
    monkeypatch.setattr(planner, "_answer", lambda *_: answer)
    planner.write_planner(tmp_path / planner.PAGE, SMALL)
    page.goto((tmp_path / planner.PAGE).as_uri())
    first, second, last = (float(page.get_attribute(f"#point-{place}", "cy")) for place in range(3))
    assert first - second > 100
    assert second > last
    assert page.get_by_text("zero 2: 100 s", exact=True).count() == 1
    label, point = (page.locator(name).bounding_box() for name in ("text=zero 0: 200 GiB", "#point-3"))
    assert label["x"] < point["x"] < label["x"] + label["width"]
    assert label["y"] + label["height"] <= point["y"] + 2


def test_the_keyboard_reaches_every_layout(path, page):
    """Arrow keys go through answers and steps, in the picture as in the tables, and around."""
    page.goto(path.as_uri())
    count = page.locator("#picture circle").count()
    page.focus("#point-0")
    seen = set()
    for _ in range(count):
        seen.add(page.inner_text("#detail"))
        page.keyboard.press("ArrowRight")
    assert len(seen) == count
    assert page.evaluate("document.activeElement.id") == "point-0"
    page.focus("#row-0 button")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.closest('tr').id") == f"row-{count - 1}"
    page.locator("#steps button").first.click()
    assert page.locator("tr[aria-current] button").inner_text() in page.inner_text("#detail")


def test_it_fits_a_phone(path, browser):
    """Nothing but tables is wider than the window; what is touched is large enough."""
    with browser.new_context(viewport={"width": 360, "height": 700}) as phone:
        page = noting(phone.new_page())
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert all(
            box["height"] >= 24 for box in (each.bounding_box() for each in page.locator("button, select").all())
        )


def test_names_cannot_leave_their_place(tmp_path, monkeypatch, page):
    """A title with markup is text."""
    monkeypatch.setattr(planner, "_answer", lambda *_: {"more": "", "refused": "</script><img src=x onerror=alert(1)>"})
    planner.write_planner(tmp_path / planner.PAGE, SMALL)
    page.goto((tmp_path / planner.PAGE).as_uri())
    assert "</script><img" in page.inner_text("#answer")
    assert page.locator("img").count() == 0
