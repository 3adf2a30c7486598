"""Judgements as tables: every row, a line per claim, and the margin under every assumption."""

import pandas as pd

from ppbook.claims.file import EXACT
from ppbook.claims.judge import VERDICTS

MARKS = {"holds": "✓", "depends": "◐", "holds in part": "◔", "does not hold": "✗", "no case": ""}
"""A sign for each verdict."""

AXES = {
    "semantics": "transfers and all-reduce", "concat": "Chimera's concatenation", "waves": "Hanayo's waves",
    "memory": "memory", "backward": "length of a backward", "setting": "setting", "costs": "costs",
}  # fmt: skip
"""What assumptions vary, and how it is printed."""

_STRENGTH = ("no case", "fails", "depends", "holds")


def claims_table(claims, judgements):
    """Every row with its verdict, its number, and the assumptions that reverse its answer.

    Parameters
    ----------
    claims : list of Claim
        From `load_claims`.
    judgements : list of Judgement
        From `judge` or `judge_stp`, on these claims.

    Returns
    -------
    DataFrame
        One line per row; columns ``claim, id, statement, where, by, kind, verdict, here, measured, claimed, margin,
        depends, page``. ``claim`` is the claim's number, ``by`` says whose claim the row checks, and ``here`` whether
        it holds under the setting itself. Numbers are as they are printed. ``depends`` lists what
        `Judgement.reversed_by` returns, or says why there is no case.
    """
    claim_of = {row.id: claim for claim in claims for row in claim.rows}
    rows = []
    for judgement in judgements:
        row, claim = judgement.row, claim_of[judgement.row.id]
        axes = [f"{AXES[axis]}: {', '.join(values)}" for axis, values in judgement.reversed_by().items()]
        rows.append({
            "claim": claim.number, "id": row.id, "statement": row.statement, "where": row.where,
            "by": claim.by_of(row), "kind": row.kind, "verdict": VERDICTS[judgement.verdict],
            "here": judgement.holds_here, "measured": row.number(judgement.measured), "claimed": row.reference,
            "margin": signed(row, judgement.margin), "depends": judgement.reason or "; ".join(axes), "page": row.page,
        })  # fmt: skip
    return pd.DataFrame(rows)


def signed(row, margin):
    """A margin in a row's unit as it is printed, with its sign; empty if it is NaN."""
    if abs(margin) <= row.tolerance <= EXACT:
        return "exact"
    return ("+" if margin > 0 else "") + row.number(margin)


def headline_table(claims, judgements, implied=None):
    """One line per claim: the verdict that follows from its deciding rows, and the numbers of the weakest of these.

    Parameters
    ----------
    claims, judgements
        As in `claims_table`.
    implied : list of Judgement, optional
        From `judge`, under the setting that the published numbers imply.

    Returns
    -------
    DataFrame
        One line per claim; columns ``claim, title, statement, by, verdict, axes, row, measured, claimed, margin, rows,
        holding, holding_implied, page``. ``axes`` lists the kinds of assumptions on which an answer of a deciding row
        depends, around any setting. ``row`` is the weakest of the deciding rows, and of equally weak ones the first in
        the file; ``rows`` counts those of whoever makes the claim, ``holding`` and ``holding_implied`` those of them
        that hold under the two settings.
    """
    table = claims_table(claims, judgements).set_index("id")
    judged = {judgement.row.id: judgement for judgement in judgements}
    fitted = {judgement.row.id: judgement.holds_here for judgement in implied or ()}
    lines = []
    for claim in claims:
        rows = [row.id for row in claim.rows if claim.by_of(row) == claim.by]
        deciding = [judged[row.id] for row in claim.deciding]
        verdicts = {judgement.verdict for judgement in deciding} - {"no case"} or {"no case"}
        verdict = VERDICTS[verdicts.pop() if len(verdicts) == 1 else "depends"]
        weakest = min(deciding, key=lambda judgement: (_STRENGTH.index(judgement.verdict), judgement.holds_here))
        lines.append({
            "claim": claim.number, "title": claim.title, "statement": claim.statement, "by": claim.by,
            "verdict": "holds in part" if "fails" in verdicts else verdict, "axes": ", ".join(_open_axes(deciding)),
            "row": weakest.row.id, **table.loc[weakest.row.id, ["measured", "claimed", "margin"]],
            "rows": len(rows), "holding": sum(judged[row].holds_here for row in rows),
            "holding_implied": sum(fitted.get(row, False) for row in rows), "page": weakest.row.page,
        })  # fmt: skip
    return pd.DataFrame(lines)


def _open_axes(judgements):
    """The axes along which some row holds under some assumptions around a setting and not under others."""
    answers = {}
    for judgement in judgements:
        for assumption, margin in judgement.outcomes.items():
            answers.setdefault((assumption.axis, assumption.anchor, judgement.row.id), set()).add(margin >= 0)
    open_axes = {axis for (axis, *_), verdicts in answers.items() if len(verdicts) > 1}
    return [name for axis, name in AXES.items() if axis in open_axes]


def outcome_table(claims, judgements):
    """The margin of every row under every assumption.

    Parameters
    ----------
    claims, judgements
        As in `claims_table`.

    Returns
    -------
    DataFrame
        One line per row and assumption; columns ``claim, id, anchor, axis, value, margin``; rows without a case have
        none.
    """
    numbers = {row.id: claim.number for claim in claims for row in claim.rows}
    rows = [
        (numbers[judgement.row.id], judgement.row.id, *assumption[:3], margin)
        for judgement in judgements
        for assumption, margin in judgement.outcomes.items()
    ]
    return pd.DataFrame(rows, columns=["claim", "id", "anchor", "axis", "value", "margin"])


def marked_list(headlines):
    """The claims with their verdicts as a list in MyST, for a page to include.

    Parameters
    ----------
    headlines : DataFrame
        From `headline_table`.

    Returns
    -------
    str
        One item per claim: the sign of its verdict, its statement, the verdict and what it depends on, and a link.
    """
    items = []
    for claim in headlines.itertuples():
        verdict = f"{claim.verdict}: {claim.axes}" if claim.verdict == VERDICTS["depends"] else claim.verdict
        link = f"{{doc}}`{claim.title} </{claim.page}>`"
        items.append(f"- {MARKS[claim.verdict]} {claim.statement} *{verdict[0].upper()}{verdict[1:]}* ({link}).")
    return ":::{div} claim-marks\n" + "\n".join(items) + "\n:::\n"
