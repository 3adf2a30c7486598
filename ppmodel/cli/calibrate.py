"""ppmodel calibrate: constants of a system, fitted to measured training runs."""

import datetime
from pathlib import Path

import click

from ppmodel.cli.arguments import Output, Value, choice, combined, number, option
from ppmodel.cli.commands import command
from ppmodel.cli.text import say
from ppmodel.errors import PPModelError, counted
from ppmodel.files import write_whole

_BLOCKS = ("kernels", "collectives", "memory")
POOR = 0.5  # mean error of a fit
_COLUMNS = {"time": "a number in iteration_s", "memory": "a number in memory_gb, or oom in status"}
_DATE = Value("DATE", datetime.date.fromisoformat, bool, "must be a date", "pass, for example, {option} 2026-01-31")
FILE = Output(".yaml", ".yml")
"""A system's file that is written."""

about = combined(
    option("title", None, "Title of the system that is written."),
    option("date", "YYYY-MM-DD", "Date to record with the values (default: today).", _DATE),
)
"""Decorator: what a system's file says of itself."""


@command("calibrate")
@click.argument("rows_files", metavar="[ROWS.csv...]", nargs=-1)
@option("run runs", "WORDS|FILE.yaml", "One run, without a CSV; may be repeated.", multiple=True)
@option("system", "NAME|FILE", "The system to start from.", required=True)
@option("out", "FILE.yaml", "Where to write the result.", FILE, required=True)
@option("framework", "NAME|FILE", "The training framework of all rows (default: see above).")
@option("constants", "NAME,...", "Constants to fit, by their keys in the system's file.")
@option("only", None, "Fit and judge only times, or only memory.", choice(["time", "memory"]))
@option("prior", None, "How far constants are expected to move, as a standard deviation.", number(0.001, 10),
        default=0.5, show_default=True)  # fmt: skip
@about
def calibrate_command(rows_files, runs, system, out, framework, constants, only, prior, title, date):
    """Fit the constants of a system to measured training runs.

    ROWS.csv has the columns that ppmodel predict reads, plus the measurements: iteration_s (seconds), memory_gb (1e9
    bytes on the most loaded GPU) and status (measured, oom if memory ran out, or failed). All constants of kernels,
    collectives and memory are fitted, except those whose kind in the system's file is stated; constants that the rows
    do not determine keep their values. The prior is the standard deviation of a constant's logarithm around its
    starting value. With fewer than five configurations, one constant is fitted: kernels.sustained_clock,
    compute_efficiency or, if devices wait for the host, one of its times; time_factor is how far off times then still
    are.

    A single run is enough, and its time is then met exactly: --run "llama3_70b tp=8 pp=4 dp=4 zero=1
    sequence_parallel=true global_batch=1024 iteration_s=74". It names a model or its file (or gives the model's sizes,
    as in hidden=5120) and values of the columns of ROWS.csv; a YAML file of these keys does as well. What you leave out
    is as in ppmodel simulate; mfu=0.43, counted as simulate counts it, may stand for iteration_s.

    If all rows state the same gradient_bytes, these become the framework's; pipeline_runs is for predict alone.

    FILE.yaml is a system file like any other. It carries a framework: --framework; else the one in the column framework
    of all rows; else that of the system's file; else the one that all sources name; else megatron.
    """
    from ppmodel.clusters.specs import load_framework, load_system
    from ppmodel.studies.measured.calibrate import calibrated
    from ppmodel.studies.measured.stated_run import stated_run
    from ppmodel.studies.measured.system_file import system_text

    if not rows_files and not runs:
        raise PPModelError("ROWS.csv", None, "must be given", "pass a CSV file of runs, or --run WORDS")
    start = load_system(system)
    names = [name.strip() for name in constants.split(",")] if constants else None
    kinds = (only,) if only else ("time", "memory")
    framework_spec = framework and load_framework(framework)
    stated = [stated_run(run, start, framework_spec) for run in runs]
    calibration = calibrated(rows_files, start, names, prior, framework_spec, stated, kinds)
    framework = framework and Path(framework).name
    given = {"framework": framework, "constants": constants, "prior": prior != 0.5 and f"{prior:g}", "only": only}
    options = "".join(f" --{name} {value}" for name, value in given.items() if value)
    files = " ".join([*(Path(file).name for file in rows_files), *(f'--run "{run}"' for run in runs)])
    command_line = f"calibrate {files} --system {Path(system).name}{options}"
    text = system_text(calibration, title or start.title, command_line, str(date or datetime.date.today()))
    write_whole(out, text, "--out")
    say(_lines(calibration, out, names is None, kinds))


def _lines(calibration, out, all_constants, kinds):
    from ppmodel.studies.measured.system_file import in_its_unit

    fit = calibration.fit
    yield f"{out}: {counted(len(fit.values), 'constant')} fitted, {len(fit.undetermined)} left unchanged"
    for entry in calibration.system.provenance:
        if entry.field in fit.values:
            value, low, high = in_its_unit(entry, calibration)
            yield f"  {entry.field:36} {f'{value} {entry.unit}'.strip()}  (95 %: {low} to {high})"
    for name, partner in fit.undetermined.items():
        yield f"  {name:36} not determined by these rows" + (f"; trades off with {partner}" if partner else "")
    missing = ", ".join(name for name in _BLOCKS if getattr(calibration.system, name) is None)
    if all_constants and not calibration.scaled and missing:
        template = "data/templates/system.yaml"
        yield f"the system's file has no block {missing}: copy from {template} what is to be fitted, too"
    if calibration.scaled:
        few = f"fewer than five configurations: only {', '.join(calibration.scaled)} fitted"
        yield f"{few}; the other constants are those of the system"
    quantities = {"time" if source.what == "time" else "memory" for source in calibration.sources}
    for quantity in kinds:
        if quantity not in quantities:
            yield f"no row has {_COLUMNS[quantity]}: {quantity} not fitted"
    judged = any(source.unseen for source in calibration.sources)
    yield "errors" + " on rows that the fit had not seen (five-fold cross-validation by configuration)" * judged + ":"
    for source in calibration.sources:
        errors = ", ".join(f"{name} {error:.1%}" for name, error in source.unseen.items()) or "too few rows to tell"
        yield f"  {source.file}, {source.what} ({counted(source.rows, 'row')}): {errors}; as fitted {source.fitted:.1%}"
    if any(source.fitted > POOR for source in calibration.sources):
        yield "the fit is poor: check the units (seconds, 1e9 bytes) and the system to start from"
