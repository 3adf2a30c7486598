"""What the published numbers imply: every setting of the unknowns, compared with every published number."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from ppbook.claims.bench import Bench, change_of
from ppbook.claims.file import load_claims, rows_of
from ppbook.claims.judge import BACKWARDS, MEMORY_BANDWIDTHS, STRUCTURE, WAVES, measure
from ppbook.setting import load_setting
from ppmodel.compiled import LARGE, prepare
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.simulation import APART, BUFFERED

UNKNOWNS = {
    "p2p": BUFFERED,
    "allreduce": APART,
    "concat": CONCATENATIONS,
    "waves": WAVES,
    "memory_bandwidth_bytes_per_s": MEMORY_BANDWIDTHS,
    "memory_follows": (True, False),
    "compute_efficiency": (1.0, 0.75, 0.5),
    "memory_efficiency": (1.0, 0.5, 0.25),
    "backward": BACKWARDS,
}
"""What the paper leaves open, by the fields of a setting, and what each is tried at."""

TARGETS = (
    "fig3_formula", "fig3_table", "fig4_chimera_gain", "fig6_gain_s4", "equivalent", "table1_gain_low",
    "table1_gain_high", "table1_slow_nw_mid_cp", "table1_slow_nw_fast_cp", "table1_idle_chimera", "table1_idle_hanayo",
)  # fmt: skip
"""The published numbers, by the ids of their rows in ``data/claims.yaml``."""

_FARTHEST = 10.0  # tolerances: the most that one missed number can count when settings are compared


def search(model, unknowns=None, targets=TARGETS):
    """Measure some published numbers under every setting of the unknowns.

    Parameters
    ----------
    model : ModelSpec
        The model.
    unknowns : dict of str to sequence, optional
        Used instead of `UNKNOWNS`; unknowns that it leaves out are as in the default setting.
    targets : sequence of str
        Ids of rows.

    Returns
    -------
    DataFrame
        One row per setting, the best first: a column for each unknown, one for the measured value of each target,
        ``met``, the number of targets within their tolerance, and ``distance``, the sum of the targets' distances from
        their published values, in tolerances and at most 10 each. A setting is better if it meets more targets, then if
        it is nearer, then if it comes first in the order of the unknowns.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> concatenations = {"concat": ("direct", "overlapping")}
    >>> search(load_model("paper"), concatenations, ["fig3_table"])[["concat", "met"]].values.tolist()
    [['overlapping', 1], ['direct', 0]]
    """
    prepare(LARGE)  # thousands of small graphs, each on many systems
    rows, bench = _rows(targets), Bench.of(model, load_setting("default"))
    unknowns = {name: (getattr(bench.setting, name),) for name in UNKNOWNS} | (unknowns or UNKNOWNS)
    hardware = _hardware(bench, unknowns)
    tables = [
        _measure_hardware(rows, bench, hardware, dict(zip(STRUCTURE, values, strict=True)))
        for values in product(*(unknowns[name] for name in STRUCTURE))
    ]
    table = pd.concat(tables, ignore_index=True)
    missed = _missed(table, rows)
    table["met"] = (missed <= 1).sum(axis=0)
    table["distance"] = np.minimum(missed, _FARTHEST).sum(axis=0)
    return table.sort_values(["met", "distance"], ascending=[False, True], kind="stable", ignore_index=True)


def holding(model, settings, rows):
    """Whether rows hold under settings of the unknowns.

    Parameters
    ----------
    model : ModelSpec
        The model.
    settings : DataFrame
        A column for each of `UNKNOWNS`, as in what `search` returns.
    rows : sequence of str
        Ids of rows.

    Returns
    -------
    DataFrame of bool
        One line per setting, with its index; one column per row.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> settings = pd.DataFrame([{name: values[0] for name, values in UNKNOWNS.items()}])
    >>> holding(load_model("paper"), settings, ["fig3_formula", "fig3_table"]).values.tolist()
    [[True, False]]
    """
    asked, every = _rows(rows), rows_of(load_claims())
    default = load_setting("default")
    benches = [Bench.of(model, replace(default, **one)) for one in settings[list(UNKNOWNS)].to_dict("records")]
    held = [[bool(row.margin(measure(row, bench, every)) >= 0) for row in asked] for bench in benches]
    return pd.DataFrame(held, index=settings.index, columns=list(rows))


def _rows(targets):
    rows = {row.id: row for row in rows_of(load_claims())}
    return [rows[name] for name in targets]


def _missed(measured, rows):
    """By how many tolerances each number is missed, one line per row and one column per setting."""
    return np.stack([abs(measured[row.id] - row.value) / row.tolerance for row in rows])


def _hardware(bench, unknowns):
    """Every combination of hardware and backward, as rows of a table and as changes of the default hardware."""
    names = [name for name in UNKNOWNS if name not in STRUCTURE]
    settings = [
        replace(bench.setting, **dict(zip(names, values, strict=True)))
        for values in product(*(unknowns[name] for name in names))
    ]
    middle = bench.systems[len(bench.systems) // 2]
    table = pd.DataFrame([{name: getattr(setting, name) for name in names} for setting in settings])
    return table, tuple(change_of(setting, middle) for setting in settings)


def _measure_hardware(rows, bench, hardware, structure):
    """Measure one structure of the schedules on all hardware, along an axis of changes."""
    table, changes = hardware
    varied = replace(bench, setting=replace(bench.setting, **structure), changes=changes)
    measured = {row.id: measure(row, varied) for row in rows}
    return pd.DataFrame(structure, index=table.index).join(table).assign(**measured)


def in_words(unknown, value):
    """The value of an unknown as it is printed.

    Parameters
    ----------
    unknown : str
        A key of `UNKNOWNS`.
    value : object
        The value it is set to.

    Returns
    -------
    str

    Examples
    --------
    >>> in_words("memory_bandwidth_bytes_per_s", 34e12), in_words("backward", 0.0), in_words("waves", 2)
    ('34 TB/s', "as the model's", '2')
    """
    if unknown.endswith("_bytes_per_s"):
        return f"{value / 1e12:g} TB/s"
    if unknown == "backward":
        return f"{value:g} forwards" if value else "as the model's"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool | np.bool_) else f"{value}"
