"""``data/claims.yaml``: its format, its rows, and the published numbers in them."""

import inspect
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from ppbook.claims.quantities import QUANTITIES
from ppbook.claims.stp_quantities import STP_QUANTITIES
from ppmodel.clusters.specs import DATA, Kind, read_document
from ppmodel.errors import PPModelError, SpecificationError
from ppmodel.schedules.cases import case_of_data

TAKES = ("max", "min", "median", "sum", "largest")

_DIGITS = 12
EXACT = 1e-6
"""A tolerance of at most this leaves room for rounding only."""

By = Literal["paper", "answers", "review", "book"]
"""Whose claim it is: the paper's, its authors' in answers to reviews, a review's, or a check that this book adds."""

_ALWAYS = ("pp", "microbatches", "systems", "take")


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Expected(_Form):
    """The result expected of a row today: its verdict, and its margin under the default setting."""

    verdict: Literal["holds", "depends", "fails"]
    margin: float


class Row(_Form):
    """One number or statement that can be checked; the head of ``data/claims.yaml`` explains the fields."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    title: str = ""
    statement: str
    where: str
    by: By | None = None
    kind: Kind
    source: str
    criterion: dict
    relation: Literal["equals", "at least", "at most"]
    value: float
    tolerance: Annotated[float, Field(gt=0)]
    unit: Literal["ratio", "count", "TiB", "forward-times", "microbatches", "units"]
    page: str
    conclusion: bool = False
    expected: Expected

    def margin(self, measured):
        """How far inside the claimed range a number lies; below 0 if it is outside.

        Parameters
        ----------
        measured : float or ndarray
            In the row's unit.

        Returns
        -------
        float or ndarray
            In the row's unit. With `equals`, the tolerance counts as room; `at least` and `at most` have none.
        """
        if self.relation == "equals":
            margin = self.tolerance - abs(measured - self.value)
        else:
            margin = (measured - self.value) * (1 if self.relation == "at least" else -1)
        return np.round(margin, _DIGITS) + 0.0  # turns -0.0 into 0.0

    def number(self, value):
        """A number in the row's unit, as it is printed.

        Parameters
        ----------
        value : float
            In the row's unit.

        Returns
        -------
        str
            Ratios in percent; NaN as an empty string.
        """
        if np.isnan(value):
            return ""
        value = 0.0 if abs(value) < EXACT else value
        if self.unit == "ratio":
            return f"{100 * value:.3g} %"
        return f"{value:.3g} {self.unit}" if self.unit == "TiB" else f"{value:.3g}"

    @property
    def reference(self):
        """What the row claims about its number, as it is printed."""
        value = self.number(self.value)
        if self.relation != "equals":
            return f"{'≥' if self.relation == 'at least' else '≤'} {value}"
        return f"{value.removesuffix(' %')} ± {self.number(self.tolerance)}" if self.tolerance > EXACT else value


class Claim(_Form):
    """A conclusion of the paper, or a check requested by someone else, and the rows that it comes down to."""

    number: int
    title: str
    statement: str
    by: By
    kind: Kind
    source: str
    rows: Annotated[list[Row], Field(min_length=1)]

    @property
    def deciding(self):
        """The rows that decide the claim's verdict: its conclusions, or all rows if none is a conclusion."""
        return [row for row in self.rows if row.conclusion] or self.rows

    def by_of(self, row):
        """Whose claim one of its rows checks; see `By`."""
        return row.by or self.by


class Figure(_Form):
    """A figure or table of the paper: what it shows, our figure's label and page, and the ids of the rows behind."""

    figure: str
    title: str
    statement: str
    page: str
    label: str
    rows: list[str]


class _ClaimsFile(_Form):
    figures: list[Figure] = []
    claims: list[Claim]
    stp: list[Claim] = []


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
    return read_document(DATA / "claims.yaml", _ClaimsFile).figures


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
    document = read_document(path, _ClaimsFile)
    ids = set()
    for row in rows_of([*document.claims, *document.stp]):
        if row.id in ids:
            raise SpecificationError("id", row.id, "is given twice", "rename one of the rows", where=str(path))
        ids.add(row.id)
        _check_criterion(row, path)
        _resolve_schedules(row, path)
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


def _resolve_schedules(row, path):
    """Replace the schedules of a criterion by their cases, once for all sizes and settings at which it is measured."""
    name, criterion = row.criterion["quantity"], row.criterion
    if name not in QUANTITIES or "size" not in inspect.signature(QUANTITIES[name]).parameters:
        return
    for key in ("of", "over"):
        if key in criterion:
            try:
                are_several = name == "reversals"
                cases = [case_of_data(given) for given in (criterion[key] if are_several else [criterion[key]])]
            except PPModelError as error:
                error.where = str(path)
                raise
            criterion[key] = cases if are_several else cases[0]


def rows_of(claims):
    """All rows of some claims, in order.

    Parameters
    ----------
    claims : iterable of Claim
        From `load_claims`.

    Returns
    -------
    list of Row

    Examples
    --------
    >>> rows_of(load_claims())[0].id
    'levels_agree'
    """
    return [row for claim in claims for row in claim.rows]


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
