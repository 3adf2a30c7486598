"""Every registered schedule asked the paper's questions: bubble by formula, table and clock, memory, messages."""

from itertools import product

import pandas as pd

from ppmodel import schedules
from ppmodel.costs import message_bytes, stages
from ppmodel.errors import CostError, PPModelError
from ppmodel.metrics import memory, messages_sent
from ppmodel.studies.bubble import published_bubble_ratio
from ppmodel.studies.cases import family, label, legal_schedules, named, table_numbers
from ppmodel.studies.runtime import comm_over_forward
from ppmodel.studies.times import UNCHANGED, WITHOUT_NETWORK, times


def field_cases(listed=()):
    """All registered schedules, with their own defaults where nothing else is listed.

    Parameters
    ----------
    listed : sequence of str or (str, dict)
        As in `legal_schedules`; a schedule that is named here appears as often, and with the options, as it is here.

    Returns
    -------
    list of str or (str, dict)
        Those that are not listed first, by name.

    Examples
    --------
    >>> cases = field_cases([("hanayo", {"waves": 2})])
    >>> "hanayo" in cases, "gpipe" in cases, cases[-1]
    (False, True, ('hanayo', {'waves': 2}))
    """
    known = {named(case)[0] for case in listed}
    return [name for name in schedules.names() if name not in known] + list(listed)


def field_study(
    model, systems, stages_list, multiples, cases, p2p="overlapped", allreduce="excluded", largest_searched=2**31
):
    """Every schedule at every size: what formula and table say, how long it takes, what it holds and sends.

    Parameters
    ----------
    model : ModelSpec
        The model; its global batch is fixed, so that microbatches shrink as B grows.
    systems : sequence of SystemSpec
        The systems.
    stages_list, multiples : sequence of int
        Values of S and of B/S. Sizes at which a schedule is not defined, or that the model does not fit, are left out.
    cases : sequence of str or (str, dict)
        From `field_cases`.
    p2p, allreduce : str
        Communication semantics, as in `graph.compile`.
    largest_searched : int
        S B up to which schedules are taken whose order is searched operation by operation.

    Returns
    -------
    DataFrame
        One row an S, B, schedule and system; columns ``system, schedule, family, stages, microbatches, formula,
        table_bubble_ratio, peak, activations_bytes, total_bytes, messages, sent_bytes, comm_over_forward, t_sim_s,
        idle_ratio, t_without_network_s, idle_without_network``. Two bubble ratios over the total time, the formula's
        NaN where none is published; peak activations in microbatches on 1/S of the model, those in bytes, and all
        bytes, of the rank that holds most in all; messages and bytes of the rank that sends most; times in
        seconds, and idle time over the total.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    PPModelError
        If a semantics is unknown, an S has no transfers, or no size is left.
    """
    if min(stages_list) < 2:
        rule = "holds a pipeline without transfers, which has no network to ask of"
        raise PPModelError("stages", list(stages_list), rule, "take numbers of ranks of at least 2")
    tables = []
    for num_ranks, multiple in product(stages_list, multiples):
        count = num_ranks * multiple
        found = [case for case in cases if num_ranks * count <= largest_searched or not _is_searched(case)]
        for name, options, schedule in legal_schedules(found, num_ranks, count):
            try:
                fixed = _of_table(name, options, schedule, model, systems[0])
                tables.append(
                    pd.DataFrame(fixed | _of_systems(name, options, schedule, model, systems, p2p, allreduce))
                )
            except CostError:
                continue  # too few blocks for its stages, or a batch that does not divide into B
    if not tables:
        rule, remedy = "leave no size at which a schedule is defined and the model fits", "choose other sizes"
        raise PPModelError("stages, multiples", f"{list(stages_list)}, {list(multiples)}", rule, remedy)
    return pd.concat(tables, ignore_index=True)


def _is_searched(case):
    return schedules.get(named(case)[0]).searched


def _of_table(name, options, schedule, model, system):
    """What depends on no system; of memory only the times of the stages do, and they are not used."""
    size = (schedule.num_ranks, schedule.num_microbatches)
    numbers = table_numbers(name, *size, tuple(options.items()))
    held = memory(schedule, model, stages(schedule, model, system))
    fullest, messages = held.total.argmax(), int(messages_sent(schedule).max())
    return {
        "schedule": label(name, options), "family": family(schedule), "stages": size[0], "microbatches": size[1],
        "formula": float(published_bubble_ratio(name, *size, options)), "table_bubble_ratio": numbers.bubble_ratio,
        "peak": numbers.peak, "activations_bytes": held.activations[fullest], "total_bytes": held.total[fullest],
        "messages": messages, "sent_bytes": messages * message_bytes(schedule, model),
    }  # fmt: skip


def _of_systems(name, options, schedule, model, systems, p2p, allreduce):
    size = (schedule.num_ranks, schedule.num_microbatches)
    case = (name, tuple(options.items()))
    found = times(case, *size, model, systems, p2p, allreduce, changes=(UNCHANGED, WITHOUT_NETWORK))
    return {
        "system": [system.name for system in systems],
        "comm_over_forward": [comm_over_forward(schedule, model, system) for system in systems],
        "t_sim_s": found.t_sim_s[0], "idle_ratio": found.idle_ratio[0], "t_without_network_s": found.t_sim_s[1],
        "idle_without_network": found.idle_ratio[1],
    }  # fmt: skip


def kinds_of_systems(study, alike=0.05):
    """One system of each kind: those in which a transfer takes the same share of a forward behave alike.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.
    alike : float
        Relative difference of c/F up to which two are of one kind.

    Returns
    -------
    dict of str to list of str
        From the first system of a kind to all of it, the shortest transfers first.

    Examples
    --------
    >>> study = pd.DataFrame({"system": ["a", "b", "c"], "comm_over_forward": [0.2, 0.1, 0.201]})
    >>> kinds_of_systems(study)
    {'b': ['b'], 'a': ['a', 'c']}
    """
    weights = study.groupby("system", sort=False).comm_over_forward.median()
    kinds = {}
    for system, weight in weights.sort_values(kind="stable").items():
        same = next((one for one in kinds if weight <= weights[one] * (1 + alike)), None)
        kinds.setdefault(same or system, []).append(system)
    return kinds


def longest_hidden(study, most=1.0):
    """The system with the longest transfers that a computation can still hide.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.
    most : float
        Transfers of up to so many forwards are hidden behind a forward.

    Returns
    -------
    str
        Name of the first such system; where every transfer is longer, of that with the shortest.

    Examples
    --------
    >>> longest_hidden(pd.DataFrame({"system": ["a", "b", "c"], "comm_over_forward": [0.2, 0.9, 1.8]}))
    'b'
    """
    weights = study.groupby("system", sort=False).comm_over_forward.median()
    hidden = weights[weights <= most]
    return hidden.idxmax() if len(hidden) else weights.idxmin()


def headings(study, systems, words="c / F =\n{:.2g}"):
    """Names of columns for systems: how long a transfer takes there, over a forward.

    Parameters
    ----------
    study : DataFrame
        From `field_study`.
    systems : iterable of str
        Names of systems of the study.
    words : str
        What is said, with a place for the number, and one named ``system`` for the name if it is wanted.

    Returns
    -------
    dict of str to str
        By name of the system; c/F as the median over the study's rows.

    Examples
    --------
    >>> headings(pd.DataFrame({"system": ["a"], "comm_over_forward": [0.25]}), ["a"], "{system}: {:.1f}")
    {'a': 'a: 0.2'}
    """
    weights = study.groupby("system").comm_over_forward.median()
    return {system: words.format(weights[system], system=system) for system in systems}
