"""Shared fixtures: no windows for the figures, and registries of one's own."""

import os
import sys

import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")

# The same cases every time, and no failure on a busy machine.
settings.register_profile("ppmodel", deadline=None, derandomize=True)
settings.load_profile("ppmodel")


def pytest_collection_modifyitems(items):
    """Tests marked as long go first: begun last, one of them would run on alone."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is gone after it."""
    from ppmodel.schedules import registry

    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


@pytest.fixture(autouse=True)
def figures_of_its_own():
    """Figures that other tests, or examples in docstrings, left open are closed before a test."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
