"""`simulate` returns the timeline of one point, `compare` a frame of many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ppmodel.clusters.specs.layout import LAYOUT_KEYWORDS
from ppmodel.studies.points.columns import COLUMNS, SECONDS
from ppmodel.studies.points.effect import warn_without_effect
from ppmodel.studies.points.grid import resolve, resolve_point
from ppmodel.studies.points.rows import rows_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias, TypeVar

    from pandas import DataFrame

    from ppmodel.clusters.specs import FrameworkSpec, LayoutSpec, Link, ModelSpec, SystemSpec
    from ppmodel.schedules.cases import ScheduleLike
    from ppmodel.studies.points.change import Change
    from ppmodel.studies.points.run import Run

    Value = TypeVar("Value")
    OneOrMore: TypeAlias = Value | Sequence[Value]
    LinksLike: TypeAlias = Mapping[str, Mapping[str, str | float]] | str | tuple[Link, ...]
    FrameworkLike: TypeAlias = FrameworkSpec | str | os.PathLike[str]
    ModelLike: TypeAlias = ModelSpec | str | os.PathLike[str]
    SystemLike: TypeAlias = SystemSpec | str | os.PathLike[str]
    LayoutLike: TypeAlias = LayoutSpec | str | os.PathLike[str] | Mapping[str, Any]


_TYPES = {column.name: column.type for column in COLUMNS}


def simulate(
    schedule: ScheduleLike, pp: int | None = None, microbatches: int | None = None, *, model: ModelLike | None = None,
    system: SystemLike | None = None, layout: LayoutLike | None = None, framework: FrameworkLike | None = None,
    links: LinksLike | None = None, p2p: str | None = None, allreduce: str = "excluded", **given: Any,
) -> Run:  # fmt: skip
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
    framework : str, Path or FrameworkSpec, optional
        The training framework: what it hides, keeps and costs; `specs.packaged` has those that come with the
        package. Without it, the one that the system was fitted with, or else Megatron-LM with its default arguments.
        What the layout says overrides it.
    links : dict or str, optional
        Links that differ from the others, such as ``{"0-1": {"delay": "60 ms"}}`` or ``"0-1:delay=60ms 2>3:..."``,
        instead of the system's own; see `specs.as_links`.
    p2p : str
        What a transfer occupies, as in `simulation.compile_graph`. ``latency``: nothing; ``overlapped``: its link;
        ``overlapped_nic``: each rank's NIC; ``blocking_send``: the sender; ``blocking_recv``: the receiver;
        ``blocking``: first the sender, then the receiver; ``rendezvous``: both at the same time, each waiting for the
        other; ``streams``: a stream of each, on which it waits for the other. Without it, as the framework has it; its
        link if costs are seconds. With a slow link, without it, as the framework (for seconds, Megatron-LM) sends for
        the schedule: ``rendezvous`` for 1F1B, whose transfers it batches, and ``streams`` for others.
    allreduce : {"excluded", "overlapped", "blocking", "overlapped_links"}
        Whether gradient all-reduces are left out, overlap computation, occupy the ranks, or overlap computation while
        they occupy the links of transfers; see `simulation.compile_graph`.
    **given
        Values of the layout, such as ``tp=8, dp=2, zero=1, microbatch_size=1, global_batch=1024``; see
        `specs.LayoutSpec`. Or, instead of a model and a system, seconds: ``forward``, ``backward`` (or ``input_grad``
        and ``weight_grad``), ``pair``, ``comm``, ``latency``, ``reduction``, ``optimizer``, for one microbatch on 1/S
        of the model; see `simulation.uniform_costs`.

    Returns
    -------
    Run
        Makespan, bubble ratios and memory, and the timeline, which can be plotted, exported or read as a frame.

    Raises
    ------
    PPModelError
        If an argument is illegal; the message names field, value, rule and remedy.

    Warns
    -----
    NoEffectWarning
        For each value of the layout that changes nothing.

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
    point = resolve_point(
        schedule, pp, microbatches, model=model, system=system, layout=layout, framework=framework, links=links,
        p2p=p2p, allreduce=allreduce, **given,
    )  # fmt: skip
    point.require_effect()
    run = point.run()
    warn_without_effect([point], {"layout": layout, "links": links} | given)
    return run


def compare(
    schedules: OneOrMore[ScheduleLike], pp: OneOrMore[int] | None = None, microbatches: OneOrMore[int] | None = None, *,
    model: OneOrMore[ModelLike] | None = None, system: OneOrMore[SystemLike] | None = None,
    layout: OneOrMore[LayoutLike] | None = None, framework: OneOrMore[FrameworkLike | None] = None,
    links: LinksLike | list[LinksLike | None] | None = None, p2p: OneOrMore[str] | None = None,
    allreduce: OneOrMore[str] = "excluded", changes: OneOrMore[Change | None] | None = None, **given: Any,
) -> DataFrame:  # fmt: skip
    """Simulate schedules at every combination of sizes, models, systems and choices.

    Each row is what `simulate` returns for the same arguments. Any argument may be a list.

    Parameters
    ----------
    schedules : list
        Each as in `simulate`; a single one needs no list.
    pp, microbatches : int or list of int, optional
        Ranks and microbatches; not needed if the layout gives them, nor for tables, or beside tables of one size. `pp`
        overrides the layout's.
    model, system : str, Path, ModelSpec, SystemSpec, or list of them, optional
        Names, files or specifications. Both, or neither.
    layout : str, Path, LayoutSpec, dict, or list of them, optional
        How the run is spread over GPUs; needs a model and a system.
    framework : str, Path, FrameworkSpec, or list of them, optional
        As in `simulate`.
    links : dict, str, or list of them, optional
        As in `simulate`; they add a column ``links``. In a list, None is the system's own.
    p2p, allreduce : str or list of str
        Communication semantics, as in `simulate`.
    changes : Change or list of Change, optional
        Changes to the system and its costs; they add a column ``change``. None is no change.
    **given
        As in `simulate`: values of the layout; or seconds, each of which adds a column.

    Returns
    -------
    DataFrame
        One row per combination, in the order of the arguments; schedules vary slowest. ``ppmodel columns`` lists the
        columns, with units: those that identify the point; with a layout, its values; times, bubble ratios, activations
        and messages; memory, which is empty without a model; with a layout, the whole iteration and memory by part; and
        ``refused``, why a combination is not defined, whose numbers are then empty.

    Raises
    ------
    PPModelError
        If an argument is illegal in every combination: an unknown name, a broken file, a misspelt word.

    Warns
    -----
    NoEffectWarning
        For each single value of the layouts that changes nothing in any row.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.compare(["gpipe", ("interleaved-1f1b", {"chunks": 2})], 4, [4, 8], forward=1, backward=2, comm=0.1)
    >>> frame[["label", "microbatches", "makespan_s"]].round(3).values.tolist()
    [['GPipe', 4, 21.6], ['GPipe', 8, 33.6], ['interleaved 1F1B V = 2', 4, 17.9], ['interleaved 1F1B V = 2', 8, 29.9]]
    """
    columns, rows = compared(
        schedules, pp, microbatches, model=model, system=system, layout=layout, framework=framework, links=links,
        p2p=p2p, allreduce=allreduce, changes=changes, **given,
    )  # fmt: skip
    return frame_of(columns, rows)


def frame_of(columns, rows):
    """The frame of rows; a column without values has the type of `COLUMNS`, as in the file of a sweep.

    Whole numbers of layouts stay what they are beside empty cells: a row can be given back.

    >>> frame_of(*compared("chimera", 5, 8, forward=1, backward=2)).nics_shared.dtype
    dtype('O')
    """
    import numpy as np
    import pandas as pd

    types, counts, data = {str: pd.Series([""]).dtype, bool: object}, LAYOUT_KEYWORDS, {}
    for name in columns:
        values, kind = [row.get(name, np.nan) for row in rows], _TYPES.get(name)
        is_empty = [value is None or value != value for value in values]
        if all(is_empty) and kind is not None:
            data[name] = pd.Series(np.nan, range(len(rows)), types.get(kind, float)).array
        elif any(is_empty) and kind is int and name in counts:
            data[name] = pd.Series([row.get(name) for row in rows], dtype=object).array
        else:
            data[name] = values
    return pd.DataFrame(data)


def compared(*arguments, **given):
    """Compute the columns and rows of `compare`, for callers that need no frame.

    Parameters
    ----------
    *arguments, **given
        Those of `compare`.

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
    grid = resolve(*arguments, **given)
    points = grid.points()
    rows = rows_of(points)
    defined = [point for point, row in zip(points, rows, strict=True) if row["refused"] is None]
    warn_without_effect(defined, given, level=4)
    return columns_of(grid), rows


def columns_of(grid):
    """List the columns of a grid's rows.

    Parameters
    ----------
    grid : Grid

    Returns
    -------
    list of str
        Of `columns.COLUMNS`, those that the grid has.

    Examples
    --------
    >>> columns_of(resolve("1f1b", 4, 8, forward=1, backward=2))[7:10]
    ['forward', 'backward', 'makespan_s']
    """
    groups = {"schedule", "result", "remark", *grid.more_columns} | ({"system"} if grid.systems else set())
    groups |= set() if grid.layouts == (None,) else {"layout", "iteration"}
    seconds = set(SECONDS).intersection(*grid.seconds[:1]) if grid.seconds else ()
    return [column.name for column in COLUMNS if column.group in groups or column.name in seconds]
