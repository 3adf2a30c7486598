"""Judgements as tables: every row, a line per claim, and the margin under every assumption."""

import pandas as pd

from ppbook.claims.file import load_figures
from ppbook.claims.rows import EXACT
from ppbook.claims.verdicts import VERDICTS
from ppbook.pages.report import TEMPLATES
from ppmodel.simulation import BUFFERED

MARKS = {"holds": "✓", "depends": "◐", "holds in part": "◔", "does not hold": "✗", "no case": "", "no number": "○"}
"""A sign for each verdict."""

AXES = {
    "semantics": "transfers (all-reduce)", "concat": "Chimera's concatenation", "waves": "Hanayo's waves",
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
        One line per row; columns ``claim, id, title, statement, where, by, kind, verdict, here, measured, claimed,
        margin, depends, page``. ``claim`` is the claim's number, ``by`` says whose claim the row checks, and ``here``
        whether it holds under the setting itself. Numbers are as they are printed. ``depends`` lists what
        `Judgement.reversed_by` returns, or says why there is no case; of a row that always fails, what comes nearest.
    """
    claim_of = {row.id: claim for claim in claims for row in claim.rows}
    rows = []
    for judgement in judgements:
        row, claim = judgement.row, claim_of[judgement.row.id]
        axes = [f"{AXES[axis]}: {' / '.join(values)}" for axis, values in judgement.reversed_by().items()]
        depends = decided(judgement)[1] if judgement.verdict == "fails" else judgement.reason or "; ".join(axes)
        rows.append({
            "claim": claim.number, "id": row.id, "title": row.title, "statement": row.statement, "where": row.where,
            "by": claim.by_of(row), "kind": row.kind, "verdict": VERDICTS[judgement.verdict],
            "here": judgement.holds_here, "measured": row.number(judgement.measured), "claimed": row.reference,
            "margin": signed(row, judgement.margin), "depends": depends, "page": row.page,
        })  # fmt: skip
    return pd.DataFrame(rows)


def signed(row, margin):
    """A margin in a row's unit as it is printed, with its sign; empty if it is NaN."""
    if abs(margin) <= row.tolerance <= EXACT:
        return "exact"
    return ("+" if margin > 0 else "") + row.number(margin)


def headline_table(claims, judgements, implied=None, figures=()):
    """One line per figure and claim: the verdict that follows from the deciding rows, and the weakest row's numbers.

    Parameters
    ----------
    claims, judgements
        As in `claims_table`.
    implied : list of Judgement, optional
        From `judge`, under the setting that the published numbers imply.
    figures : list of Figure, optional
        From `load_figures`; all rows of a figure decide.

    Returns
    -------
    DataFrame
        One line per figure and claim; columns ``claim, title, statement, by, label, verdict, row, measured, claimed,
        margin, axis, decides, page, rows, holding, holding_implied``. ``claim`` is a claim's number, or a figure's,
        whose counterpart here has the `label`. ``row`` is the weakest of the deciding rows, and of equally weak ones
        the first; ``decides`` is the assumption that reverses its answer, of the kind ``axis``, and whether the row
        holds under it or fails; where none does, how many were tried, and which comes nearest, how near. ``rows``
        counts those of whoever makes the claim, ``holding`` and ``holding_implied`` those of them that hold under the
        two settings.
    """
    judged = {judgement.row.id: judgement for judgement in judgements}
    fitted = {judgement.row.id: judgement.holds_here for judgement in implied or ()}
    entries = [(figure.figure, figure, figure.rows, figure.rows) for figure in figures]
    for claim in claims:
        rows = [row.id for row in claim.rows if claim.by_of(row) == claim.by]
        entries.append((claim.number, claim, [row.id for row in claim.deciding], rows))
    return pd.DataFrame([
        {"claim": name, "title": entry.title, "statement": entry.statement, "by": getattr(entry, "by", "paper"),
         "label": getattr(entry, "label", "")}
        | _verdict([judged[row] for row in deciding], getattr(entry, "page", ""))
        | {"rows": len(rows), "holding": sum(judged[row].holds_here for row in rows),
           "holding_implied": sum(fitted.get(row, False) for row in rows)}
        for name, entry, deciding, rows in entries
    ])  # fmt: skip


def _verdict(deciding, page=""):
    """The columns of a claim that follow from its deciding rows; a figure without rows has no number to judge."""
    if not deciding:
        empty = dict.fromkeys(("row", "measured", "claimed", "margin", "axis", "decides"), "")
        return empty | {"verdict": "no number", "page": page}
    verdicts = {judgement.verdict for judgement in deciding} - {"no case"} or {"no case"}
    verdict = VERDICTS[verdicts.pop() if len(verdicts) == 1 else "depends"]
    weakest = min(deciding, key=lambda judgement: (_STRENGTH.index(judgement.verdict), judgement.holds_here))
    row, (axis, decides) = weakest.row, decided(weakest)
    return {
        "verdict": "holds in part" if "fails" in verdicts else verdict, "row": row.id, "page": page or row.page,
        "measured": row.number(weakest.measured), "claimed": row.reference, "margin": signed(row, weakest.margin),
        "axis": axis, "decides": decides,
    }  # fmt: skip


def decided(judgement):
    """The kind of the assumption that reverses a row's answer, and its name; where all transfers do, the all-reduce."""
    if judgement.verdict == "fails":
        margins, tried = judgement.outcomes, len({assumption.setting for assumption in judgement.outcomes})
        best = max(margins, key=margins.get)
        nearest = f"; nearest, with a margin of {signed(judgement.row, margins[best])}, under "
        nearest += _name(best, judgement.anchor)
        return "", f"holds under none of {tried}" + nearest * (margins[best] > min(margins.values()))
    axis, values = next(iter(judgement.reversed_by().items()), ("", []))
    if not axis:
        return axis, judgement.reason
    name, num_more = f"{AXES[axis]}: {values[0]}", len(values) - 1
    if axis == "setting":
        name = _name(_nearest(judgement.turned[axis]), judgement.anchor)
    elif axis == "semantics":
        transfers, _, sums = values[0].partition(" (")
        by_sums = sums and len(values) == len(BUFFERED)
        axis, name = ("all-reduce", sums.removesuffix(")")) if by_sums else ("transfers", transfers)
        name, num_more = f"{axis}: {name}", num_more * (not by_sums)
    more = f", or {num_more} more" * (num_more > 0 and axis != "setting")
    return axis, f"{'fails' if judgement.holds_here else 'holds'} under {name}{more}"


def _name(assumption, anchor):
    """An assumption in words, seen from the setting that is judged."""
    name = f"{AXES[assumption.axis]}: {assumption.value}"
    if assumption.anchor == anchor:
        return name
    return f"several at once: setting {assumption.anchor}" + f" with {name}" * bool(assumption.changes)


def _nearest(assumptions):
    """The assumption with the fewest changes of a setting."""
    return min(assumptions, key=lambda assumption: len(assumption.changes))


def commands(judgement, setting="default", given=()):
    """The commands that judge a row again where its answer turns, one for each axis.

    Parameters
    ----------
    judgement : Judgement
    setting : str
        Name or file of the setting.
    given : iterable of (str, str)
        What the judgement has changed of it.

    Returns
    -------
    dict of str to str
        By axis, as `AXES` prints it; empty if nothing turns the answer.
    """
    again, turned = {}, judgement.turned
    turned.pop("costs", None)  # of STP's claims, which no setting has
    nearest = {axis: _nearest(assumptions) for axis, assumptions in turned.items()}
    for axis, assumption in sorted(nearest.items(), key=lambda item: len(item[1].changes)):
        anchor, values = (setting, dict(given)) if assumption.anchor == judgement.anchor else (assumption.anchor, {})
        values |= {name: f"{new:g}" if isinstance(new, float) else str(new).lower() for name, new in assumption.changes}
        options = f" --setting {anchor}" * (anchor != "default")
        options += "".join(f" -p {name} {value}" for name, value in values.items())
        again[AXES[axis]] = f"ppmodel claims --row {judgement.row.id}{options}"
    return again


def verdict_page(headlines, claims, judgements):
    """The verdicts as a coloured table in MyST, and the rows behind each, which unfold.

    Parameters
    ----------
    headlines : DataFrame
        From `headline_table`.
    claims : list of Claim
    judgements : list of Judgement

    Returns
    -------
    str
    """
    again = [next(iter(commands(each).values()), f"ppmodel claims --row {each.row.id}") for each in judgements]
    table = claims_table(claims, judgements).assign(again=again)
    table["deciding"] = table.id.isin([row.id for claim in claims for row in claim.deciding])
    rows = {row.id: row for row in table.itertuples()}
    behind = {number: list(of_claim.itertuples()) for number, of_claim in table.groupby("claim")}
    behind |= {figure.figure: [rows[row] for row in figure.rows] for figure in load_figures()}
    headlines = list(headlines.itertuples())
    return TEMPLATES.get_template("verdicts.md").render(headlines=headlines, rows=rows, marks=MARKS, behind=behind)
