"""STP's paper, its reviews and its authors' replies, judged under every way to fill in what they leave open."""

from functools import partial

import numpy as np

from ppbook.claims.file import rows_of
from ppbook.claims.judge import Assumption, Judgement, verdict_of
from ppbook.claims.stp_quantities import ANCHOR, STP_QUANTITIES, stp_assumptions


def judge_stp(claims):
    """Judge STP's claims under every assumption.

    Parameters
    ----------
    claims : list of Claim
        From ``load_claims(about="stp")``.

    Returns
    -------
    list of Judgement
        One per row, in order; the number shown is that of the first assumption.
    """
    return [_judge(row) for row in rows_of(claims)]


def _judge(row):
    given = dict(row.criterion)
    quantity = partial(STP_QUANTITIES[given.pop("quantity")], **given)
    measured = {name: quantity(name) for name in stp_assumptions()}
    outcomes = {
        Assumption(ANCHOR, "costs", name, name, name != ANCHOR): float(row.margin(np.float64(value)))
        for name, value in measured.items()
    }
    first = next(iter(outcomes.values()))
    return Judgement(row, float(measured[ANCHOR]), first, verdict_of(outcomes), ANCHOR, outcomes)
