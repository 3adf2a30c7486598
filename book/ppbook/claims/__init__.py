"""The paper's claims, judged: each criterion is data, its quantity is computed, and the verdict follows.

``data/claims.yaml`` holds an entry for each claim, with a row for each number or statement that can be checked. A row
names a quantity and a requirement on it. The quantity is computed under a setting and under all assumptions tried, and
the verdict says whether the row holds under all of them, under some, or under none.
"""

from ppbook.claims.bench import GROUPS, NINE, Bench, change_of
from ppbook.claims.file import Claim, Expected, Row, compare, load_claims, published, rows_of
from ppbook.claims.judge import (
    KNOBS,
    VERDICTS,
    Assumption,
    Judgement,
    Turn,
    assumptions,
    condition,
    disagreements,
    judge,
    measure,
    turns,
)
from ppbook.claims.search import TARGETS, UNKNOWNS, holding, in_words, search
from ppbook.claims.stp import judge_stp
from ppbook.claims.tables import claims_table, headline_table, outcome_table, signed, write_marks

__all__ = [
    "GROUPS",
    "KNOBS",
    "NINE",
    "TARGETS",
    "UNKNOWNS",
    "VERDICTS",
    "Assumption",
    "Bench",
    "Claim",
    "Expected",
    "Judgement",
    "Row",
    "Turn",
    "assumptions",
    "change_of",
    "claims_table",
    "compare",
    "condition",
    "disagreements",
    "headline_table",
    "holding",
    "in_words",
    "judge",
    "judge_stp",
    "load_claims",
    "measure",
    "outcome_table",
    "published",
    "rows_of",
    "search",
    "signed",
    "turns",
    "write_marks",
]
