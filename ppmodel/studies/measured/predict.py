"""Predictions of the model for rows of training runs."""

from dataclasses import replace

from ppmodel.errors import PPModelError
from ppmodel.export import write_rows
from ppmodel.studies.measured.rows import read_rows, recipe_of, run_of, system_of
from ppmodel.studies.points.columns import ENDS
from ppmodel.studies.points.effect import warn_of_links
from ppmodel.studies.points.point import Point
from ppmodel.studies.points.rows import rows_of

PREDICTED = (
    "predicted_iteration_s", "predicted_fastest_s", "predicted_slowest_s", "predicted_range_from",
    "predicted_memory_gb", "predicted_fits", "predicted_mfu", "refused", "predicted_fit", "predicted_assuming",
)  # fmt: skip
"""The columns that a prediction adds; memory is on the most loaded GPU, in 1e9 bytes.

Nine of ten runs of such a kind are between the fastest and the slowest; see `SystemSpec.range_of`. What is assumed is
what `rows.recipe_of` adds to a row.
"""

GB = 1e9


def predicted(row, system, framework=None):
    """Predict one row.

    Parameters
    ----------
    row : dict of str to str
        A row with `COLUMNS`.
    system : SystemSpec
    framework : FrameworkSpec, optional
        As in `rows.system_of`.

    Returns
    -------
    dict
        A value for each of `PREDICTED`; if the row is refused, ``refused`` says why and the other values are None.
    """
    try:
        system = system_of(row, system, framework)
        run = run_of(row, system.framework)
    except PPModelError as error:
        return dict.fromkeys(PREDICTED) | {"refused": str(error)}
    assumed = " ".join(f"{name}={value}" for name, value in recipe_of(row).items())
    return predictions(run, [point_of(run, system)])[0] | {"predicted_assuming": assumed or None}


def point_of(run, system):
    """The `Point` of a `MeasuredRun` on a system from `rows.system_of`; without MXFP8, it computes in fp8."""
    layout = run.layout
    if layout.precision == "mxfp8" and system.peak_flops("mxfp8") is None:
        layout = replace(layout, precision="fp8")
    return Point(run.case, (layout.pp, run.num_microbatches), model=run.model, system=system, layout=layout)


def predictions(run, points):
    """Predict a run on several systems.

    Parameters
    ----------
    run : MeasuredRun
    points : sequence of Point
        From `point_of`.

    Returns
    -------
    list of dict
        As `predicted`, for each point.
    """
    predictions = []
    for numbers in rows_of(points):
        if numbers["refused"] is not None:
            predictions.append(dict.fromkeys(PREDICTED) | {"refused": numbers["refused"]})
            continue
        seconds, flops = numbers["iteration_s"], numbers["iteration_s"] * numbers["model_flops_utilization"]
        if run.pipeline_runs > 1:
            seconds += (run.pipeline_runs - 1) * numbers["makespan_s"]
        fastest, slowest = (numbers[name] and numbers[name] / numbers["iteration_s"] * seconds for name in ENDS[1:])
        predictions.append({
            "predicted_iteration_s": seconds, "predicted_fastest_s": fastest, "predicted_slowest_s": slowest,
            "predicted_range_from": numbers["range_from"], "predicted_memory_gb": numbers["peak_memory_bytes"] / GB,
            "predicted_fits": numbers["fits"],
            "predicted_fit": numbers["fit"], "predicted_mfu": run.pipeline_runs * flops / seconds, "refused": None,
        })  # fmt: skip
    return predictions


def predict_file(rows_file, system, out, framework=None, links=None):
    """Predict every row of a file, and write the rows together with the predictions.

    Parameters
    ----------
    rows_file : str or Path
        CSV; see `read_rows`.
    system : SystemSpec
    out : str or Path
        The CSV file to write; the rows keep their order, and their own columns come first. A text that a spreadsheet
        would take for a formula gets an apostrophe in front, which `read_rows` ignores; all others are unchanged.
        Columns of `PREDICTED` that the file already has are replaced.
    framework : FrameworkSpec, optional
        Of all rows; see `rows.system_of`.
    links : dict or str, optional
        Instead of the system's own, as in `simulate`.

    Returns
    -------
    list of dict
        Each row with its prediction.

    Raises
    ------
    PPModelError
        If a file is refused or cannot be written.
    """
    system = system.with_links(links)
    columns, rows = read_rows(rows_file)
    columns = [*(name for name in columns if name not in PREDICTED), *PREDICTED]
    predictions = [row | predicted(row, system, framework) for row in rows]
    if links is not None:
        of_rows = [(row, system_of(row, system, framework)) for row in predictions if row["refused"] is None]
        warn_of_links([point_of(run_of(row, of_row.framework), of_row) for row, of_row in of_rows])
    write_rows(out, columns, predictions, "--out")
    return predictions
