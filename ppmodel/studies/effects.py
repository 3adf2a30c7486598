"""What small bubbles cost and what assumptions of the field's chapter weigh: messages, all-reduce, overlap, B."""

import numpy as np
import pandas as pd

from ppmodel import schedules
from ppmodel.analysis.orders import order_of_amounts
from ppmodel.costs import model_costs, slowest_transfer_s, uniform_costs
from ppmodel.metrics import computing_s, messages_sent
from ppmodel.ops import OpKind
from ppmodel.schedules.registry import option_text
from ppmodel.simulation import ALLREDUCE, compile_graph, makespans, run_events
from ppmodel.studies.cases import TIE, built, compiled, label, legal_schedules, named, table_numbers
from ppmodel.studies.phases import border_study, phase_study
from ppmodel.studies.times import Change, times

_HALVINGS = 12


def message_study(num_ranks, multiple, ratios, cases, base, p2p="overlapped"):
    """What each schedule's bubble costs in messages, and up to which length of a transfer it is worth them.

    Costs are uniform, a backward takes two forwards and each half of it one.

    Parameters
    ----------
    num_ranks, multiple : int
        Devices S, and B/S.
    ratios : sequence of float
        Times of a transfer in forwards of 1/S of the model, c/F, rising.
    cases : sequence of str or (str, dict)
        As in `legal_schedules`.
    base : str or (str, dict)
        The schedule that the others are held against.
    p2p : str
        Communication semantics.

    Returns
    -------
    map : DataFrame
        One row a schedule and c/F; columns ``schedule, comm_over_forward, relative``: time over that of the base,
        less 1.
    table : DataFrame
        One row a schedule; columns ``schedule, bubble, messages, over_base, worth_until``: bubble ratio of its table,
        messages of the rank that sends most, these over the base's, and the first c/F from which on it is no
        faster than the base, interpolated; NaN where it never is faster, infinite where it always is. The smallest
        bubble first.
    """
    count, of_base = num_ranks * multiple, label(*named(base))
    study = phase_study([num_ranks], [multiple], ratios, [base, *(one for one in cases if one != base)], p2p)
    lengths = study.pivot(index="comm_over_forward", columns="schedule", values="time")
    relative = lengths.div(lengths[of_base], axis=0).drop(columns=of_base) - 1
    borders = border_study(study, {name: (name, of_base, 1.0) for name in relative})
    sent = {}
    for name, options, schedule in legal_schedules([base, *cases], num_ranks, count):
        numbers = table_numbers(name, num_ranks, count, tuple(options.items()))
        sent[label(name, options)] = (numbers.bubble_ratio, int(messages_sent(schedule).max()))
    rows = []
    for name in relative:
        until = _worth_until(relative[name], borders[borders.border == name])
        rows.append((name, *sent[name], sent[name][1] / sent[of_base][1], until))
    table = pd.DataFrame(rows, columns=["schedule", "bubble", "messages", "over_base", "worth_until"])
    table = table.sort_values(["bubble", "over_base", "schedule"], ignore_index=True)
    return relative.reset_index().melt("comm_over_forward", value_name="relative"), table


def _worth_until(relative, borders):
    if relative.iloc[0] >= -TIE:
        return np.nan
    return borders.comm_over_forward.min() if len(borders) else np.inf


def halves_study(model, system, num_ranks, microbatches, cases):
    """What a table of equal slots leaves out where the halves of a backward are not equally long, without a network.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        The system, for the lengths of forward and halves.
    num_ranks : int
        Devices, S.
    microbatches : sequence of int
        Values of B. Sizes at which a schedule is not defined are left out.
    cases : sequence of str or (str, dict)
        Those that split no backward are left out.

    Returns
    -------
    DataFrame
        One row a schedule and B; columns ``schedule, microbatches, input_grad, weight_grad, table, equal, own``:
        the model's halves in forwards; bubble ratio of the table; and idle time over the total where each half takes a
        forward, and where they take what they do in the model. Where an order is frozen for equal slots the last
        exceeds the others.

    Raises
    ------
    CostError
        If the batch does not divide into B.
    """
    rows = []
    for count in microbatches:
        seconds = model_costs(built("1f1b", num_ranks, count, ()), model, system).compute_s.mean(axis=1)
        halves = seconds[[OpKind.I, OpKind.W]] / seconds[OpKind.F]
        for name, options, schedule in legal_schedules(cases, num_ranks, count):
            if (schedule.kind == OpKind.I).any():
                key = (name, num_ranks, count, tuple(options.items()))
                graph, lengths = compiled(*key, "latency", "excluded"), ((1.0, 1.0), halves)
                costs = [uniform_costs(schedule, 1.0, input_grad=i, weight_grad=w) for i, w in lengths]
                idle = 1 - computing_s(schedule, costs) / (num_ranks * makespans(graph, costs))
                rows.append((label(name, options), count, *halves, table_numbers(*key).bubble_ratio, *idle))
    columns = ["schedule", "microbatches", "input_grad", "weight_grad", "table", "equal", "own"]
    return pd.DataFrame(rows, columns=columns)


