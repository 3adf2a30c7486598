"""The quantities that the rows of the claims ask for, by name, each measured at one size.

A quantity is a function of what its criterion gives, and of a `Bench` and a size (S, B) where it depends on them. It
returns an array with one value for every change and system, or one number for all of them.
"""

from contextlib import suppress
from dataclasses import replace
from functools import cache
from inspect import signature
from itertools import product

import numpy as np
import pandas as pd

from ppbook.claims.file import load_claims
from ppbook.claims.rows import rows_of
from ppbook.measured import megatron, pipemorph, schedules_measured, zero_bubble
from ppbook.pages.asymmetric.orders import gains
from ppbook.pages.asymmetric.peaks import level_cell
from ppmodel import formulas
from ppmodel.clusters.costs import stages
from ppmodel.clusters.memory import memory
from ppmodel.clusters.specs import DATA
from ppmodel.errors import BatchError, CostError, ScheduleError
from ppmodel.metrics import bubble_ratios, idle_ratio
from ppmodel.schedules.cases import as_case, built
from ppmodel.schedules.ratios import published_bubble_ratio
from ppmodel.simulation import compile_graph, run_graph, uniform_costs
from ppmodel.studies.analysis.orders import negated, reversed_pairs
from ppmodel.studies.points.rows import table_columns
from ppmodel.tables import brief

# ---- tables and formulas -------------------------------------------------------------------------


@cache
def level_gap(size, of):
    """The largest difference between the bubble ratios by formula, table and simulation without communication."""
    schedule = built(of, *size)
    formula = published_bubble_ratio(of, *size)
    table = table_columns(schedule)["table_bubble_ratio"]
    simulated = idle_ratio(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2)))
    return max(abs(float(formula) - ratio) for ratio in (table, simulated))


def bubble(bench, size, of, level):
    """Bubble ratio over the total time, from the schedule's own published formula or from its table."""
    case = bench.case(of)
    if level == "table":
        return table_columns(bench.table(of, *size))["table_bubble_ratio"]
    if case.name == "chimera":
        return formulas.bubble_ratio_chimera_equal(*size)  # however units follow one another
    return published_bubble_ratio(case, *size)


def understatement(bench, size, of):
    """Bubble ratio from the table minus that by formula."""
    return bubble(bench, size, of, "table") - bubble(bench, size, of, "formula")


def forward_times(bench, size, of):
    """Length of the table in forwards of 1/S of the model, a backward counting as two."""
    table = bench.table(of, *size)
    return brief(table).length / table.pieces_per_unit


def first_loss(bench, size, of, over):
    """The smallest multiple of S at which a table is longer than another; the search ends at the given B."""
    num_ranks, most = size
    for count in range(num_ranks, most + 1, num_ranks):
        if forward_times(bench, (num_ranks, count), of) > forward_times(bench, (num_ranks, count), over):
            return count
    return np.inf


# ---- time ----------------------------------------------------------------------------------------


def gain(bench, size, of, over):
    """How much less time a schedule takes than another: 1 - T(of) / T(over)."""
    return 1 - bench.times(of, *size).makespan_s / bench.times(over, *size).makespan_s


def longer(bench, size, of, over):
    """How much longer a schedule takes than another: T(of) / T(over) - 1."""
    return -gain(bench, size, of, over)


def gain_drop(bench, size, of, over, to):
    """A gain minus the gain with more microbatches."""
    return gain(bench, size, of, over) - gain(bench, (size[0], to), of, over)


def gain_lead(bench, size, of, over, less):
    """A gain minus its median over another group of systems."""
    gains = gain(bench, size, of, over)
    return gains - np.median(gains[:, bench.columns(less)], axis=1, keepdims=True)


def growth(bench, size, of, to):
    """How much longer a schedule takes with more microbatches, whose global batch is the same."""
    return bench.times(of, size[0], to).makespan_s / bench.times(of, *size).makespan_s - 1


def idle(bench, size, of):
    """Idle-time ratio: the share of all ranks' simulated time in which they do not compute."""
    return bench.times(of, *size).idle_ratio


def reversals(bench, size, of, level):
    """1 if some two of the schedules are ordered differently by bubble ratio than by simulated time, else 0.

    Equal bubbles and equal times give no order. With bubbles from the table, only reversals caused by the network
    count: without it, times have the order of the bubbles. With bubbles by formula, every reversal counts.
    """
    bubbles = np.array([bubble(bench, size, schedule, level) for schedule in of], float)[:, None, None]
    seconds = np.array([bench.times(schedule, *size).makespan_s for schedule in of])
    without_network = None
    if level == "table":
        without_network = [bench.times(schedule, *size, network=False).makespan_s for schedule in of]
    return reversed_pairs(bubbles, seconds, without_network).any(axis=(0, 1)).astype(int)


def negations(bench, size, of, over):
    """1 if a schedule has the smaller bubble in its table but takes at least as long, else 0."""
    bubbles = (bubble(bench, size, schedule, "table") for schedule in (of, over))
    return negated(*bubbles, *(bench.times(schedule, *size).makespan_s for schedule in (of, over)))


# ---- memory --------------------------------------------------------------------------------------


def peak(bench, size, of):
    """Peak activations of the most loaded rank, in microbatches on 1/S of the model."""
    return table_columns(bench.table(of, *size))["peak_activations"]


def peak_over(bench, size, of, over, less=None):
    """Peak activations over those of another schedule, minus 1, or minus min(B, S)/B if `less` says so."""
    subtracted = min(size) / size[1] if less == "min(B, S)/B" else 1
    return peak(bench, size, of) / peak(bench, size, over) - subtracted


