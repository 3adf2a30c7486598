"""From rows to verdicts: measured under a setting, and under every alternative assumption."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
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

_SAID = {"default": "the default setting", "paper": "the fitted setting (paper)"}

STRUCTURE = ("p2p", "allreduce", "concat", "waves")
"""The fields of a setting that decide what is simulated; the others only change its costs."""

AXES = {
    "semantics": "",
    "concat": "concatenation",
    "waves": "Hanayo's waves",
    "memory": "a memory",
    "backward": "a backward",
    "costs": "",
}
"""What is changed of a setting, and how it is printed."""

HARDWARE = ("memory", "backward")
"""Those of them that only change costs; rows that count flips, which change costs, are not judged under them."""

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
    if row.criterion["quantity"] == FLIPS:
        return _count_flips(row, bench, rows)
    given = dict(row.criterion)
    quantity = partial(QUANTITIES[given.pop("quantity")], bench)
    take, columns = given.pop("take", "max"), bench.columns(given.pop("systems", "all"))
    ranks, counts = given.pop("pp", [1]), given.pop("microbatches", [1])
    measured = []
    for size in product(ranks, counts):
        try:
            measured.append(quantity(size, **given)[:, columns])
        except BatchError:  # a size that the model does not have
            continue
    if not measured:
        return np.full(len(bench.changes), np.nan)
    values = np.concatenate(measured, axis=1).astype(float)
    if take == "largest":
        return np.take_along_axis(values, abs(values).argmax(axis=1)[:, None], axis=1)[:, 0]
    return _TAKE[take](values, axis=1)


def _count_flips(row, bench, rows):
    """How many of the conclusions that hold stop holding under any of some factors."""
    given, conclusions = row.criterion, [other for other in rows if other.conclusion]
    setting = replace(bench.setting, allreduce=given.get("allreduce", bench.setting.allreduce))
    counts = []
    for change in bench.changes:
        scaled = [replace(change, **{given["knob"]: factor}) for factor in given["factors"]]
        varied = replace(bench, setting=setting, changes=(change, *scaled))
        answers = [answer for other in conclusions if (answer := _answers(other, varied)) is not None]
        counts.append(sum(answer[0] and not answer.all() for answer in answers))
    return np.array(counts, dtype=float)


def _answers(row, bench):
    """Whether a row holds under each change, or None if it cannot be measured."""
    with suppress(ScheduleError, CostError):
        return row.margin(measure(row, bench)) >= 0


# ---- assumptions ---------------------------------------------------------------------------------


class Assumption(NamedTuple):
    """One way to fill in what the paper leaves open.

    Parameters
    ----------
    anchor : str
        Name of the setting in which one thing is changed.
    axis : str
        What is varied, a key of `AXES`; ``semantics`` is transfers and all-reduce together.
    value : str
        The value it is changed to, in words.
    setting : SettingSpec
        The setting with that value.
    changed : bool
        Whether that setting differs from the one that it is a change of.
    """

    anchor: str
    axis: str
    value: str
    setting: object
    changed: bool


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
    anchors = {name: load_setting(name) for name in ANCHORS} | {bench.setting.name: bench.setting}
    return [each for setting in anchors.values() for each in _around(setting, bench.is_nine)]


def _around(setting, is_nine):
    """Change one thing of a setting at a time."""
    found = [
        ("semantics", f"{p2p}, {allreduce}", {"p2p": p2p, "allreduce": allreduce})
        for p2p in BUFFERED
        for allreduce in APART
    ]
    found += [("concat", concat, {"concat": concat}) for concat in CONCATENATIONS]
    found += [("waves", str(waves), {"waves": waves}) for waves in WAVES]
    for backward in BACKWARDS if is_nine else ():
        found.append(
            ("backward", f"of {backward:g} forwards" if backward else "as the model's", {"backward": backward})
        )
    for bandwidth in MEMORY_BANDWIDTHS if is_nine else ():
        for follows in (True, False):
            words = f"of {bandwidth / 1e12:g} TB/s {'that follows' if follows else 'whatever the'} compute"
            found.append(("memory", words, {"memory_bandwidth_bytes_per_s": bandwidth, "memory_follows": follows}))
    others = [(axis, value, replace(setting, **fields)) for axis, value, fields in found]
    return [Assumption(setting.name, axis, value, other, other != setting) for axis, value, other in others]


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


def judge(claims, model, setting, system=None):
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

    Returns
    -------
    list of Judgement
        One per row, in order.
    """
    prepare(LARGE)  # thousands of small graphs, each on many systems
    rows, bench = rows_of(claims), Bench.of(model, setting, system)
    varied = assumptions(bench)
    _simulate_ahead(rows, bench, varied)
    return [_judge_row(row, rows, bench, varied) for row in rows]


