"""Hanayo against Chimera at B = S (Table I)."""

import pandas as pd

from ppmodel.metrics import peak_activations, table_bubble_ratio, table_slots
from ppmodel.studies.bubble import published_bubble_ratio
from ppmodel.studies.cases import label, legal_schedules
from ppmodel.studies.runtime import relative_to, runtime_study


def hanayo_tables(num_ranks, waves):
    """Chimera and Hanayo at B = S without communication.

    Parameters
    ----------
    num_ranks : int
        Devices S, and microbatches.
    waves : iterable of int
        Waves of Hanayo, W.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, forward_times, bubble, formula, peak_activations``. A
        forward-time is that of one microbatch on 1/S of the model; bubble and formula are ratios of the total
        time; peak activations are those of the fullest rank in units of one microbatch on 1/S of the model.

    Examples
    --------
    >>> hanayo_tables(4, [1, 2]).forward_times.tolist()
    [16.0, 18.0, 15.25]
    """
    rows = []
    cases = ["chimera"] + [("hanayo", {"waves": count}) for count in waves]
    for name, options, schedule in legal_schedules(cases, num_ranks, num_ranks):
        formula = published_bubble_ratio(name, num_ranks, num_ranks, options)
        rows.append({
            "schedule": label(name, options), "forward_times": table_slots(schedule) / schedule.pieces_per_unit,
            "bubble": table_bubble_ratio(schedule), "formula": float(formula),
            "peak_activations": peak_activations(schedule).max(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def hanayo_study(model, systems, num_ranks, waves, p2p="overlapped"):
    """Hanayo relative to Chimera at B = S, with Chimera's idle ratio beside its own.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_ranks : int
        Devices S, and microbatches; even.
    waves : iterable of int
        Waves of Hanayo, W.
    p2p : str
        Communication semantics, one of `graph.P2P`.

    Returns
    -------
    DataFrame
        The columns of `runtime_study` and ``base, relative, idle_ratio_base``: the base's time in seconds,
        T_sim / base - 1, and Chimera's idle time as a ratio of its total.

    Raises
    ------
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    PPModelError
        If a semantics is unknown.
    """
    cases = ["chimera"] + [("hanayo", {"waves": count}) for count in waves]
    study = runtime_study(model, systems, num_ranks, [num_ranks], cases, p2p)
    relative = relative_to(study, "Chimera")
    base = study[study.schedule == "Chimera"].set_index("system").idle_ratio
    return relative.assign(idle_ratio_base=relative.system.map(base))


def hanayo_gains(study, schedule):
    """Our values for the published numbers of Table I, as far as the study has their systems.

    Idle ratios are medians over the systems with a fast or middle network, gains their extremes.

    Parameters
    ----------
    study : DataFrame
        From `hanayo_study`.
    schedule : str
        Label of the Hanayo schedule.

    Returns
    -------
    dict of str to float
        Ids of `published` to ratios; a gain is 1 - T_sim / base.
    """
    rows = study[study.schedule == schedule].set_index("system")
    near = [f"{compute}_cp_{network}_nw" for compute in ("slow", "mid", "fast") for network in ("mid", "fast")]
    near = rows.loc[[name for name in near if name in rows.index]]
    gains = {}
    if len(near):
        gains = {
            "table1_idle_chimera": near.idle_ratio_base.median(), "table1_idle_hanayo": near.idle_ratio.median(),
            "table1_gain_low": -near.relative.max(), "table1_gain_high": -near.relative.min(),
        }  # fmt: skip
    for key, name in (("table1_slow_nw_mid_cp", "mid_cp_slow_nw"), ("table1_slow_nw_fast_cp", "fast_cp_slow_nw")):
        if name in rows.index:
            gains[key] = -rows.relative[name]
    return gains
