"""The quantities that the rows of the claims ask for, by name, each measured at one size.

A quantity is a function of a `Bench`, a size (S, B), and what its criterion gives; it returns an array with one value
for every change and system.
"""

from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd

from ppbook import megatron, zero_bubble
from ppbook.asymmetric.orders import gains
from ppbook.asymmetric.peaks import front_back_certificate
from ppmodel import formulas
from ppmodel.analysis.orders import negated, reversed_pairs
from ppmodel.costs import stages, uniform_costs
from ppmodel.errors import PPModelError
from ppmodel.metrics import bubble_ratios, idle_ratio, memory, peak_activations, table_slots
from ppmodel.points.rows import table_columns
from ppmodel.schedules.cases import as_case, built, published_bubble_ratio
from ppmodel.simulation import compile_graph, run_graph
from ppmodel.specs import DATA

QUANTITIES = {}
"""Every quantity by its name in ``data/claims.yaml``."""


def _quantity(function):
    QUANTITIES[function.__name__] = function
    return function


# ---- tables and formulas -------------------------------------------------------------------------


@_quantity
def level_gap(bench, size, of):
    """The largest difference between the bubble ratios by formula, table and simulation without communication."""
    return bench.everywhere(_level_gap(as_case(of), *size))


@cache
def _level_gap(case, num_ranks, num_microbatches):
    schedule = built(case, num_ranks, num_microbatches)
    formula = published_bubble_ratio(case, num_ranks, num_microbatches)
    table = 1 - Fraction(3 * num_microbatches, table_slots(schedule))
    simulated = idle_ratio(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2)))
    return max(abs(formula - table), abs(float(formula) - simulated))


def _formula(bench, size, of):
    case = bench.case(of)
    if case.name == "chimera":
        return formulas.bubble_ratio_chimera_equal(*size)  # the paper's, however units follow one another
    return published_bubble_ratio(case, *size)


def _table_ratio(bench, size, of):
    return table_columns(bench.table(of, *size))["table_bubble_ratio"]


def _length(bench, size, of):
    return _forward_times(bench.table(of, *size))


@cache
def _forward_times(table):
    return table_slots(table) / table.pieces_per_unit


@_quantity
def bubble(bench, size, of, level):
    """Bubble ratio over the total time, from the schedule's own published formula or from its table."""
    if level == "formula":
        return bench.everywhere(_formula(bench, size, of))
    return bench.everywhere(_table_ratio(bench, size, of))


@_quantity
def understatement(bench, size, of):
    """Bubble ratio from the table minus that by formula."""
    return bench.everywhere(_table_ratio(bench, size, of) - _formula(bench, size, of))


@_quantity
def forward_times(bench, size, of):
    """Length of the table in forwards of 1/S of the model, a backward counting as two."""
    return bench.everywhere(_length(bench, size, of))


@_quantity
def first_loss(bench, size, of, over):
    """The smallest multiple of S at which a table is longer than another; the search ends at the given B."""
    num_ranks, most = size
    sizes = [(num_ranks, count) for count in range(num_ranks, most + 1, num_ranks)]
    lost = [
        count for _, count in sizes if _length(bench, (num_ranks, count), of) > _length(bench, (num_ranks, count), over)
    ]
    return bench.everywhere(lost[0] if lost else np.inf)


# ---- time ----------------------------------------------------------------------------------------


@_quantity
def gain(bench, size, of, over):
    """How much less time a schedule takes than another: 1 - T(of) / T(over)."""
    return 1 - bench.times(of, *size).makespan_s / bench.times(over, *size).makespan_s


@_quantity
def longer(bench, size, of, over):
    """How much longer a schedule takes than another: T(of) / T(over) - 1."""
    return -gain(bench, size, of, over)


@_quantity
def gain_drop(bench, size, of, over, to):
    """A gain minus the gain with more microbatches."""
    return gain(bench, size, of, over) - gain(bench, (size[0], to), of, over)


@_quantity
def gain_lead(bench, size, of, over, less):
    """A gain minus its median over another group of systems."""
    gains = gain(bench, size, of, over)
    return gains - np.median(gains[:, bench.columns(less)], axis=1, keepdims=True)


@_quantity
def idle(bench, size, of):
    """Idle-time ratio: the share of all ranks' simulated time in which they do not compute."""
    return bench.times(of, *size).idle_ratio


@_quantity
def reversals(bench, size, of, level):
    """1 if some two of the schedules are ordered differently by bubble ratio than by simulated time, else 0.

    Equal bubbles and equal times give no order. With bubbles from the table, only reversals caused by the network
    count: without it, times have the order of the bubbles. With bubbles by formula, every reversal counts.
    """
    bubbles = np.array([bubble(bench, size, one, level) for one in of], dtype=float)
    seconds = np.array([bench.times(one, *size).makespan_s for one in of])
    without_network = [bench.times(one, *size, network=False).makespan_s for one in of] if level == "table" else None
    return reversed_pairs(bubbles, seconds, without_network).any(axis=(0, 1)).astype(int)