def _simulate_ahead(rows, bench, varied):
    """Simulate in one go what the rows will otherwise ask for one setting and one change at a time.

    Settings that differ only in hardware share a graph; they are changes of one another.
    """
    flips = [row.criterion for row in rows if row.criterion["quantity"] == FLIPS]
    knobs = [{given["knob"]: factor} for given in flips for factor in given["factors"]]
    sums = {given.get("allreduce") for given in flips} - {None}
    plain, alone, turned = load_setting(ANCHORS[0]), {}, {}
    for each in varied:
        change = replace(bench, setting=each.setting).applied[0]
        graph = replace(plain, **{name: getattr(each.setting, name) for name in STRUCTURE})
        alone.setdefault(graph, {})[change] = None
        turned.setdefault(graph, {})[change] = None
        if each.axis not in HARDWARE:
            for other in (graph, *(replace(graph, allreduce=allreduce) for allreduce in sums)):
                changes = [change, *(replace(change, **knob) for knob in knobs)]
                turned.setdefault(other, {}).update(dict.fromkeys(changes))
    for row in tqdm(rows, desc="claims", leave=False, disable=None):  # all settings of a row share its costs
        settings = turned if row.conclusion and flips else alone
        for setting, changes in settings.items() if row.criterion["quantity"] != FLIPS else ():
            with suppress(ScheduleError, CostError):  # what cannot be measured is reported when it is judged
                measure(row, replace(bench, setting=setting, changes=tuple(changes)))


def _judge_row(row, rows, bench, varied):
    anchor = bench.setting.name
    try:
        measured = float(measure(row, bench, rows)[0])
    except (ScheduleError, CostError) as error:
        return Judgement(row, np.nan, np.nan, "no case", anchor, {}, str(error))
    if np.isnan(measured):
        reason = f"global_batch = {bench.model.global_batch} divides into none of the row's B"
        return Judgement(row, measured, measured, "no case", anchor, {}, reason)
    if row.criterion["quantity"] == FLIPS:  # these vary the costs themselves
        varied = [each for each in varied if each.axis not in HARDWARE]
    outcomes = _outcomes(row, rows, bench, varied)
    return Judgement(row, measured, float(row.margin(measured)), verdict_of(outcomes), anchor, outcomes)


def verdict_of(outcomes):
    """The verdict for margins by assumption: holds under all, depends on them, or fails under all."""
    held = [margin >= 0 for margin in outcomes.values()]
    if all(held):
        return "holds"
    return "depends" if any(held) else "fails"


def _outcomes(row, rows, bench, varied):
    """The margin under each assumption that the model can meet; more waves may need more blocks than there are."""
    margins = {}
    for setting in dict.fromkeys(each.setting for each in varied):
        with suppress(ScheduleError, CostError):
            margins[setting] = float(row.margin(measure(row, replace(bench, setting=setting), rows)[0]))
    return {each: margins[each.setting] for each in varied if each.setting in margins}


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


class Turn(NamedTuple):
    """The nearest change that reverses a row's answer.

    Parameters
    ----------
    row : Row
        The row whose answer it is.
    knob : str
        A key of `KNOBS`.
    below, above : float
        The nearest values on either side of no change that reverse the answer; NaN if there is none.
    """

    row: object
    knob: str
    below: float
    above: float


