"""One point in, one row out: the only way from (schedule, size, model, system, choices) to numbers.

A point is a case (`cases`), a size, costs (from seconds, or from a model on a system) and communication semantics. The
topology is part of the costs, so no caller can forget it. `simulate` returns the timeline of one point, `compare` a
frame of many; `times` caches what a long study has computed.
"""

from functools import partial
from itertools import groupby, product
from operator import itemgetter

from ppmodel import iteration, metrics
from ppmodel.cases import as_case, as_cases, built, compiled, size_of
from ppmodel.costs import comm_over_forward
from ppmodel.errors import NO_MEMORY, CostError, PPModelError, did_you_mean
from ppmodel.given import listed, plain
from ppmodel.layouts import LAYOUT_COLUMNS, LAYOUT_FIELDS, as_layouts, layout_columns, layout_size
from ppmodel.ordering import ordered_case, ordered_cases, ordered_for
from ppmodel.prices import SECONDS, Price, costs_of, priced, require_used, table_numbers
from ppmodel.run import Run
from ppmodel.schedules.options import option_text
from ppmodel.simulation import iterations, require_semantics, run_graph

COORDINATES = ("schedule", "options", "label", "pp", "microbatches", "p2p", "allreduce", "system", "model")
"""The columns that identify a point; if costs are given in seconds, their columns replace the last two."""

NUMBERS = (
    "makespan_s", "busy_s", "idle_ratio", "bubble_ratio_total", "bubble_ratio_ideal", "bubble_ratio_span",
    "table_bubble_ratio", "peak_activations", "messages", "comm_over_forward",
    "peak_memory_bytes", "activations_bytes", "memory_capacity_bytes", "slowest_over_mean",
    "nics_shared",
)  # fmt: skip
"""The columns with the results of a point."""

COLUMNS = (*COORDINATES, *NUMBERS, "ordered_for", "refused")
"""The columns of every frame, of a sweep's rows and of the command line's JSON."""


def simulate(
    schedule, pp=None, microbatches=None, *, model=None, system=None, layout=None, p2p="overlapped",
    allreduce="excluded", **given,
):  # fmt: skip
    """Simulate one iteration of a schedule with communication.

    Costs are given in seconds, or follow from a model on a system; a layout adds those of tensor, context, expert and
    data parallelism.

    Parameters
    ----------
    schedule : Schedule, str, Path, (str, dict) or callable
        As in `build`: a table; a schedule's name or your own file, also with options; or a function
        ``(pp, microbatches) -> Schedule``.
    pp, microbatches : int, optional
        Ranks and microbatches; not needed for a table, or if the layout gives them. `pp` overrides the layout's.
    model, system : str, Path, ModelSpec and SystemSpec, optional
        A name that comes with the package, a YAML file, or a specification. Both, or neither.
    layout : str, Path, LayoutSpec or dict, optional
        How the run is spread over GPUs; needs a model and a system. If `pp`, tp, cp or dp override its values, its
        number of GPUs follows from them, unless `gpus` is given too.
    p2p : {"latency", "overlapped", "overlapped_nic", "blocking_send", "blocking_recv", "blocking", "rendezvous"}
        What a transfer occupies: nothing; its link; each rank's NIC; the sender; the receiver; first the sender, then
        the receiver; both at the same time, each waiting for the other.
    allreduce : {"excluded", "overlapped", "blocking", "overlapped_links"}
        Whether gradient all-reduces are left out, overlap computation, occupy the ranks, or overlap computation while
        they occupy the links of transfers; see `simulation.compile_graph`.
    **given
        Values of the layout, such as ``tp=8, dp=2, zero=1, microbatch_size=1, global_batch=1024``; see
        `specs.LayoutSpec`. Or, instead of a model and a system, seconds: ``forward``, ``backward`` (or ``input_grad``
        and ``weight_grad``), ``pair``, ``comm``, ``latency``, ``reduction``, ``optimizer``, for one microbatch on 1/S
        of the model; see `costs.uniform_costs`.

    Returns
    -------
    Run
        Makespan, bubble ratios and memory, and the timeline, which can be plotted, exported or read as a frame.

    Raises
    ------
    PPModelError
        If an argument is illegal; the message names field, value, rule and remedy.

    Examples
    --------
    >>> import ppmodel as pp
    >>> table = pp.build("1f1b", 8, 64)
    >>> round(pp.simulate(table, forward=1, backward=2, comm=0.1).makespan_s, 1)
    225.4
    >>> run = pp.simulate(("interleaved-1f1b", {"chunks": 2}), 8, 64, model="paper", system="mid_cp_mid_nw")
    >>> run.model.name, run.messages
    ('paper', 1920)
    """
    require_semantics(p2p, allreduce)
    case = as_case(schedule)
    seconds, values = _told_apart(given, [case])
    (layout,) = _one_layout(layout, values, plain(pp))
    case = chunked_case(case, layout)
    size = _one_size(case, pp, microbatches, layout)
    table = built(case, *size)
    require_used(seconds, allreduce)
    costs, model, system, whole = costs_of(table, model, system, allreduce, seconds, layout)
    price = Price({}, seconds, model, system, layout=layout)
    own = ordered_case(case, *size, price, allreduce)
    timeline = run_graph(compiled(built(own, *size), p2p, allreduce), costs)
    return Run(timeline, costs, case, allreduce, model, system, whole, ordered_for(case, own))


