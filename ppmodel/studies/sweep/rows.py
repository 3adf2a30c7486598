"""The rows of part of a sweep: one compiled graph after another, each with all its systems, models and runs."""

from dataclasses import asdict
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.loops.compiled import prepare
from ppmodel.simulation import Iterations
from ppmodel.studies.noise import noisy_runs
from ppmodel.studies.points import COLUMNS, NUMBERS, rows_of
from ppmodel.studies.points import columns_of as grid_columns
from ppmodel.studies.points.columns import column_names
from ppmodel.studies.points.rows import evaluate


def columns_of(sweep):
    """List the columns of a sweep and the types of their values.

    Parameters
    ----------
    sweep : Sweep

    Returns
    -------
    dict of str to type
        As for `points.compare`; with noise, also the run, after the model.
    """
    names = {*grid_columns(sweep), *(column_names("noise") if sweep.noises else ())}
    types = {column.name: column.type for column in COLUMNS if column.name in names}
    return types | ({"offload": str} if any(layout and layout.offloaded for layout in sweep.layouts) else {})


def compute_rows(sweep, first, last):
    """Compute some rows of a sweep.

    Parameters
    ----------
    sweep : Sweep
    first, last : int
        The first row, and the one after the last.

    Returns
    -------
    dict of list
        For each of `columns_of`, a list with one value per row. If a point is undefined, ``refused`` says why, and its
        numbers are None.

    Examples
    --------
    >>> from ppmodel.clusters.specs import DATA
    >>> from ppmodel.studies.sweep import load_sweep
    >>> rows = compute_rows(load_sweep(DATA / "templates" / "sweep.yaml"), 0, 2)
    >>> rows["label"], rows["system"]
    (['GPipe', 'GPipe'], ['dgx_a100', 'dgx_h100'])
    """
    with np.errstate(over="ignore"):  # a makespan that overflows refuses its row
        cells = np.mean([np.outer(*sweep.sizes(sweep.cases[0], layout)).mean() for layout in sweep.layouts])
        prepare(2 * round(cells) * sweep.num_rows)
        places = zip(*np.unravel_index(np.arange(first, last), sweep.shape), strict=True)
        of_graphs = groupby(places, itemgetter(0))
        rows = [row for number, of_graph in of_graphs for row in _graph_rows(sweep, number, of_graph)]
    types = columns_of(sweep)
    if types.get("offload") is str:  # shares beside modules
        rows = [row | {"offload": str(row["offload"])} for row in rows]
    return {name: [row.get(name) for row in rows] for name in types}


def _graph_rows(sweep, number, places):
    """Some rows of one graph, by their places in `Sweep.shape`."""
    of_points = {point: list(of_point) for point, of_point in groupby(places, itemgetter(1))}
    points = sweep.points_of(*np.unravel_index(number, sweep.graph_shape))
    points = [points[place] for place in of_points]
    for row, point, of_point in zip(rows_of(points), points, of_points.values(), strict=True):
        if point.case.user_entry and row["refused"]:  # a user's file may be elsewhere on each machine
            where, *rest = row["refused"].partition(": ")
            row["refused"] = "".join([Path(where).name, *rest])
        yield from _noisy_rows(sweep, row, point, of_point) if sweep.noises else [row]


def _noisy_rows(sweep, row, point, places):
    """Noisy runs of one point, based on the row without noise."""
    for noise, of_noise in groupby(places, lambda place: sweep.noises[place[2]]):
        runs = [run for *_, run in of_noise]
        seeds = list(islice(chain.from_iterable(sweep.seeds), runs[0], runs[-1] + 1))
        columns = [{}] * len(seeds)  # those that differ from run to run, or the error that refuses them
        if row["refused"] is None:
            try:
                ends, computing_s = noisy_runs(point.graph, [point.costs], noise, seeds)
                ends = Iterations(*(times[0] for times in ends))
                columns = evaluate(point.graph, [point.costs] * len(seeds), ends, computing_s[0])
            except PPModelError as error:
                columns = [dict.fromkeys(NUMBERS) | {"refused": str(error)}] * len(seeds)
        of_noise = row | asdict(noise)
        for seed, numbers in zip(seeds, columns, strict=True):
            yield of_noise | {"seed": seed} | numbers
