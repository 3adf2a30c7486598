"""What the published numbers imply: every setting of the unknowns against every published number."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from ppmodel.artefact.claims.bench import Bench, change_of
from ppmodel.artefact.claims.file import load_claims, rows_of
from ppmodel.artefact.claims.judge import BACKWARDS, MEMORY_BANDWIDTHS, STRUCTURE, WAVES, measure
from ppmodel.compiled import LARGE, prepare
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.simulation import ALLREDUCE, P2P
from ppmodel.specs import load_setting

UNKNOWNS = {
    "p2p": P2P,
    "allreduce": ALLREDUCE,
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

_FARTHEST = 10.0  # tolerances: how much one number that is missed can weigh where settings are compared


def search(model, unknowns=None, targets=TARGETS):
    """Measure some published numbers under every setting of the unknowns.

    Parameters
    ----------
    model : ModelSpec
        The model.
    unknowns : dict of str to sequence, optional
        Instead of `UNKNOWNS`; what it leaves out is the default setting's.
    targets : sequence of str
        Ids of rows.

    Returns
    -------
    DataFrame
        One row a setting, the best first: a column for each unknown, one for what each target is measured at,
        ``met``, the number of targets within their tolerance, and ``distance``, the sum of the targets' distances
        from their values, in tolerances and each at most 10. Better is what meets more, then what is nearer, then
        what comes first in the order of the unknowns.

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
    tables = [
        _measure_hardware(rows, bench, unknowns, dict(zip(STRUCTURE, values, strict=True)))
        for values in product(*(unknowns[name] for name in STRUCTURE))
    ]
    table = pd.concat(tables, ignore_index=True)
    missed = _missed(table, rows)
    table["met"] = (missed <= 1).sum(axis=0)
    table["distance"] = np.minimum(missed, _FARTHEST).sum(axis=0)
    return table.sort_values(["met", "distance"], ascending=[False, True], kind="stable", ignore_index=True)


def _rows(targets):
    rows = {row.id: row for row in rows_of(load_claims())}
    return [rows[name] for name in targets]


def _missed(measured, rows):
    """By how many tolerances each number is missed, one line a row and one column a setting."""
    return np.stack([abs(measured[row.id] - row.value) / row.tolerance for row in rows])


