"""Judged claims as lines of text."""

import textwrap
from collections import Counter

from ppbook.claims import VERDICTS, condition, signed


def report(judgements, others):
    """One line per row, below it the condition if it holds only sometimes, and finally what was not expected."""
    form = "{:<23} {:<14} {:<4} {:>10} {:>15} {:>11}  {}"
    lines = [form.format("id", "verdict", "here", "measured", "claimed", "margin", "read on")]
    for judgement in judgements:
        row = judgement.row
        numbers = (row.number(judgement.measured), row.reference, signed(row, judgement.margin))
        here = {"no case": ""}.get(judgement.verdict, "yes" if judgement.holds_here else "no")
        lines.append(form.format(row.id, VERDICTS[judgement.verdict], here, *numbers, row.page))
        note = condition(judgement) or judgement.reason
        lines += textwrap.wrap(note, 100, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    verdicts = Counter(judgement.verdict for judgement in judgements)
    counts = ", ".join(f"{verdicts[verdict]} {word}" for verdict, word in VERDICTS.items())
    here = sum(judgement.holds_here for judgement in judgements)
    lines.append(
        f"\n{here} of {len(judgements)} rows hold here, under this setting; under all assumptions tried: {counts}\n"
        "margin: how far the number is inside what is claimed; negative if it is outside"
    )
    if others:
        lines.append("\ndiffers from data/claims.yaml, which expects the paper's systems and model:")
    for judgement in others:
        row = judgement.row
        pairs = ((judgement.verdict, judgement.margin), (row.expected.verdict, row.expected.margin))
        seen, expected = (f"{VERDICTS[verdict]} (margin {signed(row, margin)})" for verdict, margin in pairs)
        lines.append(f"{row.id}: {seen}, expected {expected}")
    return "\n".join(lines)
