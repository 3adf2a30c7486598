"""From rows to verdicts: measured under a setting, and under every alternative assumption."""

from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from ppbook.claims.bench import Bench
from ppbook.claims.file import FLIPS, rows_of
from ppbook.claims.quantities import QUANTITIES
from ppbook.setting import load_setting
from ppmodel.compiled import LARGE, prepare
from ppmodel.errors import BatchError, CostError, ScheduleError
from ppmodel.points.change import UNCHANGED, Change
from ppmodel.schedules.chimera import CONCATENATIONS
from ppmodel.simulation import APART, BUFFERED

VERDICTS = {"holds": "holds", "depends": "depends", "fails": "does not hold", "no case": "no case"}
"""The verdicts, and how they are printed."""

ANCHORS = ("default", "paper")
"""The settings around which claims are judged."""

STRUCTURE = ("p2p", "allreduce", "concat", "waves")
"""The fields of a setting that decide what is simulated; the others only change its costs."""

HARDWARE = ("memory", "backward")
"""Axes of assumptions that only change costs; rows that count flips, which change costs, are not judged under them."""

WAVES = (1, 2, 4)
MEMORY_BANDWIDTHS = (34e12, 3.4e12)
BACKWARDS = (0.0, 2.5, 3.0)
_TAKE = {"max": np.max, "min": np.min, "median": np.median, "sum": np.sum}
_MODEL_BACKWARD = 1.9  # between the knob's values on either side of the models' own ratio
_AGREES = 0.05  # share of a row's tolerance by which a margin may differ from the expected one


# ---- one row -------------------------------------------------------------------------------------


def measure(row, bench, rows=()):
    """What a row's quantity comes to on a bench.

    Parameters
    ----------
    row : Row
        Its criterion gives the quantity, the sizes, the systems, and how all points are reduced to one number.
    bench : Bench
        Sizes that do not divide its model's batch are left out.
    rows : sequence of Row
        All rows; ``flips`` counts those that are conclusions.

    Returns
    -------
    ndarray of float, shape (num_changes,)
        In the row's unit; NaN if no size is left.

    Raises
    ------
    ScheduleError, CostError
        If a schedule is not defined at a size, or the model does not fit it.
    """
    criterion = dict(row.criterion)
    if (quantity := criterion.pop("quantity")) == FLIPS:
        return _count_flips(bench, rows, **criterion)
    take, columns = criterion.pop("take", "max"), bench.columns(criterion.pop("systems", "all"))
    measured = []
    for size in product(criterion.pop("pp", [1]), criterion.pop("microbatches", [1])):
        with suppress(BatchError):  # a size that the model does not have
            measured.append(QUANTITIES[quantity](bench, size, **criterion)[:, columns])
    if not measured:
        return np.full(len(bench.changes), np.nan)
    values = np.concatenate(measured, axis=1).astype(float)
    if take == "largest":
        return np.take_along_axis(values, abs(values).argmax(axis=1)[:, None], axis=1)[:, 0]
    return _TAKE[take](values, axis=1)


def _count_flips(bench, rows, knob, factors, allreduce=None):
    """How many of the conclusions that hold stop holding under any of some factors."""
    setting = replace(bench.setting, allreduce=allreduce or bench.setting.allreduce)
    counts = np.zeros(len(bench.changes))
    for place, change in enumerate(bench.changes):
        scaled = [replace(change, **{knob: factor}) for factor in factors]
        varied = replace(bench, setting=setting, changes=(change, *scaled))
        for row in rows:
            if row.conclusion:
                with suppress(ScheduleError, CostError):  # what cannot be measured does not flip
                    holds = row.margin(measure(row, varied)) >= 0
                    counts[place] += holds[0] and not holds.all()
    return counts


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
    >>> from ppbook.setting import load_setting
    >>> from ppmodel.specs import load_model
    >>> len(assumptions(Bench.of(load_model("paper"), load_setting("default"))))
    58
    """
    variants = [("semantics", f"{p2p}, {sums}", {"p2p": p2p, "allreduce": sums}) for p2p in BUFFERED for sums in APART]
    variants += [("concat", concat, {"concat": concat}) for concat in CONCATENATIONS]
    variants += [("waves", str(waves), {"waves": waves}) for waves in WAVES]
    if bench.is_nine:
        lengths = {length: f"{length:g} forwards" if length else "as the model's" for length in BACKWARDS}
        variants += [("backward", text, {"backward": length}) for length, text in lengths.items()]
        for speed, follows in product(MEMORY_BANDWIDTHS, (True, False)):
            text = f"{speed / 1e12:g} TB/s, {'follows compute' if follows else 'fixed'}"
            variants.append(("memory", text, {"memory_bandwidth_bytes_per_s": speed, "memory_follows": follows}))
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
    def turned(self):
        """The assumptions under which the row's answer is not that of the setting itself.

        Those around the setting itself and the other settings as a whole; where none of these does, single changes of
        the other settings.
        """
        turned = [assumption for assumption, margin in self.outcomes.items() if (margin >= 0) != self.holds_here]
        return [each for each in turned if each.anchor == self.anchor or not each.changes] or turned

    def reversed_by(self):
        """What `turned` lists, in words.

        Returns
        -------
        dict of str to list of str
            The values of each axis around the setting itself. A semantics with which only some ways to run the
            all-reduce do so has them in parentheses. ``setting`` names the others, with what is changed of them.
        """
        values, semantics, settings = {}, {}, {}
        for assumption in self.turned:
            if assumption.anchor != self.anchor:
                changed = f", {assumption.axis}: {assumption.value}" if assumption.changes else ""
                settings[assumption.anchor + changed] = None
            elif assumption.axis == "semantics":
                semantics.setdefault(assumption.setting.p2p, []).append(assumption.setting.allreduce)
            else:
                values.setdefault(assumption.axis, []).append(assumption.value)
        if semantics:
            sums = {
                p2p: "" if len(names) == len(APART) else f" ({', '.join(names)})" for p2p, names in semantics.items()
            }
            values = {"semantics": [p2p + names for p2p, names in sums.items()]} | values
        return values | ({"setting": list(settings)} if settings else {})


def judge(claims, model, setting, system=None, only=None):
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
    only : str, optional
        Judge the row with this identifier alone.

    Returns
    -------
    list of Judgement
        One per row, in order.
    """
    prepare(LARGE)  # thousands of small graphs, each on many systems
    rows, bench = rows_of(claims), Bench.of(model, setting, system)
    varied = assumptions(bench)
    judged = [row for row in rows if only in (None, row.id)]
    return [_judge_row(row, rows, bench, varied) for row in tqdm(judged, desc="claims", leave=False, disable=None)]


