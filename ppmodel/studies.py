"""The tables behind the book's figures: one function a question, one tidy row a point."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations
from typing import get_args

import pandas as pd

from ppmodel import formulas, schedules
from ppmodel.costs import message_bytes, model_costs, stages, uniform_costs
from ppmodel.engine import simulate, simulate_events
from ppmodel.errors import PPModelError, ScheduleError
from ppmodel.graph import ALLREDUCE, P2P, compile
from ppmodel.metrics import idle_ratio, memory, messages_sent, peak_activations, table_bubble_ratio, table_slots
from ppmodel.ops import OpKind
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.specs import DATA, Kind

PAPER_SCHEDULES = ("gpipe", "1f1b", "chimera")

_TIE = 1e-9
_NO_GAIN = 1e-5
_SYMBOLS = {"microbatches": "B", "stages": "S"}

_TITLES = {"gpipe": "GPipe", "1f1b": "1F1B", "eager-1f1b": "eager 1F1B", "chimera": "Chimera", "hanayo": "Hanayo",
           "asymmetric-chimera": "asymmetric Chimera"}  # fmt: skip


def label(name, options=None):
    """A schedule and its options as they are printed in figures.

    Parameters
    ----------
    name : str
        Name of the schedule.
    options : dict, optional
        Its options, where they differ from the defaults.

    Returns
    -------
    str

    Examples
    --------
    >>> label("hanayo", {"waves": 2}), label("asymmetric-chimera", {"split": (1, 2)})
    ('Hanayo W = 2', 'asymmetric Chimera 1:2')
    """
    words = [_TITLES.get(name, name)]
    for key, value in (options or {}).items():
        ratio = ":".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"W = {value}" if key == "waves" else ratio)
    return " ".join(words)


@cache
def _built(name, num_stages, num_microbatches, options):
    return schedules.build(name, num_stages, num_microbatches, **dict(options))


@cache
def _compiled(name, num_stages, num_microbatches, options, p2p, allreduce):
    return compile(_built(name, num_stages, num_microbatches, options), p2p, allreduce)


def legal_schedules(cases, num_stages, num_microbatches):
    """Those of some schedules that are defined at a size.

    Parameters
    ----------
    cases : iterable of str or (str, dict)
        Names, with options where they differ from the defaults.
    num_stages, num_microbatches : int
        Devices S and microbatches B.

    Yields
    ------
    name : str
    options : dict
        Lists in it become tuples.
    schedule : Schedule

    Raises
    ------
    ScheduleError
        If a name is unknown; a case that is illegal at the size is left out.

    Examples
    --------
    >>> [name for name, _, _ in legal_schedules(["gpipe", "chimera"], 4, 6)]
    ['gpipe']
    """
    _built("gpipe", num_stages, num_microbatches, ())  # legal everywhere: refuses what is no size at all
    for case in cases:
        name, options = (case, {}) if isinstance(case, str) else case
        options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        try:
            yield name, options, _built(name, num_stages, num_microbatches, tuple(options.items()))
        except ScheduleError as error:
            if error.field not in ("stages", "microbatches"):
                raise  # an unknown name or option is an error, an illegal size is not


def published_bubble_ratio(schedule, num_stages, num_microbatches, options=None):
    """The bubble ratio that a schedule's own paper publishes, over the total time.

    Parameters
    ----------
    schedule : str
        Name of the schedule.
    num_stages, num_microbatches : int
        Devices S and microbatches B.
    options : dict, optional
        The schedule's options.

    Returns
    -------
    Fraction or float
        Idle time over the total time; NaN where no paper publishes one.

    Examples
    --------
    >>> published_bubble_ratio("chimera", 8, 16)
    Fraction(3, 19)
    >>> published_bubble_ratio("hanayo", 8, 8, {"waves": 2})
    Fraction(14, 55)
    """
    options, size = options or {}, (num_stages, num_microbatches)
    if schedule in ("gpipe", "1f1b", "eager-1f1b"):
        return formulas.bubble_ratio_gpipe(*size)
    if schedule == "hanayo":
        return formulas.bubble_ratio_hanayo(num_stages, options.get("waves", 1))
    if schedule == "chimera" and (options.get("concat", "direct") == "direct" or num_stages == num_microbatches):
        return formulas.bubble_ratio_chimera_equal(*size)
    if schedule == "chimera" and options["concat"] == "forward-doubling":
        return formulas.bubble_ratio_chimera_doubling(*size)
    return float("nan")


def bubble_study(num_stages, microbatches, cases=PAPER_SCHEDULES):
    """Bubble ratio by published formula and from the idealised table, over the total time.

    Parameters
    ----------
    num_stages : int
        Devices, S.
    microbatches : iterable of int
        Values of B. Sizes at which a schedule is not defined are left out.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.

    Returns
    -------
    DataFrame
        One row a B and schedule; columns ``schedule, stages, microbatches, formula, table, slots``: two ratios
        of the total time, and the length of the table with a backward of two slots.

    Raises
    ------
    ScheduleError
        If a name is unknown.

    Examples
    --------
    >>> bubble_study(8, [16], ["chimera"]).round(3).to_dict("records")[0]["table"]
    0.273
    """
    rows = []
    for count in microbatches:
        for name, options, schedule in legal_schedules(cases, num_stages, count):
            formula = published_bubble_ratio(name, num_stages, count, options)
            rows.append({
                "schedule": label(name, options), "stages": num_stages, "microbatches": count,
                "formula": float(formula), "table": table_bubble_ratio(schedule), "slots": table_slots(schedule),
            })  # fmt: skip
    return pd.DataFrame(rows)


def agreement_study(max_stages, max_microbatches):
    """Largest difference between formula, table and simulation of GPipe and 1F1B without communication.

    Every S and B up to the given ones, F = 1 and Bw = 2; the formula is exact, a `Fraction`.

    Parameters
    ----------
    max_stages, max_microbatches : int
        Largest S and B; both count from 1.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, cases, formula_table, formula_simulation``: the number of sizes,
        and absolute differences of bubble ratios.

    Examples
    --------
    >>> agreement_study(2, 2)[["schedule", "cases", "formula_table"]].values.tolist()
    [['GPipe', 4, 0.0], ['1F1B', 4, 0.0]]
    """
    rows = []
    for name in ("gpipe", "1f1b"):
        worst = [Fraction(0), 0.0]
        for num_stages in range(1, max_stages + 1):
            for count in range(1, max_microbatches + 1):
                schedule = schedules.build(name, num_stages, count)
                formula = published_bubble_ratio(name, num_stages, count)
                table = 1 - Fraction(3 * count, table_slots(schedule))
                simulated = idle_ratio(simulate(compile(schedule), uniform_costs(schedule, 1, 2)))
                worst = [max(worst[0], abs(formula - table)), max(worst[1], abs(float(formula) - simulated))]
        rows.append({
            "schedule": label(name), "cases": max_stages * max_microbatches,
            "formula_table": float(worst[0]), "formula_simulation": float(worst[1]),
        })  # fmt: skip
    return pd.DataFrame(rows)


def level_study(names, num_stages, num_microbatches):
    """The bubble ratio at the three levels without communication: formula, table, simulation.

    Parameters
    ----------
    names : iterable of str or (str, dict)
        As the cases of `legal_schedules`.
    num_stages, num_microbatches : int
        Devices S and microbatches B.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, formula, table, simulation``: ratios of the total time with a
        backward of two forwards.

    Raises
    ------
    ScheduleError
        If a name is unknown.

    Examples
    --------
    >>> level_study(["gpipe"], 4, 4).round(3).values.tolist()
    [['GPipe', 0.429, 0.429, 0.429]]
    """
    rows = []
    for name, options, schedule in legal_schedules(names, num_stages, num_microbatches):
        simulated = simulate(compile(schedule), uniform_costs(schedule, forward=1, backward=2))
        rows.append({
            "schedule": label(name, options),
            "formula": float(published_bubble_ratio(name, num_stages, num_microbatches, options)),
            "table": table_bubble_ratio(schedule), "simulation": idle_ratio(simulated),
        })  # fmt: skip
    return pd.DataFrame(rows)


def concatenation_study(num_stages, num_microbatches):
    """Chimera's ways of following one unit by the next: table length, bubble and peak activations.

    Parameters
    ----------
    num_stages, num_microbatches : int
        Devices S and microbatches B, at which every way is defined: S even, and B = S or 2S dividing B.

    Returns
    -------
    DataFrame
        One row a way; columns ``concatenation, forward_times, bubble, peak_activations``. A forward-time is
        that of one microbatch on one stage; peak activations are those of the fullest device in units of one
        microbatch on 1/S of the model.

    Raises
    ------
    ScheduleError
        If a way is not defined at the size.

    Examples
    --------
    >>> concatenation_study(8, 16).forward_times.tolist()
    [66.0, 65.0, 60.0, 54.0]
    """
    rows = []
    for way in CONCATENATIONS:
        schedule = _built("chimera", num_stages, num_microbatches, (("concat", way),))
        rows.append({
            "concatenation": way, "forward_times": table_slots(schedule) / schedule.microbatch_parts,
            "bubble": table_bubble_ratio(schedule), "peak_activations": peak_activations(schedule).max(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def operations_table(timelines):
    """Every operation of some timelines with its start and end.

    Parameters
    ----------
    timelines : dict of str to Timeline
        Label to timeline; at least one.

    Returns
    -------
    DataFrame
        One row an operation; columns ``schedule, device, operation, start_s, end_s``. The last two are in
        seconds, NaN for reductions that a timeline excludes.

    Examples
    --------
    >>> schedule = schedules.build("gpipe", 1, 1)
    >>> timeline = simulate(compile(schedule), uniform_costs(schedule, forward=1, backward=2))
    >>> operations_table({"GPipe": timeline}).values.tolist()
    [['GPipe', 0, '0F0', 0.0, 1.0], ['GPipe', 0, '0B0', 1.0, 3.0]]
    """
    tables = []
    for name, timeline in timelines.items():
        schedule = timeline.graph.schedule
        operations = [str(schedule.op(index)) for index in range(schedule.num_operations)]
        tables.append(pd.DataFrame({
            "schedule": name, "device": schedule.device, "operation": operations,
            "start_s": timeline.start_s, "end_s": timeline.end_s,
        }))  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def runtime_study(
    model, systems, num_stages, microbatches, cases=PAPER_SCHEDULES, p2p="overlapped", allreduce="excluded"
):
    """Simulated time and idle time of one minibatch, on several systems.

    Parameters
    ----------
    model : ModelSpec
        The model; its global batch is fixed, so that microbatches shrink as B grows.
    systems : sequence of SystemSpec
        The systems.
    num_stages : int
        Devices, S.
    microbatches : sequence of int
        Values of B. Sizes at which a schedule is not defined are left out.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    p2p, allreduce : str
        Communication semantics, as in `graph.compile`.

    Returns
    -------
    DataFrame
        One row a B, schedule and system; columns ``system, schedule, stages, microbatches, p2p, allreduce,
        t_sim_s, idle_ratio, table_bubble_ratio, comm_over_forward, t_without_network_s``. Times are in seconds,
        idle time and bubble are ratios of the total. The last but one is the time of one transfer over the mean
        forward of 1/S of the model; the last, the time if transfers took none.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    PPModelError
        If a semantics is unknown.
    """
    rows = []
    for count in microbatches:
        for name, options, schedule in legal_schedules(cases, num_stages, count):
            graph = _compiled(name, num_stages, count, tuple(options.items()), p2p, allreduce)
            bubble = table_bubble_ratio(schedule)
            for system in systems:
                costs = model_costs(schedule, model, system)
                timeline, silent = simulate(graph, costs), simulate(graph, _without_network(costs))
                transfer = (costs.occupancy_s[0, 0] + costs.latency_s[0, 0]) * schedule.microbatch_parts
                forward = costs.compute_s[0].sum() / num_stages * schedule.microbatch_parts
                rows.append({
                    "system": system.name, "schedule": label(name, options), "stages": num_stages,
                    "microbatches": count, "p2p": p2p, "allreduce": allreduce, "t_sim_s": timeline.makespan_s,
                    "idle_ratio": idle_ratio(timeline), "table_bubble_ratio": bubble,
                    "comm_over_forward": transfer / forward, "t_without_network_s": silent.makespan_s,
                })  # fmt: skip
    return pd.DataFrame(rows)


def _without_network(costs):
    """The same costs with transfers and all-reduces that take no time."""
    compute = costs.compute_s.copy()
    compute[OpKind.R] = 0
    return replace(costs, compute_s=compute, occupancy_s=0 * costs.occupancy_s, latency_s=0 * costs.latency_s)


def best_study(study):
    """The fastest schedule of each system and B, and how much slower the second is.

    Parameters
    ----------
    study : DataFrame
        From `runtime_study`.

    Returns
    -------
    DataFrame
        One row a system and B; columns ``system, comm_over_forward, microbatches, fastest, t_sim_s, second,
        over_fastest``. The second is the fastest of those that take longer: equal tables are not compared with
        each other. ``t_sim_s`` is the time of the fastest in seconds, ``over_fastest`` the second's over it
        less 1; without a second it is NaN.
    """
    rows = []
    for (system, count), group in study.groupby(["system", "microbatches"], sort=False):
        first, *others = group.sort_values(["t_sim_s", "schedule"]).itertuples()
        slower = [row for row in others if row.t_sim_s > first.t_sim_s * (1 + _TIE)]
        transfer = study.loc[study.system == system, "comm_over_forward"].median()
        rows.append({
            "system": system, "comm_over_forward": transfer, "microbatches": count,
            "fastest": first.schedule, "t_sim_s": first.t_sim_s, "second": slower[0].schedule if slower else None,
            "over_fastest": slower[0].t_sim_s / first.t_sim_s - 1 if slower else float("nan"),
        })  # fmt: skip
    return pd.DataFrame(rows)


def spread(table, rows, columns, value):
    """A long table as a grid: one row for each of some columns' values, in order of appearance.

    Parameters
    ----------
    table : DataFrame
        One row a point.
    rows : list of str
        Columns whose values tell the rows of the grid apart.
    columns, value : str
        The column whose values become columns, and the one that fills the grid.

    Returns
    -------
    DataFrame
        The columns `rows`, then one for each value of `columns`; a number gets its symbol before it
        (``B = 8``).

    Examples
    --------
    >>> long = pd.DataFrame({"S": [4, 4], "schedule": ["b", "a"], "slots": [1, 2]})
    >>> spread(long, ["S"], "schedule", "slots").to_dict("records")
    [{'S': 4, 'b': 1, 'a': 2}]
    """
    order = list(dict.fromkeys(table[columns]))
    grid = table.pivot_table(index=rows, columns=columns, values=value, aggfunc="first", sort=False)
    grid = grid[order]
    grid.columns = [name if isinstance(name, str) else f"{_SYMBOLS.get(columns, columns)} = {name}" for name in order]
    return grid.reset_index()


def worst_reversals(reversals):
    """For each system, the reversal by the network in which the smaller bubble costs most time.

    Parameters
    ----------
    reversals : DataFrame
        From `reversal_study`.

    Returns
    -------
    DataFrame
        One row a system that has such a reversal; columns ``system, microbatches, smaller_bubble, faster,
        time_lost``. The last is the time of the smaller bubble over that of the faster schedule, less 1.
    """
    lost = reversals[reversals.by_network]
    lost = lost.assign(time_lost=lost.t_smaller_s / lost.t_faster_s - 1)
    worst = lost.loc[lost.groupby("system", sort=False).time_lost.idxmax()]
    return worst[["system", "microbatches", "smaller_bubble", "faster", "time_lost"]].reset_index(drop=True)


def best_split_study(model, systems, stages_list, microbatches, splits):
    """The most that an asymmetric Chimera gains on the symmetric one, under every semantics.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    stages_list, microbatches : sequence of int
        Values of S and of B.
    splits : sequence of (int, int)
        Blocks of the front and of the back half of the pipeline, a : b.

    Returns
    -------
    DataFrame
        One row an S and semantics; columns ``stages, p2p, gain, schedule, system, microbatches``: the
        fastest split, and where; nothing where no split gains a thousandth of a percent. The gain is 1 - T_sim
        / T_sim of the symmetric one.

    Raises
    ------
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for p2p in P2P:
        study = asymmetric_study(model, systems, stages_list, microbatches, splits, p2p)
        for num_stages, group in study.groupby("stages", sort=False):
            best = group.loc[group.relative.idxmin()]
            row = {"stages": num_stages, "p2p": p2p, "gain": 0.0, "schedule": "none", "system": "", "microbatches": ""}
            if best.relative < -_NO_GAIN:
                row |= {"gain": -best.relative, "schedule": best.schedule, "system": best.system,
                        "microbatches": str(best.microbatches)}  # fmt: skip
            rows.append(row)
    return pd.DataFrame(rows).sort_values("stages", kind="stable", ignore_index=True)


