"""Chromium, which opens the pages in tests and prints the book."""

import os
from contextlib import contextmanager
from pathlib import Path

from ppbook.errors import ReproduceError

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def chromium_path():
    """Where Chromium is: as the environment variable CHROMIUM says, or where Debian puts it.

    Returns
    -------
    Path
    """
    return Path(os.environ.get("CHROMIUM") or "/usr/bin/chromium")


@contextmanager
def chromium():
    """Start Chromium, and end it.

    Yields
    ------
    playwright.sync_api.Browser

    Raises
    ------
    ReproduceError
        If there is none.
    """
    path = chromium_path()
    if not path.exists():
        raise ReproduceError("CHROMIUM", path, "is no browser", "install chromium, or name another in CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
