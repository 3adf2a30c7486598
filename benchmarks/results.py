"""All measurements in one place: collected, written as JSON."""

import json
from pathlib import Path

from benchmarks.timing import REPEATS, ROOT

RESULTS = ROOT / "data" / "reference" / "benchmarks.json"


def collect(quick, say):
    """Measure everything.

    Parameters
    ----------
    quick : bool
        Whether to use small sizes.
    say : callable
        Called with progress messages.

    Returns
    -------
    dict
        ``machine``, ``how``, and the rows of ``stages``, ``growth`` and ``peers``.
    """
    from ppmodel.loops.compiled import using

    with using(True):  # as beside any large work
        return _collected(quick, say)


def _collected(quick, say):
    from benchmarks import growth, machine, ratios, stages

    plan = stages.QUICK if quick else stages.FULL
    results = {"machine": machine.machine(), "how": {"quick": quick, "repeats": REPEATS}}
    rows = results["stages"] = []
    stages.warm_up(plan)
    for stage in stages.STAGES:
        say(f"measuring: {stage.__name__.replace('_', ' ')}")
        rows += [one | ({"goal": None} if quick else {}) for one in stage(plan)]  # goals are for the full sizes
    for name, rows_of in (("growth", growth.growth), ("peers", ratios.ratios)):
        say(f"measuring: {name}")
        results[name] = list(rows_of(plan))
    return rounded(results)


def rounded(value):
    """Round every number in a nested structure to six digits.

    >>> rounded({"best": [1.23456789e-5]})
    {'best': [1.23457e-05]}
    """
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write(results, file):
    """Write the results as JSON, one row per line.

    Parameters
    ----------
    results : dict
        From `collect`.
    file : str or Path
        Overwritten.
    """
    parts = []
    for key, value in results.items():
        lines = [json.dumps(row) for row in value] if isinstance(value, list) else []
        text = "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else json.dumps(value)
        parts.append(f" {json.dumps(key)}: {text}")
    Path(file).write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
