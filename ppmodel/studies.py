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

    Yields
    ------
    str, dict, Schedule
    """
    for case in cases:
        name, options = (case, {}) if isinstance(case, str) else case
        options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        try:
            yield name, options, _built(name, num_stages, num_microbatches, tuple(options.items()))
        except ScheduleError:
            schedules.get(name)  # an unknown name is an error, an illegal size is not


def published_bubble_ratio(schedule, num_stages, num_microbatches, options=None):
    """The bubble ratio that a schedule's own paper publishes, over the total time.

    Parameters
    ----------
    schedule : str
    num_stages, num_microbatches : int
    options : dict, optional
        The schedule's options.

    Returns
    -------
    Fraction or float
        NaN where no paper publishes one.

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

    Returns
    -------
    DataFrame
        Columns ``schedule, stages, microbatches, formula, table, slots``.

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

    Returns
    -------
    DataFrame
        Columns ``schedule, cases, formula_table, formula_simulation``: absolute differences.
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

    Returns
    -------
    DataFrame
        Columns ``schedule, formula, table, simulation``.

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

    Returns
    -------
    DataFrame
        Columns ``concatenation, forward_times, bubble, peak_activations``; a forward-time is that of one
        microbatch on one stage.

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

    Returns
    -------
    DataFrame
        Columns ``schedule, device, operation, start_s, end_s``.
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
    systems : sequence of SystemSpec
    num_stages : int
    microbatches : sequence of int
        Sizes at which a schedule is not defined are left out.
    cases, p2p, allreduce
        As in `legal_schedules` and `graph.compile`.

    Returns
    -------
    DataFrame
        Columns ``system, schedule, stages, microbatches, p2p, allreduce, t_sim_s, idle_ratio,
        table_bubble_ratio, comm_over_forward, t_without_network_s``. The last but one is the time of one
        transfer over the mean forward of 1/S of the model; the last, the time if transfers took none.
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
        Columns ``system, comm_over_forward, microbatches, fastest, t_sim_s, second, over_fastest``. The
        second is the fastest of those that take longer: equal tables are not compared with each other.
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
    rows : list of str
    columns, value : str

    Returns
    -------
    DataFrame

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

    Returns
    -------
    DataFrame
        Columns ``system, microbatches, smaller_bubble, faster, time_lost``.
    """
    lost = reversals[reversals.by_network]
    lost = lost.assign(time_lost=lost.t_smaller_s / lost.t_faster_s - 1)
    worst = lost.loc[lost.groupby("system", sort=False).time_lost.idxmax()]
    return worst[["system", "microbatches", "smaller_bubble", "faster", "time_lost"]].reset_index(drop=True)


def best_split_study(model, systems, stages_list, microbatches, splits):
    """The most that an asymmetric Chimera gains on the symmetric one, under every semantics.

    Returns
    -------
    DataFrame
        Columns ``stages, p2p, gain, schedule, system, microbatches``: for each S and semantics the
        fastest split, and where; nothing where no split gains a thousandth of a percent.
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

    Returns
    -------
    DataFrame
        Columns ``stages, table, backward, blocks, network``: T_sim / base - 1 with a backward of exactly two
        forwards and fractions of blocks; what the model's own backward adds; what whole blocks add;
        what the network adds. They sum to the whole.
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

    Returns
    -------
    float
    """
    rows = relative[(relative.schedule == schedule) & relative.system.isin(systems)]
    return float(-rows.relative.min())


def reversal_counts(study):
    """At how many B of each system an order is reversed, and by the network; see `reversal_study`.

    Returns
    -------
    DataFrame
        Columns ``system, comm_over_forward, points, reversed, reversed_by_network``.
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
        Columns ``system, stages, microbatches, smaller_bubble, bubble_smaller, t_smaller_s, faster,
        bubble_faster, t_faster_s, by_network``. Equal bubbles are no order, so GPipe and 1F1B cannot be
        reversed. The network is the cause where the order without it is that of the bubbles; else the
        cause is that a backward of the model is not exactly two forwards long.
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

    Returns
    -------
    DataFrame
        Columns ``against, allreduce, smaller_bubble, not_faster, systems``: at how many points (system, B)
        Chimera has the smaller bubble, at how many of these it takes at least as long, and on which
        systems.
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

    Returns
    -------
    DataFrame
        One row a system and semantics, one column a schedule (seconds).
    """
    studies = [runtime_study(model, systems, num_stages, [num_microbatches], cases, p2p) for p2p in P2P]
    study = pd.concat(studies)
    order = list(dict.fromkeys(study.schedule))
    table = study.pivot(index=["system", "p2p"], columns="schedule", values="t_sim_s")[order]
    index = [(system.name, p2p) for system in systems for p2p in P2P]
    return table.reindex(index).rename_axis(columns=None).reset_index()


def allreduce_study(model, systems, num_stages, microbatches, base="gpipe"):
    """Chimera against a base schedule, with and without the all-reduce of its replicas' gradients.

    Returns
    -------
    DataFrame
        One row a system and B, one column each way of `graph.ALLREDUCE`: T_sim / base - 1.
    """
    columns = {}
    for allreduce in ALLREDUCE:
        study = runtime_study(model, systems, num_stages, microbatches, [base, "chimera"], allreduce=allreduce)
        columns[allreduce] = relative_to(study, label(base)).set_index(["system", "microbatches"]).relative
    return pd.DataFrame(columns).reset_index()


def timeline_study(timelines, model, system):
    """Some timelines in numbers, each beside a run without the network and one by discrete events.

    Returns
    -------
    DataFrame
        Columns ``schedule, t_sim_s, t_sim_events_s, t_without_network_s, idle_ratio, peak_activations``.
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

    Returns
    -------
    DataFrame
        The rows of the other schedules, with a column ``relative``: value / base - 1, negative where
        they are faster.
    """
    keys = ["system", "stages", "microbatches"]
    bases = table.loc[table.schedule == base, [*keys, value]].rename(columns={value: "base"})
    merged = table[table.schedule != base].merge(bases, on=keys)
    return merged.assign(relative=merged[value] / merged["base"] - 1)


def memory_study(model, system, stages_list, microbatches, cases=PAPER_SCHEDULES):
    """Peak activations and persistent state of the fullest device.

    Returns
    -------
    DataFrame
        Columns ``schedule, stages, microbatches, activations_bytes, persistent_bytes, total_bytes,
        messages, sent_bytes``: the maximum over the devices, and what all devices send together.
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
    """A memory study with bytes in TiB, as a page shows it."""
    tib = 2**40
    return pd.DataFrame({
        "schedule": study.schedule, "stages": study.stages, "microbatches": study.microbatches,
        "activations (TiB)": study.activations_bytes / tib, "persistent (TiB)": study.persistent_bytes / tib,
        "messages": study.messages, "sent (TiB)": study.sent_bytes / tib,
    })  # fmt: skip