def compare(
    schedules, pp=None, microbatches=None, *, model=None, system=None, layout=None, p2p="overlapped",
    allreduce="excluded", changes=None, **given,
):  # fmt: skip
    """Simulate schedules at every combination of sizes, models, systems and choices.

    Each row is what `simulate` returns for the same arguments. Any argument may be a list.

    Parameters
    ----------
    schedules : list
        Each as in `simulate`; a single one needs no list.
    pp, microbatches : int or list of int, optional
        Ranks and microbatches; not needed if all schedules are tables, or if the layout gives them. `pp` overrides the
        layout's.
    model, system : str, Path, ModelSpec, SystemSpec, or list of them, optional
        Names, files or specifications. Both, or neither.
    layout : str, Path, LayoutSpec, dict, or list of them, optional
        How the run is spread over GPUs; needs a model and a system.
    p2p, allreduce : str or list of str
        Communication semantics, as in `simulate`.
    changes : Change or list of Change, optional
        Changes to the system and its costs; they add a column ``change``. None is no change.
    **given
        As in `simulate`: values of the layout; or seconds, each of which adds a column.

    Returns
    -------
    DataFrame
        One row per combination, in the order of the arguments; schedules vary slowest. Columns:

        - ``schedule, options, label``: the schedule; ``label`` is its name in figures.
        - ``pp, microbatches, p2p, allreduce``, then ``system, model`` or the seconds: the combination.
        - ``makespan_s``; ``busy_s``, the total computing time of all ranks.
        - ``idle_ratio`` and ``bubble_ratio_total`` (both: idle time over total time), ``bubble_ratio_ideal`` (over
          computing time), ``bubble_ratio_span`` (over the longest span of a rank), ``table_bubble_ratio`` (the same
          ratio in the idealised table, without communication).
        - ``peak_activations`` of the most loaded rank, in microbatches on 1/S of the model; ``messages``, over all
          ranks; ``comm_over_forward``, the slowest transfer over the mean forward.
        - ``peak_memory_bytes`` and ``activations_bytes`` of the most loaded rank, ``memory_capacity_bytes`` of a
          device; ``slowest_over_mean``, the longest computing time of a rank over the mean; all empty without a model.
        - ``nics_shared``: whether transfers queue at shared NICs.
        - With a layout: its values (`layouts.LAYOUT_COLUMNS`); ``iteration_s``, the whole iteration with gradient
          reduction and optimizer, and its parts on the most loaded rank (`iteration.PARTS`);
          ``tokens_per_s_per_gpu``; ``model_flops_utilization``; memory by part (`iteration.MEMORY_PARTS`); ``fits``.
        - ``ordered_for``: for schedules that search for an order (zb-1p, zb-2p), the times and the held fraction that
          it was searched for. These are the row's own, so each system and model has its own order, unless the options
          set them; then this is empty.
        - ``refused``: why a combination is not defined; its numbers are then empty.

    Raises
    ------
    PPModelError
        If an argument is illegal in every combination: an unknown name, a broken file, a misspelt word.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", ("interleaved-1f1b", {"chunks": 2})], 4, [4, 8], forward=1, backward=2, comm=0.1)
    >>> frame[["label", "microbatches", "makespan_s"]].round(3).values.tolist()
    [['GPipe', 4, 21.6], ['GPipe', 8, 33.6], ['interleaved 1F1B V = 2', 4, 17.9], ['interleaved 1F1B V = 2', 8, 29.9]]
    """
    import pandas as pd

    columns, rows = compared(schedules, pp, microbatches, model, system, layout, p2p, allreduce, changes, **given)
    return pd.DataFrame(rows, columns=columns)


