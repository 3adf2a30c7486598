"""Judge predictions on rows that nobody here has seen: ``python -m ppbook.unseen ROWS...``.

Each file of rows is predicted as the book predicts its sources: by the unfitted system of each row's device under the
framework of its source, and by the packaged system that was fitted to other rows of the source, if there is one. It
prints errors, how many rows are within the range that is stated, which rows fit as predicted, and what following the
first choices among the layouts of one model would have cost.
"""

from pathlib import Path

import click
import numpy as np
import pandas as pd

from ppbook.measured.regret import CELL, SIZES, choices, layouts_of
from ppbook.measured.unfitted import FRAMEWORKS, SYSTEMS, system_of_row
from ppmodel.clusters.specs import load_system
from ppmodel.errors import EXIT_REFUSED, PPModelError
from ppmodel.studies.measured import read_rows
from ppmodel.studies.measured.predict import PREDICTED, predicted
from ppmodel.studies.measured.rows import is_healthy
from ppmodel.studies.points.margin import fitted_systems

KEYS = "source", "device", "precision", "system"

NEEDED = "device", "iteration_s"
"""Columns that a file must have, beside those that `read_rows` needs."""


def judged(path):
    """The rows of a file, each predicted by an unfitted system and, where there is one, by a fitted one.

    Parameters
    ----------
    path : str or Path
        As `read_rows` takes it, with the columns of `NEEDED`; its name, or the beginning of each row's ``id``, is that
        of a source in ``data/reference/measured``, or the column ``source`` names one.

    Returns
    -------
    DataFrame
        One row per row and system: `KEYS`, ``id``, ``status``, ``refused``, why it cannot be predicted; measured and
        predicted seconds and 1e9 bytes, ``iteration_s, predicted_s, memory_gb, predicted_gb``; the ends of the range,
        ``fastest_s, slowest_s``, and ``range_from``; ``predicted_fits``; and ``row``, as it was read.

    Raises
    ------
    PPModelError
        If the file is refused.
    """
    columns, rows = read_rows(path)
    if missing := [name for name in NEEDED if name not in columns]:
        rule = f"must have the columns {', '.join(NEEDED)}, too"
        raise PPModelError("columns", f"without {missing[0]}", rule, "add them to the header", where=f"{path}:1")
    records = []
    for row in rows:
        source = source_of(row, path)
        for fitted in ("not fitted", *fitted_to(source)):
            try:
                system = system_of_row(row, source) if fitted == "not fitted" else load_system(fitted)
                numbers = predicted(row, system)
            except PPModelError as error:
                numbers = dict.fromkeys(PREDICTED) | {"refused": str(error)}
            records.append({
                "source": source, "device": row["device"], "precision": row.get("precision") or "bf16",
                "system": fitted, "id": row.get("id", ""),
                "status": row.get("status", ""), "refused": numbers["refused"], "is_healthy": is_healthy(row),
                "iteration_s": float(row.get("iteration_s") or "nan"), "predicted_s": numbers["predicted_iteration_s"],
                "fastest_s": numbers["predicted_fastest_s"], "slowest_s": numbers["predicted_slowest_s"],
                "range_from": numbers["predicted_range_from"], "memory_gb": float(row.get("memory_gb") or "nan"),
                "predicted_gb": numbers["predicted_memory_gb"], "predicted_fits": numbers["predicted_fits"],
                "row": row,
            })  # fmt: skip
    numbers = [name for name in records[0] if name.endswith(("_s", "_gb"))]
    return pd.DataFrame(records).astype(dict.fromkeys(numbers, float))


def source_of(row, path):
    """The source of a row: a known one that its id or the name of its file begins with, or the file's name.

    >>> source_of({"id": "vtrain_multi-0007"}, "rows.csv"), source_of({}, "folder/nemo.csv"), source_of({}, "mine.csv")
    ('vtrain_multi', 'nemo', 'mine')
    """
    known = sorted(FRAMEWORKS, key=len, reverse=True)
    texts = row.get("id", ""), Path(path).stem
    return next((name for text in texts for name in known if text.startswith(name)), Path(path).stem)


def fitted_to(source):
    """The packaged systems that were fitted to rows of a source.

    >>> fitted_to("vtrain_single"), fitted_to("nemo")
    (['a100_vtrain'], [])
    """
    systems = {name: load_system(name).framework.range_sources.split(", ") for name in fitted_systems()}
    return [name for name, sources in systems.items() if source in sources]


