"""Judged claims as lines of text."""

import textwrap

from ppbook.claims import VERDICTS, condition, signed


def report(judgements, others):
    """One line per row, below it the condition if it holds only sometimes, and finally what was not expected."""
    form = "{:<23} {:<14} {:<4} {:>10} {:>15} {:>11}  {}"
    lines = [form.format("id", "verdict", "here", "measured", "claimed", "margin", "read on")]
    for one in judgements:
        row = one.row
        numbers = (row.number(one.measured), row.reference, signed(row, one.margin))
        here = {"no case": ""}.get(one.verdict, "yes" if one.holds_here else "no")
        lines.append(form.format(row.id, VERDICTS[one.verdict], here, *numbers, row.page))
        said = condition(one) or one.reason
        lines += textwrap.wrap(said, 100, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    counts = ", ".join(f"{sum(one.verdict == key for one in judgements)} {word}" for key, word in VERDICTS.items())
    lines.append(
        f"\n{sum(one.holds_here for one in judgements)} of {len(judgements)} rows hold here, under this setting; "
        f"under all assumptions tried: {counts}\n"
        "margin: how far the number is inside what is claimed; negative if it is outside"
    )
    if others:
        lines.append("\ndiffers from data/claims.yaml, which expects the paper's systems and model:")
    for one in others:
        row = one.row
        pairs = ((one.verdict, one.margin), (row.expected.verdict, row.expected.margin))
        seen, expected = (f"{VERDICTS[verdict]} (margin {signed(row, margin)})" for verdict, margin in pairs)
        lines.append(f"{row.id}: {seen}, expected {expected}")
    return "\n".join(lines)