def unit_peaks(cases, num_stages, num_microbatches):
    """Peak activations device by device, in units of one microbatch on 1/S of the model.

    Returns
    -------
    DataFrame
        One row a schedule, one column a device.

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
    """Asymmetric Chimera relative to the symmetric base; see `relative_to`."""
    cases = ["chimera"] + [("asymmetric-chimera", {"split": split}) for split in splits]
    studies = [runtime_study(model, systems, num_stages, microbatches, cases, p2p) for num_stages in stages_list]
    return relative_to(pd.concat(studies), "Chimera")


def hanayo_tables(num_stages, waves):
    """Chimera and Hanayo at B = S without communication.

    Returns
    -------
    DataFrame
        Columns ``schedule, forward_times, bubble, formula, peak_activations``.
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
    """Hanayo relative to Chimera at B = S, with Chimera's idle ratio beside its own."""
    cases = ["chimera"] + [("hanayo", {"waves": count}) for count in waves]
    study = runtime_study(model, systems, num_stages, [num_stages], cases, p2p)
    relative = relative_to(study, "Chimera")
    base = study[study.schedule == "Chimera"].set_index("system").idle_ratio
    return relative.assign(idle_ratio_base=relative.system.map(base))


def hanayo_gains(study, schedule):
    """Our values for the published numbers of Table I, as far as the study has their systems.

    Idle ratios are medians over the systems with a fast or middle network, gains their extremes.
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

    Returns
    -------
    DataFrame
        Columns ``model, system, forward_s, backward_s, transfer_s, comm_over_forward,
        backward_over_forward``.
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
    """How many values of each specification are of which kind of source."""
    counts = {spec.name: pd.Series([entry.kind for entry in spec.provenance]).value_counts() for spec in specs}
    kinds = list(get_args(Kind))
    table = pd.DataFrame(counts).reindex(kinds).fillna(0).astype(int).T
    return table.rename_axis("specification").reset_index()


def specification_table(spec):
    """Every value of a model or system with the kind of its source.

    Returns
    -------
    DataFrame
        Columns ``field, value, unit, kind, source``.
    """
    return pd.DataFrame(spec.provenance)


def published(figure=None):
    """The numbers that the paper publishes, as far as they are known, with their kind of source.

    Returns
    -------
    DataFrame
        Indexed by ``id``; columns ``figure, quantity, value, kind, source``.
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
        Columns ``figure, quantity, published, kind, ours, difference``.

    Raises
    ------
    PPModelError
        If an id is not a published number.
    """
    numbers = published()
    for key in ours:
        if key not in numbers.index:
            raise PPModelError("id", key, "is not a published number", f"choose one of {', '.join(numbers.index)}")
    table = numbers.loc[list(ours), ["figure", "quantity", "value", "kind"]].rename(columns={"value": "published"})
    table["ours"] = [float(value) for value in ours.values()]
    return table.assign(difference=table.ours - table.published).reset_index(drop=True)
