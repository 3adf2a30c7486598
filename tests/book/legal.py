"""Random legal parameters of notebooks, drawn from the kinds of their values: the same for the same seed."""

import random
from contextlib import suppress

import nbformat
from sizes import PARAMETERS

from ppbook.build.run import notebook_names
from ppbook.parameters import check, declared
from ppmodel import names, schedules
from ppmodel.clusters.specs import load_system, packaged
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import fitted_systems

LARGEST = 12
"""Of a count: legal ones may be too large for a run of minutes, which is no fault of a page."""

REFUSED = {f"{kind}Error" for kind in ("PPModel", "Size", "Schedule", "Specification", "Blocks", "Batch")}
"""Errors of a cell that refuses its parameters: nothing that the page asks is defined."""

KEPT = {"folder", "table", "table-file", "generator", "layout", "setting"}
"""Kinds with few values, which tests of their own try."""


def legal_sets(stem, number, seed=1):
    """Yield so many sets of one to three changed parameters of a notebook, beside its small sizes."""
    chance = random.Random(f"{stem} {seed}")
    parameters = declared(nbformat.read(notebook_names()[stem], as_version=4))
    small = {name: value for name, value in PARAMETERS[stem].items() if parameters[name].word != "layout"}
    free = [name for name, parameter in parameters.items() if parameter.word not in KEPT]
    for _ in range(number * bool(free)):
        changed = chance.sample(free, min(len(free), chance.randint(1, 3)))
        values = {name: _drawn(parameters[name], chance) for name in changed}
        with suppress(PPModelError):  # refused before the run: lists of different lengths
            check(small | values, parameters)
            yield small | values


def _drawn(parameter, chance):
    if parameter.several:
        entries = [_value(parameter, chance) for _ in range(chance.randint(1, 3))]
        return [entry for number, entry in enumerate(entries) if entry not in entries[:number]]
    return _value(parameter, chance)


def _value(parameter, chance):
    """A value of a kind: a registered name, or within the bounds of its type."""
    word = parameter.word
    if word == "schedule":
        name = chance.choice(names())
        option = chance.choice([None, *schedules.get(name).options])
        return name if option is None else [name, {option.name: _plain(chance.choice(option.examples))}]
    if word in _NAMES:
        return chance.choice(_NAMES[word]())
    schema = parameter.kind.adapter.json_schema()
    if "enum" in schema:
        return chance.choice(schema["enum"])
    if schema["type"] == "boolean":
        return chance.random() < 0.5
    if schema["type"] == "array":
        return [chance.randint(1, LARGEST) for _ in range(schema["minItems"])]
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    if schema["type"] == "integer":
        step = schema.get("multipleOf", 1)
        return step * chance.randint(-(-least // step), max(LARGEST, least) // step)
    above = "exclusiveMinimum" in schema
    edge = [] if above else [float(least)]
    most = schema.get("maximum", 100.0)
    return chance.choice(
        [*edge, *(least + chance.random() ** 3 * (min(most, 100.0) - least) or most for _ in range(3))]
    )


def _plain(value):
    """An option's value as YAML has it."""
    return list(value) if isinstance(value, tuple) else value


_NAMES = {
    "model": lambda: [*packaged("models")],
    "paper-model": lambda: [*packaged("models")],
    "system": lambda: [*packaged("systems")],
    "paper-system": lambda: [*packaged("systems")],
    "fitted-system": fitted_systems,
    "node-system": lambda: [name for name in packaged("systems") if load_system(name).nodes],
    "paper-node-system": lambda: [name for name in packaged("systems") if load_system(name).nodes],
    "setting": lambda: [*packaged("settings")],
    "size": lambda: ["40 GiB", "1.5 TiB"],
}