def compared(
    schedules, pp=None, microbatches=None, model=None, system=None, layout=None, p2p="overlapped",
    allreduce="excluded", changes=None, **given,
):  # fmt: skip
    """Compute the columns and rows of `compare`, for callers that need no frame.

    Parameters
    ----------
    schedules, pp, microbatches, model, system, layout, p2p, allreduce, changes, **given
        As in `compare`.

    Returns
    -------
    columns : list of str
    rows : list of dict
        One row per point; an undefined point has no numbers.

    Raises
    ------
    PPModelError
        As for `compare`.

    Examples
    --------
    >>> columns, (row,) = compared("1f1b", 4, 8, forward=1, backward=2)
    >>> columns[:3], row["makespan_s"]
    (['schedule', 'options', 'label'], 33.0)
    """
    cases = as_cases(schedules)
    seconds, values = _told_apart(given, cases)
    layouts = priced(model, system, seconds, changes, as_layouts(layout, values, pp))
    require_used(seconds, allreduce)
    words = list(product(listed(p2p), listed(allreduce)))
    for one in words:
        require_semantics(*one)
    rows = []
    for case in cases:
        for one, prices in layouts.items():
            chunked = chunked_case(case, one)
            for size in _sizes(cases, chunked, pp, microbatches, one):
                for word in words:
                    rows += _rows(chunked, size, word, prices)
    return columns_of(rows, model is not None, layouts.keys() != {None}), rows


def columns_of(rows, with_model=True, with_layout=False):
    """The columns that occur in the rows, in order."""
    kept = [name for name in COLUMNS if name not in ("system", "model") or with_model]
    own = [name for name in (*SECONDS, "change") if rows and name in rows[0]]
    place, last = kept.index("makespan_s"), kept.index("ordered_for")
    if not with_layout:
        return [*kept[:place], *own, *kept[place:]]
    return [
        *kept[:place], *own, *LAYOUT_COLUMNS, *kept[place:last], *iteration.NUMBERS, *kept[last:]
    ]  # fmt: skip


def _rows(case, size, words, prices):
    owns = ordered_cases(case, size, prices, words[1])
    return case_rows(case, size, words, owns, prices, lambda own: compiled(built(own, *size), *words))


# ---- points --------------------------------------------------------------------------------------


def point_columns(case, size, words):
    """The columns that all rows of one graph share.

    Parameters
    ----------
    case : Case
    size : (int, int)
        Numbers of ranks and microbatches.
    words : (str, str)
        Semantics of transfers and of the all-reduce.
    """
    return {
        "schedule": case.name, "options": options_text(case.options), "label": case.label,
        "pp": size[0], "microbatches": size[1], "p2p": words[0], "allreduce": words[1],
    }  # fmt: skip


