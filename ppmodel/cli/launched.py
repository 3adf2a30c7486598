"""The arguments of a training framework as text to paste."""

import json

from ppmodel.cli.text import columns, counted
from ppmodel.points.launch import launch
from ppmodel.specs import load_launcher


def launched(name, point):
    """The arguments that ``--launch`` prints.

    Parameters
    ----------
    name : str
        Of a launcher, or its file.
    point : Point
        With a layout.

    Returns
    -------
    dict, str
        For JSON, and as text to paste.
    """
    launcher = load_launcher(name)
    arguments, without = launch(point, launcher)
    write = _json_text if launcher.form == "json" else _words_text
    head = f"launch              {launcher.title} {launcher.version}, {counted(point.complete_layout.gpus, 'GPU')}"
    lines = [head, write(arguments)]
    if without:
        rows = [[f"  {field}={value}", why] for field, (value, why) in without.items()]
        lines += ["no argument for", columns(rows)]
    written = {"name": name, "version": launcher.version, "arguments": arguments}
    reasons = {field: {"value": value, "why": why} for field, (value, why) in without.items()}
    return written | {"without": reasons}, "\n".join(lines)


def _words_text(arguments):
    """Variables of the environment line by line, calls in Python, and the other arguments over several lines."""
    exports = [argument for argument in arguments if argument.startswith("export ")]
    calls, words = _calls([argument for argument in arguments if argument not in exports])
    return "\n".join([*exports, *calls, " \\\n".join(words)])


def _json_text(arguments):
    """A document of nested sections, and calls in Python."""
    calls, keys = _calls(arguments)
    document = {}
    for argument in keys:
        path, _, value = argument.partition("=")
        *sections, key = path.split(".")
        section = document
        for name in sections:
            section = section.setdefault(name, {})
        section[key] = json.loads(value)
    return "\n".join([json.dumps(document, indent=2), *calls])


def _calls(arguments):
    """The arguments of calls in Python, one line per call, and the other arguments."""
    calls, others = {}, []
    for argument in arguments:
        name, _, given = argument.partition(".")
        calls.setdefault(name, []).append(given) if name[0].isupper() else others.append(argument)
    return [f"{name}({', '.join(given)})" for name, given in calls.items()], others
