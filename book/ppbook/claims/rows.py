"""The format of ``data/claims.yaml``: claims, the rows behind them, and figures."""

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ppmodel.clusters.specs import Kind
from ppmodel.schedules.cases import case_of_data

_DIGITS = 12
EXACT = 1e-6
"""A tolerance of at most this leaves room for rounding only."""

By = Literal["paper", "answers", "review", "book"]
"""Whose claim it is: the paper's, its authors' in answers to reviews, a review's, or a check that this book adds."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Expected(_Form):
    """The result expected of a row today: its verdict, and its margin, by setting where that decides."""

    verdict: Literal["holds", "depends", "fails"]
    margin: float | dict[str, float]

    def under(self, setting):
        """The margin under a setting."""
        return self.margin[setting] if isinstance(self.margin, dict) else self.margin


class Unmet(_Form):
    """Of a row that fails: what was tried, what comes nearest, and what its source would have to say."""

    tried: str
    nearest: str
    needed: str


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
    unmet: Unmet | None = None

    @field_validator("criterion")
    @classmethod
    def resolve_schedules(cls, criterion):
        """The criterion with cases in place of schedules, which ``of`` and ``over`` are where it asks for sizes."""
        cases = {}
        for key in {"of", "over"} & criterion.keys() if "pp" in criterion else ():
            given = criterion[key]
            cases[key] = [*map(case_of_data, given)] if criterion["quantity"] == "reversals" else case_of_data(given)
        return criterion | cases

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


class ClaimsFile(_Form):
    """The whole file."""

    figures: list[Figure] = []
    claims: list[Claim]
    stp: list[Claim] = []
    executed: list[Claim] = []


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
    >>> from ppbook.claims import load_claims
    >>> rows_of(load_claims())[0].id
    'levels_agree'
    """
    return [row for claim in claims for row in claim.rows]
