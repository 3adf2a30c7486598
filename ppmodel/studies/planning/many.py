"""Many questions at once: a row for each, and the least GPUs that are enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from math import gcd
from typing import TYPE_CHECKING, Any

from ppmodel.clusters.costs import parameters
from ppmodel.clusters.specs import load_framework, load_model, load_system
from ppmodel.errors import GeneratorError, PPModelError, SweepError
from ppmodel.given import as_list, to_builtin
from ppmodel.studies.planning.answer import planned
from ppmodel.studies.planning.money import DAY_S, UNPRICED, Training
from ppmodel.studies.points import frame_of

if TYPE_CHECKING:
    from pathlib import Path

    from pandas import DataFrame

    from ppmodel.schedules.cases import ScheduleLike
    from ppmodel.studies.points.comparison import FrameworkLike, LinksLike, ModelLike, OneOrMore, SystemLike

_HIGHEST_MFU = 0.65  # where the search for the least GPUs begins
_MOST_TRIED = 16


def are_many(values, training):
    """Return whether any of some values is a list or a dict, or GPUs are to be found."""
    lists = [value for value in map(to_builtin, values) if isinstance(value, list | tuple | range | Mapping)]
    return bool(lists or training.finish or training.budget)


def plans(
    model, system, gpus, global_batch, *, sequence=None, framework=None, training=UNPRICED, show=str, resume=None,
    on_progress=None, **given,
):  # fmt: skip
    """Answer every combination of systems, frameworks, batches, sequences and numbers of GPUs.

    Parameters
    ----------
    model, system, gpus, global_batch, sequence, framework, resume, **given
        As in `plan`. The n-th question keeps what is computed in ``resume.n``.
    training : Training
        What is trained. With its `finish` or `budget`, `gpus` may be None: round numbers are then tried upwards, from
        what the run would need at an MFU of 65 %, until one is enough; those that cannot be, after a slower one, are
        left out.
    show : callable
        Is told which question is being answered.
    on_progress : callable, optional
        Called with each row.

    Returns
    -------
    DataFrame
        A row per question; see `plan`.

    Raises
    ------
    PPModelError
        If no question has an answer, why the first has none.
    """
    model, systems, rows = load_model(model), [load_system(name) for name in as_list(system)], []
    frameworks = [name and load_framework(name) for name in as_list(framework)]
    lists = {"system": systems, "framework": frameworks, "global_batch": global_batch, "sequence": sequence}
    names, is_sought = [each.name for each in systems], training.finish or training.budget
    counts = gpus if isinstance(gpus, Mapping) else dict.fromkeys(names, gpus)
    training.require_priced(names)
    is_priced = not training.budget or all(map(training.price_on, systems))
    PPModelError.require([
        *((name, each, as_list(each), "has no value", "give one") for name, each in {**lists, "gpus": gpus}.items()),
        ("price", None, is_priced, "is missing, which a budget needs", "give, for example, 2.5"),
        ("gpus", None, gpus is not None or is_sought, "is missing", "give, for example, 64, or the time to finish in"),
        ("gpus", ", ".join(map(repr, counts)), {*counts} == {*names}, "must name the systems asked for",
         f"give a number for each of {', '.join(names)}"),
    ])  # fmt: skip
    for values in product(*map(as_list, lists.values())):
        asked, system, fewest = dict(zip(lists, values, strict=True)), values[0], 0
        given["training"] = replace(training, price=training.price_on(system))
        for num_gpus in _round_numbers(training, model, system) if gpus is None else as_list(counts[system.name]):
            if num_gpus < fewest:
                continue
            number = len(rows) + 1
            show(f"question {number}: {num_gpus} GPUs of {system.name} ...")
            row = _row(model, num_gpus, asked, resume=resume and f"{resume}.{number}", **given)
            rows.append(row)
            if on_progress:
                on_progress(row)
            if gpus is None and training.allows(row):
                break
            if gpus is None and training.finish and "days" in row:  # on more, a GPU is not a tenth faster
                fewest = 0.9 * num_gpus * row["days"] * DAY_S / training.finish
    if all(row["refused"] for row in rows):
        raise rows[0]["refused"]
    allowed = [training.allows(row) for row in rows]
    rows = [row | {"refused": row["refused"] and str(row["refused"])} for row in rows]
    frame = frame_of({name: None for row in rows for name in row}, rows)
    if is_sought and not any(allowed):
        nearest, count = frame.loc[frame.days.idxmin()], frame.days.count()
        rule = f"allows none of {count} answers: {nearest.gpus} GPUs take {nearest.days:,.4g} days"
        rule += f" for {nearest.money:.4g}" if nearest.get("money", 0) > 0 else ""
        remedy = "give more time, more money or a larger batch"
        raise PPModelError("finish" if training.finish else "budget", None, rule, remedy)
    alike = frame.assign(enough=frame.gpus.where(allowed)).groupby([*lists], sort=False, dropna=False)
    frame["scaling"] = frame.tokens_per_s_per_gpu / alike.tokens_per_s_per_gpu.transform("first")
    if is_sought:
        frame["is_answer"] = (frame.gpus == alike.enough.transform("min")).where(frame.scaling.notna())
    return frame


def _row(model, gpus, asked, **given):
    """The first answer to a question, or why there is none, beside what is asked."""
    tokens, row = asked["sequence"] or model.sequence, {"model": model.name, "gpus": gpus}
    row = {name: getattr(value, "name", value) for name, value in asked.items()} | row | {"sequence": tokens}
    try:
        answer = planned(model, gpus=gpus, **asked, **given).frame.iloc[:1].to_dict("records")[0]
    except (SweepError, GeneratorError):
        raise
    except PPModelError as error:
        return row | {"refused": error}
    return row | answer | {"sequence": tokens, "tokens_per_s": answer["tokens_per_s_per_gpu"] * gpus, "refused": None}


def _round_numbers(training, model, system):
    """Numbers of GPUs to try upwards: 4, 5, 6 or 7 times a power of two nodes, or of the least that share a board."""
    unit = gcd(system.nodes.devices_per_node, 8) if system.nodes else 1
    flops = 6 * parameters(model).active * training.tokens
    fewest = flops / (_HIGHEST_MFU * system.peak_compute_flops * training.finish) if training.finish else 0
    counts = sorted({unit * quarters << power >> 2 for quarters in (4, 5, 6, 7) for power in range(17)})
    return [count for count in counts if count >= fewest and count % unit == 0][:_MOST_TRIED]


def plan(
    model: ModelLike, system: OneOrMore[SystemLike], gpus: OneOrMore[int] | Mapping[str, OneOrMore[int]] | None,
    global_batch: OneOrMore[int], *,
    sequence: OneOrMore[int] | None = None, framework: OneOrMore[FrameworkLike | None] = None,
    links: LinksLike | None = None, memory_limit: str | float | None = None,
    schedules: OneOrMore[ScheduleLike] | None = None, fix: Mapping[str, Any] | None = None,
    most: Mapping[str, int] | None = None, within: float = 0.05, workers: int | None = None,
    scheduler: str | None = None, resume: str | Path | None = None,
    on_progress: Callable[[dict[str, Any]], object] | None = None, **training: Any,
) -> DataFrame:  # fmt: skip
    """Find the layouts and schedules that train a model fastest on some GPUs.

    Of `system`, `framework`, `gpus`, `global_batch` and `sequence`, any may be a list: every combination is a question.

    Parameters
    ----------
    model, system, framework : str, Path or specification
        As in `simulate`.
    gpus, global_batch : int
        GPUs of the run, and sequences per iteration. GPUs may differ from system to system, as in
        ``{"h100": 256, "b200": 96}``. With `finish` or `budget`, `gpus` may be None; see `plans`.
    sequence : int, optional
        Tokens of a sequence; as the model says if not given.
    links : dict or str, optional
        Links between two ranks that differ from the others, as in `simulate`.
    memory_limit : str or float, optional
        Memory of a GPU, with a unit (``"64 GiB"``) or in bytes; as the system says if not given.
    schedules : list, optional
        Schedules to try, as in `compare`; all that are registered if not given. Of options
        that are not given, the values are tried that the schedule declares for it.
    fix : dict, optional
        Values of the layout that every candidate has, such as ``{"tp": 8}``; of lists, each value is tried.
    most : dict, optional
        The largest value of a size, such as ``{"pp": 8}``. Without ``tp``, tensor groups stay within a node.
    within : float
        How much longer than the best a candidate may take, as a share of its time.
    workers : int, optional
        Processes on this machine; without them, this process computes.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers compute.
    resume : str or Path, optional
        A folder that keeps what is computed: asked again, the same question goes on from there.
    on_progress : callable, optional
        Called with a dict: of one question, now and then, with the best so far (``label``, ``iteration_s``, sizes and
        so on) and ``searched``, the share that is done; of several, with each row, as soon as it is known.
    **training
        What is trained in all, and at which price: ``tokens``, ``price``, ``finish``, ``budget``, ``mtbf``,
        ``checkpoint``, ``checkpoint_bandwidth`` and ``restart``, as in `money.Training`.

    Returns
    -------
    DataFrame
        Of one question, answers that differ in what matters, the best first: columns as `compare` has them, ``layers``,
        ``order``, ``slicing``, ``is_run``, whether the framework runs it as modelled, ``frameworks``, which ones have
        the schedule, and ``over_best``, how much longer than the first row, as a share of its time. The first is
        not tight, unless that costs more than `within`; of those within 1 % of the fastest, the simplest is first.
        ``is_tie``: the framework runs it, and it differs from the first by less than predicted differences are off.

        Of several questions, or with `finish` or `budget`, a row each, with the first of its answers: also
        ``tokens_per_s``; ``scaling``, its rate per GPU over that of the first row that differs in `gpus` alone;
        ``refused``, why it has no answer; and ``is_answer``, whether it is the least GPUs that end in time and within
        the budget.

        With `training`, as far as it says enough: ``days``, ``gpu_hours``, ``money`` of the whole run, and
        ``money_per_billion_tokens``; ``useful_share`` of its time, which the others count, ``failure_every_s``,
        ``checkpoint_bytes``, ``checkpoint_s`` to write one, ``checkpoint_every_s`` by Daly and ``young_every_s``.

    Raises
    ------
    PPModelError
        If an argument is illegal, or no layout fits.

    Examples
    --------
    >>> import ppmodel as pp
    >>> frame = pp.plan("llama3_8b", "h100", 8, 64, schedules="1f1b")
    >>> frame[["label", "tp", "pp", "zero"]].values.tolist()[0]
    ['1F1B', 2, 1, 1]
    >>> frame = pp.plan("llama3_8b", "h100", [8, 16], 64, schedules="1f1b", tokens="1T", price=2.5)
    >>> frame[["gpus", "tp", "days", "money"]].round().values.tolist()
    [[8.0, 2.0, 163.0, 78002.0], [16.0, 1.0, 81.0, 77631.0]]
    >>> seen = []
    >>> best = pp.plan("llama3_8b", "h100", 8, 64, schedules="1f1b", on_progress=seen.append)
    >>> seen[-1]["label"], seen[-1]["tp"]
    ('1F1B', 1)
    """
    run = Training(**training)
    given = {
        "sequence": sequence, "framework": framework, "links": links, "memory_limit": memory_limit, "most": most,
        "schedules": schedules, "fix": fix, "within": within, "workers": workers, "scheduler": scheduler,
        "resume": resume, "on_progress": on_progress, "training": run,
    }  # fmt: skip
    if gpus is None or are_many((system, gpus, global_batch, sequence, framework), run):
        return plans(model, system, gpus, global_batch, **given)
    return planned(model, system, gpus, global_batch, **given).frame