def turns(claims, model, setting, system=None, knobs=None):
    """Where turning one knob at a time reverses an answer that a setting gives.

    Parameters
    ----------
    claims : list of Claim
        From `load_claims`.
    model : ModelSpec
        The model; its own ratio of backward to forward is about 1.9.
    setting : SettingSpec
        The setting.
    system : SystemSpec, optional
        Judge on this system instead of the paper's nine.
    knobs : dict of str to sequence of float, optional
        Used instead of `KNOBS`.

    Returns
    -------
    list of Turn
        One per row and knob; rows without a case are left out.
    """
    knobs, bench, found = knobs or KNOBS, Bench.of(model, setting, system), []
    points = [(knob, value) for knob, values in knobs.items() for value in values]
    changed = replace(bench, changes=(UNCHANGED, *(Change(**{knob: value}) for knob, value in points)))
    for row in rows_of(claims):
        if row.criterion["quantity"] == FLIPS:
            continue
        with suppress(ScheduleError, CostError):
            answer, *answers = row.margin(measure(row, changed)) >= 0
            turned = [point for point, other in zip(points, answers, strict=True) if other != answer]
            for knob in knobs:
                values = [value for name, value in turned if name == knob]
                middle = ((bench.is_nine and setting.backward) or _MODEL_BACKWARD) if knob == "backward" else 1.0
                below = max((value for value in values if value < middle), default=np.nan)
                found.append(Turn(row, knob, below, min((value for value in values if value > middle), default=np.nan)))
    return found


# ---- in words ------------------------------------------------------------------------------------


def condition(judgement):
    """What reverses a row's answer, in words; empty if no assumption does.

    Parameters
    ----------
    judgement : Judgement
        From `judge`.

    Returns
    -------
    str
        The assumptions that make a row hold that does not hold under the setting itself (``holds with ...``), or that
        make a row fail that does hold (``does not hold with ...``): first single changes of the setting, then another
        setting as a whole, and only if neither does, single changes of another setting.
    """
    if judgement.verdict != "depends":
        return ""
    here, parts = judgement.holds_here, []
    for axis, name in AXES.items():
        turned = {each.value: (margin >= 0) != here for each, margin in _own(judgement, axis)}
        if any(turned.values()):
            words = _semantics(turned) if axis == "semantics" else _either([value for value in turned if turned[value]])
            parts.append(f"{name} {words}".strip())
    parts += [f"{_SAID[name]} as a whole" for name, holds in _other_anchors(judgement) if holds != here]
    elsewhere = dict.fromkeys(each.anchor for each, margin in judgement.outcomes.items() if (margin >= 0) != here)
    parts = parts or [f"one thing changed in {_either([_SAID.get(name, f'the setting {name}') for name in elsewhere])}"]
    return f"{'does not hold' if here else 'holds'} with {'; or '.join(parts)}"


def _own(judgement, axis):
    """The assumptions that change one thing of the judgement's own setting, with their margins."""
    return [
        (each, m) for each, m in judgement.outcomes.items() if each.axis == axis and each.anchor == judgement.anchor
    ]


def _other_anchors(judgement):
    """Whether the row holds under each of the other settings, unchanged."""
    held = {each.anchor: margin >= 0 for each, margin in judgement.outcomes.items() if not each.changed}
    return [(name, held[name]) for name in ANCHORS if name != judgement.anchor and name in held]


def _semantics(held):
    """The combinations of transfers and all-reduce that hold, in words."""
    grid = {tuple(words.split(", ")): holds for words, holds in held.items()}
    by_p2p = {p2p: [grid[p2p, allreduce] for allreduce in APART] for p2p in BUFFERED}
    by_sum = {allreduce: [grid[p2p, allreduce] for p2p in BUFFERED] for allreduce in APART}
    if all(len(set(answers)) == 1 for answers in by_p2p.values()):
        return f"transfers {_either([p2p for p2p, answers in by_p2p.items() if answers[0]])}"
    if all(len(set(answers)) == 1 for answers in by_sum.values()):
        return f"all-reduce {_either([name for name, answers in by_sum.items() if answers[0]])}"
    alike = {}
    for p2p, answers in by_p2p.items():
        alike.setdefault(tuple(answers), []).append(p2p)
    parts = []
    for answers, names in alike.items():
        sums = [allreduce for allreduce, holds in zip(APART, answers, strict=True) if holds]
        if sums:
            only = f" with all-reduce {_either(sums)}" if len(sums) < len(APART) else ""
            parts.append(f"transfers {_either(names)}{only}")
    return ", or ".join(parts)


def _either(words):
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
