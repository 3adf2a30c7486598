"""Each stage of the work at named sizes, beside its goal."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

from benchmarks.timing import REPEATS, Seconds, in_fresh_process, measure, process_seconds
from ppmodel import build, compare, schedules
from ppmodel.errors import SizeError
from ppmodel.loops.compiled import LARGE
from ppmodel.metrics import peak_activations
from ppmodel.schedules import cases
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.simulation import P2P, compile_graph, makespans, run_events, run_graph, uniform_costs
from ppmodel.simulation import graph as graph_module
from ppmodel.studies.noise import Noise, noisy_makespans
from ppmodel.studies.planning import planned
from ppmodel.studies.points import evaluate
from ppmodel.tables import NO_OPERATION

NS = 1e9
OPTIONS = {"hanayo": [{"waves": 1}, {"waves": 2}], "chimera": [{"concat": how} for how in CONCATENATIONS]}
"""What is measured of schedules with options beside their defaults."""

MANY_SYSTEMS = (
    ("1f1b", {}, "latency"),
    ("1f1b", {}, "overlapped"),
    ("gpipe", {}, "overlapped"),
    *(("chimera", options, "overlapped") for options in OPTIONS["chimera"]),
    ("hanayo", {"waves": 2}, "overlapped"),
)
"""Name, options and semantics of what many systems are run through."""

POINTS = (("1f1b", {}), ("interleaved-1f1b", {"chunks": 2}), ("zb-h1", {}))
"""Name and options of what many points are evaluated of."""

SECONDS = {"forward": 1.0, "backward": 2.0, "comm": 0.1}

FIRST_COMPILED = (64, LARGE // 128)
"""S and B of the smallest table of 64 stages that takes the compiled path in a fresh process, too."""


class Plan(NamedTuple):
    """What is measured, and at which sizes.

    Attributes
    ----------
    size, list_size, small : tuple of int
        S and B of the stages, of the schedules whose order is searched, and of points of which there are many.
    systems, runs : int
        Systems of one call, and runs of one call under uncertainty.
    large : tuple of int
        S and B of the whole way.
    growth : tuple of int
        S of the growth, with B = 16 S: 32 S^2 operations.
    growth_systems : int
        Systems of one call there.
    growth_budget_s : float
        A size that would take longer is left out.
    plans : tuple of (str, int, int)
        Model, H100s and global batch of plans.
    pairs : tuple of ((int, int), int)
        S and B, and how often each peer and ours take turns there.
    """

    size: tuple = (64, 1024)
    list_size: tuple = (64, 64)
    small: tuple = (8, 64)
    systems: int = 256
    runs: int = 256
    large: tuple = (1024, 8192)
    growth: tuple = (6, 10, 18, 32, 56, 100, 177, 316, 560)
    growth_systems: int = 64
    growth_budget_s: float = 60.0
    plans: tuple = (("llama3_70b", 64, 1024), ("llama3_405b", 1024, 1024), ("deepseek_v3", 2048, 2048))
    pairs: tuple = (((4, 32), 15), ((8, 64), 15), ((16, 64), 15), ((8, 256), 5), ((64, 1024), 5), ((128, 2048), 3))


FULL = Plan()
QUICK = Plan(
    size=(16, 64), list_size=(16, 16), systems=64, runs=64, large=(64, 256), growth=(6, 10, 18, 32),
    growth_budget_s=5.0, plans=(("llama3_8b", 16, 32),), pairs=(((4, 32), 5), ((8, 64), 5), ((16, 64), 5)),
)  # fmt: skip


def row(stage, case, unit, seconds, per, operations, goal=None):
    """One line of the results: best and median of a time, over what it is counted per.

    Parameters
    ----------
    stage, case, unit : str
    seconds : Seconds or None
        None where it was not finished in time or memory.
    per : float
        The times are divided by this.
    operations : int
        Of the schedule.
    goal : float, optional
        The most that it may be, in `unit`.

    Returns
    -------
    dict
    """
    best, middle, runs = (seconds.best / per, seconds.median / per, seconds.runs) if seconds else (None, None, 0)
    return {
        "stage": stage, "case": case, "unit": unit, "operations": int(operations), "runs": runs,
        "best": best, "median": middle, "goal": goal,
    }  # fmt: skip


def case_text(name, schedule, *words, **options):
    """A schedule with its options, its size, and what else a case is told apart by."""
    named = " ".join([name, *(f"{key}={value}" for key, value in options.items())])
    return ", ".join([named, f"({schedule.num_ranks}, {schedule.num_microbatches})", *words])


def costs_of(schedule, comm=0.1):
    """Uniform costs: a forward of 1 s, a backward of 2 s, transfers of a tenth of a forward by default.

    Parameters
    ----------
    schedule : Schedule
    comm : float
        Seconds that a transfer holds its link.

    Returns
    -------
    OpCosts
    """
    return uniform_costs(schedule, 1.0, 2.0, comm)


def fresh(schedule):
    """The same table without what it has kept: dependencies are derived once a table.

    Parameters
    ----------
    schedule : Schedule

    Returns
    -------
    tuple of Schedule
        Of one: the arguments of a call that is measured.
    """
    return (replace(schedule),)


def ready(schedule, p2p="overlapped"):
    """The graph with all that evaluations take from it, which it would else make when the first one asks.

    Parameters
    ----------
    schedule : Schedule
    p2p : str
        One of `ppmodel.simulation.P2P`.

    Returns
    -------
    ExecutionGraph
    """
    graph = compile_graph(schedule, p2p)
    _ = graph.tasks.instructions, graph.tasks.columns
    return graph


def size_of(name, plan):
    """The S and B at which a schedule is measured: smaller ones where its order is searched."""
    return plan.list_size if schedules.get(name).searched else plan.size


def nearest(name, size, **options):
    """The nearest size to another at which a schedule is defined.

    Parameters
    ----------
    name : str
    size : tuple of int
        S and B.
    **options
        As `ppmodel.build` takes them.

    Returns
    -------
    tuple of int
        S and B; of several that are as near, the one with the fewest ranks, then with the fewest microbatches.

    Raises
    ------
    ScheduleError
        If there is none within the distance of S and B together.

    Examples
    --------
    >>> nearest("dualpipe", (5, 9))
    (4, 8)
    """
    num_ranks, num_microbatches = size
    for apart in range(num_ranks + num_microbatches + 1):
        for more in range(-min(apart, num_ranks - 1), apart + 1):
            for side in (-1, 1):
                one = num_ranks + more, max(1, num_microbatches + side * (apart - abs(more)))
                try:
                    build(name, *one, **options)
                except SizeError as error:
                    refused = error
                else:
                    return one
    raise refused


def legal(plan):
    """Every registered schedule at the legal size nearest to the plan's, the list-scheduled ones to theirs.

    Parameters
    ----------
    plan : Plan

    Yields
    ------
    name : str
    size : tuple of int
        S and B.
    options : dict
        As `ppmodel.build` takes them.
    """
    for name in schedules.names():
        for options in OPTIONS.get(name, [{}]):
            yield name, nearest(name, size_of(name, plan), **options), options


def warm_up(plan):
    """Let 1F1B with four times the measured microbatches go once through the stages: see `benchmarks.timing`.

    Parameters
    ----------
    plan : Plan
    """
    num_ranks, num_microbatches = plan.size
    schedule = build("1f1b", num_ranks, 4 * num_microbatches)
    graph, costs = ready(schedule), costs_of(schedule)
    run_graph(graph, costs)
    makespans(graph, [costs, costs])


def generation(plan):
    """From a name to a table."""
    for name, size, options in legal(plan):
        schedule = build(name, *size, **options)
        seconds = measure(lambda case=(name, size, options): build(case[0], *case[1], **case[2]))
        goal = 1000.0 if schedules.get(name).searched or options.get("concat") == "merged" else 10.0
        case, count = case_text(name, schedule, **options), schedule.num_operations
        yield row("generation", case, "ns/op", seconds, count / NS, count, goal)


def compiling(plan):
    """Dependencies, deadlock check and renumbering, of a table that has kept nothing."""
    for name, size, options in legal(plan):
        schedule = build(name, *size, **options)
        for p2p in P2P if name == "1f1b" else ["overlapped"]:
            seconds = measure(lambda one, p2p=p2p: ready(one, p2p), lambda one=schedule: fresh(one))
            case, count = case_text(name, schedule, p2p, **options), schedule.num_operations
            yield row("compile", case, "ns/op", seconds, count / NS, count, 30.0)


def compiling_afresh(plan):
    """Compile where `warm_up` did not run: the medians of five fresh processes."""
    found = [in_fresh_process("compiling", *plan.size) for _ in range(REPEATS)]
    seconds = Seconds.of([one["median_s"] for one in found]) if all(found) else None
    case, count = f"1f1b, ({plan.size[0]}, {plan.size[1]}), overlapped", 2 * plan.size[0] * plan.size[1]
    yield row("compile, fresh process", case, "ns/op", seconds, count / NS, count)


def evaluation(plan):
    """One system: when all operations start and end, and their results leave and arrive."""
    for name, size, options in legal(plan):
        schedule = build(name, *size, **options)
        for p2p in P2P if name == "1f1b" else ["latency", "overlapped"]:
            graph, costs = ready(schedule, p2p), costs_of(schedule)
            seconds = measure(lambda graph=graph, costs=costs: run_graph(graph, costs))
            case, count = case_text(name, schedule, p2p, **options), graph.num_operations
            goal = 3.0 if p2p in ("latency", "overlapped") and size == plan.size else None
            yield row("one evaluation", case, "ns/op", seconds, count / NS, count, goal)


def reading(plan):
    """Start and end of every operation in the table's order, of a timeline that has them in the graph's."""
    schedule = build("1f1b", *plan.size)
    graph, costs = ready(schedule), costs_of(schedule)
    seconds = measure(lambda one: (one.start_s, one.end_s), lambda: (run_graph(graph, costs),))
    case, count = case_text("1f1b", schedule, "overlapped"), graph.num_operations
    yield row("times in the table's order", case, "ns/op", seconds, count / NS, count)


def many_systems(plan):
    """Makespans of many systems in one call, and the memory that they take."""
    for name, options, p2p in MANY_SYSTEMS:
        schedule = build(name, *size_of(name, plan), **options)
        graph, many = ready(schedule, p2p), [costs_of(schedule, 0.2 * n / plan.systems) for n in range(plan.systems)]
        seconds = measure(lambda graph=graph, many=many: makespans(graph, many))
        case = case_text(name, schedule, p2p, f"{plan.systems} systems", **options)
        count = graph.num_operations
        yield row("many systems", case, "ns/op/system", seconds, count * plan.systems / NS, count, 1.0)
    yield _memory_of_many(plan)


def _memory_of_many(plan):
    """What a call with eight times the systems adds to the memory of its process."""
    several, count = 8 * plan.systems, 2 * plan.size[0] * plan.size[1]
    held = in_fresh_process("systems", *plan.size, several)
    table_mib = 8 * several * count / 2**20
    added = Seconds.of([held["added_bytes"] / 2**20]) if held else None
    case = f"1f1b, ({plan.size[0]}, {plan.size[1]}), {several:,} systems; their times would be {table_mib:,.0f} MiB"
    return row("many systems, memory", case, "MiB", added, 1, count, table_mib / 10)


def events(plan):
    """The event queue: an event is the end of a group, or that a message leaves its link or NIC, or arrives."""
    schedule = build("1f1b", *plan.size)
    nics_of_eight = tuple(rank // 8 for rank in range(schedule.num_ranks))
    cases = [
        ("latency", compile_graph(schedule, "latency"), 1),
        ("overlapped", compile_graph(schedule), 2),
        ("a NIC for 8 ranks", compile_graph(schedule).with_nics(nics_of_eight), 2),
    ]
    for words, graph, of_message in cases:
        count = len(graph.group_start) - 1 + of_message * int(graph.remote.sum()) + _through_two_nics(graph)
        seconds = measure(run_events, lambda graph=graph: (graph, costs_of(schedule)))
        case = case_text("1f1b", schedule, words, f"{count:,} events")
        yield row("event queue", case, "ns/event", seconds, count / NS, graph.num_operations, 150.0)


def _through_two_nics(graph):
    """Messages that leave two NICs, the sender's and the receiver's, and not one link."""
    link = graph.link[graph.link != NO_OPERATION]
    return int((graph.routes[link, 1] != NO_OPERATION).sum())


def activations(plan):
    """Peak activations of each rank, once a table."""
    for name in ("1f1b", "chimera"):
        schedule = build(name, *plan.size)
        seconds, count = measure(peak_activations, lambda one=schedule: fresh(one)), schedule.num_operations
        yield row("peak activations", case_text(name, schedule), "ns/op", seconds, count / NS, count)


def many_points(plan):
    """Points of a process that evaluates many: each has a table of its own, generated, priced, evaluated, thrown away.

    Microbatches go from half of those of the size to one and a half. Of a point `compare` gives all columns of its
    frame, the evaluator below it the numbers of `evaluate`. What `cases` keeps is forgotten before each call.
    """
    num_ranks, num_microbatches = plan.small
    counts = range(num_microbatches // 2, num_microbatches // 2 + num_microbatches)
    for name, options in POINTS:
        table = build(name, num_ranks, num_microbatches, **options)
        case = case_text(name, table, **options)
        for words, run in (
            ("compare", lambda one=(name, options): compare([one], num_ranks, counts, **SECONDS)),
            ("evaluate", lambda one=(name, options): [_evaluated(one, num_ranks, count) for count in counts]),
        ):
            seconds = measure(run, _forgotten)
            yield row(
                "many points", f"{case}, {words}", "us/point", seconds, len(counts) / 1e6, table.num_operations, 500.0
            )


def _evaluated(one, num_ranks, num_microbatches):
    table = build(one[0], num_ranks, num_microbatches, **one[1])
    return evaluate(compile_graph(table), [uniform_costs(table, **SECONDS)])


def _forgotten():
    """No arguments; what a process has kept of tables and graphs is gone."""
    cases._built.cache_clear()
    graph_module._kept_graph.cache_clear()
    return ()


def uncertainty(plan):
    """Runs with jitter and slow ranks."""
    schedule = build("1f1b", *plan.size)
    graph, costs, seeds = compile_graph(schedule), costs_of(schedule), range(plan.runs)
    for words, noise in (("jitter", Noise(jitter=0.05)), ("stragglers", Noise(straggling=0.05, slowdown=1.5))):
        seconds = measure(lambda noise=noise: noisy_makespans(graph, costs, noise, seeds))
        case, per = case_text("1f1b", schedule, words, f"{plan.runs} runs"), graph.num_operations * plan.runs / NS
        yield row("uncertainty", case, "ns/op/run", seconds, per, graph.num_operations)


def whole_way(plan):
    """From a schedule's name to its makespan in a fresh process, and the memory of that process."""
    case, count = f"1f1b, ({plan.large[0]}, {plan.large[1]}), overlapped", 2 * plan.large[0] * plan.large[1]
    found = [in_fresh_process("whole", *plan.large)]
    if found[0]:  # the first one does not count where there is time for more
        repeats = max(1, min(REPEATS, int(60 / found[0]["seconds"])))
        found = [in_fresh_process("whole", *plan.large) for _ in range(repeats)] if repeats > 1 else found
    seconds, memory = (
        Seconds.of([one[name] for one in found]) if all(found) else None for name in ("seconds", "peak_bytes")
    )
    yield row("name to makespan", case, "s", seconds, 1, count, 10.0)
    yield row("name to makespan, memory", case, "GB", memory, 1e9, count, 6.0)


