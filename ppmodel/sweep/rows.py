"""The rows of part of a sweep: one compiled graph after another, each with all its systems, models and runs."""

from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from ppmodel import evaluate
from ppmodel.cases import generated
from ppmodel.compiled import prepare
from ppmodel.errors import PPModelError, SweepError, cause
from ppmodel.layouts import layout_columns
from ppmodel.noise import noisy_runs
from ppmodel.ordering import ordered_cases
from ppmodel.prices import Price
from ppmodel.simulation import compile_graph
from ppmodel.sweep import files
from ppmodel.sweep.versions import versions

NOISE = ("jitter", "straggling", "slowdown", "seed")
"""The columns of a run, in a sweep that has noise."""

_WORDS = (
    "schedule", "options", "label", "p2p", "allreduce", "system", "model", "layout", "recompute", "precision",
    "ordered_for", "refused",
)  # fmt: skip
_COUNTS = ("pp", "microbatches", "messages", "seed", "tp", "cp", "ep", "dp", "gpus", "microbatch_size", "global_batch")
_KINDS = dict.fromkeys((*_COUNTS, "zero"), int) | dict.fromkeys(("nics_shared", "sequence_parallel", "fits"), bool)
_KINDS |= dict.fromkeys(_WORDS, str)


def columns_of(sweep):
    """List the columns of a sweep and the types of their values.

    Parameters
    ----------
    sweep : Sweep

    Returns
    -------
    dict of str to type
        As for `evaluate.compare`; with noise, also the run, after the model.
    """
    place = len(evaluate.COORDINATES)
    noise = NOISE if sweep.noises else ()
    columns = evaluate.columns_of([], with_layout=sweep.layouts != (None,))
    names = (*columns[:place], *noise, *columns[place:])
    return {name: _KINDS.get(name, float) for name in names}


def compute_rows(sweep, first, last, wanted=None):
    """Compute some rows of a sweep.

    Parameters
    ----------
    sweep : Sweep
    first, last : int
        The first row, and the one after the last.
    wanted : str, optional
        The `versions` that this machine must have, if it computes rows for another one.

    Returns
    -------
    dict of list
        For each of `columns_of`, a list with one value per row. If a point is undefined, ``refused`` says why, and its
        numbers are None.

    Raises
    ------
    SweepError
        If the versions differ, or something fails that is not the fault of a point.

    Examples
    --------
    >>> from ppmodel.specs import DATA
    >>> from ppmodel.sweep import load_sweep
    >>> rows = compute_rows(load_sweep(DATA / "templates" / "sweep.yaml"), 0, 2)
    >>> rows["label"], rows["system"]
    (['GPipe', 'GPipe'], ['dgx_a100', 'dgx_h100'])
    """
    if wanted not in (None, versions()):
        raise SweepError("worker", versions(), f"differs from {wanted}", "install the same version on all machines")
    try:
        with np.errstate(over="ignore"):  # a makespan that overflows refuses its row
            rows = list(_rows(sweep, first, last))
    except Exception as error:
        full = isinstance(error, MemoryError)
        remedy = "choose smaller sizes or fewer workers" if full else "report it, with the file"
        rule = f"cannot be computed ({cause(error)})"
        raise SweepError("rows", f"{first} to {last - 1}", rule, remedy) from error
    return {name: [_typed(row.get(name), kind) for row in rows] for name, kind in columns_of(sweep).items()}


def _typed(value, kind):
    """A value in the type of its column: recompute may be a word or a number of layers."""
    return str(value) if kind is str and value is not None else value


def _rows(sweep, first, last):
    for file in sweep.files:
        files.know(*file)
    cells = np.mean([np.outer(*sweep.sizes(layout)).mean() for layout in sweep.layouts])
    prepare(2 * round(cells) * sweep.num_rows)
    table_of = lru_cache(1)(generated)  # graphs of one table are consecutive
    for number, *rows in _blocks(first, last, sweep.rows_per_graph):
        yield from _graph_rows(sweep, number, *rows, table_of)


def _blocks(first, last, size):
    """Find the blocks of `size` rows that a range of rows touches: each block's number, and its rows in the range.

    >>> list(_blocks(3, 9, 4))
    [(0, 3, 4), (1, 0, 4), (2, 0, 1)]
    """
    for number in range(first // size, -(-last // size)):
        yield number, max(first - number * size, 0), min(last - number * size, size)


def _graph_rows(sweep, number, first, last, table_of):
    """Some rows of one graph."""
    case, layout, size, words = sweep.graph(number)
    case = evaluate.chunked_case(case, layout)
    graph_of = lru_cache(1)(lambda own: _graph(table_of, own, size, words))
    blocks = list(_blocks(first, last, sweep.rows_per_price))
    prices = [_price(sweep, place, layout) for place, *_ in blocks]
    owns = ordered_cases(case, size, prices, words[1])
    rows = evaluate.case_rows(case, size, words, owns, prices, graph_of)
    for row, price, own, block in zip(rows, prices, owns, blocks, strict=True):
        yield from _runs(sweep, row, price, partial(graph_of, own), *block[1:]) if sweep.noises else [row]


def _graph(table_of, case, size, words):
    try:
        return compile_graph(table_of(case, *size), *words)
    except PPModelError as error:  # a user's file may be elsewhere on each machine
        error.where = error.where and Path(error.where).name
        raise


def _price(sweep, place, layout):
    """A system and a model, by the index of their pair, under a layout."""
    system, model = divmod(place, len(sweep.models))
    system, model = sweep.systems[system], sweep.models[model]
    named = {} if layout is None else layout_columns(layout)
    return Price({"system": system.name, "model": model.name} | named, {}, model, system, layout=layout)


def _runs(sweep, row, price, graph_of, first, last):
    """Noisy runs of one graph, system and model, based on the row without noise."""
    for place, *runs in _blocks(first, last, sweep.num_runs):
        noise, seeds = sweep.noises[place], sweep.seeds_between(*runs)
        common = row | {name: getattr(noise, name) for name in NOISE[:-1]}
        for seed, numbers in zip(seeds, _noisy(row, price, graph_of, noise, seeds), strict=True):
            yield common | {"seed": seed} | numbers


def _noisy(row, price, graph_of, noise, seeds):
    """The numbers that differ from run to run, or the error that refuses them."""
    if row["refused"] is not None:
        return [{}] * len(seeds)
    graph = graph_of()
    try:
        runs = noisy_runs(graph, price.costs(graph.schedule, graph.allreduce), noise, seeds)
    except PPModelError as error:
        return [dict.fromkeys(evaluate.NUMBERS) | {"refused": str(error)}] * len(seeds)
    return evaluate.time_columns(graph.schedule.num_ranks, *runs)
