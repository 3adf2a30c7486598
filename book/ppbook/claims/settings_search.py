"""What the published numbers imply: every setting of the unknowns, compared with every published number."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from ppbook.claims.bench import Bench, change_of
from ppbook.claims.file import load_claims
from ppbook.claims.quantities import measure
from ppbook.claims.rows import rows_of
from ppbook.claims.verdicts import STRUCTURE, UNKNOWNS
from ppbook.parameters import load_setting
from ppmodel.loops.compiled import LARGE, prepare

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
    >>> from ppmodel.clusters.specs import load_model
    >>> concatenations = {"concat": ("direct", "overlapping")}
    >>> search(load_model("paper"), concatenations, ["fig3_table"])[["concat", "met"]].values.tolist()
    [['overlapping', 1], ['direct', 0]]
    """
    rows, default = {row.id: row for row in rows_of(load_claims())}, load_setting("default")
    unknowns = {name: (getattr(default, name),) for name in UNKNOWNS} | (unknowns or UNKNOWNS)
    settings = pd.DataFrame(product(*unknowns.values()), columns=[*unknowns])
    table = settings.join(measured_under(model, settings, targets))
    missed = np.stack([abs(table[name] - rows[name].value) / rows[name].tolerance for name in targets])
    table["met"] = (missed <= 1).sum(axis=0)
    table["distance"] = np.minimum(missed, _FARTHEST).sum(axis=0)
    return table.sort_values(["met", "distance"], ascending=[False, True], kind="stable", ignore_index=True)


def measured_under(model, settings, ids):
    """What rows come to under settings of the unknowns.

    Parameters
    ----------
    model : ModelSpec
        The model.
    settings : DataFrame
        A column for each of `UNKNOWNS`.
    ids : sequence of str
        Ids of rows.

    Returns
    -------
    DataFrame of float
        One line per setting, with its index; one column per row.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> settings = pd.DataFrame([{name: values[0] for name, values in UNKNOWNS.items()}])
    >>> measured_under(load_model("paper"), settings, ["fig3_formula", "fig3_table"]).round(3).values.tolist()
    [[0.158, 0.273]]
    """
    prepare(LARGE)  # thousands of small graphs, each on many systems
    rows, default = {row.id: row for row in rows_of(load_claims())}, load_setting("default")
    tables = []
    for _, group in settings.groupby([*STRUCTURE], sort=False):  # all hardware along the axis of changes
        values = group[[*UNKNOWNS]].to_dict("records")
        setting = replace(default, **{name: values[0][name] for name in STRUCTURE})
        changes = tuple(change_of(replace(default, **fields)) for fields in values)
        bench = replace(Bench.of(model, setting), changes=changes)
        tables.append(pd.DataFrame({name: measure(rows[name], bench) for name in ids}, index=group.index))
    return pd.concat(tables).loc[settings.index]


def holding(model, settings, ids):
    """Whether rows hold under settings of the unknowns.

    Parameters
    ----------
    model : ModelSpec
        The model.
    settings, ids
        As in `measured_under`.

    Returns
    -------
    DataFrame of bool
        As of `measured_under`.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_model
    >>> settings = pd.DataFrame([{name: values[0] for name, values in UNKNOWNS.items()}])
    >>> holding(load_model("paper"), settings, ["fig3_formula", "fig3_table"]).values.tolist()
    [[True, False]]
    """
    rows, measured = {row.id: row for row in rows_of(load_claims())}, measured_under(model, settings, ids)
    return measured.apply(lambda numbers: rows[numbers.name].margin(numbers) >= 0)
