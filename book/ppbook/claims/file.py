"""``data/claims.yaml``, read and checked, and the published numbers in it."""

import inspect

import pandas as pd

from ppbook.claims.quantities import QUANTITIES, resolve_schedules
from ppbook.claims.rows import ClaimsFile, rows_of
from ppbook.claims.stp_quantities import STP_QUANTITIES
from ppmodel.clusters.specs import DATA
from ppmodel.clusters.specs.document import read_document
from ppmodel.errors import PPModelError, SpecificationError

TAKES = ("max", "min", "median", "sum", "largest")
_ALWAYS = ("pp", "microbatches", "systems", "take")


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


def load_claims(path=None, about="paper"):
    """Read the claims.

    Parameters
    ----------
    path : Path, optional
        A file to read instead of ``data/claims.yaml``.
    about : {"paper", "stp"}
        The paper that this book rebuilds, or STP's paper.

    Returns
    -------
    list of Claim
        In the order of the file; the ids of all rows are unique.

    Raises
    ------
    SpecificationError
        One line with file, line, field, value, rule and remedy.

    Examples
    --------
    >>> [claim.number for claim in load_claims()][:3]
    [1, 2, 3]
    """
    path = path or DATA / "claims.yaml"
    document = read_document(path, ClaimsFile)
    ids = set()
    for row in rows_of([*document.claims, *document.stp]):
        if row.id in ids:
            raise SpecificationError("id", row.id, "is given twice", "rename one of the rows", where=str(path))
        ids.add(row.id)
        _check_criterion(row, path)
        resolve_schedules(row, path)
    return document.claims if about == "paper" else document.stp


def _check_criterion(row, path):
    """Refuse a criterion that names no known quantity, or gives something that its quantity does not take."""
    name, quantities = row.criterion.get("quantity"), QUANTITIES | STP_QUANTITIES
    if name not in quantities:
        remedy = f"choose one of {', '.join(quantities)}"
        raise SpecificationError(f"{row.id}.quantity", name, "is not a known quantity", remedy, where=str(path))
    given = {"bench", "size", "assumption"}  # by whoever judges the row
    allowed = {"quantity", *inspect.signature(quantities[name]).parameters} - given
    allowed |= {*_ALWAYS} if name in QUANTITIES else set()
    for key, value in row.criterion.items():
        if key not in allowed or (key == "take" and value not in TAKES):
            remedy = f"its parts: {', '.join(sorted(allowed))}; take is one of {', '.join(TAKES)}"
            raise SpecificationError(f"{row.id}.{key}", value, f"is not a part of {name}", remedy, where=str(path))


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


def beside_published(ours):
    """Our numbers beside the published ones.

    Parameters
    ----------
    ours : dict
        Our value for each ``id`` of `published`.

    Returns
    -------
    DataFrame
        One row per id; columns ``figure, quantity, published, kind, ours, difference``. The last is ours minus the
        published one.

    Raises
    ------
    PPModelError
        If an id does not belong to a published number.

    Examples
    --------
    >>> beside_published({"fig3_table": 0.25}).round(2).loc[0, ["published", "ours", "difference"]].tolist()
    [0.26, 0.25, -0.01]
    """
    numbers = published()
    for key in ours:
        if key not in numbers.index:
            raise PPModelError("id", key, "is not a published number", f"choose one of {', '.join(numbers.index)}")
    names = {"where": "figure", "statement": "quantity", "value": "published", "kind": "kind"}
    table = numbers.loc[list(ours), list(names)].rename(columns=names).reset_index(drop=True)
    table["ours"] = [float(value) for value in ours.values()]
    return table.assign(difference=table.ours - table.published)
