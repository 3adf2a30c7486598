"""Shared fixtures: no windows for the figures, and registries of one's own; and who runs which test."""

import gc
import os
import sys

import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")

# The same cases every time, and no failure on a busy machine.
settings.register_profile("ppmodel", deadline=None, derandomize=True)
settings.load_profile("ppmodel")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that share fixtures, compiled loops or the browser run in one worker, and what takes long goes first.

    Elsewhere these would be made again; and a long test that is begun last runs on alone.
    """
    with_browser = {item.path for item in items if "browser" in getattr(item, "fixturenames", ())}
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            compiles = item.path.parent.name in ("loops", "simulation")
            group = "browser" if item.path in with_browser else "loops" if compiles else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))
    long = {_group(item) for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: _group(item) not in long)


def pytest_collection_finish():
    """What modules hold stays: the search for garbage passes over it."""
    gc.freeze()


def _group(item):
    return item.get_closest_marker("xdist_group").args[0]


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