def summary(rows):
    """Errors and coverage by `KEYS`.

    Parameters
    ----------
    rows : DataFrame
        From `judged`.

    Returns
    -------
    DataFrame
        `KEYS`, ``rows``, how many have a time and reach 10 % MFU; of predicted over measured less 1, ``mean`` and
        ``median`` of its magnitude and ``bias``; ``ranged``, how many have a range, and ``covered``, the share of these
        within it; ``memory``, the mean error of memory; ``fits_right``, the share of rows that ran or ran out of memory
        as predicted; and ``refused``.
    """
    ran_out = {"measured": True, "oom": False}
    rows = rows.assign(
        error=(rows.predicted_s / rows.iteration_s - 1).where(rows.is_healthy),
        inside=rows.iteration_s.between(rows.fastest_s, rows.slowest_s).where(rows.fastest_s.notna() & rows.is_healthy),
        memory=(rows.predicted_gb / rows.memory_gb - 1).abs(),
        right=(rows.predicted_fits == rows.status.map(ran_out)).where(rows.status.isin(ran_out)).astype(float),
    )
    rows["inside"] = rows.inside.where(rows.iteration_s.notna()).astype(float)
    rows["off"] = rows.error.abs()
    return rows.groupby(list(KEYS), sort=False).agg(
        rows=("error", "count"), mean=("off", "mean"), median=("off", "median"), bias=("error", "mean"),
        ranged=("inside", "count"), covered=("inside", "mean"), memory=("memory", "mean"), fits_right=("right", "mean"),
        refused=("refused", "count"),
    ).reset_index()  # fmt: skip


def regrets(rows):
    """What following our first choice, and the best of the first three, would have cost: see `ppbook.measured.regret`.

    Parameters
    ----------
    rows : DataFrame
        From `judged`.

    Returns
    -------
    DataFrame
        By source: ``source``, ``nodes``, up to 32 or more, ``cases``; ``median``, ``mean`` and ``worst`` of the regret
        of the first choice by an unfitted system, ``three_median`` and ``three_mean`` of the best of the first three,
        and ``failed``, how many failed before one ran. Empty where no model has three layouts on the same GPUs with
        the same batch, in the same precision.
    """
    frames = []
    unfitted = rows[(rows.system == "not fitted") & rows.refused.isna()]
    for (source, device, _), of_source in unfitted.groupby(["source", "device", "precision"], sort=False):
        given = [row for row in of_source.row if all(row.get(name, "").strip() for name in (*CELL, *SIZES))]
        if not given:
            continue
        layouts = layouts_of(given, load_system(SYSTEMS[device]))
        try:
            made = choices(layouts.assign(beyond=layouts.tp > 8), {"ours": ["beyond", "order_s"]})
        except PPModelError:  # nothing to choose
            continue
        made["nodes"] = np.where(made.gpus <= 256, "up to 32", "more")
        frames.append(made.assign(source=source))
    if not frames:
        return pd.DataFrame()
    return pd.concat(frames).groupby(["source", "nodes"], sort=False).agg(
        cases=("regret", "size"), median=("regret", "median"), mean=("regret", "mean"), worst=("regret", "max"),
        three_median=("best_of_three", "median"), three_mean=("best_of_three", "mean"), failed=("failed", "sum"),
    ).reset_index()  # fmt: skip


@click.command()
@click.argument("rows", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--out", type=click.Path(dir_okay=False), help="CSV file for every row with its predictions.")
def main(rows, out):
    """Errors, coverage, fits and regret of predictions on the rows of files."""
    try:
        frame = pd.concat(map(judged, rows), ignore_index=True)
        if out:
            frame.drop(columns="row").to_csv(out, index=False)
    except (PPModelError, OSError) as error:
        click.echo(f"error: {error}", err=True)
        raise SystemExit(EXIT_REFUSED) from None
    for title, table in (("errors", summary(frame)), ("first choice among measured layouts", regrets(frame))):
        if len(table):
            shares = dict.fromkeys(table.select_dtypes("float"), "{:.1%}".format)
            click.echo(f"{title}\n{table.to_string(index=False, formatters=shares, na_rep='')}\n")
    if len(refusals := frame.refused.value_counts()):
        click.echo("refused\n" + refusals.to_string(header=False))


if __name__ == "__main__":
    main()
