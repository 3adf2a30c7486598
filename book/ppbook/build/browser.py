"""Chromium, which opens the pages in tests and prints the book."""

import os
from contextlib import contextmanager
from pathlib import Path

from ppbook.errors import ReproduceError

CHROMIUM = Path(os.environ.get("CHROMIUM") or "/usr/bin/chromium")
"""Where Chromium is: as the environment variable CHROMIUM says, or where Debian puts it."""


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
    if not CHROMIUM.exists():
        raise ReproduceError("CHROMIUM", CHROMIUM, "is no browser", "install chromium, or name another in CHROMIUM")
    from playwright.sync_api import sync_playwright

    flags = ["--disable-gpu", "--disable-quic", "--disable-sync"]
    with sync_playwright() as by, by.chromium.launch(executable_path=str(CHROMIUM), args=flags) as browser:
        yield browser
