"""``data/claims.yaml``, read, and the published numbers in it."""

import pandas as pd

from ppbook.claims.rows import ClaimsFile, rows_of
from ppmodel.clusters.specs import DATA
from ppmodel.clusters.specs.document import read_document


def load_figures():
    """Read what is listed of the paper's figures.

    Returns
    -------
    list of Figure
        In the paper's order.

    Examples
    --------
    >>> [figure.figure for figure in load_figures()][-2:]
    ['Fig. 6', 'Table I']
    """
    return read_document(DATA / "claims.yaml", ClaimsFile).figures


def load_claims(about="paper"):
    """Read the claims.

    Parameters
    ----------
    about : {"paper", "stp", "executed"}
        The paper that this book rebuilds, STP's paper, or the first one's claims where tables were run for real.

    Returns
    -------
    list of Claim
        In the order of the file.

    Examples
    --------
    >>> [claim.number for claim in load_claims()][:3]
    [1, 2, 3]
    """
    document = read_document(DATA / "claims.yaml", ClaimsFile)
    return document.claims if about == "paper" else getattr(document, about)


# ---- published numbers ---------------------------------------------------------------------------


def published():
    """The rows of the claims that compare with a single number, with the kind of its source.

    Returns
    -------
    DataFrame
        Indexed by ``id``; columns ``title, where, statement, value, tolerance, unit, kind, source``: the rows whose
        relation is ``equals``. Not all of these numbers come from the paper; ``where`` says whose they are.

    Examples
    --------
    >>> numbers = published()
    >>> numbers.index[numbers["where"] == "Fig. 3"].tolist()[:2]
    ['fig3_formula', 'fig3_table']
    """
    rows = [row.model_dump() for row in rows_of(load_claims()) if row.relation == "equals"]
    columns = ["title", "where", "statement", "value", "tolerance", "unit", "kind", "source"]
    return pd.DataFrame(rows).set_index("id")[columns]