def plans(plan):
    """CPU time of first answers and whole plans, over that of ten million additions in plain Python."""
    goals = {"llama3_70b": (2.0, 6.0), "llama3_405b": (None, 12.0), "deepseek_v3": (None, 40.0)}
    planned("llama3_8b", "h100", 8, 16)  # what a process loads once
    for model, gpus, batch in plan.plans:
        answered = [process_time()]
        planned(model, "h100", gpus, batch, on_progress=lambda _, times=answered: times.append(process_time()))
        ends = answered[1], process_time()
        adding_s = _adding_s()
        for words, end, goal in zip(("first answer", "whole"), ends, goals.get(model, (None, None)), strict=True):
            seconds, case = Seconds.of([end - answered[0]]), f"{model}, {gpus} H100s, {words}"
            yield row("plan", case, "x 10^7 additions", seconds, adding_s, 0, goal)


def _adding_s():
    began, total = process_time(), 0
    for number in range(10**7):
        total += number
    return process_time() - began


def start_up(plan):
    """Whole processes: a small question on the command line, and what importing takes."""
    question = shlex.split("simulate 1f1b --pp 8 --microbatches 256 --forward 1 --backward 2 --comm 0.1 --json")
    script = Path(sys.executable).with_name("ppmodel")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "ppmodel"]
    (asked,) = _processes([*command, *question])
    yield row("start-up", "ppmodel simulate 1f1b, (8, 256)", "s", asked, 1, 4096, 0.5)
    numpy, ours = _processes(*([sys.executable, "-c", f"import {name}"] for name in ("numpy", "ppmodel")))
    yield row("start-up", "import ppmodel", "s", ours, 1, 0)
    yield row("start-up", "import numpy", "s", numpy, 1, 0)
    more = Seconds(ours.best - numpy.best, ours.median - numpy.median, ours.runs)
    yield row("start-up", "import ppmodel, more than import numpy", "s", more, 1, 0, 0.1)
    yield from _first_makespan(plan)


