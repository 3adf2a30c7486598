"""STP's paper, its reviews and its authors' replies, judged under every way to fill in what they leave open."""

from tqdm import tqdm

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
    judgements = []
    for row in tqdm(rows_of(claims), desc="claims", leave=False, disable=None):
        criterion = dict(row.criterion)
        quantity = STP_QUANTITIES[criterion.pop("quantity")]
        measured = {name: float(quantity(name, **criterion)) for name in stp_assumptions()}
        outcomes = {
            Assumption(ANCHOR, "costs", name, name, ()): float(row.margin(value)) for name, value in measured.items()
        }
        margin = float(row.margin(measured[ANCHOR]))
        judgements.append(Judgement(row, measured[ANCHOR], margin, verdict_of(outcomes), ANCHOR, outcomes))
    return judgements
