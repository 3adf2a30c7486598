"""ppmodel claims: judge the paper's claims, the same by executed tables, or STP's."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from ppbook.commands import command
from ppbook.commands.book import parameters
from ppmodel.cli import arguments
from ppmodel.cli.text import aligned, say, say_json
from ppmodel.errors import PPModelError, did_you_mean


@command("claims")
@arguments.option(
    "of", None, "The claims to judge.", arguments.choice(("paper", "executed", "stp")), default="paper",
    show_default=True,
)  # fmt: skip
@click.option("--rows", is_flag=True, help="Print every row behind the verdicts.")
@arguments.option("row only", "ID", "Print this row alone; the book's verdicts name them.")
@parameters("Change a value of the setting.")
@arguments.option("system", "NAME|FILE", "Judge on this system instead of the paper's nine.")
@arguments.option("model", "NAME|FILE", "Judge for this model.", default="paper", show_default=True)
@arguments.option("setting", "NAME|FILE", "Choices that the paper leaves open.", default="paper", show_default=True)
@arguments.json_option("Print one JSON array with an object for each row.")
def claims_command(of, rows, only, given, system, model, setting, as_json):
    """Judge the claims of the paper, or those about STP; exit with 1 if a verdict is not as expected.

    Prints how many numbers and statements hold, and each figure and claim with the verdict and numbers of its weakest
    row: it holds under all settings tried, depends on them but holds under the one given, or does not hold under that.
    With --rows, the margin is how far the number lies within the claim. With --row, what is measured is said in words,
    with the commands under which the answer turns. --of executed judges the paper's on tables that were run for real;
    -p recording FILE puts your own runs in their place.
    """
    from ppbook import claims as judging
    from ppbook.parameters import Parameter, load_setting, parse
    from ppbook.parameters.files import same_name
    from ppmodel.clusters.specs import load_model, load_system, packaged
    from ppmodel.studies.workers.progress import following

    follow = partial(following, text="judging rows")
    if setting not in packaged("settings") and Path(setting).stem in packaged("settings"):
        raise PPModelError("--setting", setting, *same_name(setting, "settings"))
    usual = system is None and model == "paper" and setting in judging.ANCHORS and not given
    recording = dict(given).get("recording", "runs") if of == "executed" and len(given) < 2 else None
    others = [name for name, _ in given if recording is None or name != "recording"]
    if of != "paper" and (others or (system, model, setting) != (None, "paper", "paper")):
        rule = "has no effect: they are judged on runs of their own"
        remedy = "leave out --system, --model, --setting and -p"
        raise PPModelError("--of", of, rule, remedy + " (but for -p recording FILE)" * (of == "executed"))
    claims, figures = judging.load_claims(about=of), judging.load_figures() if of == "paper" else []
    if only is not None:
        ids = [row.id for row in judging.rows_of(claims)]
        remedy = did_you_mean(only, ids) or f"write, for example, {ids[0]}; --rows prints all"
        claims = [claim.model_copy(update={"rows": [row]}) for claim in claims for row in claim.rows if row.id == only]
        if not claims:
            raise PPModelError("--row", only, "is not a row of these claims", remedy)
    if of == "stp":
        judgements = judging.judge_stp(claims, follow)
    elif of == "executed":
        judgements = judging.judge_executed(claims, recording)
    else:
        judged_on = None if system is None else load_system(system)
        chosen = load_setting(setting)
        if given:
            values = {name: Parameter(getattr(chosen, name), "", None, False) for name in judging.UNKNOWNS}
            chosen = replace(chosen, name=f"{chosen.name}, changed", **parse(given, values))
        judgements = judging.judge(claims, load_model(model), chosen, judged_on, follow)
    unexpected = judging.disagreements(judgements, margins=usual)
    if as_json:
        say_json([{
            "id": row.id, "statement": row.statement, "verdict": judgement.verdict, "expected": row.expected.verdict,
            "measured": judgement.measured, "relation": row.relation, "value": row.value, "tolerance": row.tolerance,
            "unit": row.unit, "margin": judgement.margin, "condition": judgement.reversed_by(),
            "reason": judgement.reason, "page": row.page,
        } for judgement in judgements for row in [judgement.row]])  # fmt: skip
        return 1 if unexpected else 0
    if only is not None:
        say(_one_row(judgements[0], setting, given))
    else:
        say([judging.counted(judgements)[1], "", *_table(judgements, rows, claims, figures)])
    if unexpected:
        lines = [["not as in data/claims.yaml", "verdict", "expected", "margin", "expected"]]
        for judgement in unexpected:
            row, both = judgement.row, (judgement, judgement.row.expected)
            verdicts = [judging.VERDICTS[each.verdict] for each in both]
            margins = (judgement.margin, row.expected.under(judgement.anchor) if usual else math.nan)
            lines.append([row.id, *verdicts, *(judging.signed(row, margin) for margin in margins)])
        say(["", *aligned(lines, right=(3, 4))])
    return 1 if unexpected else 0


def _table(judgements, rows, claims, figures):
    """A line for each figure and claim, or for each row."""
    from ppbook import claims as judging

    if rows:
        lines = [["row", "reproduced", "published", "ours", "margin", "depends on", "read on"]]
        for judgement in judgements:
            row, verdict = judgement.row, judgement.reproduced
            depends = judgement.reason or ", ".join(judgement.turned)
            margin = judging.signed(row, judgement.margin)
            numbers = row.reference, row.number(judgement.measured), margin
            lines.append([row.id, f"{judging.MARKS[verdict]} {verdict}", *numbers, depends, row.page])
        return aligned(lines, right=(2, 3, 4))
    lines = [["statement", "reproduced", "published", "ours", "depends on"]]
    for line in judging.headline_table(claims, judgements, figures=figures).itertuples():
        counted = f"{line.holding} of {line.rows}" if line.rows else "drawn"
        name = f"{line.claim}  {line.title}" if line.label else f"{line.claim:>7}  {line.title}"
        lines.append([name, f"{judging.MARKS[line.verdict]} {counted}", line.claimed, line.measured, line.depends])
    failing = [judgement.row.id for judgement in judgements if judgement.reproduced == judging.VERDICTS["fails"]]
    legend = "✓ under all settings tried; ◐ under this one, not under all; ✗ not under this one: "
    return [
        *aligned(lines, right=(2, 3)), "", legend + ", ".join(failing), "in words, and why: ppmodel claims --row NAME",
    ]  # fmt: skip


def _one_row(judgement, setting, given):
    """What is measured, in words, with both numbers, where to read why a row fails, and what turns its answer."""
    from ppbook import claims as judging

    row, verdict, anchor = judgement.row, judgement.reproduced, judgement.anchor
    words = {
        "holds": f"holds under all {judgement.tried} tried",
        "depends": f"holds under {anchor}, not under all tried",
    }
    words |= {"does not hold": f"does not hold under {anchor}", "no case": f"no case: {judgement.reason}"}
    lines = [
        f"{judging.MARKS[verdict]} {row.id}: {words[verdict]}",
        f"measured: {row.statement}",
        f"published: {row.reference} ({row.kind}: {row.where})",
        f"ours: {row.number(judgement.measured)} under {anchor} (margin: {judging.signed(row, judgement.margin)})",
    ]
    if verdict == judging.VERDICTS["fails"]:
        lines += [f"{name}: {text}" for name, text in row.unmet or ()]
        lines.append(f"why: book/_build/html/{row.page}.html#against-{row.page.removeprefix('nb/')}")
    lines += [f"turned by {axis}: {again}" for axis, again in judging.commands(judgement, setting, given).items()]
    if not judgement.turned:
        failing = judgement.verdict == "fails"
        lines.append(judging.nearest(judgement) if failing else f"turned by none of {judgement.tried} settings tried")
    return lines