def convergence_study(study, close):
    """How far apart the schedules are as B grows, of those that are defined at every B of the study.

    Parameters
    ----------
    study : DataFrame
        From `field_study`, of one S.
    close : float
        How much more than the fastest a schedule may take to count as one that has come close.

    Returns
    -------
    DataFrame
        One row a system and B; columns ``system, microbatches, comm_over_forward, schedules, fastest, slowest, spread,
        within``: the time of the slowest over that of the fastest, less 1, and how many of the schedules have come
        close to the fastest.
    """
    everywhere = study.groupby("schedule").microbatches.nunique() == study.microbatches.nunique()
    rows = []
    common = study[study.schedule.isin(everywhere.index[everywhere])]
    for (system, count), group in common.groupby(["system", "microbatches"], sort=False):
        seconds = group.set_index("schedule").t_sim_s
        within = int((order_of_amounts(seconds, (1 + close) * seconds.min()) <= 0).sum())
        rows.append((system, count, group.comm_over_forward.median(), len(seconds), seconds.idxmin(), seconds.idxmax(),
                     seconds.max() / seconds.min() - 1, within))  # fmt: skip
    columns = ["system", "microbatches", "comm_over_forward", "schedules", "fastest", "slowest", "spread", "within"]
    return pd.DataFrame(rows, columns=columns)


def replica_study(model, systems, num_ranks, num_microbatches, cases, base, p2p="overlapped"):
    """What the all-reduce of the gradients takes from schedules with two copies of the weights.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    cases : sequence of str or (str, dict)
        Those without copies are left out.
    base : str or (str, dict)
        The schedule that they are held against.
    p2p : str
        Communication semantics.

    Returns
    -------
    DataFrame
        One row a schedule and system; columns ``schedule, system`` and one for each of `graph.ALLREDUCE`: time over
        that of the base, less 1.
    """
    size = (num_ranks, num_microbatches, model, systems, p2p)
    of_base = times(_key(base), *size).t_sim_s[0]
    rows = []
    for name, options, schedule in legal_schedules(cases, num_ranks, num_microbatches):
        if schedule.num_replicas > 1:
            case = (name, tuple(options.items()))
            ways = np.array([times(case, *size, way).t_sim_s[0] for way in ALLREDUCE]) / of_base - 1
            names = [system.name for system in systems]
            rows += [(label(name, options), *row) for row in zip(names, *ways.tolist(), strict=True)]
    return pd.DataFrame(rows, columns=["schedule", "system", *ALLREDUCE])


def overlap_study(model, systems, num_ranks, num_microbatches, cases, factors, p2p="overlapped"):
    """What it changes if F&B pairs take less than their operations one after the other, or are taken apart.

    A pair is one operation: it waits for what both need, and hands on what both give at its end. That costs time
    against the same order taken apart, and pays from some factor on.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    cases : sequence of str or (str, dict)
        All are ranked; those without such cells stay as they are, other shared cells, too: two forwards that Chimera
        doubles are one after the other.
    factors : sequence of float
        Times of such a cell over the sum of its operations.
    p2p : str
        Communication semantics.

    Returns
    -------
    DataFrame
        One row a schedule with such cells and a system; columns ``schedule, system``, then for "apart" (see
        `Schedule.unfused`) and for each factor ``time apart`` or ``time at ...``, over that at 1, less 1, and
        ``place apart`` or ``place at ...``, 1 more than the number of schedules that are faster; last
        ``worth below``, the factor from which down the schedule takes no longer than apart (NaN where none is).
    """
    found = list(legal_schedules(cases, num_ranks, num_microbatches))
    size = (num_ranks, num_microbatches, model, systems, p2p)
    changes, ways = [Change(overlap=factor) for factor in (1.0, *factors)], ["at 1", "apart"]
    ways += [f"at {factor:g}" for factor in factors]
    keys = [(name, tuple(options.items())) for name, options, _ in found]
    seconds = np.array([times(key, *size, changes=changes).t_sim_s for key in keys])
    apart = np.array([_apart_s(schedule, model, systems, p2p) for *_, schedule in found])
    seconds = np.insert(seconds, 1, np.where(np.isnan(apart), seconds[:, 0], apart), axis=1)
    rows = []
    for number, (name, options, schedule) in enumerate(found):
        for column, system in enumerate(systems if schedule.overlaps.any() else ()):
            own = seconds[number, :, column]
            ahead = (order_of_amounts(seconds[:, :, column], own) < 0).sum(axis=0) + 1
            row = {"schedule": label(name, options), "system": system.name}
            for way, length, place in zip(ways, own, ahead, strict=True):
                row |= {f"time {way}": length / own[0] - 1, f"place {way}": int(place)}
            rows.append(row | {"worth below": _worth_below(keys[number], own[1], (*size[:3], [system], p2p))})
    return pd.DataFrame(rows)