def asymmetric_causes(model, system, stages_list, num_microbatches, split):
    """What an asymmetric split costs against the symmetric base, cause by cause.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        The system.
    stages_list : sequence of int
        Values of S, each even.
    num_microbatches : int
        Microbatches, B; a multiple of each S.
    split : (int, int)
        Blocks of the front and of the back half of the pipeline, a : b.

    Returns
    -------
    DataFrame
        One row an S; columns ``stages, table, backward, blocks, network``: T_sim / base - 1 with a backward of
        exactly two forwards and fractions of blocks; what the model's own backward adds; what whole blocks add;
        what the network adds. They sum to the whole.

    Raises
    ------
    ScheduleError
        If a schedule is not defined at a size, or the split is illegal.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for num_stages in stages_list:
        base = _built("chimera", num_stages, num_microbatches, ())
        uneven = _built("asymmetric-chimera", num_stages, num_microbatches, (("split", tuple(split)),))
        forward, backward = model_costs(base, model, system).compute_s[:2, 0]

        def over(costs, base=base, uneven=uneven):
            times = [simulate(compile(schedule), costs(schedule)).makespan_s for schedule in (uneven, base)]
            return times[0] / times[1] - 1

        steps = [
            over(lambda schedule: uniform_costs(schedule, 1, 2)),
            over(lambda schedule, f=forward, b=backward: uniform_costs(schedule, f, b)),
            over(lambda schedule: _without_network(model_costs(schedule, model, system))),
            over(lambda schedule: model_costs(schedule, model, system)),
        ]
        added = [later - earlier for earlier, later in pairwise([0.0, *steps])]
        rows.append(dict(zip(["stages", "table", "backward", "blocks", "network"], [num_stages, *added], strict=True)))
    return pd.DataFrame(rows)


def largest_gain(relative, schedule, systems):
    """The most that a schedule is faster than the base, over some systems; negative if it never is.

    Parameters
    ----------
    relative : DataFrame
        From `relative_to`.
    schedule : str
        Label of the schedule.
    systems : sequence of str
        Names of the systems.

    Returns
    -------
    float
        1 - T_sim / base where that is largest; NaN where the table has no such row.

    Examples
    --------
    >>> table = pd.DataFrame({"schedule": ["Chimera"] * 2, "system": ["a", "b"], "relative": [-0.25, 0.5]})
    >>> largest_gain(table, "Chimera", ["a", "b"]), largest_gain(table, "Chimera", ["b"])
    (0.25, -0.5)
    """
    rows = relative[(relative.schedule == schedule) & relative.system.isin(systems)]
    return float(-rows.relative.min())


def reversal_counts(study):
    """At how many B of each system an order is reversed, and by the network; see `reversal_study`.

    Parameters
    ----------
    study : DataFrame
        From `runtime_study`.

    Returns
    -------
    DataFrame
        One row a system; columns ``system, comm_over_forward, points, reversed, reversed_by_network``: the
        median over the system's rows, and three numbers of B.
    """
    reversals = reversal_study(study)
    rows = []
    for system, group in study.groupby("system", sort=False):
        mine = reversals[reversals.system == system]
        rows.append({
            "system": system, "comm_over_forward": group.comm_over_forward.median(),
            "points": group.microbatches.nunique(), "reversed": mine.microbatches.nunique(),
            "reversed_by_network": mine[mine.by_network].microbatches.nunique(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def reversal_study(study):
    """Pairs of schedules whose order by bubble ratio is not their order by simulated time.

    Parameters
    ----------
    study : DataFrame
        From `runtime_study`.

    Returns
    -------
    DataFrame
        One row a pair, system, S and B; columns ``system, stages, microbatches, smaller_bubble, bubble_smaller,
        t_smaller_s, faster, bubble_faster, t_faster_s, by_network``, times in seconds. Equal bubbles are no
        order, so GPipe and 1F1B cannot be reversed. The network is the cause where the order without it is
        that of the bubbles; else the cause is that a backward of the model is not exactly two forwards long.
    """
    columns = ["system", "stages", "microbatches", "smaller_bubble", "bubble_smaller", "t_smaller_s",
               "faster", "bubble_faster", "t_faster_s", "by_network"]  # fmt: skip
    rows = []
    for (system, size, count), group in study.groupby(["system", "stages", "microbatches"], sort=False):
        for a, b in permutations(group.itertuples(), 2):
            if a.table_bubble_ratio < b.table_bubble_ratio - _TIE and a.t_sim_s > b.t_sim_s * (1 + _TIE):
                by_network = a.t_without_network_s <= b.t_without_network_s * (1 + _TIE)
                rows.append((system, size, count, a.schedule, a.table_bubble_ratio, a.t_sim_s,
                             b.schedule, b.table_bubble_ratio, b.t_sim_s, by_network))  # fmt: skip
    return pd.DataFrame(rows, columns=columns).astype({"by_network": bool})


def negation_study(model, systems, num_stages, microbatches, bases=("gpipe", "1f1b")):
    """Where Chimera's smaller bubble does not make it faster, with and without its all-reduce.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_stages : int
        Devices, S.
    microbatches : sequence of int
        Values of B. Sizes at which a schedule is not defined are left out.
    bases : iterable of str
        Names of the schedules that Chimera is held against.

    Returns
    -------
    DataFrame
        One row a base and way of `graph.ALLREDUCE`; columns ``against, allreduce, smaller_bubble, not_faster,
        systems``: at how many points (system, B) Chimera has the smaller bubble, at how many of these it takes
        at least as long, and on which systems.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for base in bases:
        for allreduce in ALLREDUCE:
            study = runtime_study(model, systems, num_stages, microbatches, [base, "chimera"], allreduce=allreduce)
            bubbles = relative_to(study, label(base), "table_bubble_ratio").relative
            times = relative_to(study, label(base))
            smaller = times[bubbles < -_TIE]
            lost = smaller[smaller.relative >= 0]
            rows.append({
                "against": label(base), "allreduce": allreduce, "smaller_bubble": len(smaller),
                "not_faster": len(lost), "systems": ", ".join(dict.fromkeys(lost.system)),
            })  # fmt: skip
    return pd.DataFrame(rows)


