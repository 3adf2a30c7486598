"""ppmodel schedules, models, systems, frameworks, layouts, launchers: list what comes with the project."""

from ppmodel import schedules
from ppmodel.cli import text
from ppmodel.cli.commands import command
from ppmodel.clusters import specs
from ppmodel.clusters.specs.launcher import load_launcher


@command("schedules")
def schedules_command():
    """List the schedules, their options, and the sizes at which each is legal."""
    for name in schedules.names():
        entry = schedules.get(name)
        text.say(f"{name}\n    {entry.title}\n    legal: {entry.legal}")
        for option in entry.options:
            usual = "" if option.default is None else f" (default: {option.example})"
            text.say(f"    --{option.written} {option.form}  {option.help}{usual}")


def listing(kind, described, load, title="{0.title}"):
    """A command that prints a line for each file of a kind: its name, and its title."""

    def list_files():
        say_titles({name: title.format(load(name)) for name in specs.packaged(kind)})

    return command(kind, help=f"List the {described}.")(list_files)


_COME = "that come with the project"
_PRINTED = "frameworks whose arguments --launch prints, with their versions"
models_command = listing("models", f"models {_COME}", specs.load_model)
systems_command = listing("systems", f"systems {_COME}", specs.load_system)
frameworks_command = listing("frameworks", f"training frameworks {_COME}", specs.load_framework)
layouts_command = listing("layouts", f"run layouts {_COME}", specs.load_layout)
launchers_command = listing("launchers", _PRINTED, load_launcher, "{0.title} {0.version}")


@command("columns")
def columns_command():
    """List the columns of frames, sweeps and JSON, with their units.

    A row has the columns of all it depends on: seconds, or a model and a system; a change, a layout, noise.
    """
    from ppmodel.studies.points import COLUMNS

    text.say(text.aligned([[column.name, column.unit, column.doc] for column in COLUMNS]))


def say_titles(titles):
    """Print one line for each name, with its title."""
    text.say(text.aligned([[name, text.plain(title)] for name, title in titles.items()]))
