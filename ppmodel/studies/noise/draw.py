"""Noisy runs, with jittering operations and slow ranks, drawn from explicit seeds.

**Seeds.** A run is identified by its seed, a whole number. It draws from two streams of random numbers,
``SeedSequence(seed, spawn_key=key)``:

- ``(0,)``: which ranks are slow, one number per rank. It depends only on the seed, so all schedules
  and systems with one seed run on the same slow ranks.
- ``(1, table)``: the jitter, one number per operation in the order of the schedule's arrays. ``table`` is a
  checksum of the operations and their order: a table has the same jitter on every system and under every
  semantics, and different tables have independent jitter.

So a seed gives the same bytes whatever runs before it, after it or at the same time.
"""

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from ppmodel.errors import PPModelError
from ppmodel.loops.compiled import prepare
from ppmodel.metrics.bubbles import operations_s
from ppmodel.ops import OpKind
from ppmodel.simulation import Iterations, run_graph
from ppmodel.tables.rows import COLUMNS

TIE = 1e-9
"""Relative difference up to which two times count as equal, because of rounding."""

MAX_JITTER = 5.0
"""Largest jitter: one operation in forty then takes 18 000 times the median, and means over runs do not converge."""

MAX_SLOWDOWN = 1e6
"""Largest slowdown; a slower rank hardly works at all."""

_RANKS, _JITTER = 0, 1
_NUMBERED = np.array((0, 1, 2, 3, 8, 9, 4, 5, 6, 7))  # of each `OpKind`, in checksums: a seed keeps its jitter


@dataclass(frozen=True)
class Noise:
    """Deviation of a run's operations from their nominal durations; all-reduces and gathers keep theirs.

    Parameters
    ----------
    jitter : float
        Standard deviation of the logarithm of a factor on each operation's duration, which is lognormal with mean 1
        and independent between operations. At most `MAX_JITTER`.
    straggling : float
        Probability that a rank is slow during a run, independent between ranks.
    slowdown : float
        Factor on all operations of a slow rank, from 1 to `MAX_SLOWDOWN`.
    slow_ranks : tuple of int
        Ranks that are slow in every run; `straggling` applies to the others.

    Raises
    ------
    PPModelError
        If a value is out of range.

    Examples
    --------
    >>> Noise(jitter=0.1, straggling=0.01, slowdown=1.5)
    Noise(jitter=0.1, straggling=0.01, slowdown=1.5, slow_ranks=())
    """

    jitter: float = 0.0
    straggling: float = 0.0
    slowdown: float = 1.0
    slow_ranks: tuple = ()

    def __post_init__(self):
        for field, low, high, example in (
            ("jitter", 0, MAX_JITTER, 0.1), ("straggling", 0, 1, 0.01), ("slowdown", 1, MAX_SLOWDOWN, 1.5),
        ):  # fmt: skip
            if not low <= (value := getattr(self, field)) <= high:
                rule = f"must be at least {low} and at most {high:.0f}"
                raise PPModelError(field, value, rule, f"write, for example, {example}")


def slow_ranks(noise, num_ranks, seed):
    """Draw which ranks are slow in a run.

    Parameters
    ----------
    noise : Noise
        Gives the probability, and the ranks that are always slow.
    num_ranks : int
        Ranks of the schedule.
    seed : int
        Identifies the run; see the head of this module.

    Returns
    -------
    ndarray of bool, shape (num_ranks,)

    Examples
    --------
    >>> slow_ranks(Noise(straggling=0.5, slow_ranks=(2,)), 4, seed=7).tolist()
    [False, True, True, False]
    """
    slow = np.zeros(num_ranks, dtype=bool)
    if noise.straggling:
        stream = np.random.SeedSequence(int(seed), spawn_key=(_RANKS,))
        slow = np.random.default_rng(stream).random(num_ranks) < noise.straggling
    slow[list(noise.slow_ranks)] = True
    return slow