def semantics_study(model, systems, num_stages, num_microbatches, cases=("gpipe", "1f1b", "eager-1f1b", "chimera")):
    """Simulated time under all five communication semantics.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_stages, num_microbatches : int
        Devices S and microbatches B.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.

    Returns
    -------
    DataFrame
        One row a system and semantics, one column a schedule (seconds).

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    studies = [runtime_study(model, systems, num_stages, [num_microbatches], cases, p2p) for p2p in P2P]
    study = pd.concat(studies)
    order = list(dict.fromkeys(study.schedule))
    table = study.pivot(index=["system", "p2p"], columns="schedule", values="t_sim_s")[order]
    index = [(system.name, p2p) for system in systems for p2p in P2P]
    return table.reindex(index).rename_axis(columns=None).reset_index()


def allreduce_study(model, systems, num_stages, microbatches, base="gpipe"):
    """Chimera against a base schedule, with and without the all-reduce of its replicas' gradients.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_stages : int
        Devices, S.
    microbatches : sequence of int
        Values of B. Sizes at which a schedule is not defined are left out.
    base : str
        Name of the schedule that Chimera is held against.

    Returns
    -------
    DataFrame
        One row a system and B, one column each way of `graph.ALLREDUCE`: T_sim / base - 1.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    columns = {}
    for allreduce in ALLREDUCE:
        study = runtime_study(model, systems, num_stages, microbatches, [base, "chimera"], allreduce=allreduce)
        columns[allreduce] = relative_to(study, label(base)).set_index(["system", "microbatches"]).relative
    return pd.DataFrame(columns).reset_index()


