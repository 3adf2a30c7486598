"""One measured run as words or a short YAML file: its model by name, its layout, and what was measured."""

from pathlib import Path

from ppmodel.errors import PPModelError
from ppmodel.measured.rows import COLUMNS, FLUSHES, FRAMEWORK, GPUS, MEASURED, MODEL, PRECISION, require_measured
from ppmodel.specs.document import read_document

KEYS = (MODEL, *COLUMNS, FLUSHES, PRECISION, FRAMEWORK, GPUS, *MEASURED, "status")
"""What may be said of a run."""


def stated_run(text):
    """The row of one run.

    Parameters
    ----------
    text : str
        A model's name and ``KEY=VALUE`` with `KEYS`, separated by blanks; or the path of a YAML file of such keys. What
        is left out is as `LayoutSpec` and the model have it, and the schedule is 1f1b.

    Returns
    -------
    name : str
        For messages: ``--run``, or the file's name.
    row : dict of str to str

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
        name, values = Path(text).name, _of_file(Path(text))
    else:
        name, values = "--run", {}
        for word in text.split():
            key, _, value = word.partition("=") if "=" in word else (MODEL, "=", word)
            if key not in KEYS or key in values:
                rule = "is given twice" if key in values else f"must be one of {', '.join(KEYS)}"
                raise PPModelError(name, word, rule, "write, for example, tp=8")
            values[key] = value
    row = dict.fromkeys(KEYS, "") | {"schedule": "1f1b"} | values
    for key in MEASURED:
        require_measured(key, row[key], name)
    return name, row


def _of_file(path):
    from pydantic import ConfigDict, create_model

    value = bool | int | float | str | None
    form = create_model("Run", __config__=ConfigDict(extra="forbid"), **dict.fromkeys(KEYS, (value, None)))
    document = read_document(path, form, "write 'key: value', as in 'tp: 8'")
    stated = {key: getattr(document, key) for key in KEYS}
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in stated.items() if value is not None
    }  # fmt: skip
