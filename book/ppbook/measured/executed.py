"""Schedules executed on one machine, over one slow link: recorded runs, and the order of schedules at four levels."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from ppmodel.clusters.specs import DATA
from ppmodel.errors import PPModelError
from ppmodel.metrics import table_bubble_ratio
from ppmodel.schedules.cases import as_case, built
from ppmodel.schedules.ratios import published_bubble_ratio
from ppmodel.studies.analysis import orders

FOLDER = DATA / "reference" / "executed"
COLUMNS = {"schedule", "label", "pp", "microbatches", "p2p", "delay", "forward_s", "measured_s", "simulated_s"}
LEVELS = ("formula", "slots", "simulation", "execution")
DIFFER = 0.03
"""Pairs of schedules whose simulated times differ by as much have an order."""
_TIE = 0.00501  # half a percent and its rounding: less, and two schedules are equal at a level


def recorded(name="runs"):
    """Read a recording of ``python -m benchmarks.executed``.

    Parameters
    ----------
    name : str
        ``runs``, ours; or a CSV file.

    Returns
    -------
    DataFrame
        A row for each run; ``delay`` is in forwards, and ``forwards`` the measured and ``predicted`` the simulated time
        in them.

    Raises
    ------
    PPModelError
        If there is no such file, or it lacks a column.
    """
    path = FOLDER / "runs.csv" if name == "runs" else Path(name)
    if not path.is_file():
        raise PPModelError("recording", name, "does not exist", "record one with python -m benchmarks.executed")
    frame = pd.read_csv(path)
    if lacking := COLUMNS - set(frame.columns):
        raise PPModelError("recording", name, f"lacks {', '.join(sorted(lacking))}", "record it again")
    error = frame.simulated_s / frame.measured_s - 1
    in_forwards = {"forwards": frame.measured_s / frame.forward_s, "predicted": frame.simulated_s / frame.forward_s}
    return frame.assign(error=error, **in_forwards)


def gains(frame):
    """Compare every two schedules of each run: how much longer the second takes, measured and simulated.

    Returns
    -------
    DataFrame
        Columns ``pp, p2p, delay, first, second, measured, simulated``, the last two as fractions.
    """
    rows = []
    for point, group in frame.groupby(["p2p", "pp", "delay"], sort=False):
        for first in range(len(group)):
            for second in range(first):
                one, other = group.iloc[first], group.iloc[second]
                ratios = [other[name] / one[name] - 1 for name in ("measured_s", "simulated_s")]
                rows.append((*point, one.label, other.label, *ratios))
    return pd.DataFrame(rows, columns=["p2p", "pp", "delay", "first", "second", "measured", "simulated"])


def levels(frame, ranks):
    """Say how long each schedule takes at the four levels, over the fastest of that level.

    Parameters
    ----------
    frame : DataFrame
        From `recorded`, of one way of sending.
    ranks : int

    Returns
    -------
    DataFrame
        Columns ``label, delay`` and `LEVELS`; a level without a number, for want of a formula, is NaN.
    """
    of_ranks, rows = frame[frame.pp == ranks], []
    for delay, group in of_ranks.groupby("delay"):
        sizes = group.microbatches.iloc[0]
        cases = [as_case(name) for name in group.schedule]
        idle = [
            [float(published_bubble_ratio(case, ranks, sizes)), table_bubble_ratio(built(case, ranks, sizes))]
            for case in cases
        ]
        times = np.column_stack([1 / (1 - np.array(idle)), group.predicted, group.forwards])
        relative = pd.DataFrame(times / np.nanmin(times, axis=0), columns=LEVELS)
        rows.append(relative.assign(label=group.label.to_numpy(), delay=delay))
    return pd.concat(rows, ignore_index=True)


def order(times, differ):
    """Compute which of every two times is the longer, 1 or -1; 0 if they differ by less than a fraction of the second.

    Examples
    --------
    >>> order([1.0, 2.0], 0.1).tolist()
    [[0, -1], [1, 0]]
    """
    ratios = np.divide.outer(*[np.asarray(times)] * 2)
    return np.where(abs(ratios - 1) < differ, 0, np.sign(ratios - 1)).astype(int)


def agreement(table):
    """Compute Kendall's tau-b between neighbouring levels for each delay; those 0.5 % apart are in no order.

    Parameters
    ----------
    table : DataFrame
        From `levels`.

    Returns
    -------
    DataFrame
        Columns ``delay, formula_slots, slots_simulation, simulation_execution``.
    """
    rows = []
    for delay, group in table.groupby("delay"):
        row = {"delay": delay}
        for first, second in pairwise(LEVELS):
            both = group[group[first].notna() & group[second].notna()]
            row[f"{first}_{second}"] = orders.kendall_tau(*(order(both[name], _TIE) for name in (first, second)))
        rows.append(row)
    return pd.DataFrame(rows)
