"""Judgements as tables: every row, a line per claim, and the margin under every assumption."""

import pandas as pd
from ruamel.yaml import YAML

from ppbook.claims.executed_quantities import EXECUTED
from ppbook.claims.file import load_figures
from ppbook.claims.rows import EXACT
from ppbook.claims.stp_quantities import ANCHOR
from ppbook.claims.verdicts import VERDICTS
from ppbook.pages.report import TEMPLATES
from ppmodel.clusters.specs import DATA

MARKS = {"holds": "✓", "depends": "◐", "does not hold": "✗", "no case": "", "no number": "○"}
"""A sign for each verdict."""

_WORDS = YAML(typ="safe").load(DATA / "assumptions.yaml")
AXES = _WORDS["axes"]
"""What assumptions vary, and how it is printed."""

_SHORT = {"semantics": "transfers", "concat": "concatenation", "backward": "backward"}

_STRENGTH = ("does not hold", "depends", "holds", "no case")


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
        depends = nearest(judgement) if judgement.verdict == "fails" else judgement.reason or "; ".join(axes)
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


def headline_table(claims, judgements, figures=()):
    """One line per figure and claim: the verdict of its weakest row, and that row's numbers.

    Parameters
    ----------
    claims, judgements
        As in `claims_table`.
    figures : list of Figure, optional
        From `load_figures`.

    Returns
    -------
    DataFrame
        One line per figure and claim; columns ``claim, title, statement, by, label, page, verdict, row, measured,
        claimed, depends, rows, holding``. ``claim`` is a claim's number, or a figure's, whose counterpart here has the
        `label`. ``row`` is the weakest row, and of equally weak ones the first; ``verdict`` is as in
        `Judgement.reproduced`, ``depends`` names what reverses the row's answer. ``holding`` counts the ``rows`` that
        hold under the setting itself.
    """
    judged, lines = {judgement.row.id: judgement for judgement in judgements}, []
    entries = [(figure.figure, figure, figure.rows) for figure in figures]
    for name, entry, ids in [*entries, *((claim.number, claim, [row.id for row in claim.rows]) for claim in claims)]:
        behind = [judged[row] for row in ids]
        line = {
            "claim": name, "title": entry.title, "statement": entry.statement, "by": getattr(entry, "by", "paper"),
            "label": getattr(entry, "label", ""), "page": getattr(entry, "page", ""), "verdict": "no number",
            "row": "", "measured": "", "claimed": "", "depends": "",
        }  # fmt: skip
        if behind:  # a figure without rows has no number to judge
            weakest = min(behind, key=lambda each: (_STRENGTH.index(each.reproduced), each.verdict != "fails"))
            row, nothing = weakest.row, f"nothing of {weakest.tried}" if weakest.verdict == "fails" else ""
            line |= {
                "page": line["page"] or row.page, "verdict": weakest.reproduced, "row": row.id,
                "measured": row.number(weakest.measured), "claimed": row.reference,
                "depends": weakest.reason or ", ".join(_SHORT.get(axis, axis) for axis in weakest.turned) or nothing,
            }  # fmt: skip
        lines.append(line | {"rows": len(behind), "holding": sum(each.holds_here for each in behind)})
    return pd.DataFrame(lines)


def counted(judgements):
    """How many rows hold, in numbers and as a sentence.

    Parameters
    ----------
    judgements : list of Judgement
        Of one setting.

    Returns
    -------
    facts : dict of str to int
        The numbers of ``rows``, of those that hold under the setting (``hold``) and under all tried (``hold_all``), of
        those that fail under it and under all, and of the settings ``tried``.
    sentence : str
        The same in words.
    """
    verdicts, anchor = [judgement.verdict for judgement in judgements], judgements[0].anchor
    facts = {
        "rows": len(verdicts), "hold": sum(judgement.holds_here for judgement in judgements),
        "hold_all": verdicts.count("holds"), "fail_all": verdicts.count("fails"),
        "fail": [judgement.reproduced for judgement in judgements].count("does not hold"),
        "tried": max(judgement.tried for judgement in judgements),
    }  # fmt: skip
    under = anchor if anchor in (ANCHOR, *EXECUTED) else f"the setting {anchor}"
    text = "{hold} of {rows} numbers and statements hold under {under}, {hold_all} of them under all {tried} tried; "
    return facts, (text + "{fail} fail, {fail_all} under all tried.").format(under=under, **facts)


