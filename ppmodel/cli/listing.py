"""ppmodel schedules, models, systems, notebooks: what comes with the project."""

import json
from pathlib import Path

from ppmodel import schedules
from ppmodel.cli.commands import command
from ppmodel.cli.text import columns, plain, say
from ppmodel.errors import PPModelError

_NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@command("schedules")
def schedules_command():
    """List the schedules, their options and where each is legal."""
    for name in schedules.names():
        entry = schedules.get(name)
        say(f"{name}\n    {entry.title}\n    legal: {entry.legal}")
        for option in entry.options:
            usual = "" if option.default is None else f" (default {option.example})"
            say(f"    --{option.name} {option.form}  {option.help}{usual}")


@command("models")
def models_command():
    """List the models that come with the project."""
    from ppmodel.specs import load_model, model_names

    _say_titles({name: load_model(name).title for name in model_names()})


@command("systems")
def systems_command():
    """List the systems that come with the project."""
    from ppmodel.specs import load_system, system_names

    _say_titles({name: load_system(name).title for name in system_names()})


@command("notebooks")
def notebooks_command():
    """List the notebooks that "ppmodel run" runs."""
    titles = {path.stem: _title(path) for path in sorted(_NOTEBOOKS.glob("*.ipynb"))}
    if not titles:
        remedy = "run ppmodel from a clone of the project"
        raise PPModelError("notebooks", _NOTEBOOKS, "holds none: they do not come with the package", remedy)
    _say_titles(titles)


def _title(path):
    """A notebook's first heading."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for line in "".join(cell["source"]).splitlines():
            if cell["cell_type"] == "markdown" and line.startswith("# "):
                return line[2:].strip()
    return ""


def _say_titles(titles):
    say(columns([[name, plain(title)] for name, title in titles.items()]))
