"""A smoke test for reviewers: Fig. 3 and Table I of the paper, from scratch, and every published number beside ours."""

import os
from pathlib import Path
from time import perf_counter

import pandas as pd

from ppbook import ROOT
from ppbook.build.run import run
from ppbook.claims import load_claims, rows_of

PICTURES = {
    "bubble": ("Fig. 3", "fig3_bubble", "fig3_published"),
    "hanayo": ("Table I", "table1_hanayo", "table1_published"),
}
"""What is reproduced, by its notebook: its name in the paper, our picture, and the table of published numbers."""

EXACT = 1e-12
"""Largest difference allowed where a formula is exact."""


def smoke(out=None):
    """Reproduce a figure and a table of the paper, and compare their numbers with the published ones.

    Parameters
    ----------
    out : str or Path, optional
        Folder for the executed notebooks, numbers and pictures; by default, ``results/smoke`` in the clone.

    Returns
    -------
    lines : list of str
        Each number: published, ours, and whether that meets it.
    passed : bool
        Whether all are met.

    Raises
    ------
    PPModelError
        If a notebook does not run, or the folder is not one that an earlier run wrote.
    """
    began = perf_counter()
    out = Path(out or ROOT / "results" / "smoke")
    for notebook in PICTURES:
        run(notebook, out=out / notebook)
    checks = compared(out)
    met = sum(holds for _, holds in checks)
    lines = [f"{'ok  ' if holds else 'FAIL'} {check}" for check, holds in checks]
    verdict, place = "passed" if met == len(checks) else "FAILED", os.path.relpath(out)
    seconds = perf_counter() - began
    last = (
        f"smoke test {verdict}: {met} of {len(checks)} met under the setting paper, {seconds:.0f} s, results in {place}"
    )
    return [*lines, last], met == len(checks)


def compared(out):
    """Compare what the notebooks wrote with formulas and with the paper.

    Parameters
    ----------
    out : Path
        Folder with a folder for each notebook.

    Returns
    -------
    list of (str, bool)
        What was compared, and whether it is met.
    """
    claimed, checks = {row.id: row for row in rows_of(load_claims())}, []
    for notebook, (figure, picture, numbers) in PICTURES.items():
        results = out / notebook / "results"
        for row in pd.read_csv(results / f"{numbers}.csv").itertuples():
            claim = claimed[row.id]
            ours = f"published {claim.reference}, ours {claim.number(row.measured)}"
            met = claim.margin(row.measured) >= 0
            checks.append((f"{figure}, {row.title}: {ours}: {'met' if met else 'not met'}", bool(met)))
        drawn = results / f"{picture}.svg"
        checks.append((f"{figure} is drawn: {drawn.name}", drawn.is_file() and "</svg>" in drawn.read_text()))
    table = pd.read_csv(out / "bubble" / "results" / "fig3_bubble.csv").query("label in ('GPipe', '1F1B')")
    error = (table.table_bubble_ratio - (table.pp - 1) / (table.microbatches + table.pp - 1)).abs().max()
    said = f"GPipe and 1F1B, the figure's {len(table)} points and (S - 1) / (B + S - 1): {error:.1e} apart"
    return [*checks, (said, error < EXACT)]
