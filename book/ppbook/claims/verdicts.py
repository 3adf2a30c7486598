"""From rows to verdicts: measured under a setting, and under every alternative assumption."""

from contextlib import suppress
from dataclasses import replace
from inspect import signature
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppbook.claims.bench import Bench
from ppbook.claims.executed_quantities import EXECUTED, EXECUTED_QUANTITIES, runs_of
from ppbook.claims.quantities import measure
from ppbook.claims.rows import rows_of
from ppbook.claims.stp_quantities import STP_QUANTITIES, stp_assumptions
from ppbook.parameters import load_setting
from ppmodel.errors import CostError, ScheduleError
from ppmodel.loops.compiled import LARGE, prepare
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.simulation import APART, BUFFERED
from ppmodel.studies.points.change import UNCHANGED, Change

VERDICTS = {"holds": "holds", "depends": "depends", "fails": "does not hold", "no case": "no case"}
"""The verdicts, and how they are printed."""

ANCHORS = ("default", "paper")
"""The settings around which claims are judged."""

STRUCTURE = {"p2p": BUFFERED, "allreduce": APART, "concat": CONCATENATIONS, "waves": (1, 2, 4)}
"""What the paper leaves open of what is simulated, by the fields of a setting, and what each is tried at."""

UNKNOWNS = STRUCTURE | {
    "memory_bandwidth_bytes_per_s": (34e12, 3.4e12), "memory_follows": (True, False),
    "compute_efficiency": (1.0, 0.75, 0.5), "memory_efficiency": (1.0, 0.5, 0.25), "backward": (0.0, 2.5, 3.0),
}  # fmt: skip
"""The same with what it leaves open of the costs; the efficiencies vary only in a search."""

_MODEL_BACKWARD = 1.9  # between the knob's values on either side of the models' own ratio
_AGREES = 0.05  # share of a row's tolerance by which a margin may differ from the expected one


# ---- assumptions ---------------------------------------------------------------------------------


class Assumption(NamedTuple):
    """One way to fill in what the paper leaves open.

    Parameters
    ----------
    anchor : str
        Name of the setting in which one thing is changed.
    axis : str
        What is varied; ``semantics`` is transfers and all-reduce together.
    value : str
        The value it is changed to, as it is printed.
    setting : SettingSpec
        The setting with that value.
    changes : tuple of (str, object)
        The fields of the setting that differ from those of the one that it is a change of, with their values.
    """

    anchor: str
    axis: str
    value: str
    setting: object
    changes: tuple


def assumptions(bench):
    """Every assumption under which the claims are judged: two settings, with one thing changed at a time.

    The settings are the book's default and the one that the published numbers imply, plus the bench's own if that is a
    third one. The changes are: the communication semantics, `BUFFERED` times the three ways to run the replicas'
    all-reduce; how Chimera concatenates; Hanayo's waves; and the memory of the paper's nine systems and how long a
    backward takes on them.

    Parameters
    ----------
    bench : Bench
        Gives the setting, and says whether the paper's nine systems are judged; any other system has its own memory.

    Returns
    -------
    list of Assumption
        One per axis and value. A setting itself appears on each of its axes, so some assumptions occur more than once.

    Examples
    --------
    >>> from ppbook.parameters import load_setting
    >>> from ppmodel.clusters.specs import load_model
    >>> len(assumptions(Bench.of(load_model("paper"), load_setting("default"))))
    60
    """
    variants = [("semantics", f"{p2p}, {sums}", {"p2p": p2p, "allreduce": sums}) for p2p in BUFFERED for sums in APART]
    variants += [(axis, str(value), {axis: value}) for axis in ("concat", "waves") for value in UNKNOWNS[axis]]
    if bench.is_nine:
        for length in UNKNOWNS["backward"]:
            text = f"{length:g} forwards" if length else "as the model's"
            variants.append(("backward", text, {"backward": length}))
        memory = ("memory_bandwidth_bytes_per_s", "memory_follows")
        for speed, follows in product(*map(UNKNOWNS.get, memory)):
            text = f"{speed / 1e12:g} TB/s, {'follows compute' if follows else 'fixed'}"
            variants.append(("memory", text, dict(zip(memory, (speed, follows), strict=True))))
    anchors = {name: load_setting(name) for name in ANCHORS} | {bench.setting.name: bench.setting}
    return [
        Assumption(anchor.name, axis, value, replace(anchor, **fields), changes)
        for anchor in anchors.values()
        for axis, value, fields in variants
        for changes in [tuple((name, new) for name, new in fields.items() if new != getattr(anchor, name))]
    ]


