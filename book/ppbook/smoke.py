"""A smoke test for reviewers: one figure of the paper, from scratch, compared with formulas and published numbers."""

import math
import os
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import pandas as pd

from ppbook.run import ROOT, run

FIGURE, NOTEBOOK = "fig3_bubble", "bubble"
"""What is reproduced: the paper's Fig. 3, bubble ratios by formula and by table."""

NEAR = 0.015
"""Largest difference allowed between a number read from the paper and ours: our choice, because it has two digits."""


def smoke(out=None):
    """Reproduce a figure of the paper, and compare its numbers with what they must be.

    Parameters
    ----------
    out : str or Path, optional
        Folder for the executed notebook, numbers and picture; by default, ``results/smoke`` in the clone.

    Returns
    -------
    lines : list of str
        What was compared, and the largest differences.
    passed : bool
        Whether all comparisons hold.

    Raises
    ------
    PPModelError
        If the notebook does not run, or the folder is not one that an earlier run wrote.
    """
    began = perf_counter()
    out = Path(out or ROOT / "results" / "smoke")
    out.parent.mkdir(parents=True, exist_ok=True)
    run(NOTEBOOK, out=out)
    checks = compared(out / "results")
    passed = all(holds for _, holds in checks)
    lines = [f"{'ok  ' if holds else 'FAIL'} {said}" for said, holds in checks]
    took = f"{perf_counter() - began:.0f} s; numbers and picture are in {os.path.relpath(out)}"
    return [*lines, f"smoke test {'passed' if passed else 'FAILED'} in {took}"], passed


def compared(results):
    """Compare the figure's numbers with formulas and with the paper's.

    Parameters
    ----------
    results : Path
        Folder that the notebook wrote.

    Returns
    -------
    list of (str, bool)
        What was compared, and whether it holds.
    """
    rows = pd.read_csv(results / f"{FIGURE}.csv")
    published = pd.read_csv(results / "fig3_published.csv")
    checks = [_by_formula(rows, label) for label in ("GPipe", "1F1B")]
    return [*checks, _rises(rows), *map(_near, published.to_dict("records")), _drawn(results)]


def _by_formula(rows, label):
    """The idle fraction of a table compared with (S - 1) / (B + S - 1), which is exact for both schedules."""
    own = rows[rows.label == label]
    exact = [float(Fraction(row.pp - 1, row.microbatches + row.pp - 1)) for row in own.itertuples()]
    far = max((abs(one - other) for one, other in zip(own.table_bubble_ratio, exact, strict=True)), default=math.inf)
    said = f"{label}, bubble ratio of the table = (S - 1) / (B + S - 1) at {len(own)} sizes: off by {far:.1e} at most"
    return said, far < 1e-12


def _rises(rows):
    """The finding of the figure: Chimera's table keeps a bubble that its formula loses."""
    own = rows[rows.label.str.startswith("Chimera")].sort_values("microbatches")
    last = own.iloc[-1]
    said = (
        f"{last.label}, {last.microbatches} microbatches: the formula promises {last.published_bubble_ratio:.3f}, "
        f"the table keeps {last.table_bubble_ratio:.3f}"
    )
    return said, bool((own.table_bubble_ratio > own.published_bubble_ratio).all())


def _near(row):
    """One of our numbers next to the paper's."""
    said = f"{row['quantity']}: {row['ours']:.3f}; the paper has {row['published']:.2f} (at most {NEAR} off)"
    return said, abs(row["ours"] - row["published"]) <= NEAR


def _drawn(results):
    """The picture, as in the book."""
    picture = results / f"{FIGURE}.svg"
    return f"the picture is drawn: {picture.name}", picture.is_file() and "</svg>" in picture.read_text()
