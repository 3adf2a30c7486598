"""Time against memory: which schedules nothing beats on both, and how far behind the others are."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ppmodel.analysis.orders import every_two, order_of_amounts, pareto_front
from ppmodel.studies.field import field_study


def front_study(study):
    """Every schedule and B of each S and system: whether it is on the front of time and memory, and how far behind.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.

    Returns
    -------
    DataFrame
        One row a system, S, schedule and B; columns ``system, stages, schedule, family, microbatches, t_sim_s,
        total_bytes, front, behind``: time in seconds, bytes of the fullest rank, and how much more time it takes
        than the fastest that holds no more.
    """
    columns = ["system", "stages", "schedule", "family", "microbatches", "t_sim_s", "total_bytes"]
    tables = []
    for _, group in study.groupby(["system", "stages"], sort=False):
        seconds, held = group.t_sim_s.to_numpy(), group.total_bytes.to_numpy()
        fits = every_two(order_of_amounts, held) <= 0
        fastest = np.where(fits, seconds[:, None], np.inf).min(axis=0)
        tables.append(group[columns].assign(front=pareto_front(seconds, held), behind=seconds / fastest - 1))
    return pd.concat(tables, ignore_index=True)


def front_table(fronts):
    """Who is on the front, and how often: a row a schedule.

    Parameters
    ----------
    fronts : DataFrame
        From `front_study`.

    Returns
    -------
    DataFrame
        Columns ``schedule, family, on_front, of, sizes, behind``: at how many of the (system, S) at which it is
        defined some B of it is on the front; at which S; and how far behind it stays at its best. Those that are
        there most often first.
    """
    best = nearest(fronts)
    rows = []
    for (name, kind), group in best.groupby(["schedule", "family"], sort=False):
        there = group[group.front]
        sizes = ", ".join(map(str, sorted(there.stages.unique())))
        rows.append((name, kind, len(there), len(group), sizes, group.behind.min()))
    table = pd.DataFrame(rows, columns=["schedule", "family", "on_front", "of", "sizes", "behind"])
    keys, up = ["on_front", "behind", "schedule"], [False, True, True]
    return table.sort_values(keys, ascending=up, ignore_index=True)


def nearest(fronts):
    """Of each schedule, S and system the B that is nearest to the front.

    Parameters
    ----------
    fronts : DataFrame
        From `front_study`.

    Returns
    -------
    DataFrame
        One row a system, S and schedule; columns ``system, stages, schedule, family, front, behind, microbatches``:
        whether any B is on the front, the least that one is behind, and the values of B on the front as text.
    """
    rows = []
    for point, group in fronts.groupby(["system", "stages", "schedule", "family"], sort=False):
        counts = ", ".join(map(str, group.microbatches[group.front]))
        rows.append((*point, bool(group.front.any()), group.behind.min(), counts))
    columns = ["system", "stages", "schedule", "family", "front", "behind", "microbatches"]
    return pd.DataFrame(rows, columns=columns)


def front_model_study(
    models, recompute, system, stages_list, multiples, cases, p2p="overlapped", largest_searched=2**31
):
    """Fronts on one system, with one thing changed at a time: the model, what it computes again, the all-reduce.

    Parameters
    ----------
    models : sequence of ModelSpec
        Each is asked with its own recomputation and with another; the last one also with its all-reduce counted.
    recompute : str
        The other recomputation.
    system : SystemSpec
        The system.
    stages_list, multiples, cases, p2p, largest_searched
        As in `field_study`.

    Returns
    -------
    DataFrame
        The columns of `front_study` and, before them, ``model, recompute, allreduce``.
    """
    variants = {(one.name, how): replace(one, recompute=how) for one in models for how in (one.recompute, recompute)}
    asked = [(key, one, "excluded") for key, one in variants.items()]
    asked.append((*list(variants.items())[-1], "blocking"))
    tables = []
    for (name, how), model, allreduce in asked:
        study = field_study(model, [system], stages_list, multiples, cases, p2p, allreduce, largest_searched)
        fronts = front_study(study)
        for place, (column, value) in enumerate({"model": name, "recompute": how, "allreduce": allreduce}.items()):
            fronts.insert(place, column, value)
        tables.append(fronts)
    return pd.concat(tables, ignore_index=True)


def front_model_table(fronts):
    """Who is on the front under each model and assumption: a row each.

    Parameters
    ----------
    fronts : DataFrame
        From `front_model_study`.

    Returns
    -------
    DataFrame
        Columns ``model, recompute, allreduce, sizes, on_front``: at how many S there is a front, and every schedule
        that is on one, with at how many S.
    """
    keys, rows = ["model", "recompute", "allreduce"], []
    for point, group in fronts.groupby(keys, sort=False):
        there = front_table(group).query("on_front > 0")
        said = ", ".join(f"{row.schedule} {row.on_front}" for row in there.itertuples())
        rows.append((*point, group.stages.nunique(), said))
    return pd.DataFrame(rows, columns=[*keys, "sizes", "on_front"])


def front_model_text(fronts):
    """Whether the front depends on the model, in words.

    Parameters
    ----------
    fronts : DataFrame
        From `front_model_study`.

    Returns
    -------
    str

    Examples
    --------
    >>> fronts = pd.DataFrame({"model": ["m", "n", "n"], "recompute": "full", "allreduce": "excluded", "stages": 4})
    >>> front_model_text(fronts.assign(schedule=["a", "a", "b"], front=True))
    'Who is on the front depends on the model: of 2 schedules that are on one of these fronts 1 is under every \
assumption below (a).'
    """
    found = [set(group.schedule[group.front]) for _, group in fronts.groupby(["model", "recompute", "allreduce"])]
    ever, always = set.union(*found), sorted(set.intersection(*found))
    if len(ever) == len(always):
        return f"The same {len(ever)} schedules are on the front under every assumption below."
    named = f"{len(always)} {'is' if len(always) == 1 else 'are'} under every assumption below"
    named = f"{named} ({', '.join(always)})" if always else "none is under every assumption below"
    said = f"of {len(ever)} schedules that are on one of these fronts {named}"
    return f"Who is on the front depends on the model: {said}."


def front_changes(before, after):
    """Which schedules are on the front less or more often than under another assumption, in words.

    Parameters
    ----------
    before, after : DataFrame
        From `front_table`, of the same schedules.

    Returns
    -------
    str

    Examples
    --------
    >>> before, after = (pd.DataFrame({"schedule": ["a", "b"], "on_front": counts}) for counts in ([2, 1], [2, 0]))
    >>> front_changes(before, after)
    'b from 1 to 0'
    """
    both = before.merge(after, on="schedule", suffixes=("", "_after"))
    changed = both[both.on_front != both.on_front_after].itertuples()
    return ", ".join(f"{row.schedule} from {row.on_front} to {row.on_front_after}" for row in changed) or "no schedule"
