"""The arguments of a training framework as text to paste."""

import json
from functools import reduce
from math import gcd

from ppmodel.cli.text import aligned, plain
from ppmodel.clusters.launch import launch
from ppmodel.errors import counted


def launched(name, launcher, point):
    """The arguments that ``--launch`` prints.

    Parameters
    ----------
    name : str
        As the launcher was asked for.
    launcher : Launcher
    point : Point
        With a layout.

    Returns
    -------
    dict, list of str
        For JSON, and as lines to paste.
    """
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
        cells = [[f"  {field}={value}", why] for field, (value, why) in without.items()]
        lines += [f"{launcher.title} has no argument for these; set them otherwise:", *aligned(cells)]
    written = {"name": name, "version": launcher.version, "arguments": arguments}
    reasons = {field: {"value": value, "why": why} for field, (value, why) in without.items()}
    return written | {"without": reasons}, [head, *lines]


def started(launcher, point):
    """A script that starts a point on every node, in which what is not known is a variable."""
    arguments, without = launch(point, launcher)
    script, gpus, nodes = launcher.script, point.complete_layout.gpus, point.system.nodes
    exports = [argument for argument in arguments if argument.startswith("export ")]
    lines = [script.program, *script.arguments]
    program, *more = (" ".join(f'"{word}"' if "$" in word else word for word in line.split()) for line in lines)
    devices = min(gcd(nodes.devices_per_node, 8) if nodes else 1, gpus)
    return "\n".join([
        "#!/usr/bin/env bash",
        f"# {launcher.title} {launcher.version} on {counted(gpus, 'GPU')}; run this on every node.",
        *(plain(f"# {launcher.title} has no argument for {field}={value}") for field, (value, _) in without.items()),
        "set -euo pipefail",
        *(f': "${{{name}:?}}"  # {what}' for name, what in script.yours.items()),
        f': "${{GPUS_PER_NODE:={devices}}}" "${{MASTER_ADDR:=localhost}}" "${{MASTER_PORT:=29500}}"',
        *exports,
        f'torchrun --nnodes $(({gpus} / GPUS_PER_NODE)) --nproc-per-node "$GPUS_PER_NODE" --rdzv-backend c10d \\',
        '  --rdzv-id "$MASTER_PORT" --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT" \\',
        " \\\n  ".join([f"  {program}", *(argument for argument in arguments if argument not in exports), *more]),
        "",
    ])  # fmt: skip


def _document(arguments):
    """Arguments ``section.key=value`` as a document of nested sections."""
    document = {}
    for argument in arguments:
        path, _, value = argument.partition("=")
        *sections, key = path.split(".")
        reduce(lambda section, name: section.setdefault(name, {}), sections, document)[key] = json.loads(value)
    return json.dumps(document, indent=2)
