"""Runs that are not alike: operations that jitter, devices that straggle, and what they leave of a ranking.

**What is drawn from what.** A run is known by its seed, a whole number. It draws from two streams of numbers,
``SeedSequence(seed, spawn_key=key)``:

- ``(0,)``: which devices are slow, one number a device. It depends on the seed alone, so that all schedules
  and systems of one seed run on the same slow devices.
- ``(1, table)``: the jitter, one number an operation in the order of the schedule's arrays. ``table`` is a
  checksum of the operations and their order: one table meets the same jitter on every system and under every
  semantics, and two tables meet jitter that is independent.

So a seed gives the same bytes whatever runs before it, after it or beside it.
"""

from dataclasses import dataclass
from numbers import Integral, Real
from statistics import NormalDist
from typing import NamedTuple
from zlib import crc32

import numpy as np

from ppmodel.compiled import prepare
from ppmodel.engine import simulate
from ppmodel.errors import PPModelError
from ppmodel.metrics import operations_s
from ppmodel.ops import OpKind

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles of a `distribution` that are taken where none are named."""

TIE = 1e-9
"""Relative difference below which two runs take the same time: rounding is no order."""

MAX_JITTER = 5.0
"""Largest jitter: one operation in forty then takes 18 000 times the median, and no mean of runs settles."""

MAX_SLOWDOWN = 1e6
"""Largest slowdown: a device that is slower stands still."""

_DEVICES, _JITTER = 0, 1


@dataclass(frozen=True)
class Noise:
    """How far the operations of one run are from their nominal durations; reductions keep theirs.

    Parameters
    ----------
    jitter : float
        Standard deviation of the logarithm of a factor on each operation's duration: lognormal with mean 1,
        independent by operation. At most `MAX_JITTER`.
    straggling : float
        Probability that a device is slow during a run, independent by device.
    slowdown : float
        Factor on all operations of a slow device, 1 to `MAX_SLOWDOWN`.
    slow_devices : tuple of int
        Devices that are slow in every run; `straggling` is for the others.

    Raises
    ------
    PPModelError
        If a value is no number, or out of its range.

    Examples
    --------
    >>> Noise(jitter=0.1, straggling=0.01, slowdown=1.5)
    Noise(jitter=0.1, straggling=0.01, slowdown=1.5, slow_devices=())
    """

    jitter: float = 0.0
    straggling: float = 0.0
    slowdown: float = 1.0
    slow_devices: tuple = ()

    def __post_init__(self):
        self._check_devices()
        rule = f"must be finite, at least 0 and at most {MAX_JITTER:g}"
        _require_within("jitter", self.jitter, 0, MAX_JITTER, rule, "write for example 0.1, for ten percent")
        _require_within("straggling", self.straggling, 0, 1, "must be a probability, 0 to 1", "write for example 0.01")
        rule = f"must be finite, at least 1 and at most {MAX_SLOWDOWN:.0f}"
        _require_within("slowdown", self.slowdown, 1, MAX_SLOWDOWN, rule, "write for example 1.5")

    def _check_devices(self):
        devices = self.slow_devices
        if not (isinstance(devices, list | tuple | range) and all(_is_count(device) for device in devices)):
            rule = "must be a list of whole numbers of at least 0"
            raise PPModelError("slow_devices", devices, rule, "count devices from 0, for example [0, 3]")
        object.__setattr__(self, "slow_devices", tuple(devices))


def _require_within(field, value, low, high, rule, remedy):
    plain = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not (plain and np.isfinite(value) and low <= value <= high):
        raise PPModelError(field, value, rule, remedy)


def _is_count(value):
    return isinstance(value, Integral) and not isinstance(value, bool) and value >= 0


def slow_devices(noise, num_devices, seed):
    """Which devices are slow in a run.

    Parameters
    ----------
    noise : Noise
        Gives the probability, and the devices that always are.
    num_devices : int
        Devices of the schedule.
    seed : int
        The run; see the head of this module.

    Returns
    -------
    ndarray of bool, shape (num_devices,)

    Raises
    ------
    PPModelError
        If the noise names a device that is not there, or the seed is no whole number of at least 0.

    Examples
    --------
    >>> slow_devices(Noise(straggling=0.5, slow_devices=(2,)), 4, seed=7).tolist()
    [False, True, True, False]
    """
    for device in noise.slow_devices:
        if device >= num_devices:
            rule = f"is not a device of the schedule, 0 to {num_devices - 1}"
            raise PPModelError("slow_devices", device, rule, "name devices that it has")
    if not _is_count(seed):
        raise PPModelError("seed", seed, "must be a whole number of at least 0", "write for example 1")
    slow = np.zeros(num_devices, dtype=bool)
    if noise.straggling:
        slow = _generator(seed, _DEVICES).random(num_devices) < noise.straggling
    slow[list(noise.slow_devices)] = True
    return slow


def operation_factors(schedule, noise, seed):
    """The factor on each operation's duration in one run.

    Parameters
    ----------
    schedule : Schedule
        The table.
    noise : Noise
        What is drawn.
    seed : int
        The run; see the head of this module.

    Returns
    -------
    ndarray of float, shape (num_operations,)
        In the order of the schedule's arrays, as `engine.simulate` takes them; 1 for reductions.

    Raises
    ------
    PPModelError
        As `slow_devices`.

    Examples
    --------
    >>> from ppmodel import build
    >>> operation_factors(build("gpipe", 2, 1), Noise(slowdown=1.5, slow_devices=(1,)), seed=0)
    array([1. , 1. , 1.5, 1.5])
    """
    return _factors(schedule, noise, seed, _checksum(schedule))


def _factors(schedule, noise, seed, table):
    slow = slow_devices(noise, schedule.num_devices, seed)
    factors = np.where(slow, noise.slowdown, 1.0)[schedule.device]
    if noise.jitter:
        logs = noise.jitter * _generator(seed, _JITTER, table).standard_normal(schedule.num_operations)
        factors *= np.exp(logs - noise.jitter**2 / 2)  # the mean of exp(N(mu, sigma)) is exp(mu + sigma^2 / 2)
    factors[schedule.kind == OpKind.R] = 1.0
    return factors


def _generator(seed, *key):
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=key))


def _checksum(schedule):
    """A number for the operations and their order, the same on every machine."""
    columns = ("kind", "stage", "microbatch", "replica", "joined", "device_start")
    return crc32(b"".join(getattr(schedule, column).astype("<i8").tobytes() for column in columns))


def noisy_makespans(graph, costs, noise, seeds):
    """Makespans of many runs of one schedule on one system.

    Parameters
    ----------
    graph : ExecutionGraph
        The schedule under its communication semantics.
    costs : OpCosts
        Nominal durations.
    noise : Noise
        What varies from run to run.
    seeds : iterable of int
        One run each; see the head of this module. Runs are drawn and evaluated one at a time.

    Returns
    -------
    ndarray of float, shape (len(seeds),)
        In seconds.

    Raises
    ------
    CostError
        As `engine.simulate`.
    PPModelError
        As `slow_devices`, and if the seeds are no list.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.graph import compile
    >>> schedule = build("1f1b", 4, 8)
    >>> costs = uniform_costs(schedule, forward=1, backward=2)
    >>> noisy_makespans(compile(schedule), costs, Noise(slowdown=2, slow_devices=(0,)), seeds=[1, 2]).tolist()
    [51.0, 51.0]
    """
    return noisy_makespans_on(graph, [costs], noise, seeds)[0]


def noisy_makespans_on(graph, many_costs, noise, seeds):
    """Makespans of many runs of one schedule on several systems; each run is drawn once for all of them.

    Parameters
    ----------
    graph, noise, seeds
        As in `noisy_makespans`.
    many_costs : sequence of OpCosts
        Nominal durations, one entry a system.

    Returns
    -------
    ndarray of float, shape (len(many_costs), len(seeds))
        In seconds: what `noisy_makespans` gives for each.

    Raises
    ------
    CostError
        As `engine.simulate`.
    PPModelError
        As `slow_devices`, and if the seeds are no list.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.graph import compile
    >>> schedule = build("1f1b", 4, 8)
    >>> many = [uniform_costs(schedule, forward=1, backward=backward) for backward in (2, 3)]
    >>> noisy_makespans_on(compile(schedule), many, Noise(slowdown=2, slow_devices=(0,)), seeds=[1]).tolist()
    [[51.0], [70.0]]
    """
    seeds = all_seeds(seeds)
    prepare(graph.num_operations * len(seeds) * len(many_costs))
    spans = np.empty((len(many_costs), len(seeds)))
    for run, factors in enumerate(_drawn(graph.schedule, noise, seeds)):
        spans[:, run] = [simulate(graph, costs, factors).makespan_s for costs in many_costs]
    return spans


def _drawn(schedule, noise, seeds):
    """The factors of each run, one run after the other."""
    table = _checksum(schedule)
    return (_factors(schedule, noise, seed, table) for seed in seeds)


class Runs(NamedTuple):
    """What many runs of one schedule on one system took.

    Attributes
    ----------
    makespans_s : ndarray of float
        One a run, in seconds.
    computing_s : ndarray of float
        Computing time of all devices together, one a run, in seconds.
    """

    makespans_s: np.ndarray
    computing_s: np.ndarray


def noisy_runs(graph, costs, noise, seeds):
    """Makespans and computing times of many runs of one schedule on one system; each run is drawn once for both.

    Parameters
    ----------
    graph, costs, noise, seeds
        As in `noisy_makespans`.

    Returns
    -------
    Runs

    Raises
    ------
    CostError
        As `engine.simulate`.
    PPModelError
        As `slow_devices`, and if the seeds are no list.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.costs import uniform_costs
    >>> from ppmodel.graph import compile
    >>> schedule = build("1f1b", 4, 8)
    >>> costs = uniform_costs(schedule, forward=1, backward=2)
    >>> noisy_runs(compile(schedule), costs, Noise(slowdown=2, slow_devices=(0,)), seeds=[1])
    Runs(makespans_s=array([51.]), computing_s=array([120.]))
    """
    seeds = all_seeds(seeds)
    prepare(graph.num_operations * len(seeds))
    nominal_s, runs = operations_s(graph.schedule, costs), np.empty((2, len(seeds)))
    for run, factors in enumerate(_drawn(graph.schedule, noise, seeds)):
        computing_s = (factors * nominal_s).sum()  # no dot product: its order depends on the threads of the machine
        runs[:, run] = simulate(graph, costs, factors).makespan_s, computing_s
    return Runs(*runs)


def all_seeds(seeds):
    """Seeds that can be gone through more than once, whatever they come from.

    Parameters
    ----------
    seeds : iterable of int
        Also a generator, which is used up.

    Returns
    -------
    list of int

    Raises
    ------
    PPModelError
        If they cannot be gone through.

    Examples
    --------
    >>> all_seeds(seed for seed in (3, 1))
    [3, 1]
    """
    try:
        return list(seeds)
    except TypeError:
        rule, remedy = "must be a list of whole numbers", "write for example range(1, 101)"
        raise PPModelError("seeds", seeds, rule, remedy) from None


# ---- what the runs say ---------------------------------------------------------------------------


class Distribution(NamedTuple):
    """What many runs say of one makespan.

    Attributes
    ----------
    mean_s : float
        In seconds.
    standard_error_s : float
        Of the mean, in seconds; NaN for a single run.
    quantiles_s : ndarray of float
        In seconds, in the order asked for.
    """

    mean_s: float
    standard_error_s: float
    quantiles_s: np.ndarray


def distribution(makespans_s, quantiles=QUANTILES):
    """Mean, standard error of the mean and quantiles of some runs.

    Parameters
    ----------
    makespans_s : sequence of float
        In seconds, one a run; see `noisy_makespans`.
    quantiles : sequence of float
        From 0 to 1; between two runs they are interpolated.

    Returns
    -------
    Distribution

    Raises
    ------
    PPModelError
        If there are no runs, they are not a list of finite numbers, or a quantile is not from 0 to 1.

    Examples
    --------
    >>> distribution([1.0, 2.0, 3.0, 4.0], quantiles=[0.5])
    Distribution(mean_s=2.5, standard_error_s=0.6454972243679028, quantiles_s=array([2.5]))
    """
    spans = _runs("makespans", makespans_s)
    quantiles = _numbers("quantiles", quantiles, "write for example [0.05, 0.5, 0.95]")
    for share in quantiles:
        _require_within("quantiles", share, 0, 1, "must be shares, 0 to 1", "write 0.95 for 95 percent")
    error = spans.std(ddof=1) / np.sqrt(spans.size) if spans.size > 1 else np.nan
    return Distribution(float(spans.mean()), float(error), np.quantile(spans, quantiles))


def _runs(field, makespans_s):
    spans = _numbers(field, makespans_s, "give one time a run")
    if not spans.size:
        raise PPModelError(field, "none", "must hold at least one run", "give more seeds")
    if not np.isfinite(spans).all():
        value = spans[~np.isfinite(spans)][0]
        raise PPModelError(field, value, "must be finite", "leave out runs that have no makespan, in pairs")
    return spans


def _numbers(field, values, remedy):
    """One-dimensional, so that nothing is broadcast."""
    rule = "must be a list of numbers"
    try:
        numbers = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise PPModelError(field, values, rule, remedy) from None
    if numbers.ndim != 1:
        raise PPModelError(field, f"an array of shape {numbers.shape}", f"{rule}, in one dimension", remedy)
    return numbers


class Comparison(NamedTuple):
    """How often one schedule is faster than another, and how surely that is known.

    Attributes
    ----------
    probability : float
        Share of the pairs of runs; a tie counts half.
    low, high : float
        Wilson's interval for it.
    """

    probability: float
    low: float
    high: float


def probability_faster(one_s, other_s, confidence=0.95):
    """The probability that a run of one schedule is faster than a run of another.

    Runs are compared in pairs of one seed. By the rule at the head of this module a pair has its slow devices
    in common, and its jitter only where both are of one table (on two systems, or under two semantics).
    A schedule against itself is a tie in every pair.

    Parameters
    ----------
    one_s, other_s : sequence of float
        Makespans in seconds, for the same seeds in the same order. Two are equal where they differ by no more
        than a part in 10^9.
    confidence : float
        Of the interval, by Wilson's score (1927); above 0 and below 1.

    Returns
    -------
    Comparison
        The interval takes ties for halves of a success: where there are many it is wider than need be.

    Raises
    ------
    PPModelError
        If there are no runs, not as many of one as of the other, they are not lists of finite numbers, or the
        confidence is out of its range.

    Examples
    --------
    >>> probability_faster([1.0, 1.0, 2.0], [2.0, 1.0, 3.0]).probability
    0.8333333333333334
    """
    one, other = _runs("runs", one_s), _runs("runs", other_s)
    if one.size != other.size:
        rule = f"must be as many as those they are compared with, {other.size}"
        raise PPModelError("runs", one.size, rule, "give both the same seeds")
    _require_confidence(confidence)
    tie = np.isclose(one, other, rtol=TIE, atol=0)
    probability = float(np.where(tie, 0.5, one < other).mean())
    return Comparison(probability, *_wilson(probability, one.size, confidence))


def _require_confidence(confidence):
    rule = "must be above 0 and below 1"
    _require_within("confidence", confidence, np.nextafter(0, 1), np.nextafter(1, 0), rule, "write for example 0.95")


def _wilson(share, size, confidence):
    """The shares that are no further from the observed one than their own standard error times z."""
    z = -NormalDist().inv_cdf((1 - confidence) / 2)  # this tail does not round to 1
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    low, high = float(middle - half), float(middle + half)
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # rounding must not leave the share outside
