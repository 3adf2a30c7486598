"""The rows of part of a sweep: one compiled graph after another, each with all its systems, models and runs."""

from dataclasses import asdict
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.loops.compiled import prepare
from ppmodel.schedules.cases import generated
from ppmodel.simulation import Iterations, compile_graph
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
    return {column.name: column.type for column in COLUMNS if column.name in names}


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
        table_of = lru_cache(1)(generated)  # graphs of one table are consecutive
        blocks = _blocks(first, last, sweep.rows_per_graph)
        rows = [row for block in blocks for row in _graph_rows(sweep, *block, table_of)]
    return {name: [row.get(name) for row in rows] for name in columns_of(sweep)}


def _blocks(first, last, size):
    """Find the blocks of `size` rows that a range of rows touches: each block's number, and its rows in the range.

    >>> list(_blocks(3, 9, 4))
    [(0, 3, 4), (1, 0, 4), (2, 0, 1)]
    """
    for number in range(first // size, -(-last // size)):
        yield number, max(first - number * size, 0), min(last - number * size, size)


def _graph_rows(sweep, number, first, last, table_of):
    """Some rows of one graph."""

    @lru_cache(1)
    def graph_of(case, size, semantics):
        try:
            return compile_graph(table_of(case, *size), *semantics)
        except PPModelError as error:  # a user's file may be elsewhere on each machine
            error.where = error.where and Path(error.where).name
            raise

    blocks = list(_blocks(first, last, sweep.rows_per_point))
    points = sweep.points_of(*np.unravel_index(number, sweep.graph_shape))
    points = [points[place] for place, *_ in blocks]
    rows = rows_of(points, lambda point: graph_of(point.ordered_case, point.size, point.semantics))
    for row, point, block in zip(rows, points, blocks, strict=True):
        if sweep.noises:
            yield from _noisy_rows(sweep, row, point, graph_of, *block[1:])
        else:
            yield row


def _noisy_rows(sweep, row, point, graph_of, first, last):
    """Noisy runs of one point, based on the row without noise."""
    for place, *runs in _blocks(first, last, sweep.num_runs):
        noise, seeds = sweep.noises[place], list(islice(chain.from_iterable(sweep.seeds), *runs))
        columns = [{}] * len(seeds)  # those that differ from run to run, or the error that refuses them
        if row["refused"] is None:
            graph = graph_of(point.ordered_case, point.size, point.semantics)
            try:
                runs = noisy_runs(graph, [point.costs], noise, seeds)
                ends = Iterations(runs.makespans_s[0], runs.reduced_s[0], runs.spans_s[0])
                columns = evaluate(graph, [point.costs] * len(seeds), ends, runs.computing_s[0])
            except PPModelError as error:
                columns = [dict.fromkeys(NUMBERS) | {"refused": str(error)}] * len(seeds)
        of_noise = row | asdict(noise)
        for seed, numbers in zip(seeds, columns, strict=True):
            yield of_noise | {"seed": seed} | numbers