def _measure_hardware(rows, bench, unknowns, structure):
    """One structure of the schedules on every hardware, which is an axis of changes."""
    names = [name for name in UNKNOWNS if name not in STRUCTURE]
    settings = [
        replace(bench.setting, **dict(zip(names, values, strict=True)))
        for values in product(*(unknowns[name] for name in names))
    ]
    middle = bench.systems[len(bench.systems) // 2]
    changes = tuple(change_of(setting, middle) for setting in settings)
    varied = replace(bench, setting=replace(bench.setting, **structure), changes=changes)
    table = pd.DataFrame([{name: getattr(setting, name) for name in names} for setting in settings])
    measured = {row.id: measure(row, varied) for row in rows}
    return pd.DataFrame(structure, index=table.index).join(table).assign(**measured)


def tightened(found, scales=(1.0, 0.75, 0.5, 0.25), targets=TARGETS):
    """How many numbers are met at most if the tolerances were tighter, or if "x % faster" were meant otherwise.

    Parameters
    ----------
    found : DataFrame
        From `search`.
    scales : sequence of float
        Factors on all tolerances.
    targets : sequence of str
        Ids of rows.

    Returns
    -------
    DataFrame
        One row a meaning and scale; columns ``meaning, tolerances, most_met, settings, preset_meets``: a gain as the
        share of time that is saved, 1 - T/T', or as what the rate grows by, T'/T - 1; the most targets that any
        setting meets; how many meet as many; and how many the first setting meets.
    """
    rows, table = _rows(targets), []
    for meaning, grown in (("1 - T / T'", False), ("T' / T - 1", True)):
        measured = {row.id: found[row.id] / (1 - found[row.id] * (grown and _is_gain(row))) for row in rows}
        missed = _missed(measured, rows)
        for scale in scales:
            met = (missed <= scale).sum(axis=0)
            table.append({
                "meaning": meaning, "tolerances": scale, "most_met": int(met.max()),
                "settings": int((met == met.max()).sum()), "preset_meets": int(met[0]),
            })  # fmt: skip
    return pd.DataFrame(table)


def _is_gain(row):
    return row.criterion["quantity"] == "gain"


def value_ranges(found):
    """The range of each unknown over the settings that meet the most numbers.

    Parameters
    ----------
    found : DataFrame
        From `search`, on a fine grid.

    Returns
    -------
    DataFrame
        One row an unknown that takes more than one value on the grid; columns ``unknown, tried, best``, in words.
    """
    best, rows = found[found.met == found.met.max()], []
    for name in UNKNOWNS:
        if found[name].nunique() > 1:
            tried, kept = (", ".join(_shown(name, v) for v in sorted(set(table[name]))) for table in (found, best))
            rows.append({"unknown": name.removesuffix("_bytes_per_s"), "tried": tried, "best": kept})
    return pd.DataFrame(rows)


def pinned(found):
    """How many numbers each value of each unknown allows to be met together, and whether that pins it.

    Parameters
    ----------
    found : DataFrame
        From `search`.

    Returns
    -------
    DataFrame
        One row an unknown and value; columns ``unknown, value, shown, most_met, settings, share, pinned``: the value,
        and as it is printed; the most targets that any setting with it meets; how many settings with it meet as many
        as the best of all; their share of those; and whether no best setting has another value.
    """
    best, rows = found[found.met == found.met.max()], []
    for name in UNKNOWNS:
        for value, group in found.groupby(name, sort=False):
            count = int((best[name] == value).sum())
            rows.append({
                "unknown": name.removesuffix("_bytes_per_s"), "value": value, "shown": _shown(name, value),
                "most_met": int(group.met.max()), "settings": count, "share": count / len(best),
                "pinned": count == len(best),
            })  # fmt: skip
    return pd.DataFrame(rows)


def _shown(name, value):
    if name.endswith("_bytes_per_s"):
        return f"{value / 1e12:g} TB/s"
    if name == "backward":
        return f"{value:g} forwards" if value else "as the model's"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool | np.bool_) else f"{value}"


def best_table(found, count, targets=TARGETS):
    """The best settings side by side, with what they come to and what is published.

    Parameters
    ----------
    found : DataFrame
        From `search`.
    count : int
        How many.
    targets : sequence of str
        Ids of rows.

    Returns
    -------
    DataFrame
        One row an unknown or target, in words; columns ``of, published`` and one for each setting.
    """
    columns = {"of": [], "published": []} | {str(number + 1): [] for number in range(min(count, len(found)))}
    for name in UNKNOWNS:
        values = [_shown(name, value) for value in found[name][:count]]
        _add(columns, name.removesuffix("_bytes_per_s"), "", values)
    for row in _rows(targets):
        _add(columns, row.id, row.reference, [row.number(value) for value in found[row.id][:count]])
    return pd.DataFrame(columns)


def _add(columns, of, published, values):
    for column, value in zip(columns.values(), [of, published, *values], strict=True):
        column.append(value)


def together(found, targets=TARGETS):
    """Which numbers can be met, and which exclude one another.

    Parameters
    ----------
    found : DataFrame
        From `search`.
    targets : sequence of str
        Ids of rows.

    Returns
    -------
    DataFrame
        One row a target; columns ``id, settings, best`` and one for each target: in how many settings it is met,
        whether the best setting of all meets it, and in how many it is met together with the other.
    """
    met = dict(zip(targets, _missed(found, _rows(targets)) <= 1, strict=True))
    table = [
        {"id": name, "settings": int(met[name].sum()), "best": bool(met[name][0])}
        | {other: int((met[name] & met[other]).sum()) for other in targets}
        for name in targets
    ]
    return pd.DataFrame(table)
