"""Judgements as tables for a page: every row, a summary of the claims, every assumption, what reverses answers."""

import numpy as np
import pandas as pd

from ppbook.claims.file import EXACT
from ppbook.claims.judge import VERDICTS, condition
from ppmodel.cli.text import joined

_KNOB_WORDS = {
    "bandwidth": "{:g} times the bandwidth", "latency": "{:g} times the latency", "compute": "{:g} times the compute",
    "straggler": "a last stage that takes {:g} times as long",
    "backward": "a backward {:g} times as long as the forward",
}  # fmt: skip
_MARKS = {"holds": "✓", "depends": "◐", "holds in part": "◔", "fails": "✗"}
_AXES_SAID = {
    "semantics": "what a transfer and an all-reduce occupy", "concat": "how Chimera's units are joined",
    "waves": "Hanayo's waves", "memory": "the speed of memory", "backward": "the length of a backward",
    "costs": "what costs are assumed",
}  # fmt: skip


def claims_table(claims, judgements, turned=()):
    """Every row with its verdict, its number and what reverses its answer.

    Parameters
    ----------
    claims : list of Claim
        From `load_claims`.
    judgements : list of Judgement
        From `judge`, on these claims.
    turned : list of Turn
        From `turns`.

    Returns
    -------
    DataFrame
        One line per row; columns ``claim, id, statement, where, by, kind, verdict, here, measured, claimed, margin,
        depends, page``. ``claim`` is the claim's number, ``by`` says whose claim the row checks, and ``here`` whether
        it holds under the setting itself. Numbers are as they are printed. ``depends`` names, in words, the assumptions
        under which the row holds and the nearest changes that reverse the answer.
    """
    of = {row.id: claim for claim in claims for row in claim.rows}
    return pd.DataFrame([
        {
            "claim": of[one.row.id].number, "id": one.row.id, "statement": one.row.statement, "where": one.row.where,
            "by": of[one.row.id].by_of(one.row), "kind": one.row.kind, "verdict": VERDICTS[one.verdict],
            "here": one.holds_here,
            "measured": one.row.number(one.measured), "claimed": one.row.reference,
            "margin": signed(one.row, one.margin), "depends": depends(one, turned), "page": one.row.page,
        }
        for one in judgements
    ])  # fmt: skip


def depends(judgement, turned=()):
    """What an answer depends on, in words.

    Parameters
    ----------
    judgement : Judgement
        From `judge`.
    turned : list of Turn
        From `turns`; those of other rows are ignored.

    Returns
    -------
    str
        The assumptions under which the row holds, or why it could not be judged; then what reverses the answer.
    """
    said, row = condition(judgement), judgement.row.id
    words = [said] if said else [judgement.reason] * bool(judgement.reason)
    nearest = turns_in_words([turn for turn in turned if turn.row.id == row])
    return "; ".join([*words, *[f"reversed by {nearest}"] * bool(nearest)])


def signed(row, margin):
    """A margin as it is printed, with its sign.

    Parameters
    ----------
    row : Row
        Gives the unit.
    margin : float
        In the row's unit.

    Returns
    -------
    str
        Empty if there is none.
    """
    if abs(margin) <= row.tolerance <= EXACT:
        return "exact"
    return ("+" if margin > 0 else "") + row.number(margin)


def turns_in_words(turned):
    """The nearest changes that reverse an answer, in words.

    Parameters
    ----------
    turned : list of Turn
        Of one row.

    Returns
    -------
    str
        Empty if nothing within reach does.

    Examples
    --------
    >>> from ppbook.claims import Turn
    >>> turns_in_words([Turn(None, "bandwidth", 0.5, float("nan")), Turn(None, "backward", float("nan"), 2.5)])
    '0.5 times the bandwidth; a backward 2.5 times as long as the forward'
    """
    words = []
    for turn in turned:
        for value in (turn.below, turn.above):
            if not np.isnan(value):
                words.append(_KNOB_WORDS[turn.knob].format(value))
    return "; ".join(words)