class Judgement(NamedTuple):
    """The outcome of judging a row.

    Parameters
    ----------
    row : Row
        The row that was judged.
    measured, margin : float
        Under the setting itself, in the row's unit; NaN if there was no case.
    verdict : str
        A key of `VERDICTS`.
    anchor : str
        Name of the setting.
    outcomes : dict of Assumption to float
        The margin under each assumption.
    reason : str
        Why there is no case; otherwise empty.
    """

    row: object
    measured: float
    margin: float
    verdict: str
    anchor: str
    outcomes: dict
    reason: str = ""

    @property
    def holds_here(self):
        """Whether the row holds under the setting itself."""
        return self.margin >= 0

    @property
    def reproduced(self):
        """The verdict as seen from the setting itself: what does not hold under it is not reproduced."""
        fails = self.verdict == "depends" and not self.holds_here
        return VERDICTS["fails" if fails else self.verdict]

    @property
    def tried(self):
        """The number of settings that were tried."""
        return len({assumption.setting for assumption in self.outcomes})

    @property
    def turned(self):
        """The assumptions under which the row's answer is not that of the setting itself, by axis.

        Those around the setting itself and, as the axis ``setting``, the other settings as a whole; where none of these
        does, single changes of the other settings.
        """
        turned = [assumption for assumption, margin in self.outcomes.items() if (margin >= 0) != self.holds_here]
        turned = [each for each in turned if each.anchor == self.anchor or not each.changes] or turned
        by_axis = {}
        for assumption in sorted(turned, key=lambda each: each.anchor != self.anchor):
            axis = assumption.axis if assumption.anchor == self.anchor else "setting"
            by_axis.setdefault(axis, []).append(assumption)
        return by_axis

    def reversed_by(self):
        """What `turned` lists, in words.

        Returns
        -------
        dict of str to list of str
            The values of each axis around the setting itself. A semantics with which only some ways to run the
            all-reduce do so has them in parentheses. ``setting`` names the others, with what is changed of them.
        """
        words = {axis: [each.value for each in turned] for axis, turned in self.turned.items()}
        if "semantics" in words:
            sums = {}
            for each in self.turned["semantics"]:
                sums.setdefault(each.setting.p2p, []).append(each.setting.allreduce)
            some = {p2p: f" ({', '.join(names)})" for p2p, names in sums.items() if len(names) < len(APART)}
            words["semantics"] = [p2p + some.get(p2p, "") for p2p in sums]
        if "setting" in words:
            anchors = self.turned["setting"]
            changed = [f"{each.anchor}, {each.axis}: {each.value}" if each.changes else each.anchor for each in anchors]
            words["setting"] = list(dict.fromkeys(changed))
        return words


def judge(claims, model, setting, system=None, follow=iter):
    """Judge every row under a setting and under all assumptions.

    Parameters
    ----------
    claims : list of Claim
        From `load_claims`.
    model : ModelSpec
        The model.
    setting : SettingSpec
        The setting.
    system : SystemSpec, optional
        Judge on this system instead of the paper's nine.
    follow : callable
        Takes the rows and yields them, as `progress.following`.

    Returns
    -------
    list of Judgement
        One per row, in order.
    """
    prepare(LARGE)  # thousands of small graphs, each on many systems
    bench = Bench.of(model, setting, system)
    varied = assumptions(bench)
    return [_judge_row(row, bench, varied) for row in follow(rows_of(claims))]


def _judge_row(row, bench, varied):
    anchor = bench.setting.name
    try:
        measured = float(measure(row, bench)[0])
        reason = f"global_batch = {bench.model.global_batch} divides into none of the row's B"
    except (ScheduleError, CostError) as error:
        measured, reason = np.nan, str(error)
    if np.isnan(measured):
        return Judgement(row, np.nan, np.nan, "no case", anchor, {}, reason)
    if row.criterion["quantity"] == "flips":  # these vary the costs themselves
        varied = [assumption for assumption in varied if assumption.axis not in ("memory", "backward")]
    margins = {}
    for setting in dict.fromkeys(assumption.setting for assumption in varied):
        with suppress(ScheduleError, CostError):  # more waves may need more blocks than the model has
            margins[setting] = float(row.margin(measure(row, replace(bench, setting=setting))[0]))
    outcomes = {assumption: margins[assumption.setting] for assumption in varied if assumption.setting in margins}
    return Judgement(row, measured, float(row.margin(measured)), verdict_of(outcomes), anchor, outcomes)


def verdict_of(outcomes):
    """The verdict for margins by assumption: holds under all, depends on them, or fails under all."""
    holds = [margin >= 0 for margin in outcomes.values()]
    if all(holds):
        return "holds"
    return "depends" if any(holds) else "fails"