def timeline_study(timelines, model, system):
    """Some timelines in numbers, each beside a run without the network and one by discrete events.

    Parameters
    ----------
    timelines : dict of str to Timeline
        Label to timeline.
    model : ModelSpec
        The model of the timelines.
    system : SystemSpec
        The system of the timelines.

    Returns
    -------
    DataFrame
        One row a timeline; columns ``schedule, t_sim_s, t_sim_events_s, t_without_network_s, idle_ratio,
        peak_activations``. Times are in seconds, idle time is a ratio of the total, peak activations are those
        of the fullest device in units of one microbatch on 1/S of the model.

    Raises
    ------
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for name, timeline in timelines.items():
        schedule = timeline.graph.schedule
        costs = model_costs(schedule, model, system)
        rows.append({
            "schedule": name, "t_sim_s": timeline.makespan_s,
            "t_sim_events_s": simulate_events(timeline.graph, costs).makespan_s,
            "t_without_network_s": simulate(timeline.graph, _without_network(costs)).makespan_s,
            "idle_ratio": idle_ratio(timeline), "peak_activations": peak_activations(schedule).max(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def relative_to(table, base, value="t_sim_s"):
    """Each row's value relative to that of another schedule on the same system and size.

    Parameters
    ----------
    table : DataFrame
        With ``system, stages, microbatches, schedule`` and the column `value`.
    base : str
        The schedule, by its label, to compare with.
    value : str
        The column to compare; simulated time by default.

    Returns
    -------
    DataFrame
        The rows of the other schedules, with a column ``relative``: value / base - 1, negative where
        they are faster.

    Examples
    --------
    >>> table = pd.DataFrame({"schedule": ["GPipe", "Chimera"], "t_sim_s": [4.0, 3.0]})
    >>> table = table.assign(system="mid", stages=4, microbatches=8)
    >>> relative_to(table, "GPipe").relative.tolist()
    [-0.25]
    """
    keys = ["system", "stages", "microbatches"]
    bases = table.loc[table.schedule == base, [*keys, value]].rename(columns={value: "base"})
    merged = table[table.schedule != base].merge(bases, on=keys)
    return merged.assign(relative=merged[value] / merged["base"] - 1)


def memory_study(model, system, stages_list, microbatches, cases=PAPER_SCHEDULES):
    """Peak activations and persistent state of the fullest device.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        The system; bytes do not depend on it.
    stages_list, microbatches : sequence of int
        Values of S and of B. Sizes at which a schedule is not defined are left out.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.

    Returns
    -------
    DataFrame
        One row an S, B and schedule; columns ``schedule, stages, microbatches, activations_bytes,
        persistent_bytes, total_bytes, messages, sent_bytes``: the maximum over the devices, and what all devices
        send together in one iteration.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for num_stages in stages_list:
        for count in microbatches:
            for name, options, schedule in legal_schedules(cases, num_stages, count):
                held = memory(schedule, model, stages(schedule, model, system))
                messages = int(messages_sent(schedule).sum())
                rows.append({
                    "schedule": label(name, options), "stages": num_stages, "microbatches": count,
                    "activations_bytes": held.activations.max(), "persistent_bytes": held.persistent.max(),
                    "total_bytes": held.total.max(), "messages": messages,
                    "sent_bytes": messages * message_bytes(schedule, model),
                })  # fmt: skip
    return pd.DataFrame(rows)


