"""A calibrated system written as a system file, with its errors and the rows it was fitted to."""

import json
from textwrap import wrap

from ppmodel.measured.constants import MEMORY, value_of
from ppmodel.specs import to_unit

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
        rows and date, and all other values stay as they are. Comments state the errors.
    """
    lines = [f"# {line}" for line in _heading(found, command)]
    lines.append(f"title: {json.dumps(title, ensure_ascii=False)}")
    block = ""
    for one in found.system.provenance:
        own, _, key = one.field.rpartition(".")
        if own and own != block:
            lines.append(f"{own}:")
        block = own
        lines += _entry("  " if own else "", key, one, found, date)
    return "\n".join(lines) + "\n"


def _heading(found, command):
    yield f"Made by: ppmodel {command}"
    yield "Rows, and mean error of |predicted / measured - 1| as fitted; mean, median, 90 % and worst on rows that a"
    yield "fit to the other four fifths had not seen. Of runs that fit in memory or not, the share predicted wrongly."
    for one in found.sources:
        errors = ", ".join(f"{name} {error:.2%}" for name, error in error_names(one))
        yield f"{one.file} {one.what}: {one.rows} rows, as fitted {one.fitted:.6%}; unseen {errors}"
    untold = [name + (f" (beside {partner})" if partner else "") for name, partner in found.fit.untold.items()]
    if untold:
        yield from wrap(f"Not told by these rows, and left as they were: {', '.join(untold)}.", _WIDTH)


def error_names(source):
    """Names and values of the errors on unseen rows; for "fits" only the mean."""
    named = (("mean", source.mean), ("median", source.median), ("90 %", source.nine_tenths), ("worst", source.worst))
    return named[:1] if source.what == "fits" else named


def _entry(indent, key, one, found, date):
    value, kind, source = one.value, one.kind, one.source
    if one.field in found.fit.values:
        si, factor = value_of(found.system, one.field), found.fit.factors[one.field]
        value = float(f"{to_unit(si, one.unit):.{_DIGITS}g}")
        low, high = (f"{to_unit(end, one.unit):.3g}" for end in (si / factor, si * factor))
        kind, source = "fitted", f"95 %: {low} to {high}, from {one.value:g}; {_rows(one.field, found)}; {date}"
    unit = f" unit: {one.unit}," if one.unit else ""
    shown = json.dumps(
        value if not isinstance(value, float) or value % 1 else int(value) if abs(value) < 1e15 else value
    )
    text = json.dumps(source, ensure_ascii=False)
    return [f"{indent}{key}:", f"{indent}  {{value: {shown},{unit} kind: {kind},", f"{indent}   source: {text}}}"]


def _rows(field, found):
    """The rows that a constant was fitted to, and the errors on unseen rows."""
    part = "memory" if field in MEMORY else "time"
    errors = [one for one in found.sources if (one.what == "time") == (part == "time")]
    told = [f"{one.file} ({'wrong' if one.what == 'fits' else 'mean error'} {one.mean:.1%})" for one in errors]
    return f"{found.rows[part]} rows of {', '.join(told)}"