def judge_stp(claims, follow=iter):
    """Judge STP's claims under every assumption about their costs.

    Parameters
    ----------
    claims : list of Claim
        From ``load_claims(about="stp")``.
    follow
        As in `judge`.

    Returns
    -------
    list of Judgement
        One per row, in order; the number shown is that of the first assumption.
    """

    def measured(row, assumption):
        criterion = dict(row.criterion)
        quantity = STP_QUANTITIES[criterion.pop("quantity")]
        given = {"assumption": assumption} if "assumption" in signature(quantity).parameters else {}
        return float(quantity(**given, **criterion))

    return [_judge_by(row, "costs", stp_assumptions(), measured) for row in follow(rows_of(claims))]


def judge_executed(claims, recording="runs"):
    """Judge claims by tables that were run for real, under every way of sending.

    Parameters
    ----------
    claims : list of Claim
        From ``load_claims(about="executed")``.
    recording : str
        ``runs``, ours; or a CSV file of ``python -m benchmarks.executed``.

    Returns
    -------
    list of Judgement
        One per row, in order; ways in which a row's schedules did not run are left out.
    """
    runs = runs_of(recording)

    def measured(row, way):
        criterion = dict(row.criterion)
        quantity = EXECUTED_QUANTITIES[criterion.pop("quantity")]
        return float(quantity(runs[runs.p2p == EXECUTED[way]], **criterion))

    return [_judge_by(row, "transfers", EXECUTED, measured) for row in rows_of(claims)]


def _judge_by(row, axis, names, measure):
    """Judge a row under assumptions by their names, of which the first is the anchor."""
    anchor, *_ = names
    numbers = {name: number for name in names if (number := measure(row, name)) == number}
    if anchor not in numbers:
        return Judgement(row, np.nan, np.nan, "no case", anchor, {}, "the recording lacks its schedules")
    outcomes = {Assumption(anchor, axis, name, name, ()): float(row.margin(numbers[name])) for name in numbers}
    margin = float(row.margin(numbers[anchor]))
    return Judgement(row, numbers[anchor], margin, verdict_of(outcomes), anchor, outcomes)


def disagreements(judgements, margins=True):
    """The judgements that differ from the expected ones.

    Parameters
    ----------
    judgements : iterable of Judgement
        From `judge`.
    margins : bool
        Whether margins count as well; the expected margins are for `ANCHORS`, the paper's model and systems.

    Returns
    -------
    list of Judgement
        Those whose verdict differs, or whose margin is off by more than a twentieth of the row's tolerance.
    """

    def differs(judgement):
        expected, allowed = judgement.row.expected, _AGREES * judgement.row.tolerance
        moved = margins and not abs(judgement.margin - expected.under(judgement.anchor)) <= allowed
        return judgement.verdict != expected.verdict or moved

    return [judgement for judgement in judgements if differs(judgement)]


# ---- where answers turn --------------------------------------------------------------------------

_FACTORS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.4, 1.6, 1.8, 2.0, 2.5, 3.3, 5.0, 10.0)
KNOBS = {
    "bandwidth": _FACTORS, "latency": _FACTORS, "compute": _FACTORS,
    "backward": (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0), "straggler": (1.05, 1.1, 1.2, 1.35, 1.5, 2.0),
}  # fmt: skip
"""What is turned to see where an answer changes, by the fields of `Change`, and to which values: network and
ranks by factors from 0.1 to 10, fine around 1; a backward in forwards; the slowness of the last stage."""


def turns(claims, model, setting, knobs=None):
    """Where turning one knob at a time reverses an answer that a setting gives.

    Parameters
    ----------
    claims, model, setting
        As in `judge`; a model's own ratio of backward to forward is about 1.9.
    knobs : dict of str to sequence of float, optional
        Used instead of `KNOBS`.

    Returns
    -------
    DataFrame
        One line per row and knob, rows without a case left out; columns ``id, knob, below, above``: the nearest values
        on either side of no change that reverse the answer, NaN if there is none.
    """
    points = pd.DataFrame([(knob, value) for knob, values in (knobs or KNOBS).items() for value in values])
    points = points.set_axis(["knob", "value"], axis=1)
    points["middle"] = points.knob.map({"backward": setting.backward or _MODEL_BACKWARD}).fillna(1.0)
    changes = (Change(**{point.knob: point.value}) for point in points.itertuples())
    changed, turned = replace(Bench.of(model, setting), changes=(UNCHANGED, *changes)), [points[:0].assign(id="")]
    for row in rows_of(claims):
        if row.criterion["quantity"] == "flips":  # these have knobs of their own
            continue
        with suppress(ScheduleError, CostError):
            holds = row.margin(measure(row, changed)) >= 0
            turned.append(points.assign(id=row.id, value=points.value.where(holds[1:] != holds[0])))
    turned = pd.concat(turned)
    turned["below"] = turned.value.where(turned.value < turned.middle)
    turned["above"] = turned.value.where(turned.value > turned.middle)
    return turned.groupby(["id", "knob"], sort=False, as_index=False).agg({"below": "max", "above": "min"})
