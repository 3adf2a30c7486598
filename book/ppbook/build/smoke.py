"""A smoke test for reviewers: one figure of the paper, from scratch, compared with formulas and published numbers."""

import os
from pathlib import Path
from time import perf_counter

import pandas as pd

from ppbook import ROOT
from ppbook.build.run import run

FIGURE, NOTEBOOK = "fig3_bubble", "bubble"
"""What is reproduced: the paper's Fig. 3, bubble ratios by formula and by table."""

EXACT = 1e-12
"""Largest difference allowed where a formula is exact."""

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
    run(NOTEBOOK, out=out)
    checks = compared(out / "results")
    passed = all(holds for _, holds in checks)
    lines = [f"{'ok  ' if holds else 'FAIL'} {check}" for check, holds in checks]
    seconds, place = perf_counter() - began, os.path.relpath(out)
    return [*lines, f"smoke test {'passed' if passed else 'FAILED'}: {seconds:.0f} s, results in {place}"], passed


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
    rows, published = (pd.read_csv(results / f"{name}.csv") for name in (FIGURE, "fig3_published"))
    checks = []
    for label in ("GPipe", "1F1B"):
        table = rows[rows.label == label]
        error = (table.table_bubble_ratio - (table.pp - 1) / (table.microbatches + table.pp - 1)).abs().max()
        checks.append(
            (f"{label}, table and (S - 1) / (B + S - 1), {len(table)} sizes: {error:.1e} apart", error < EXACT)
        )
    chimera = rows[rows.label.str.startswith("Chimera")].sort_values("microbatches")
    last, keeps = chimera.iloc[-1], (chimera.table_bubble_ratio > chimera.published_bubble_ratio).all()
    ratios = f"formula {last.published_bubble_ratio:.3f}, table {last.table_bubble_ratio:.3f}"
    checks.append((f"{last.label}, B = {last.microbatches}, its table keeps a bubble: {ratios}", bool(keeps)))
    for row in published.itertuples():
        comparison = f"{row.quantity}: {row.ours:.3f}, the paper {row.published:.2f}, at most {NEAR} apart"
        checks.append((comparison, abs(row.ours - row.published) <= NEAR))
    picture = results / f"{FIGURE}.svg"
    checks.append((f"the picture is drawn: {picture.name}", picture.is_file() and "</svg>" in picture.read_text()))
    return checks
