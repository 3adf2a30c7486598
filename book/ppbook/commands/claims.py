"""ppmodel claims: judge the paper's claims, and STP's."""

from pathlib import Path

import click

from ppmodel.cli import arguments
from ppmodel.cli.commands import command
from ppmodel.cli.text import say, say_json
from ppmodel.errors import PPModelError


@command("claims")
@click.option("--system", metavar="NAME|FILE", help="Judge on this system instead of the paper's nine.")
@click.option("--model", metavar="NAME|FILE", default="paper", show_default=True, help="Model.")
@click.option(
    "--setting", metavar="NAME|FILE", default="default", show_default=True, help="Choices that the paper leaves open."
)
@arguments.json_option("Print one JSON array with an object for each row.")
def claims_command(system, model, setting, as_json):
    """Judge the paper's claims, and STP's on its own runs; exit code 1 if a verdict is not as expected."""
    from ppbook.claims import disagreements, judge, judge_stp, load_claims
    from ppbook.commands.judged import report
    from ppbook.setting import load_setting, setting_names
    from ppmodel.specs import load_model, load_system
    from ppmodel.specs.files import same_name

    if setting not in setting_names() and Path(setting).stem in setting_names():
        raise PPModelError("--setting", setting, *same_name(setting, "settings"))
    usual = system is None and (model, setting) == ("paper", "default")
    on = load_model(model), load_setting(setting), None if system is None else load_system(system)
    judgements = judge(load_claims(), *on)
    if usual:
        judgements += judge_stp(load_claims(about="stp"))
    others = disagreements(judgements, margins=usual)
    say_json([_judged(judgement) for judgement in judgements]) if as_json else say(report(judgements, others))
    return 1 if others else 0


def _judged(judgement):
    """A judgement as an object."""
    from ppbook.claims import condition

    row = judgement.row
    return {
        "id": row.id, "statement": row.statement, "verdict": judgement.verdict, "expected": row.expected.verdict,
        "measured": judgement.measured, "relation": row.relation, "value": row.value, "tolerance": row.tolerance,
        "unit": row.unit, "margin": judgement.margin, "condition": condition(judgement), "reason": judgement.reason,
        "page": row.page,
    }  # fmt: skip
