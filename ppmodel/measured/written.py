"""A calibrated system written as a system file, with its errors and the rows it was fitted to."""

import json
from textwrap import wrap

from ppmodel.measured.constants import MEMORY, value_of
from ppmodel.specs import Provenance, to_unit

_DIGITS, _WIDTH = 4, 116


def system_text(found, title, command, date):
    """The YAML file of a calibrated system.

    Parameters
    ----------
    found : Calibration
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
    lines = [f"# {line}" for line in _heading(found, command)]
    lines.append(f"title: {json.dumps(title, ensure_ascii=False)}")
    kept = [one for one in found.system.provenance if not one.field.startswith("errors.")]
    block = ""
    for one in [*(_fitted(one, found, date) for one in kept), *_errors(found, date)]:
        own, _, key = one.field.rpartition(".")
        if own and own != block:
            lines.append(f"{own}:")
        block = own
        lines += _entry("  " if own else "", key, one)
    return "\n".join(lines) + "\n"


def _heading(found, command):
    yield f"Made by: ppmodel {command}"
    left = found.fit.undetermined.items()
    if left:
        names = ", ".join(f"{name} (trades off with {partner})" if partner else name for name, partner in left)
        yield from wrap(f"Not determined by these rows, and left unchanged: {names}.", _WIDTH)


def _errors(found, date):
    """The entries of `ErrorSpec`: the mean on unseen rows, and in the source what is known of each file."""
    judged = [one for one in found.sources if one.mean is not None]
    for what in dict.fromkeys(one.what for one in judged):
        of_files = [one for one in judged if one.what == what]
        mean = round(sum(one.mean for one in of_files) / len(of_files), _DIGITS)
        said = "; ".join(_said(one) for one in of_files)
        yield Provenance(f"errors.{what}", mean, "", "fitted", f"five-fold cross-validation; {said}; {date}")


def _said(one):
    errors = ", ".join(f"{name} {error:.2%}" for name, error in error_names(one))
    return f"{one.file}: {one.rows} rows, as fitted {one.fitted:.6%}, unseen {errors}"


def error_names(source):
    """Names and values of the errors on unseen rows, none if there are too few rows; for "fits" only the mean."""
    if source.mean is None:
        return ()
    named = (("mean", source.mean), ("median", source.median), ("90 %", source.nine_tenths), ("worst", source.worst))
    return named[:1] if source.what == "fits" else named


def _fitted(one, found, date):
    """An entry of the starting system, with the fitted value if it has one."""
    if one.field not in found.fit.values:
        return one
    value, low, high = in_its_unit(one, found)
    source = f"95 %: {low} to {high}, from {one.value:g}; {_rows(one.field, found)}; {date}"
    return one._replace(value=float(value), kind="fitted", source=source)


def in_its_unit(one, found):
    """A fitted value and the ends of its interval as texts, in the unit of its entry in the starting system's file."""
    si, factor = value_of(found.system, one.field), found.fit.factors[one.field]
    low, high = (f"{to_unit(end, one.unit):.3g}" for end in (si / factor, si * factor))
    return f"{to_unit(si, one.unit):.{_DIGITS}g}", low, high


def _entry(indent, key, one):
    value = int(one.value) if isinstance(one.value, float) and one.value % 1 == 0 and one.value < 1e15 else one.value
    unit = f" unit: {one.unit}," if one.unit else ""
    start = f"{indent}  {{value: {json.dumps(value)},{unit} kind: {one.kind},"
    return [f"{indent}{key}:", start, f"{indent}   source: {json.dumps(one.source, ensure_ascii=False)}}}"]


def _rows(field, found):
    """The rows that a constant was fitted to, and the errors on unseen rows, or as fitted if there are too few."""
    part = "memory" if field in MEMORY else "time"
    errors = [one for one in found.sources if (one.what == "time") == (part == "time")]
    return f"{found.rows[part]} rows of {', '.join(map(_error, errors))}"


def _error(one):
    word = "wrong" if one.what == "fits" else "mean error"
    return f"{one.file} ({word} {f'{one.fitted:.1%} as fitted' if one.mean is None else f'{one.mean:.1%}'})"
