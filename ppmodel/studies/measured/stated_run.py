"""One measured run as words or a short YAML file: its model by name, its layout, and what was measured."""

import json
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, create_model

from ppmodel.clusters.specs import load_model
from ppmodel.clusters.specs.document import Form, read_document
from ppmodel.errors import PPModelError
from ppmodel.studies.measured.predict import predicted
from ppmodel.studies.measured.rows import COLUMNS, MEASURED, NEW_NAMES, OPTIONAL, renamed, require_measured

KEYS = ("model", *COLUMNS, *OPTIONAL, *MEASURED, "mfu", "status")
"""What may be said of a run."""

_AS_WORD = BeforeValidator(lambda value: json.dumps(value) if isinstance(value, bool | int | float) else value)
_RunFile = create_model("_RunFile", __base__=Form, **dict.fromkeys((*KEYS, *NEW_NAMES), (Annotated[str, _AS_WORD], "")))
_PLAIN = dict.fromkeys(("pp", "chunks", "tp", "cp", "ep", "dp", "microbatch_size"), "1") | {
    "zero": "0", "sequence_parallel": "false", "recompute": "none", "schedule": "1f1b", "attention": "flash",
}  # fmt: skip


def stated_run(text, system=None, framework=None):
    """The row of one run.

    Parameters
    ----------
    text : str
        A model's name or file, or its sizes, and ``KEY=VALUE`` with `KEYS`, separated by blanks; or the path of a YAML
        file of such keys. What is left out is as `LayoutSpec` and the model have it; the schedule is 1f1b, attention
        flash.
    system, framework : SystemSpec and FrameworkSpec, optional
        As in `rows.system_of`: what turns ``mfu``, as `simulate` counts it, into seconds.

    Returns
    -------
    name : str
        For messages: ``--run``, or the file's name.
    row : dict of str to str
        Its model is a `ModelSpec` if it was a file.

    Raises
    ------
    PPModelError
        If a word is no key, or no number where one is needed.

    Examples
    --------
    >>> name, row = stated_run("llama3_70b tp=8 pp=4 dp=4 global_batch=1024 iteration_s=30.5")
    >>> name, row["model"], row["tp"], row["schedule"], row["iteration_s"]
    ('--run', 'llama3_70b', '8', '1f1b', '30.5')
    """
    if text.strip().endswith((".yaml", ".yml")) and "=" not in text:
        form = read_document(Path(text), _RunFile, "write 'key: value', for example tp: 8")
        name, values = Path(text).name, renamed(form.model_dump(exclude_unset=True))
    else:
        name, values = "--run", {}
        for word in text.split():
            key, _, value = word.partition("=") if "=" in word else ("model", "=", word)
            key = NEW_NAMES.get(key, key)
            if key not in KEYS or key in values:
                rule = "is given twice" if key in values else f"must be one of {', '.join(KEYS)}"
                raise PPModelError(name, word, rule, "write, for example, tp=8")
            values[key] = value
    defaults = {"schedule": "1f1b"} if "model" in values else _PLAIN  # a packaged model's rows leave the others open
    row = dict.fromkeys(KEYS, "") | defaults | values
    for key in MEASURED:
        require_measured(key, row[key], name)
    if row["model"].endswith((".yaml", ".yml")):
        row["model"] = load_model(row["model"])
    if mfu := row.pop("mfu"):
        require_measured("mfu", mfu, name)
        if float(mfu) > 1 or row["iteration_s"]:
            rule = "is given beside iteration_s" if row["iteration_s"] else "must be a fraction, at most 1"
            raise PPModelError("mfu", mfu, rule, "write, for example, mfu=0.43 alone", where=name)
        if system is not None:
            numbers = predicted(row, system, framework)
            seconds = (numbers["predicted_iteration_s"] or 1.0) * (numbers["predicted_mfu"] or 1.0) / float(mfu)
            row["iteration_s"] = repr(float(seconds))  # of a run that is refused, the fit says why
    return name, row
