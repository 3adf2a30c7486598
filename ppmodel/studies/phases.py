"""Which schedule wins where: maps over the weight of communication and over B, and what moves their borders."""

from itertools import product

import numpy as np
import pandas as pd

from ppmodel.costs import uniform_costs
from ppmodel.simulation import makespans
from ppmodel.studies.cases import TIE, compiled, label, legal_schedules, table_numbers
from ppmodel.studies.times import Change, times

PHASE_SCHEDULES = ("gpipe", "1f1b", "chimera", ("hanayo", {"waves": 2}))


def phase_study(stages_list, multiples, ratios, cases=PHASE_SCHEDULES, p2p="overlapped", backward=2.0):
    """Time of some schedules over c/F, S and B, with uniform costs.

    Parameters
    ----------
    stages_list : sequence of int
        Values of S.
    multiples : sequence of int
        Values of B/S. Sizes at which a schedule is not defined are left out.
    ratios : sequence of float
        Times of a transfer in forwards, c/F.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    p2p : str
        Communication semantics.
    backward : float
        Time of a backward in forwards.

    Returns
    -------
    DataFrame
        One row an S, B, schedule and c/F; columns ``stages, microbatches, schedule, comm_over_forward, time,
        peak``: time in forwards of 1/S of the model, peak activations in microbatches on 1/S of the model.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    """
    tables = []
    for num_ranks, multiple in product(stages_list, multiples):
        count = num_ranks * multiple
        for name, options, schedule in legal_schedules(cases, num_ranks, count):
            case = (name, num_ranks, count, tuple(options.items()))
            spans = makespans(
                compiled(*case, p2p, "excluded"), [uniform_costs(schedule, 1.0, backward, ratio) for ratio in ratios]
            )
            tables.append(pd.DataFrame({
                "stages": num_ranks, "microbatches": count, "schedule": label(name, options),
                "comm_over_forward": ratios, "time": spans, "peak": table_numbers(*case).peak,
            }))  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def winners(study):
    """The fastest schedule of each point of a map, and its lead.

    Parameters
    ----------
    study : DataFrame
        From `phase_study`.

    Returns
    -------
    DataFrame
        One row an S, B and c/F; columns ``stages, microbatches, comm_over_forward, schedule, lead``. Of schedules
        that take the same time the one with the lower peak wins, then the one that stands first. The lead is the
        time of the fastest of those that take longer over the winner's, less 1; NaN where there is none.
    """
    rows = []
    for point, group in study.groupby(["stages", "microbatches", "comm_over_forward"], sort=False):
        fastest = group.time.min()
        equal = group[group.time <= fastest * (1 + TIE)]
        slower = group.time[group.time > fastest * (1 + TIE)]
        rows.append((*point, equal.schedule[equal.peak.idxmin()], slower.min() / fastest - 1))
    return pd.DataFrame(rows, columns=["stages", "microbatches", "comm_over_forward", "schedule", "lead"])


def border_study(study, pairs):
    """Where one schedule stops being faster than another: c/F at which their times cross.

    Parameters
    ----------
    study : DataFrame
        From `phase_study`.
    pairs : dict of str to (str, str, float)
        What a border is called; two labels; and a factor: the border lies where the first takes the factor times as
        long as the second.

    Returns
    -------
    DataFrame
        One row a border, S and B that has one; columns ``border, stages, microbatches, comm_over_forward``: every
        crossing, interpolated on a logarithmic axis between two points of the map.
    """
    rows = []
    for (size, count), group in study.groupby(["stages", "microbatches"], sort=False):
        times_of = {name: rows_of.set_index("comm_over_forward").time for name, rows_of in group.groupby("schedule")}
        for border, (one, other, factor) in pairs.items():
            if one in times_of and other in times_of:
                apart = np.log(times_of[one] / times_of[other] / factor)
                rows += [(border, size, count, ratio) for ratio in _crossings(apart)]
    table = pd.DataFrame(rows, columns=["border", "stages", "microbatches", "comm_over_forward"])
    return table.astype({"border": pd.CategoricalDtype(list(pairs))})  # one that no point has keeps its place


def _crossings(apart):
    """Where a curve over c/F changes its sign; rounding is no change."""
    ratios, values = np.log(apart.index.to_numpy()), np.where(abs(apart) < TIE, 0.0, apart)
    found = []
    for left in np.flatnonzero(np.sign(values[:-1]) * np.sign(values[1:]) < 0):
        share = values[left] / (values[left] - values[left + 1])
        found.append(float(np.exp(ratios[left] + share * (ratios[left + 1] - ratios[left]))))
    return found


def sensitivity_study(model, system, num_ranks, num_microbatches, cases, knobs, p2p="overlapped", base="gpipe"):
    """Time of some schedules against a base as one thing at a time is changed.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        The system.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    knobs : dict of str to (dict, sequence of float)
        What is turned: the name of a panel; fields of `times.Change` that are set with ``"value"`` in place of the
        value, and ``allreduce`` where another than ``excluded`` is meant; and the values.
    p2p : str
        Communication semantics.
    base : str
        Name of the schedule that times are relative to.

    Returns
    -------
    DataFrame
        One row a knob, value and schedule; columns ``knob, value, schedule, t_sim_s, relative``: T / T of the base
        under the same change - 1.

    Raises
    ------
    CostError
        If the model does not fit a schedule.
    """
    rows = []
    for knob, (fields, values) in knobs.items():
        fields = dict(fields)
        allreduce = fields.pop("allreduce", "excluded")
        changes = [_change(fields, value) for value in values]
        size = (num_ranks, num_microbatches, model, [system], p2p, allreduce, changes)
        reference = times((base, ()), *size).t_sim_s[:, 0]
        for name, options, _ in legal_schedules(cases, num_ranks, num_microbatches):
            spans = times((name, tuple(options.items())), *size).t_sim_s[:, 0]
            rows += [
                {"knob": knob, "value": value, "schedule": label(name, options), "t_sim_s": span, "relative": apart}
                for value, span, apart in zip(values, spans.tolist(), (spans / reference - 1).tolist(), strict=True)
            ]
    return pd.DataFrame(rows)


def _change(fields, value):
    """A change with a knob's value in the fields that ask for it."""
    return Change(**{key: value if word == "value" else word for key, word in fields.items()})


def steepest(study):
    """The range of each schedule's relative time over the values of each knob.

    Parameters
    ----------
    study : DataFrame
        From `sensitivity_study`.

    Returns
    -------
    DataFrame
        One row a knob and schedule; columns ``knob, schedule, lowest, highest, lowest_half_to_double,
        highest_half_to_double``: over all values, and over those from a half to double.
    """
    rows = []
    for (knob, schedule), group in study.groupby(["knob", "schedule"], sort=False):
        near = group[(group.value >= 1 / 2) & (group.value <= 2)]
        rows.append({
            "knob": knob, "schedule": schedule, "lowest": group.relative.min(), "highest": group.relative.max(),
            "lowest_half_to_double": near.relative.min(), "highest_half_to_double": near.relative.max(),
        })  # fmt: skip
    return pd.DataFrame(rows)