def _first_makespan(plan):
    """The first makespan of a fresh process: by the plain path, and by kernels that are not yet compiled, or are."""
    with TemporaryDirectory() as empty:
        for words in ("loops not compiled yet", "once more"):
            first = in_fresh_process("layouts", NUMBA_CACHE_DIR=empty)
            seconds = Seconds.of([first["cpu_s"]]) if first else None
            yield row("first compare, CPU time", f"480 layout points, {words}", "s", seconds, 1, 0)
    with TemporaryDirectory() as empty:
        cases = [
            ("plain path", plan.size, {}),
            ("kernels not compiled yet", FIRST_COMPILED, {"NUMBA_CACHE_DIR": empty}),
            ("kernels compiled before", FIRST_COMPILED, {}),
        ]
        for words, (num_ranks, num_microbatches), where in cases:
            first = in_fresh_process("whole", num_ranks, num_microbatches, **where)
            seconds = Seconds.of([first["seconds"]]) if first else None
            case, count = f"({num_ranks}, {num_microbatches}), {words}", 2 * num_ranks * num_microbatches
            yield row("first makespan", case, "s", seconds, 1, count)


def _processes(*commands):
    """Times of whole processes, which take turns; the first turn does not count."""
    turns = [[process_seconds(command) for command in commands] for _ in range(REPEATS + 1)]
    return [Seconds.of(list(seconds)) for seconds in zip(*turns[1:], strict=True)]


STAGES = (
    generation, compiling, compiling_afresh, evaluation, reading, many_systems, many_points, events, activations,
    uncertainty,
    whole_way, start_up, plans,
)  # fmt: skip
