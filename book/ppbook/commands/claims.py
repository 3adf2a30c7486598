"""ppmodel claims: judge the paper's claims, or STP's."""

import math
from dataclasses import replace
from pathlib import Path

import click

from ppbook.commands import command
from ppbook.commands.book import parameters
from ppmodel.cli import arguments
from ppmodel.cli.text import aligned, say, say_json
from ppmodel.errors import PPModelError, did_you_mean

_DEFAULT = "default", ()  # the anchor and the changes of the assumption that is the default setting


@command("claims")
@arguments.option(
    "of", None, "The claims to judge.", arguments.choice(("paper", "stp")), default="paper", show_default=True
)
@click.option("--rows", is_flag=True, help="Print every row behind the verdicts.")
@arguments.option("row only", "ID", "Print this row alone; the book's verdicts name them.")
@parameters("Change a value of the setting.")
@arguments.option("system", "NAME|FILE", "Judge on this system instead of the paper's nine.")
@arguments.option("model", "NAME|FILE", "Judge for this model.", default="paper", show_default=True)
@arguments.option("setting", "NAME|FILE", "Choices that the paper leaves open.", default="default", show_default=True)
@arguments.json_option("Print one JSON array with an object for each row.")
def claims_command(of, rows, only, given, system, model, setting, as_json):
    """Judge the claims of the paper, or those about STP; exit with 1 if a verdict is not as expected.

    Prints each figure and claim with its verdict, the weakest number behind it beside the claimed one, and the
    assumption that decides. With --rows, "here" says whether a row holds under the setting given, "default" whether it
    holds under the default one, and the margin is how far the number lies within the claim. With --row, the commands
    under which the row's answer turns are printed, too.
    """
    from ppbook import claims as judging
    from ppbook.parameters import Parameter, load_setting, parse, setting_names
    from ppbook.parameters.files import same_name
    from ppmodel.clusters.specs import load_model, load_system

    if setting not in setting_names() and Path(setting).stem in setting_names():
        raise PPModelError("--setting", setting, *same_name(setting, "settings"))
    usual = system is None and (model, setting, given) == ("paper", "default", ())
    if of == "stp" and not usual:
        rule = "has no effect: STP's claims are judged on its own runs"
        raise PPModelError("--of", of, rule, "leave out --system, --model, --setting and -p")
    claims, figures = judging.load_claims(about=of), judging.load_figures() if of == "paper" else []
    if only is not None:
        ids = [row.id for row in judging.rows_of(claims)]
        remedy = did_you_mean(only, ids) or f"write, for example, {ids[0]}; --rows prints all"
        claims = [claim.model_copy(update={"rows": [row]}) for claim in claims for row in claim.rows if row.id == only]
        if not claims:
            raise PPModelError("--row", only, "is not a row of these claims", remedy)
    if of == "stp":
        judgements = judging.judge_stp(claims)
    else:
        judged_on = None if system is None else load_system(system)
        chosen = load_setting(setting)
        if given:
            values = {name: Parameter(getattr(chosen, name), "", None, False) for name in judging.UNKNOWNS}
            chosen = replace(chosen, name=f"{chosen.name}, changed", **parse(given, values))
        judgements = judging.judge(claims, load_model(model), chosen, judged_on)
    unexpected = judging.disagreements(judgements, margins=usual)
    if as_json:
        say_json([{
            "id": row.id, "statement": row.statement, "verdict": judgement.verdict, "expected": row.expected.verdict,
            "measured": judgement.measured, "relation": row.relation, "value": row.value, "tolerance": row.tolerance,
            "unit": row.unit, "margin": judgement.margin, "condition": judgement.reversed_by(),
            "reason": judgement.reason, "page": row.page,
        } for judgement in judgements for row in [judgement.row]])  # fmt: skip
        return 1 if unexpected else 0
    say(_rows_table(judgements, usual) if rows or only else _headlines(claims, judgements, figures))
    for axis, again in judging.commands(judgements[0], setting, given).items() if only else ():
        say(f"turned by {axis}: {again}")
    if only and not judgements[0].turned:
        tried = len({each.setting for each in judgements[0].outcomes})
        failing = judgements[0].verdict == "fails"
        say(judging.decided(judgements[0])[1] if failing else f"turned by none of the {tried} assumptions tried")
    if unexpected:
        lines = [["not as in data/claims.yaml", "verdict", "expected", "margin", "expected"]]
        for judgement in unexpected:
            row, both = judgement.row, (judgement, judgement.row.expected)
            verdicts = [judging.VERDICTS[each.verdict] for each in both]
            lines.append([row.id, *verdicts, *(judging.signed(row, each.margin) for each in both)])
        say(["", *aligned(lines, right=(3, 4))])
    return 1 if unexpected else 0


def _headlines(claims, judgements, figures):
    """The verdict and the statement of each figure and claim, and below it the numbers of its weakest row."""
    from ppbook import claims as judging

    lines = []
    for claim in judging.headline_table(claims, judgements, figures=figures).itertuples():
        lines.append(f"{judging.MARKS[claim.verdict]:<2}{claim.verdict:<15}{claim.claim:>7}  {claim.statement}")
        if claim.row:
            decides = f"; {claim.decides}" if claim.decides else ""
            numbers = f"claimed {claim.claimed}, ours {claim.measured}{decides}"
            numbers += f"; {claim.holding} of {claim.rows} rows hold here, {claim.row} is the weakest"
            lines.append(f"{'':<26}{numbers}")
    return "\n".join(lines)


def _rows_table(judgements, usual):
    """Every row, and the rows by verdict; unless the default setting is judged, also whether each holds under that."""
    from ppbook import claims as judging

    default, right = ["default"] * (not usual), range(4 - usual, 7 - usual)
    rows = [["id", "verdict", *default, "here", "measured", "claimed", "margin", "read on", "depends on"]]
    for judgement in judgements:
        row, margins = judgement.row, [judgement.margin]
        if not usual:
            default = (margin for each, margin in judgement.outcomes.items() if (each.anchor, each.changes) == _DEFAULT)
            margins = [next(default, math.nan), *margins]
        answers = ["" if math.isnan(margin) else "yes" if margin >= 0 else "no" for margin in margins]
        rows.append([
            row.id, judging.VERDICTS[judgement.verdict], *answers,
            row.number(judgement.measured), row.reference, judging.signed(row, judgement.margin), row.page,
            judgement.reason or ", ".join(judgement.reversed_by()),
        ])  # fmt: skip
    if len(judgements) == 1:
        return aligned(rows, right=right)
    verdicts = [judgement.verdict for judgement in judgements]
    counts = [[name, str(verdicts.count(verdict))] for verdict, name in judging.VERDICTS.items()]
    counts.append(["here", str(sum(judgement.holds_here for judgement in judgements))])
    return [*aligned(rows, right=right), "", *aligned([["verdict", "rows"], *counts], right=[1])]
