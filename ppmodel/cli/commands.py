"""Finds commands and parses their arguments: modules load on demand, errors come with hints."""

import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

import click

from ppmodel.errors import PPModelError, did_you_mean, shown

_COMMANDS = (
    ("Schedules", "ppmodel.cli.{}", ("table", "check", "simulate", "compare", "execute", "sweep")),
    ("Clusters", "ppmodel.cli.{}", ("plan", "predict", "replay", "calibrate", "measure")),
    ("Data", "ppmodel.cli.listing",
     ("schedules", "models", "systems", "frameworks", "layouts", "launchers", "columns")),
)  # fmt: skip
_FEW = 20  # options that need no sections
_MODULES = {name: module.format(name) for _, module, names in _COMMANDS for name in names}
_SECTIONS = {name: section for section, _, names in _COMMANDS for name in names}


@cache
def _further():
    """Commands of other packages by name: the entry points of a group."""
    return {point.name: point for point in entry_points(group="ppmodel.commands")}


class _Careful:
    """Refuses unknown options, with a hint."""

    def parse_args(self, ctx, args):
        args = [arg.replace("--hand-on", "--send-results", 1) for arg in args]  # its name in version 0.1.0
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            given, options = error.option_name, [option for param in self.get_params(ctx) for option in param.opts]
            name, file = given.lstrip("-").replace("-", "_"), next((word for word in args if word.endswith(".py")), "")
            from ppmodel.clusters.specs.suggest import suggest_key

            keys = {option.lstrip("-").replace("-", "_"): option for option in options}
            meant = suggest_key(name, keys).removeprefix("did you mean ").removesuffix("?")
            hint = f"did you mean {keys[meant]}?" if meant in keys else did_you_mean(given, options)
            own = f"{'An' if hint else 'an'} option of your own schedule is written after its file: {file}:{name}=..."
            remedy = f"{hint} {own if file else ''}".strip() or f"see {ctx.command_path} --help"
            raise click.ClickException(f"{given} is not an option of {ctx.command_path}; {remedy}") from None


def _write_sections(formatter, entries):
    """Write a list for each section, in the order in which they begin; entries without one join the last."""
    sections = {}
    for section, name, text in entries:
        sections.setdefault(section or next(reversed(sections), "Options"), []).append((name, text))
    for section, lines in sections.items():
        with formatter.section(section):
            formatter.write_dl(lines)


class Command(_Careful, click.Command):
    """A command whose errors name options as the user types them, and whose help lists many of them by section."""

    def format_options(self, ctx, formatter):
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        sections = [getattr(option, "section", None) if len(options) > _FEW else None for option in options]
        records = [option.get_help_record(ctx) for option in options]
        _write_sections(formatter, [(section, *record) for section, record in zip(sections, records, strict=True)])

    def invoke(self, ctx):
        from ppmodel.cli.arguments import Output
        from ppmodel.files import checked_target, protect, protect_inputs
        from ppmodel.schedules.cases import split_options

        options = {param.name: param.opts[-1] for param in self.params if isinstance(param, click.Option)}
        given = [(param, ctx.params[param.name]) for param in self.params if ctx.params[param.name]]

        def note(warning, *_):
            """Print a warning as a line on standard error."""
            if hasattr(warning, "field"):
                warning.field = options.get(warning.field, warning.field)
            click.echo(f"note: {shown(warning)}", err=True)

        with protect_inputs(), warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = note
            for param, value in given:
                for text in value if isinstance(value, tuple) else [value]:
                    if isinstance(text, str) and not isinstance(param.type, Output):
                        protect(text)
                        protect(split_options(text)[0])  # a schedule's file may have options
            for param, target in given:
                if isinstance(param.type, Output):
                    checked_target(target, param.opts[0])
            try:
                return super().invoke(ctx)
            except PPModelError as error:
                typed = error.value is None or ctx.params.get(error.field) is not None or error.field == "out"
                if error.where is not None or error.field == "file" or not typed:  # a file may have no option
                    options.pop(error.field, None)
                error.write_fields(options)
                raise


class Commands(_Careful, click.Group):
    """The commands, each in a module that is imported on demand."""

    def list_commands(self, ctx):
        return [*_MODULES, *(name for name, point in _further().items() if find_spec(point.module.partition(".")[0]))]

    def format_commands(self, ctx, formatter):
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        texts = {name: command.get_short_help_str(limit=1000) for name, command in commands.items()}
        sections = {name: _SECTIONS.get(name, getattr(command, "section", None)) for name, command in commands.items()}
        _write_sections(formatter, [(sections[name], name, text) for name, text in texts.items()])

    def get_command(self, ctx, name):
        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), f"{name}_command")
        if name not in _further():
            return None
        try:
            return _further()[name].load()
        except ModuleNotFoundError as error:
            if error.name != _further()[name].module.partition(".")[0]:
                raise
            rule, remedy = "does not come with the package", "run it from a clone of the repository"
            raise PPModelError("command", name, rule, f"{remedy}, after pip install -e .") from None

    def resolve_command(self, ctx, args):
        if args and args[0] not in _MODULES and args[0] not in _further():
            names = [*_MODULES, *_further()]
            remedy = did_you_mean(args[0], names) or f"choose one of {', '.join(names)}"
            raise click.ClickException(f"{args[0]} is not a command of ppmodel; {remedy}")
        return super().resolve_command(ctx, args)


def command(name, **settings):
    """Decorator for a command's function, which `Commands` finds in its module as ``NAME_command``."""
    return click.command(name, cls=Command, **settings)
