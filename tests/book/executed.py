"""Notebooks, run by papermill, and what their numbers are held against."""

import json
from pathlib import Path

import pandas as pd
import papermill
import pytest

from ppmodel import build, names
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.schedules.cases import legal_cases
from ppmodel.simulation import compile_graph, run_graph

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def labels_at(num_ranks, microbatches):
    """Labels of all registered schedules that are legal at any of some sizes."""
    return {case.label for count in microbatches for case, _ in legal_cases(names(), num_ranks, count)}


def t_sim(name, stages, count, model, system, p2p="overlapped", **options):
    schedule = build(name, stages, count, **options)
    return run_graph(
        compile_graph(schedule, p2p), model_costs(schedule, load_model(model), load_system(system))
    ).makespan_s


def executed(name, parameters, folder):
    """Run a notebook; from the name of a file in its results folder to what it holds."""
    papermill.execute_notebook(
        str(NOTEBOOKS / f"{name}.ipynb"), str(folder / "out.ipynb"), parameters | {"results": "results"},
        cwd=str(folder), progress_bar=False, extra_arguments=["--IPKernelApp.log_level=50"],
    )  # fmt: skip
    return reader(folder / "results")


def reader(folder):
    """From the name of a file in a folder to what it holds: a frame, or what JSON makes of it."""

    def read(name):
        path = folder / name
        return json.loads(path.read_text()) if path.suffix == ".json" else pd.read_csv(path)

    return read


def of(name):
    return pytest.mark.parametrize("recorded", [name], indirect=True)
