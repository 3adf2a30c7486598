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
    rows = {row.id: row for row in rows_of(load_claims())}
    default = load_setting("default")
    bench = Bench.of(model, default)
    unknowns = {name: (getattr(default, name),) for name in UNKNOWNS} | (unknowns or UNKNOWNS)
    names = [name for name in UNKNOWNS if name not in STRUCTURE]
    hardware = [dict(zip(names, values, strict=True)) for values in product(*(unknowns[name] for name in names))]
    changes = tuple(change_of(replace(default, **costs), bench.middle) for costs in hardware)
    tables = []
    for values in product(*(unknowns[name] for name in STRUCTURE)):  # all hardware along the axis of changes
        structure = dict(zip(STRUCTURE, values, strict=True))
        varied = replace(bench, setting=replace(default, **structure), changes=changes)
        measured = {name: measure(rows[name], varied) for name in targets}
        tables.append(pd.DataFrame([structure | costs for costs in hardware]).assign(**measured))
    table = pd.concat(tables, ignore_index=True)
    missed = np.stack([abs(table[name] - rows[name].value) / rows[name].tolerance for name in targets])
    table["met"] = (missed <= 1).sum(axis=0)
    table["distance"] = np.minimum(missed, _FARTHEST).sum(axis=0)
    return table.sort_values(["met", "distance"], ascending=[False, True], kind="stable", ignore_index=True)


def holding(model, settings, ids):
    """Whether rows hold under settings of the unknowns.

    Parameters
    ----------
    model : ModelSpec
        The model.
    settings : DataFrame
        A column for each of `UNKNOWNS`, as in what `search` returns.
    ids : sequence of str
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
    rows, default = rows_of(load_claims()), load_setting("default")
    chosen = {row.id: row for row in rows}
    holds = []
    for values in settings[list(UNKNOWNS)].to_dict("records"):
        bench = Bench.of(model, replace(default, **values))
        holds.append([bool(chosen[name].margin(measure(chosen[name], bench, rows)) >= 0) for name in ids])
    return pd.DataFrame(holds, index=settings.index, columns=list(ids))