def nearest(judgement):
    """Of a row that never holds, the assumption that comes nearest, in words."""
    margins, text = judgement.outcomes, f"holds under none of {judgement.tried}"
    best = max(margins, key=margins.get)
    if margins[best] == min(margins.values()):
        return text
    margin, name = signed(judgement.row, margins[best]), _name(best, judgement.anchor)
    return f"{text}; nearest, with a margin of {margin}, under {name}"


def _name(assumption, anchor):
    """An assumption in words, seen from the setting that is judged."""
    name = f"{AXES[assumption.axis]}: {assumption.value}"
    if assumption.anchor == anchor:
        return name
    return f"several at once: setting {assumption.anchor}" + f" with {name}" * bool(assumption.changes)


def turned_by(judgement):
    """What turns a row's answer, as a page says it: one assumption of each kind.

    Parameters
    ----------
    judgement : Judgement

    Returns
    -------
    str
        Empty if nothing turns the answer.
    """
    return "; ".join(_spelled(_nearest(of_kind), judgement.anchor) for of_kind in judgement.turned.values())


def _spelled(assumption, anchor):
    """An assumption as a page says it, seen from the setting that is judged."""
    words = " and ".join(_WORDS["values"][name][value] for name, value in assumption.changes)
    if assumption.anchor == anchor:
        return words
    return f"setting {assumption.anchor}" + f" with {words}" * bool(words)


def _nearest(assumptions):
    """The assumption with the fewest changes of a setting."""
    return min(assumptions, key=lambda assumption: len(assumption.changes))


def commands(judgement, setting="paper", given=()):
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
    for axis in ("costs", "transfers"):  # of STP's claims and of executed tables, which no setting has
        turned.pop(axis, None)
    nearest = {axis: _nearest(assumptions) for axis, assumptions in turned.items()}
    for axis, assumption in sorted(nearest.items(), key=lambda item: len(item[1].changes)):
        anchor, values = (setting, dict(given)) if assumption.anchor == judgement.anchor else (assumption.anchor, {})
        values |= {name: f"{new:g}" if isinstance(new, float) else str(new).lower() for name, new in assumption.changes}
        options = f" --setting {anchor}" * (anchor != "paper")
        options += "".join(f" -p {name} {value}" for name, value in values.items())
        again[AXES[axis]] = f"ppmodel claims --row {judgement.row.id}{options}"
    return again


def verdict_page(headlines, claims, judgements, beside):
    """The verdicts as a coloured table whose lines unfold into their rows, in MyST.

    Parameters
    ----------
    headlines : DataFrame
        From `headline_table`.
    claims : list of Claim
    judgements, beside : list of Judgement
        Under the setting of the page, and under the one whose numbers stand beside.

    Returns
    -------
    str
    """
    table = claims_table(claims, judgements).assign(
        again=[next(iter(commands(each).values()), f"ppmodel claims --row {each.row.id}") for each in judgements],
        reproduced=[each.reproduced for each in judgements],
        beside=[each.row.number(each.measured) for each in beside],
        unmet=[each.row.unmet for each in judgements],
    )
    rows = {row.id: row for row in table.itertuples()}
    behind = {number: list(of_claim.itertuples()) for number, of_claim in table.groupby("claim")}
    behind |= {figure.figure: [rows[row] for row in figure.rows] for figure in load_figures()}
    return TEMPLATES.get_template("verdicts.md").render(
        headlines=list(headlines.itertuples()), marks=MARKS, behind=behind, other=beside[0].anchor,
        titles=dict(zip(table.id, table.title, strict=True)),
    )  # fmt: skip
