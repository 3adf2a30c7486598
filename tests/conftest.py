"""Shared fixtures: notebooks at small sizes, a browser for the pages, and no windows for the figures."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")

# The same cases every time, and no failure on a busy machine.
settings.register_profile("ppmodel", deadline=None, derandomize=True)
settings.load_profile("ppmodel")

HTML = Path(__file__).parents[1] / "book" / "_build" / "html"


def pytest_collection_modifyitems(items):
    """Tests marked as long go first: begun last, one of them would run on alone."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is gone after it."""
    from ppmodel.schedules import registry

    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


@pytest.fixture
def recorded(request, tmp_path):
    """What a notebook leaves in its results folder at small sizes; its kernel starts as those of the book do."""
    from executed import executed
    from sizes import PARAMETERS

    from ppmodel.artefact.forked import ForkedKernels

    return executed(request.param, PARAMETERS[request.param], tmp_path, kernel_manager_class=ForkedKernels)


@pytest.fixture(scope="session")
def browser():
    """Chromium, or a skip that says what is missing."""
    from ppmodel.artefact.browser import chromium, chromium_path

    if not chromium_path().exists():
        pytest.skip(f"no browser at {chromium_path()}: install Debian's chromium, or name one in CHROMIUM")
    with chromium() as started:
        yield started


@pytest.fixture
def page(browser):
    """A page that notes every error and every request to elsewhere."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.thrown, page.elsewhere = [], []
    page.on("pageerror", lambda error: page.thrown.append(str(error)))
    page.on("request", lambda request: page.elsewhere.append(request.url) if request.url.startswith("http") else None)
    yield page
    context.close()