def operation_factors(schedule, noise, seeds):
    """Draw the factor on each operation's duration, run by run.

    Parameters
    ----------
    schedule : Schedule
        The table.
    noise : Noise
        What is drawn.
    seeds : iterable of int
        Each identifies a run; see the head of this module.

    Yields
    ------
    ndarray of float, shape (num_operations,)
        In the order of the schedule's arrays, as `simulation.run_graph` takes them; 1 for reductions and
        gathers.

    Examples
    --------
    >>> from ppmodel import build
    >>> next(operation_factors(build("gpipe", 2, 1), Noise(slowdown=1.5, slow_ranks=(1,)), seeds=[0]))
    array([1. , 1. , 1.5, 1.5])
    """
    columns = _NUMBERED[schedule.kind], *(getattr(schedule, name) for name in (*COLUMNS[1:], "rank_start"))
    table = crc32(b"".join(column.astype("<i8").tobytes() for column in columns))
    for seed in seeds:
        factors = np.where(slow_ranks(noise, schedule.num_ranks, seed), noise.slowdown, 1.0)[schedule.rank]
        if noise.jitter:
            stream = np.random.SeedSequence(int(seed), spawn_key=(_JITTER, table))
            logs = noise.jitter * np.random.default_rng(stream).standard_normal(schedule.num_operations)
            factors *= np.exp(logs - noise.jitter**2 / 2)  # the mean of exp(N(mu, sigma)) is exp(mu + sigma^2 / 2)
        factors[np.isin(schedule.kind, (OpKind.R, OpKind.G))] = 1.0  # collectives are exempt; optimizer steps are not
        yield factors


def noisy_makespans(graph, costs, noise, seeds):
    """Simulate many runs of one schedule on one system, and return their makespans.

    Parameters
    ----------
    graph : ExecutionGraph
        The schedule under its communication semantics.
    costs : OpCosts
        Nominal durations.
    noise : Noise
        How runs vary.
    seeds : iterable of int
        One run per seed; see the head of this module. Runs are drawn and evaluated one at a time.

    Returns
    -------
    ndarray of float, shape (len(seeds),)
        In seconds.

    Raises
    ------
    CostError
        As for `simulation.run_graph`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("1f1b", 4, 8)
    >>> costs = uniform_costs(schedule, forward=1, backward=2)
    >>> noisy_makespans(compile_graph(schedule), costs, Noise(slowdown=2, slow_ranks=(0,)), seeds=[1, 2]).tolist()
    [51.0, 51.0]
    """
    return noisy_runs(graph, [costs], noise, seeds)[0].makespan_s[0]


def noisy_runs(graph, many_costs, noise, seeds):
    """Simulate many runs of one schedule on several systems; each run is drawn once for all systems.

    Parameters
    ----------
    graph, noise, seeds
        As in `noisy_makespans`.
    many_costs : sequence of OpCosts
        Nominal durations, one entry per system.

    Returns
    -------
    ends : Iterations
        Each array of shape (number of systems, number of runs).
    computing_s : ndarray of float, of the same shape
        Computing time of all ranks, summed, in seconds.

    Raises
    ------
    CostError
        As for `simulation.run_graph`.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import uniform_costs
    >>> from ppmodel.simulation import compile_graph
    >>> schedule = build("1f1b", 4, 8)
    >>> many = [uniform_costs(schedule, forward=1, backward=backward) for backward in (2, 3)]
    >>> ends, computing_s = noisy_runs(compile_graph(schedule), many, Noise(slowdown=2, slow_ranks=(0,)), seeds=[1])
    >>> ends.makespan_s.tolist(), computing_s.tolist()
    ([[51.0], [70.0]], [[120.0], [160.0]])
    """
    seeds = list(seeds)
    prepare(graph.num_operations * len(seeds) * len(many_costs))
    nominal_s = [operations_s(graph.schedule, costs) for costs in many_costs]
    runs = np.empty((4, len(many_costs), len(seeds)))
    for run, factors in enumerate(operation_factors(graph.schedule, noise, seeds)):
        for place, costs in enumerate(many_costs):
            computing_s = (factors * nominal_s[place]).sum()  # always in the same order, however many threads there are
            timeline = run_graph(graph, costs, factors)
            runs[:, place, run] = timeline.makespan_s, timeline.reduced_s, timeline.longest_span_s, computing_s
    return Iterations(*runs[:3]), runs[3]