@_quantity
def negations(bench, size, of, over):
    """1 if a schedule has the smaller bubble in its table but takes at least as long, else 0."""
    bubbles = (bubble(bench, size, one, "table") for one in (of, over))
    return negated(*bubbles, *(bench.times(one, *size).makespan_s for one in (of, over)))


# ---- memory --------------------------------------------------------------------------------------


@_quantity
def peak(bench, size, of):
    """Peak activations of the most loaded rank, in microbatches on 1/S of the model."""
    return bench.everywhere(table_columns(bench.table(of, *size))["peak_activations"])


@_quantity
def peak_over(bench, size, of, over, less=None):
    """Peak activations over those of another schedule, minus 1, or minus min(B, S)/B if `less` says so."""
    known = min(size) / size[1] if less == "min(B, S)/B" else 1
    return peak(bench, size, of) / peak(bench, size, over) - known


@_quantity
def peak_tib(bench, size, of):
    """Peak activations of the most loaded rank in TiB."""
    schedule = bench.table(of, *size)
    held = memory(schedule, bench.model, stages(schedule, bench.model, bench.systems[0]))
    return bench.everywhere(held.activations.max() / 2**40)


@_quantity
def split_minimum(bench, size):
    """1 if it is proven that no real split a : b has a lower peak than the even one, else 0."""
    return bench.everywhere(_split_minimum(*size))


@cache
def _split_minimum(num_ranks, num_microbatches):
    schedule = built(as_case("chimera"), num_ranks, num_microbatches)
    try:
        proof = front_back_certificate(schedule)
    except PPModelError:  # some split is lower
        return False
    return proof.peak == peak_activations(schedule).max()


@_quantity
def reordered_gain(bench, size, limit):
    """The most that a split a : b gains over the even one when each has its fastest order; see `asymmetric.orders`."""
    return bench.everywhere(_most_reordered(*size, limit))


@cache
def _most_reordered(num_ranks, num_microbatches, limit):
    found = gains()
    here = found[(found.pp == num_ranks) & (found.microbatches == num_microbatches) & (found.limit == limit)]
    return here.reordered.max()


# ---- published measurements ----------------------------------------------------------------------


@cache
def _measurements(name):
    """A file of published measurements."""
    return pd.read_csv(DATA / "reference" / name)


@cache
def _profiled(entry, num_microbatches):
    """1F1B with times profiled on hardware, under Zero Bubble's semantics."""
    table = built(as_case("1f1b"), entry.devices, num_microbatches)
    backward = entry.t_input_grad_ms + entry.t_weight_grad_ms
    costs = uniform_costs(table, entry.t_forward_ms, backward, entry.t_comm_ms)
    return run_graph(compile_graph(table, "latency"), costs)


@cache
def _profiles():
    """Times profiled on hardware, a named tuple for each model and number of microbatches."""
    rates = _measurements("zero_bubble_bubble_rates.csv").rename(columns={"1f1b": "rate"})
    return list(rates.itertuples(index=False, name="Profile"))


@_quantity
def published_rates(bench, _size):
    """Largest difference between our bubble rate of 1F1B and the published ones, at profiled times."""
    gaps = [abs(bubble_ratios(_profiled(one, one.microbatches)).span - one.rate) for one in _profiles()]
    return bench.everywhere(max(gaps))


@cache
def _rate_errors(per_operation_ms):
    """Zero Bubble's runs, simulated under its semantics: mean errors by schedule."""
    return zero_bubble.simulated("latency", per_operation_ms / 1e3).groupby("schedule").error.mean()


@cache
def _memory_errors():
    return zero_bubble.memories().groupby("schedule").error.mean()


@_quantity
def measured_rate(bench, _size, schedule, per_operation_ms):
    """Mean of simulated over measured samples per second, minus 1, over all runs of a schedule."""
    return bench.everywhere(_rate_errors(per_operation_ms).get(schedule, np.nan))


@_quantity
def measured_memory(bench, _size, schedule):
    """Mean of simulated over measured memory, minus 1, over all models that ran a schedule."""
    return bench.everywhere(_memory_errors().get(schedule, np.nan))


@cache
def _throughput_errors(compute_efficiency):
    """Megatron-LM's runs of 2021, predicted: mean errors by figure and chunks."""
    return megatron.throughput(compute_efficiency).groupby(["figure", "chunks"]).error.mean()


@_quantity
def measured_throughput(bench, _size, figure, chunks, compute_efficiency):
    """Mean of predicted over measured throughput, minus 1, over the runs of a figure with this number of chunks."""
    return bench.everywhere(_throughput_errors(compute_efficiency).get((figure, chunks), np.nan))