def memory_in_tib(study):
    """A memory study with bytes in TiB, as a page shows it.

    Parameters
    ----------
    study : DataFrame
        From `memory_study`, in bytes.

    Returns
    -------
    DataFrame
        Columns ``schedule, stages, microbatches, activations (TiB), persistent (TiB), messages, sent (TiB)``;
        1 TiB is 2**40 bytes.
    """
    tib = 2**40
    return pd.DataFrame({
        "schedule": study.schedule, "stages": study.stages, "microbatches": study.microbatches,
        "activations (TiB)": study.activations_bytes / tib, "persistent (TiB)": study.persistent_bytes / tib,
        "messages": study.messages, "sent (TiB)": study.sent_bytes / tib,
    })  # fmt: skip


def unit_peaks(cases, num_stages, num_microbatches):
    """Peak activations device by device, in units of one microbatch on 1/S of the model.

    Parameters
    ----------
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    num_stages, num_microbatches : int
        Devices S and microbatches B.

    Returns
    -------
    DataFrame
        One row a schedule, one column a device.

    Raises
    ------
    ScheduleError
        If a name is unknown.

    Examples
    --------
    >>> unit_peaks(["1f1b"], 3, 3).values.tolist()
    [['1F1B', 3.0, 2.0, 1.0]]
    """
    rows = []
    for name, options, schedule in legal_schedules(cases, num_stages, num_microbatches):
        devices = {f"device {d}": peak for d, peak in enumerate(peak_activations(schedule).tolist())}
        rows.append({"schedule": label(name, options), **devices})
    return pd.DataFrame(rows)


