"""ppmodel claims: judge the paper's claims, and STP's."""

from pathlib import Path

import click

from ppmodel.cli import arguments
from ppmodel.cli.commands import command
from ppmodel.cli.text import columns, say, say_json
from ppmodel.errors import PPModelError


@command("claims")
@click.option("--system", metavar="NAME|FILE", help="Judge on this system instead of the paper's nine.")
@click.option("--model", metavar="NAME|FILE", default="paper", show_default=True, help="Model.")
@click.option(
    "--setting", metavar="NAME|FILE", default="default", show_default=True, help="Choices that the paper leaves open."
)
@arguments.json_option("Print one JSON array with an object for each row.")
def claims_command(system, model, setting, as_json):
    """Judge the paper's claims, and STP's on its own runs; exit code 1 if a verdict is not as expected.

    "here" is whether a row holds under the setting itself; the margin is how far the number is inside what is claimed.
    """
    from ppbook.claims import disagreements, judge, judge_stp, load_claims
    from ppbook.setting import load_setting, setting_names
    from ppmodel.specs import load_model, load_system
    from ppmodel.specs.files import same_name

    if setting not in setting_names() and Path(setting).stem in setting_names():
        raise PPModelError("--setting", setting, *same_name(setting, "settings"))
    usual = system is None and (model, setting) == ("paper", "default")
    judgements = judge(
        load_claims(), load_model(model), load_setting(setting), None if system is None else load_system(system)
    )
    if usual:
        judgements += judge_stp(load_claims(about="stp"))
    unexpected = disagreements(judgements, margins=usual)
    say_json([_object(judgement) for judgement in judgements]) if as_json else say(_tables(judgements, unexpected))
    return 1 if unexpected else 0


def _object(judgement):
    row = judgement.row
    return {
        "id": row.id, "statement": row.statement, "verdict": judgement.verdict, "expected": row.expected.verdict,
        "measured": judgement.measured, "relation": row.relation, "value": row.value, "tolerance": row.tolerance,
        "unit": row.unit, "margin": judgement.margin, "condition": judgement.reversed_by(),
        "reason": judgement.reason, "page": row.page,
    }  # fmt: skip


def _tables(judgements, unexpected):
    """The judgements as tables: every row, the rows by verdict, and those that are not as expected."""
    from ppbook.claims import VERDICTS, signed

    rows = [["id", "verdict", "here", "measured", "claimed", "margin", "read on", "depends on"]]
    for judgement in judgements:
        row, answer = judgement.row, "yes" if judgement.holds_here else "no"
        rows.append([
            row.id, VERDICTS[judgement.verdict], "" if judgement.verdict == "no case" else answer,
            row.number(judgement.measured), row.reference, signed(row, judgement.margin), row.page,
            judgement.reason or ", ".join(judgement.reversed_by()),
        ])  # fmt: skip
    verdicts = [judgement.verdict for judgement in judgements]
    counts = [[name, str(verdicts.count(verdict))] for verdict, name in VERDICTS.items()]
    counts.append(["here", str(sum(judgement.holds_here for judgement in judgements))])
    tables = [columns(rows, right=(3, 4, 5)), columns([["verdict", "rows"], *counts], right=[1])]
    if unexpected:
        rows = [["not as in data/claims.yaml", "verdict", "expected", "margin", "expected"]]
        for judgement in unexpected:
            row, expected = judgement.row, judgement.row.expected
            verdicts = [VERDICTS[judgement.verdict], VERDICTS[expected.verdict]]
            rows.append([row.id, *verdicts, signed(row, judgement.margin), signed(row, expected.margin)])
        tables.append(columns(rows, right=(3, 4)))
    return "\n\n".join(tables)