def peak_tib(bench, size, of):
    """Peak activations of the most loaded rank in TiB."""
    schedule = bench.table(of, *size)
    activations = memory(schedule, bench.model, stages(schedule, bench.model, bench.systems[0])).activations
    return activations.max() / 2**40


def split_minimum(size):
    """1 if it is proven that no real split a : b has a lower peak than the even one, else 0."""
    return level_cell(built(as_case("chimera"), *size)) is not None


def reordered_gain(size, limit):
    """The most that a split a : b gains over the even one when each has its fastest order; see `asymmetric.orders`."""
    questions = gains()
    chosen = (questions.pp == size[0]) & (questions.microbatches == size[1]) & (questions.limit == limit)
    return questions.reordered[chosen].max()


# ---- published measurements ----------------------------------------------------------------------


@cache
def published_rates():
    """Largest difference between our bubble rate of 1F1B and the published ones, at times profiled on hardware."""
    gaps = []
    for profile in pd.read_csv(DATA / "reference" / "zero_bubble_bubble_rates.csv").to_dict("records"):
        table = built(as_case("1f1b"), profile["devices"], profile["microbatches"])
        backward = profile["t_input_grad_ms"] + profile["t_weight_grad_ms"]
        costs = uniform_costs(table, profile["t_forward_ms"], backward, profile["t_comm_ms"])
        gaps.append(abs(bubble_ratios(run_graph(compile_graph(table, "latency"), costs)).span - profile["1f1b"]))
    return max(gaps)


_simulated, _memories = cache(zero_bubble.simulated), cache(zero_bubble.memories)
_throughput, _delayed = cache(megatron.throughput), cache(pipemorph.predicted)
_vocabulary = cache(schedules_measured.vocabulary)


def measured_rate(schedule, per_operation_ms):
    """Mean of simulated over measured samples per second, minus 1, over all runs of a schedule."""
    errors = _simulated("latency", per_operation_ms / 1e3).groupby("schedule").error.mean()
    return errors.get(schedule, np.nan)


def measured_memory(schedule):
    """Mean of simulated over measured memory, minus 1, over all models that ran a schedule."""
    return _memories().groupby("schedule").error.mean().get(schedule, np.nan)


def measured_throughput(figure, chunks, compute_efficiency):
    """Mean of predicted over measured throughput, minus 1, over the runs of a figure with this number of chunks."""
    errors = _throughput(compute_efficiency).groupby(["figure", "chunks"]).error.mean()
    return errors.get((figure, chunks), np.nan)


def measured_delay(method):
    """Mean error of the predicted iterations of a method under a known delay, over all links."""
    runs = _delayed()
    return runs.error[runs.schedule == method].abs().mean()


def measured_ratio(of, over, delay_ms):
    """Predicted iteration of one method over that of another, 14B on H800 with a delay between ranks 6 and 7."""
    runs = _delayed()
    runs = runs[(runs.hardware == "H800") & (runs.slow_links == "6_7") & np.isclose(1e3 * runs.delay_s, delay_ms)]
    seconds = runs.groupby("schedule").predicted_s.mean()
    return seconds[of] / seconds[over]


def measured_stages():
    """Largest error of an iteration of 1F1B, replayed with the measured times of its stages."""
    return _vocabulary().error.abs().max()


# ---- conclusions ---------------------------------------------------------------------------------


def flips(bench, knob, factors, allreduce=None):
    """How many of the conclusions that hold stop holding under any of some factors."""
    setting = replace(bench.setting, allreduce=allreduce or bench.setting.allreduce)
    counts = np.zeros((len(bench.changes), 1))
    for place, change in enumerate(bench.changes):
        scaled = [replace(change, **{knob: factor}) for factor in factors]
        varied = replace(bench, setting=setting, changes=(change, *scaled))
        for row in _conclusions():
            with suppress(ScheduleError, CostError):  # what cannot be measured does not flip
                holds = row.margin(measure(row, varied)) >= 0
                counts[place] += holds[0] and not holds.all()
    return counts


@cache
def _conclusions():
    return [row for row in rows_of(load_claims()) if row.conclusion]


QUANTITIES = {
    name: quantity for name, quantity in globals().items()
    if getattr(quantity, "__module__", "") == __name__ and not name.startswith("_")
}  # fmt: skip
"""Every public function above, by its name in ``data/claims.yaml``."""


# ---- rows ----------------------------------------------------------------------------------------


def measure(row, bench):
    """What a row's quantity comes to on a bench.

    Parameters
    ----------
    row : Row
        Its criterion gives the quantity, the sizes, the systems, and how all points are reduced to one number.
    bench : Bench
        Sizes that do not divide its model's batch are left out.

    Returns
    -------
    ndarray of float, shape (num_changes,)
        In the row's unit; NaN if no size is left.

    Raises
    ------
    ScheduleError, CostError
        If a schedule is not defined at a size, or the model does not fit it.
    """
    criterion = dict(row.criterion)
    quantity = QUANTITIES[criterion.pop("quantity")]
    take, columns = criterion.pop("take", "max"), bench.columns(criterion.pop("systems", "all"))
    shape, takes, measured = (len(bench.changes), len(bench.systems)), signature(quantity).parameters, []
    for size in product(criterion.pop("pp", [1]), criterion.pop("microbatches", [1])):
        given = {name: value for name, value in (("bench", bench), ("size", size)) if name in takes}
        with suppress(BatchError):  # a size that the model does not have
            measured.append(np.full(shape, quantity(**given, **criterion), float)[:, columns])
    if not measured:
        return np.full(len(bench.changes), np.nan)
    values = np.concatenate(measured, axis=1)
    if take == "largest":
        return np.take_along_axis(values, abs(values).argmax(axis=1)[:, None], axis=1)[:, 0]
    return getattr(np, take)(values, axis=1)
