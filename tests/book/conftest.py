"""Fixtures of the book's tests: notebooks at small sizes, and a browser for the pages."""

import os

import pytest


@pytest.fixture
def recorded(request, tmp_path_factory):
    """What a notebook leaves in its results folder at small sizes, run once for all tests in whatever process.

    Of a notebook that has no small sizes, or asks at any sizes for what takes as long, the results of the built book.
    """
    from books import HTML
    from executed import executed, reader
    from filelock import FileLock
    from sizes import AS_PUBLISHED, PARAMETERS

    if request.param in AS_PUBLISHED:
        return reader(HTML / "results")
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / f"ran-{request.param}"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            (unfinished := folder.with_name(f"{folder.name}-unfinished")).mkdir(exist_ok=True)
            executed(request.param, PARAMETERS[request.param], unfinished)
            unfinished.rename(folder)
    return reader(folder / "results")


@pytest.fixture(scope="session")
def browser():
    """Chromium, or a skip that says what is missing."""
    from ppbook.build.browser import CHROMIUM, chromium

    if not CHROMIUM.exists():
        pytest.skip(f"no browser at {CHROMIUM}: install Debian's chromium, or name one in CHROMIUM")
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def window(browser):
    """A window of Chromium that tests share, for each costs as much as opening two pages."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        yield context


@pytest.fixture
def page(window):
    """A page that notes every error and every request to elsewhere; what it stored is gone after it."""
    from books import noting

    page = noting(window.new_page())
    yield page
    stored = {"origin": "file://", "storageTypes": "local_storage"}
    window.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
    page.close()
