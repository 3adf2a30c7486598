"""The paper's claims, judged: each criterion is data, its quantity is computed, and the verdict follows.

``data/claims.yaml`` holds an entry for each claim, with a row for each number or statement that can be checked. A row
names a quantity and a requirement on it. The quantity is computed under a setting and under all assumptions tried, and
the verdict says whether the row holds under all of them, under some, or under none.
"""

from ppbook.claims.bench import NINE, Bench
from ppbook.claims.file import load_claims, load_figures, published
from ppbook.claims.quantities import measure
from ppbook.claims.rows import Expected, rows_of
from ppbook.claims.settings_search import TARGETS, holding, search
from ppbook.claims.tables import MARKS, claims_table, commands, counted, headline_table, nearest, signed, verdict_page
from ppbook.claims.verdicts import ANCHORS, UNKNOWNS, VERDICTS, disagreements, judge, judge_executed, judge_stp, turns
