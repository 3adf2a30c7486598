"""Shared fixtures: no windows for the figures, and registries of one's own."""

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


def pytest_collection_modifyitems(items):
    """Files with a test marked as long go first: a worker takes a file whole, and begun last it would run on alone."""
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish():
    """What modules hold stays: the search for garbage passes over it."""
    gc.freeze()


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is gone after it."""
    from ppmodel.schedules import registry

    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


@pytest.fixture(autouse=True)
def no_lines_of_time(monkeypatch):
    """A command that takes long on a busy machine says no more than on another."""
    from ppmodel.studies.workers import progress

    monkeypatch.setattr(progress, "_EVERY_S", 1e6)


@pytest.fixture(autouse=True)
def figures_of_its_own():
    """Figures that other tests, or examples in docstrings, left open are closed before a test."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
