"""Notebooks, run at small sizes, and what their numbers are held against."""

import atexit
import json
import sys
import warnings
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook
from traitlets.config import Config

from ppmodel import build, names
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.schedules import registry
from ppmodel.schedules.cases import legal_cases
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.studies.points import NoEffectWarning

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
RESULTS = {"results": "results"}


def labels_at(num_ranks, microbatches):
    """Labels of all registered schedules that are legal at any of some sizes."""
    return {case.label for count in microbatches for case, _ in legal_cases(names(), num_ranks, count)}


def t_sim(name, stages, count, model, system, p2p="overlapped", **options):
    schedule = build(name, stages, count, **options)
    return run_graph(
        compile_graph(schedule, p2p), model_costs(schedule, load_model(model), load_system(system))
    ).makespan_s


def executed(name, parameters, folder):
    """Run a notebook's cells in this process, where all modules are loaded; each figure is drawn once, into no file.

    Returns
    -------
    callable
        From the name of a file in its results folder to what it holds.
    """
    notebook = parameterize_notebook(load_notebook_node(str(NOTEBOOKS / f"{name}.ipynb")), parameters | RESULTS)
    with _shell(folder) as shell:
        for cell in notebook.cells:
            if cell.cell_type == "code":
                shown = shell.run_cell(cell.source, store_history=True)
                shown.raise_error()
                if isinstance(shown.result, Figure):
                    shown.result.savefig()
    return reader(folder / "results")


@contextmanager
def _shell(folder):
    """A shell for cells that run in a folder; whatever they set or register in this process is gone after them."""
    drawn = set()

    def draw(figure, *_, **__):
        if figure not in drawn:
            drawn.add(figure)
            figure.draw_without_rendering()

    with (
        pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()), warnings.catch_warnings(),
        np.printoptions(), pd.option_context("display.float_format", None),
    ):  # fmt: skip
        warnings.filterwarnings("ignore", category=NoEffectWarning)  # all others are errors here
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        patch.setattr(registry, "_registry", dict(registry._registry))
        patch.setattr(Figure, "savefig", draw)
        shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
        try:
            yield shell
        finally:
            InteractiveShell.clear_instance()
            atexit.unregister(shell.atexit_operations)  # it would keep all that cells made, and look for garbage


def reader(folder):
    """From the name of a file in a folder to what it holds: a frame, or what JSON makes of it."""

    def read(name):
        path = folder / name
        return json.loads(path.read_text()) if path.suffix == ".json" else pd.read_csv(path)

    return read


def of(name):
    return pytest.mark.parametrize("recorded", [name], indirect=True)