def headline_table(claims, judgements, implied, turned=()):
    """One line per claim: the verdict that follows from its deciding rows, and the numbers of the weakest of these.

    Parameters
    ----------
    claims : list of Claim
        From `load_claims`.
    judgements, implied : list of Judgement
        From `judge`, under the book's setting and under the one that the published numbers imply.
    turned : list of Turn
        From `turns`.

    Returns
    -------
    DataFrame
        One line per claim; columns ``claim, title, statement, by, verdict, row, measured, claimed, margin, depends,
        rows, holding, holding_implied, page``. ``row`` is the weakest of the deciding rows, and of equally weak ones
        the first in the file; ``rows`` counts those of whoever makes the claim, ``holding`` and ``holding_implied``
        those of them that hold under the two settings.
    """
    table = claims_table(claims, judgements, turned).set_index("id")
    here = {one.row.id: one for one in judgements}
    there = {one.row.id: one.holds_here for one in implied}
    found = []
    for claim in claims:
        own = [row for row in claim.rows if claim.by_of(row) == claim.by]
        weakest = min(claim.deciding, key=lambda row: (*_strength(here[row.id]), claim.rows.index(row)))
        shown = table.loc[weakest.id]
        found.append({
            "claim": claim.number, "title": claim.title, "statement": claim.statement,
            "by": claim.by, "verdict": _verdict([here[row.id].verdict for row in claim.deciding]), "row": weakest.id,
            "measured": shown.measured, "claimed": shown.claimed, "margin": shown.margin, "depends": shown.depends,
            "rows": len(own), "holding": sum(here[row.id].holds_here for row in own),
            "holding_implied": sum(there[row.id] for row in own), "page": shown.page,
        })  # fmt: skip
    return pd.DataFrame(found)


def _strength(judgement):
    """How strong a row is: by its verdict, then by whether it holds under the setting itself."""
    return ["no case", "fails", "depends", "holds"].index(judgement.verdict), judgement.holds_here


def _verdict(verdicts):
    """A claim's verdict from those of its deciding rows: the one they all have, or what they have in common."""
    found = set(verdicts) - {"no case"} or {"no case"}
    if len(found) == 1:
        return VERDICTS[found.pop()]
    return "holds in part" if "fails" in found else VERDICTS["depends"]


def outcome_table(claims, judgements):
    """The margin of every row under every assumption.

    Parameters
    ----------
    claims : list of Claim
        From `load_claims`.
    judgements : list of Judgement
        From `judge`, on these claims.

    Returns
    -------
    DataFrame
        One line per row and assumption; columns ``claim, id, anchor, axis, value, margin``; rows without a case have
        none.
    """
    numbers = {row.id: claim.number for claim in claims for row in claim.rows}
    return pd.DataFrame(
        [
            {
                "claim": numbers[one.row.id],
                "id": one.row.id,
                "anchor": each.anchor,
                "axis": each.axis,
                "value": each.value,
                "margin": margin,
            }
            for one in judgements
            for each, margin in one.outcomes.items()
        ]
    )


def write_marks(claims, judgements):
    """One marked sentence per claim, for a page to include: it holds, it depends on something, or it does not hold.

    Parameters
    ----------
    claims : list of Claim
        From `load_claims`.
    judgements : list of Judgement
        From `judge` or `judge_stp`, on these claims.

    Returns
    -------
    page : str
        In MyST, one item per claim.
    counts : dict of str to int
        How many ``hold``, ``depend`` on assumptions, hold ``in part``, and ``fail``.
    """
    judged = {one.row.id: one for one in judgements}
    items, counts = [], dict.fromkeys(_MARKS, 0)
    for claim in claims:
        deciding = [judged[row.id] for row in claim.deciding]
        verdict = _verdict([one.verdict for one in deciding])
        key = next(key for key in _MARKS if VERDICTS.get(key, key) == verdict)
        counts[key] += 1
        on = [words for axis, words in _AXES_SAID.items() if any(_turns_on(one, axis) for one in deciding)]
        said = f"depends on {joined(on)}" if key == "depends" and on else verdict
        page = claim.rows[0].page
        items.append(
            f"- {_MARKS[key]} {claim.statement} *{said[:1].upper()}{said[1:]}* ({{doc}}`{claim.title} </{page}>`)."
        )
    return ":::{div} claim-marks\n" + "\n".join(items) + "\n:::\n", counts


def _turns_on(judgement, axis):
    """Whether an answer depends on one thing that is assumed, under any of the settings."""
    held = {}
    for each, margin in judgement.outcomes.items():
        if each.axis == axis:
            held.setdefault(each.anchor, set()).add(margin >= 0)
    return any(len(answers) > 1 for answers in held.values())
