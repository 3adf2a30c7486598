"""A calibrated system written as a system file, with its errors and the rows it was fitted to."""

import json
from statistics import fmean
from textwrap import wrap

from ppmodel.clusters.specs import Provenance, to_unit
from ppmodel.errors import printable
from ppmodel.studies.measured.constants import DIGITS, MEMORY, value_of

_DIGITS, _WIDTH, _MOST = 4, 116, 0.99


def system_text(calibration, title, command, date):
    """The YAML file of a calibrated system.

    Parameters
    ----------
    calibration : Calibration
    title : str
    command : str
        The command that made it.
    date : str
        Date of the fit, as YYYY-MM-DD.

    Returns
    -------
    str
        Values in the order of the starting system's file; fitted values have the kind ``fitted``, with their interval,
        rows and date, and all other values stay as they are. The last block is that of `ErrorSpec`.
    """
    partners = calibration.fit.undetermined.items()
    names = ", ".join(f"{name} (trades off with {partner})" if partner else name for name, partner in partners)
    notes = wrap(f"Not determined by these rows, and left unchanged: {names}.", _WIDTH) if names else ()
    entries = [e for e in calibration.system.provenance if not e.field.startswith("errors.")]
    entries = [*(_as_fitted(entry, calibration, date) for entry in entries), *_errors(calibration, date)]
    return entries_text(entries, title, command, notes)


def entries_text(entries, title, command, notes=()):
    """The YAML file of a system: its values one after another, those of a block together.

    Parameters
    ----------
    entries : iterable of Provenance
    title : str
    command : str
        The command that made it.
    notes : iterable of str
        Further lines of comment.

    Returns
    -------
    str
    """
    title = _quoted(printable(title))
    lines = [f"# Made by: ppmodel {printable(command)}", *(f"# {line}" for line in notes), f"title: {title}"]
    block = ""
    for entry in entries:
        inside, _, key = entry.field.rpartition(".")
        if inside and inside != block:
            lines.append(f"{inside}:")
        block, indent, value = inside, "  " * bool(inside), entry.value
        value = int(value) if isinstance(value, float) and value % 1 == 0 and value < 1e15 else value
        unit = f" unit: {entry.unit}," if entry.unit else ""
        lines.append(f"{indent}{key}:\n{indent}  {{value: {json.dumps(value)},{unit} kind: {entry.kind},")
        lines.append(f"{indent}   source: {_quoted(entry.source)}}}")
    return "\n".join(lines) + "\n"


def _quoted(text):
    """A text in quotes, on one line, as YAML reads it back."""
    return printable(json.dumps(text.encode(errors="backslashreplace").decode(), ensure_ascii=False))


def _as_fitted(entry, calibration, date):
    """An entry of the starting system, with the fitted value if it has one, its rows and its errors."""
    if entry.field not in calibration.fit.values:
        return entry
    value, low, high = in_its_unit(entry, calibration)
    sources = [source for source in calibration.sources if (source.what == "time") != (entry.field in MEMORY)]
    errors = [
        f"{source.file} ({'wrong' if source.what == 'fits' else 'mean error'} "
        + (f"{source.unseen['mean']:.1%})" if source.unseen else f"{source.fitted:.1%} as fitted)")
        for source in sources
    ]
    rows = f"{sum(source.rows for source in sources)} rows of {', '.join(errors)}"
    source = f"95 %: {low} to {high}, from {entry.value:g}; {rows}; {date}"
    return entry._replace(value=float(value), kind="fitted", source=source)


def _errors(calibration, date):
    """The entries of `ErrorSpec`: the mean on unseen rows, and in the source what is known of each file."""
    judged = [source for source in calibration.sources if source.unseen]
    for what in dict.fromkeys(source.what for source in judged):
        of_files = [source for source in judged if source.what == what]
        stated = "; ".join(
            f"{source.file}: {source.rows} rows, as fitted {source.fitted:.6%}, unseen "
            + ", ".join(f"{name} {error:.2%}" for name, error in source.unseen.items()) for source in of_files
        )  # fmt: skip
        text = f"five-fold cross-validation by configuration; {stated}; {date}"
        mean = round(fmean(source.unseen["mean"] for source in of_files), _DIGITS)  # all files weigh the same
        yield Provenance(f"errors.{what}", mean, "", "fitted", text)
        if what == "memory":
            most = min(round(fmean(source.unseen["90 %"] for source in of_files), _DIGITS), _MOST)
            yield Provenance(f"errors.{what}_nine_tenths", most, "", "fitted", f"as {what}; {date}")


def in_its_unit(entry, calibration):
    """A fitted value and the ends of its interval as texts, in the unit of its entry in the starting system's file."""
    si, factor = value_of(calibration.system, entry.field), calibration.fit.factors[entry.field]
    low, high = (f"{to_unit(end, entry.unit):.3g}" for end in (si / factor, si * factor))
    return f"{to_unit(si, entry.unit):.{DIGITS[entry.field]}g}", low, high