def case_rows(case, size, words, owns, prices, graph_of):
    """Compute the rows of a case at a size, one for each price.

    Parameters
    ----------
    case, size, words
        As in `point_columns`.
    owns : list of Case or PPModelError
        From `ordering.ordered_cases`, one for each price.
    prices : sequence of Price
    graph_of : callable
        Returns the graph of an ordered case; if it raises a `PPModelError`, the rows are refused.

    Returns
    -------
    list of dict
        A refused row has the reason in ``refused``, and no numbers.
    """
    point, rows = point_columns(case, size, words), []
    for own, some in groupby(zip(owns, prices, strict=True), key=itemgetter(0)):
        said = None if isinstance(own, Exception) else ordered_for(case, own)
        rows += graph_rows(point | {"ordered_for": said}, partial(_graph, own, graph_of), [price for _, price in some])
    return rows


def _graph(own, graph_of):
    if isinstance(own, Exception):
        raise own
    return graph_of(own)


def graph_rows(point, graph_of, prices):
    """Compute the rows of one graph, one for each price.

    Parameters
    ----------
    point : dict
        The columns that all rows share.
    graph_of : callable
        Returns the graph; if it raises a `PPModelError`, all rows are refused. An error in a price refuses its row.
    prices : sequence of Price

    Returns
    -------
    list of dict
        A refused row has the reason in ``refused``, and no numbers.
    """
    rows = [point | price.columns | {"refused": None} for price in prices]
    try:
        graph = graph_of()
    except (PPModelError, MemoryError) as error:
        return [row | {"refused": _said(error)} for row in rows]
    table, costs, priced = graph.schedule, [], []
    for row, price in zip(rows, prices, strict=True):
        try:
            costs.append(price.costs(table, graph.allreduce))
            priced.append((row, price))
        except PPModelError as error:
            row["refused"] = str(error)
    for (row, price), one, numbers in zip(priced, costs, _each(graph, costs), strict=True):
        if isinstance(numbers, Exception):
            row["refused"] = _said(numbers)
        else:
            row.update(table_numbers(table) | numbers | _more(graph, price, one))
    return rows


def _more(graph, price, costs):
    """The columns that a model adds to a row: memory and, with a layout, its values and the whole iteration."""
    layout = price.layout_of(graph.schedule)
    if layout is None:
        return price.memory(graph.schedule)
    system = price.change.system(price.system)
    return layout_columns(layout) | iteration.iteration_numbers(graph, costs, price.model, system, layout)


def _said(error):
    return str(NO_MEMORY if isinstance(error, MemoryError) else error)


def _each(graph, costs):
    """`evaluate`, with an error in place of each result whose times overflow; the others keep theirs."""
    try:
        return evaluate(graph, costs)
    except (PPModelError, MemoryError) as error:
        return [error] if len(costs) == 1 else [numbers for one in costs for numbers in _each(graph, [one])]


def evaluate(graph, many_costs):
    """Evaluate one graph under many costs.

    Parameters
    ----------
    graph : ExecutionGraph
        From `cases.compiled`; the topology is part of the costs.
    many_costs : sequence of OpCosts
        For the graph's schedule.

    Returns
    -------
    list of dict
        For each, ``makespan_s, busy_s, idle_ratio, bubble_ratio_total, bubble_ratio_ideal, bubble_ratio_span,
        comm_over_forward, nics_shared``; times in seconds, ``busy_s`` summed over ranks.

    Raises
    ------
    CostError
        If costs do not fit the schedule, or times overflow.
    """
    if not many_costs:
        return []
    found = iterations(graph, many_costs, by_rank=False)
    return timed(graph, many_costs, found.makespan_s, found.span_s, found.reduced_s)


