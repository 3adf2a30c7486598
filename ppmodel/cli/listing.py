"""ppmodel schedules, models, systems, frameworks, layouts, launchers: list what comes with the project."""

from ppmodel import schedules, specs
from ppmodel.cli.commands import command
from ppmodel.cli.text import columns, plain, say


@command("schedules")
def schedules_command():
    """List the schedules, their options and the sizes at which each is legal."""
    for name in schedules.names():
        entry = schedules.get(name)
        say(f"{name}\n    {entry.title}\n    legal: {entry.legal}")
        for option in entry.options:
            usual = "" if option.default is None else f" (default {option.example})"
            say(f"    --{option.written} {option.form}  {option.help}{usual}")


@command("models")
def models_command():
    """List the models that come with the project."""
    say_titles({name: specs.load_model(name).title for name in specs.model_names()})


@command("systems")
def systems_command():
    """List the systems that come with the project."""
    say_titles({name: specs.load_system(name).title for name in specs.system_names()})


@command("frameworks")
def frameworks_command():
    """List the training frameworks that come with the project."""
    say_titles({name: specs.load_framework(name).title for name in specs.framework_names()})


@command("layouts")
def layouts_command():
    """List the run layouts that come with the project."""
    say_titles({name: specs.load_layout(name).title for name in specs.layout_names()})


@command("launchers")
def launchers_command():
    """List the frameworks whose arguments --launch prints, and the version of each."""
    launchers = {name: specs.load_launcher(name) for name in specs.launcher_names()}
    say_titles({name: f"{launcher.title} {launcher.version}" for name, launcher in launchers.items()})


@command("columns")
def columns_command():
    """List the columns of frames, sweeps and JSON, with their units.

    A row has the columns of what it depends on: seconds or a model on a system, a change, a layout, noise.
    """
    from ppmodel.points import COLUMNS

    say(columns([[column.name, column.unit, column.doc] for column in COLUMNS]))


def say_titles(titles):
    """Print one line for each name, with its title."""
    say(columns([[name, plain(title)] for name, title in titles.items()]))