def _apart_s(schedule, model, systems, p2p):
    """Time of a schedule with its pairs taken apart, on each system; NaN where it has none."""
    seconds, apart = np.full(len(systems), np.nan), schedule.unfused()
    if apart is not schedule:
        seconds = makespans(compile_graph(apart, p2p), [model_costs(apart, model, system) for system in systems])
    return seconds


def _worth_below(key, apart, size):
    """The largest factor on its pairs, to 1 in 4096, at which a schedule takes no longer than apart; by bisection."""
    least, most = 0.0, 1.0
    for _ in range(_HALVINGS):
        factor = (least + most) / 2
        lasts = times(key, *size, changes=[Change(overlap=factor)]).t_sim_s[0, 0]
        least, most = (factor, most) if lasts <= apart * (1 + TIE) else (least, factor)
    return least or np.nan


def own_times_study(model, systems, num_ranks, num_microbatches, cases, p2p="overlapped"):
    """What a search for the times of a system wins over one for unit times, of the schedules that search their order.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    cases : sequence of str or (str, dict)
        Those whose order does not depend on an option ``times`` are left out.
    p2p : str
        Communication semantics.

    Returns
    -------
    DataFrame
        One row a schedule and system; columns ``schedule, system, times, relative``: forward, halves and transfer, in
        hundredths of a forward; and the time of the order that is searched for them over that for unit times, less 1.

    Raises
    ------
    CostError
        If the batch does not divide into B.
    """
    rows = []
    plain = built("1f1b", num_ranks, num_microbatches, ())
    for name, options, _ in legal_schedules(cases, num_ranks, num_microbatches):
        if "times" in {option.name for option in schedules.get(name).options} - set(options):
            for system in systems:
                own = _hundredths(model_costs(plain, model, system))
                size = (num_ranks, num_microbatches, model, [system], p2p)
                seconds = [
                    times((name, tuple((options | more).items())), *size).t_sim_s[0, 0] for more in ({"times": own}, {})
                ]
                rows.append((label(name, options), system.name, option_text(own), seconds[0] / seconds[1] - 1))
    return pd.DataFrame(rows, columns=["schedule", "system", "times", "relative"])


def _hundredths(costs):
    """Forward, input gradient, weight gradient and slowest transfer of a stage, the forward being 100."""
    seconds = costs.compute_s.mean(axis=1)
    known = (seconds[OpKind.F], seconds[OpKind.I], seconds[OpKind.W], slowest_transfer_s(costs))
    return tuple(round(100 * one / seconds[OpKind.F]) for one in known)


def second_opinion(reversals, model, systems, cases, p2p="overlapped"):
    """Reversals computed again, by discrete events.

    Parameters
    ----------
    reversals : DataFrame
        From `clear_reversals`; as many rows as are to be computed again.
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    cases : sequence of str or (str, dict)
        What the labels stand for.
    p2p : str
        Communication semantics.

    Returns
    -------
    DataFrame
        The rows with ``again_smaller_s, again_faster_s, apart``: both times, and the largest relative difference.
    """
    keys = {label(*named(case)): _key(case) for case in cases}
    specs = {system.name: system for system in systems}
    again = np.array([
        [_by_events(keys[name], row.stages, row.microbatches, model, specs[row.system], p2p) for name in pair]
        for row in reversals.itertuples()
        for pair in [(row.smaller_bubble, row.faster)]
    ]).reshape(-1, 2)  # fmt: skip
    before = reversals[["t_smaller_s", "t_faster_s"]].to_numpy()
    apart = abs(again / before - 1).max(axis=1)
    return reversals.assign(again_smaller_s=again[:, 0], again_faster_s=again[:, 1], apart=apart)


def opinion_text(again):
    """How far the two computations are apart, in words.

    Parameters
    ----------
    again : DataFrame
        From `second_opinion`.

    Returns
    -------
    str

    Examples
    --------
    >>> opinion_text(pd.DataFrame({"apart": [0.0, 1e-12]}))
    'The 2 costliest, computed a second time by discrete events; the times agree to 1e-12.'
    """
    if again.empty:
        return "There are no clear reversals."
    worst = again.apart.max()
    agree = f"to {worst:.0e}" if worst else "to the last digit"
    return f"The {len(again)} costliest, computed a second time by discrete events; the times agree {agree}."


def _by_events(key, num_ranks, num_microbatches, model, system, p2p):
    size = (key[0], num_ranks, num_microbatches, key[1])
    graph = compiled(*size, p2p, "excluded")
    return run_events(graph, model_costs(built(*size), model, system)).makespan_s


def _key(case):
    name, options = named(case)
    return name, tuple(options.items())
