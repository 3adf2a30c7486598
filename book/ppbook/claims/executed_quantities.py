"""The quantities that the executed rows of the claims ask for, each measured in runs of one way of sending.

A quantity is a function of the runs, as `runs_of` reads them, and of what its criterion gives; it is NaN where they
lack a schedule.
"""

from inspect import isfunction
from pathlib import Path

import numpy as np
import pandas as pd

from ppbook.measured.executed import DIFFER, FOLDER, levels, order, recorded
from ppmodel.studies.analysis import orders

EXECUTED = {
    "transfers by host threads": "latency", "transfers in streams": "streams", "transfers by rendezvous": "rendezvous"
}  # fmt: skip
"""The ways of sending that were recorded, in words; the first has all schedules and sizes."""

_OTHERS = ("Hanayo W = 2", "asymmetric Chimera")  # whose slots their names in a recording do not give


def runs_of(recording="runs"):
    """Read a recording, and what was recorded beside it for the claims.

    Parameters
    ----------
    recording : str
        As in `recorded`.

    Returns
    -------
    DataFrame
        As from `recorded`, but measured is the fastest iteration: other processes can only slow one down.

    Examples
    --------
    >>> sorted(set(runs_of().label) - set(recorded().label))
    ['Hanayo W = 2', 'asymmetric Chimera']
    """
    others = (FOLDER if recording == "runs" else Path(recording).parent) / "others.csv"
    runs = pd.concat([recorded(recording), *([recorded(others)] if others.is_file() else [])], ignore_index=True)
    fastest_s = runs.fastest_s
    error, forwards = runs.simulated_s / fastest_s - 1, fastest_s / runs.forward_s
    return runs.assign(measured_s=fastest_s, error=error, forwards=forwards)


def most(runs, of):
    """A column, or an expression of columns: the largest size."""
    return runs.eval(of).abs().max()


def average(runs, of):
    """A column's mean size."""
    return runs[of].abs().mean()


def _gains(runs, of, over):
    """The share of time that a schedule saves over another: a row for each number of ranks, a column for each delay."""
    both = runs[runs.label.isin([of, over])].groupby(["pp", "delay", "forward_s", "label"]).measured_s.mean().unstack()
    both = both.reindex(columns=[of, over]).dropna()
    return (1 - both[of] / both[over]).groupby(["pp", "delay"]).mean().unstack()


def gain(runs, of, over, delays, take, ranks=(4, 8)):
    """How much less time a schedule takes than another, over delays in forwards: min, max or farthest from 0."""
    gains = _gains(runs, of, over).reindex(index=ranks, columns=delays).stack().dropna()
    return np.nan if gains.empty else gains.loc[gains.abs().idxmax()] if take == "largest" else getattr(gains, take)()


def gain_drop(runs, of, over):
    """A gain without a delay minus that with the longest: the least over numbers of ranks."""
    gains = _gains(runs, of, over)
    return np.nan if gains.empty else (gains[gains.columns.min()] - gains[gains.columns.max()]).min()


def reversals(runs, delay):
    """Pairs of schedules of which the one with fewer slots takes clearly longer, less those without a delay."""
    counts = [
        [np.sum(slots * times < 0) // 2 if slots.any() else np.nan for slots, times in _signs(runs, each)]
        for each in (delay, 0.0)
    ]
    return np.sum(counts[0]) - np.sum(counts[1])


def tau(runs, delay):
    """Kendall's tau-b between the orders by slots and by measured time: the least over numbers of ranks."""
    return min((orders.kendall_tau(*signs) for signs in _signs(runs, delay)), default=np.nan)


def _signs(runs, delay):
    """For each number of ranks, which of every two schedules has fewer slots, and which takes clearly less time."""
    usual = runs[(runs.delay == delay) & ~runs.label.isin(_OTHERS)].drop_duplicates(["pp", "label"])
    for ranks in usual.pp.unique():
        of_ranks = levels(usual, ranks)
        yield [order(of_ranks[level], DIFFER) for level in ("slots", "execution")]


EXECUTED_QUANTITIES = {
    name: quantity for name, quantity in globals().items()
    if isfunction(quantity) and quantity.__module__ == __name__ and not name.startswith("_") and name != "runs_of"
}  # fmt: skip
"""Every public function above that measures runs, by its name in ``data/claims.yaml``."""