def _judge_row(row, rows, bench, varied):
    anchor = bench.setting.name
    try:
        measured = float(measure(row, bench, rows)[0])
        reason = f"global_batch = {bench.model.global_batch} divides into none of the row's B"
    except (ScheduleError, CostError) as error:
        measured, reason = np.nan, str(error)
    if np.isnan(measured):
        return Judgement(row, np.nan, np.nan, "no case", anchor, {}, reason)
    if row.criterion["quantity"] == FLIPS:  # these vary the costs themselves
        varied = [assumption for assumption in varied if assumption.axis not in HARDWARE]
    margins = {}
    for setting in dict.fromkeys(assumption.setting for assumption in varied):
        with suppress(ScheduleError, CostError):  # more waves may need more blocks than the model has
            margins[setting] = float(row.margin(measure(row, replace(bench, setting=setting), rows)[0]))
    outcomes = {assumption: margins[assumption.setting] for assumption in varied if assumption.setting in margins}
    return Judgement(row, measured, float(row.margin(measured)), verdict_of(outcomes), anchor, outcomes)


def verdict_of(outcomes):
    """The verdict for margins by assumption: holds under all, depends on them, or fails under all."""
    holds = [margin >= 0 for margin in outcomes.values()]
    if all(holds):
        return "holds"
    return "depends" if any(holds) else "fails"


def disagreements(judgements, margins=True):
    """The judgements that differ from the expected ones.

    Parameters
    ----------
    judgements : iterable of Judgement
        From `judge`.
    margins : bool
        Whether margins count as well; the expected margins are for the default setting, model and systems.

    Returns
    -------
    list of Judgement
        Those whose verdict differs, or whose margin is off by more than a twentieth of the row's tolerance.
    """

    def differs(judgement):
        expected, row = judgement.row.expected, judgement.row
        moved = not abs(judgement.margin - expected.margin) <= _AGREES * row.tolerance
        return judgement.verdict != expected.verdict or (margins and moved)

    return [judgement for judgement in judgements if differs(judgement)]


# ---- where answers turn --------------------------------------------------------------------------

_FACTORS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.4, 1.6, 1.8, 2.0, 2.5, 3.3, 5.0, 10.0)
KNOBS = {
    "bandwidth": _FACTORS,
    "latency": _FACTORS,
    "compute": _FACTORS,
    "backward": (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0),
    "straggler": (1.05, 1.1, 1.2, 1.35, 1.5, 2.0),
}
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
    knobs, bench, nearest = knobs or KNOBS, Bench.of(model, setting), []
    points = [(knob, value) for knob, values in knobs.items() for value in values]
    changed = replace(bench, changes=(UNCHANGED, *(Change(**{knob: value}) for knob, value in points)))
    unturned = {"backward": setting.backward or _MODEL_BACKWARD}
    for row in rows_of(claims):
        if row.criterion["quantity"] == FLIPS:
            continue
        with suppress(ScheduleError, CostError):
            answer, *answers = row.margin(measure(row, changed)) >= 0
            turned = [point for point, other in zip(points, answers, strict=True) if other != answer]
            for knob in knobs:
                values, middle = [value for name, value in turned if name == knob], unturned.get(knob, 1.0)
                below = max((value for value in values if value < middle), default=np.nan)
                above = min((value for value in values if value > middle), default=np.nan)
                nearest.append((row.id, knob, below, above))
    return pd.DataFrame(nearest, columns=["id", "knob", "below", "above"])