def asymmetric_study(model, systems, stages_list, microbatches, splits, p2p="overlapped"):
    """Asymmetric Chimera relative to the symmetric base; see `relative_to`.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    stages_list, microbatches : sequence of int
        Values of S and of B. Sizes at which a schedule is not defined are left out.
    splits : sequence of (int, int)
        Blocks of the front and of the back half of the pipeline, a : b.
    p2p : str
        Communication semantics, one of `graph.P2P`.

    Returns
    -------
    DataFrame
        The columns of `runtime_study` and ``base, relative``: the base's time in seconds, and T_sim / base - 1.

    Raises
    ------
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    PPModelError
        If a semantics is unknown.
    """
    cases = ["chimera"] + [("asymmetric-chimera", {"split": split}) for split in splits]
    studies = [runtime_study(model, systems, num_stages, microbatches, cases, p2p) for num_stages in stages_list]
    return relative_to(pd.concat(studies), "Chimera")


def hanayo_tables(num_stages, waves):
    """Chimera and Hanayo at B = S without communication.

    Parameters
    ----------
    num_stages : int
        Devices S, and microbatches.
    waves : iterable of int
        Waves of Hanayo, W.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, forward_times, bubble, formula, peak_activations``. A
        forward-time is that of one microbatch on 1/S of the model; bubble and formula are ratios of the total
        time; peak activations are those of the fullest device in units of one microbatch on 1/S of the model.

    Examples
    --------
    >>> hanayo_tables(4, [1, 2]).forward_times.tolist()
    [16.0, 18.0, 15.25]
    """
    rows = []
    cases = ["chimera"] + [("hanayo", {"waves": count}) for count in waves]
    for name, options, schedule in legal_schedules(cases, num_stages, num_stages):
        formula = published_bubble_ratio(name, num_stages, num_stages, options)
        rows.append({
            "schedule": label(name, options), "forward_times": table_slots(schedule) / schedule.chunks_per_device,
            "bubble": table_bubble_ratio(schedule), "formula": float(formula),
            "peak_activations": peak_activations(schedule).max(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def hanayo_study(model, systems, num_stages, waves, p2p="overlapped"):
    """Hanayo relative to Chimera at B = S, with Chimera's idle ratio beside its own.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_stages : int
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
    study = runtime_study(model, systems, num_stages, [num_stages], cases, p2p)
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


def stage_table(models, systems, num_stages, num_microbatches):
    """What the first stage of 1F1B takes, for some models and systems.

    Parameters
    ----------
    models : iterable of ModelSpec
        The models.
    systems : sequence of SystemSpec
        The systems.
    num_stages, num_microbatches : int
        Devices S and microbatches B.

    Returns
    -------
    DataFrame
        One row a model and system; columns ``model, system, forward_s, backward_s, transfer_s,
        comm_over_forward, backward_over_forward``, times in seconds for one microbatch.

    Raises
    ------
    CostError
        If a model does not fit the schedule: too few blocks, or a batch that does not divide.
    """
    schedule = _built("1f1b", num_stages, num_microbatches, ())
    rows = []
    for model in models:
        for system in systems:
            costs = model_costs(schedule, model, system)
            forward, backward = costs.compute_s[:2, 0]
            transfer = costs.occupancy_s[0, 0] + costs.latency_s[0, 0]
            rows.append({
                "model": model.name, "system": system.name, "forward_s": forward, "backward_s": backward,
                "transfer_s": transfer, "comm_over_forward": transfer / forward,
                "backward_over_forward": backward / forward,
            })  # fmt: skip
    return pd.DataFrame(rows)


def kinds_table(specs):
    """How many values of each specification are of which kind of source.

    Parameters
    ----------
    specs : iterable of ModelSpec or SystemSpec
        The specifications.

    Returns
    -------
    DataFrame
        One row a specification; columns ``specification`` and the values of `specs.Kind`.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> kinds_table([load_system("mid_cp_mid_nw")]).columns.tolist()
    ['specification', 'stated', 'digest', 'inferred', 'our choice']
    """
    counts = {spec.name: pd.Series([entry.kind for entry in spec.provenance]).value_counts() for spec in specs}
    kinds = list(get_args(Kind))
    table = pd.DataFrame(counts).reindex(kinds).fillna(0).astype(int).T
    return table.rename_axis("specification").reset_index()


def specification_table(spec):
    """Every value of a model or system with the kind of its source.

    Parameters
    ----------
    spec : ModelSpec or SystemSpec
        The specification.

    Returns
    -------
    DataFrame
        One row a value of the file, as written; columns ``field, value, unit, kind, source``.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> specification_table(load_system("mid_cp_mid_nw")).loc[0, ["field", "unit"]].tolist()
    ['peak_compute', 'PFLOP/s']
    """
    return pd.DataFrame(spec.provenance)


def published(figure=None):
    """The numbers that the paper publishes, as far as they are known, with their kind of source.

    Parameters
    ----------
    figure : str, optional
        Only those of one figure or table, by the name in the column ``figure``.

    Returns
    -------
    DataFrame
        Indexed by ``id``; columns ``figure, quantity, value, kind, source``. The values are ratios.

    Examples
    --------
    >>> published("Fig. 3").index.tolist()
    ['fig3_formula', 'fig3_table']
    """
    numbers = pd.read_csv(DATA / "reference" / "paper.csv", index_col="id")
    return numbers if figure is None else numbers[numbers.figure == figure]


def compare(ours):
    """Our numbers beside the published ones.

    Parameters
    ----------
    ours : dict
        Our value for each ``id`` of `published`.

    Returns
    -------
    DataFrame
        One row an id; columns ``figure, quantity, published, kind, ours, difference``. The last is ours less
        the published one.

    Raises
    ------
    PPModelError
        If an id is not a published number.

    Examples
    --------
    >>> compare({"fig3_table": 0.25}).round(2).loc[0, ["published", "ours", "difference"]].tolist()
    [0.26, 0.25, -0.01]
    """
    numbers = published()
    for key in ours:
        if key not in numbers.index:
            raise PPModelError("id", key, "is not a published number", f"choose one of {', '.join(numbers.index)}")
    table = numbers.loc[list(ours), ["figure", "quantity", "value", "kind"]].rename(columns={"value": "published"})
    table["ours"] = [float(value) for value in ours.values()]
    return table.assign(difference=table.ours - table.published).reset_index(drop=True)
