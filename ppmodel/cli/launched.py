"""The arguments of a training framework as text to paste."""

import json
from functools import reduce

from ppmodel.cli.text import aligned
from ppmodel.clusters.launch import launch
from ppmodel.clusters.specs.launcher import load_launcher
from ppmodel.errors import counted


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
    dict, list of str
        For JSON, and as lines to paste.
    """
    launcher = load_launcher(name)
    arguments, without = launch(point, launcher)
    calls, flags = {}, []  # calls in Python, and the other arguments
    for argument in arguments:
        function, _, keyword = argument.partition(".")
        calls.setdefault(function, []).append(keyword) if function[0].isupper() else flags.append(argument)
    lines = [f"{function}({', '.join(keywords)})" for function, keywords in calls.items()]
    if launcher.form == "json":
        lines = [_document(flags), *lines]
    else:
        exports = [argument for argument in flags if argument.startswith("export ")]
        lines = [*exports, *lines, " \\\n".join(argument for argument in flags if argument not in exports)]
    head = f"launch              {launcher.title} {launcher.version}, {counted(point.complete_layout.gpus, 'GPU')}"
    head += f"; to add: {launcher.yours}" * bool(launcher.yours)
    if without:
        lines += ["no argument for", *aligned([[f"  {field}={value}", why] for field, (value, why) in without.items()])]
    written = {"name": name, "version": launcher.version, "arguments": arguments}
    reasons = {field: {"value": value, "why": why} for field, (value, why) in without.items()}
    return written | {"without": reasons}, [head, *lines]


def _document(arguments):
    """Arguments ``section.key=value`` as a document of nested sections."""
    document = {}
    for argument in arguments:
        path, _, value = argument.partition("=")
        *sections, key = path.split(".")
        reduce(lambda section, name: section.setdefault(name, {}), sections, document)[key] = json.loads(value)
    return json.dumps(document, indent=2)