def timed(graph, many_costs, makespans_s, spans_s, reduced_s):
    """Compute the numbers that `evaluate` returns from known times.

    Parameters
    ----------
    graph, many_costs
        As in `evaluate`.
    makespans_s, spans_s, reduced_s : ndarray of float, shape (len(many_costs),)
        Makespan, longest span of a rank, and start of the optimizer steps; in seconds.

    Returns
    -------
    list of dict
        As for `evaluate`.
    """
    ranks, busy = graph.schedule.num_ranks, metrics.computing_s(graph.schedule, many_costs)
    columns = time_columns(ranks, makespans_s, busy, spans_s, reduced_s)
    for numbers, costs in zip(columns, many_costs, strict=True):
        numbers["comm_over_forward"] = comm_over_forward(costs, ranks)
        numbers["nics_shared"] = costs.nics is not None and graph.queues
    return columns


def time_columns(num_ranks, makespans_s, busy_s, spans_s, reduced_s):
    """The columns that follow from times.

    Parameters
    ----------
    num_ranks : int
    makespans_s, busy_s, spans_s, reduced_s : ndarray of float, shape (n,)
        Makespan, total computing time of all ranks, longest span of a rank, and start of the optimizer steps, at which
        idle time stops counting; in seconds.

    Returns
    -------
    list of dict, length n
    """
    idle = 1 - busy_s / (num_ranks * reduced_s)
    ideal, span = num_ranks * reduced_s / busy_s - 1, 1 - busy_s / (num_ranks * spans_s)
    columns = (makespans_s, busy_s, idle, idle, ideal, span)
    return [dict(zip(NUMBERS[:6], row, strict=True)) for row in zip(*(one.tolist() for one in columns), strict=True)]


# ---- what was given ------------------------------------------------------------------------------


def options_text(options):
    """A case's options as shown in frames: ``chunks=2 held=0.5``."""
    return " ".join(f"{name}={option_text(value)}" for name, value in options)


def _told_apart(given, cases):
    """Separate seconds from values of a layout, and refuse anything else."""
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name not in SECONDS and name not in LAYOUT_FIELDS:
            raise CostError(name, value, "is not known here", _meant(name, value, cases))
    return [{name: value for name, value in given.items() if name in known} for known in (SECONDS, LAYOUT_FIELDS)]


def _meant(name, value, cases):
    """What to write instead of an unknown keyword."""
    for case in cases:
        if name in case.known_options:
            return f'write ("{case.name}", {{"{name}": {plain(value)!r}}})'
    if name == "changes":
        return "ppmodel.compare takes changes"
    own = ("pp", "microbatches", "model", "system", "layout", "p2p", "allreduce", "changes", *LAYOUT_FIELDS)
    return did_you_mean(name, (*SECONDS, *own)) or f"give {', '.join(SECONDS)}, or model and system"


def _one_layout(layout, values, pp):
    several = [name for name, value in values.items() if isinstance(plain(value), list | range)]
    layouts = as_layouts(layout, values, None if isinstance(pp, list | tuple | range) else pp)
    if len(layouts) > 1:
        field = several[0] if several else "layout"
        raise CostError(field, values.get(field, "several"), "must be one value", "ppmodel.compare takes several")
    return layouts


def chunked_case(case, layout):
    """The case with the layout's number of chunks, if it has that option and it is not set."""
    if layout is None or layout.chunks is None or "chunks" not in case.known_options or "chunks" in dict(case.options):
        return case
    return case.with_options({"chunks": str(layout.chunks)})


def _size(case, pp, microbatches, layout=None):
    if case.size and (pp, microbatches) == (None, None):
        return case.size
    return size_of(case, *layout_size(layout, pp, microbatches))


def _one_size(case, pp, microbatches, layout=None):
    size = tuple(map(plain, _size(case, pp, microbatches, layout)))
    for field, value in zip(("pp", "microbatches"), size, strict=True):
        if isinstance(value, list | tuple | range):
            raise CostError(field, value, "must be one number", "ppmodel.compare takes several")
    return size


def _sizes(cases, case, pp, microbatches, layout):
    """The sizes of a case: those asked for, its layout's, or the table's."""
    if pp is None and microbatches is None and layout is None:
        return [_size(case, None, None)]
    first = case if layout is not None else cases[0]
    return list(product(*map(listed, _size(first, pp, microbatches, layout))))
