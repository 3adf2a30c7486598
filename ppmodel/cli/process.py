"""The command line as a process: commands, exit codes, and one line for every mistake."""

import os
import signal
import sys
from contextlib import suppress

import click

from ppmodel import __version__
from ppmodel.cli.commands import Commands
from ppmodel.cli.text import plain, say
from ppmodel.errors import EXIT_INTERRUPTED, EXIT_REFUSED, LONGEST_LINE, NO_MEMORY, PPModelError, shown


@click.group(cls=Commands, invoke_without_command=True,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})  # fmt: skip
@click.version_option(__version__)
@click.pass_context
def cli(context):
    """Pipeline-parallel schedules as tables: closed formulas, idealised slots, and simulation with communication."""
    if context.invoked_subcommand is None:
        say(context.get_help())
        context.exit(EXIT_REFUSED)


def main(argv=None):
    """Run the command line; mistakes in the arguments give a one-line message and exit code 2.

    Parameters
    ----------
    argv : list of str, optional
        The arguments; the process's own by default.

    Returns
    -------
    int
        The exit code.
    """
    try:
        with cli.make_context("ppmodel", list(sys.argv[1:] if argv is None else argv)) as context:
            code = cli.invoke(context)
        if sys.stdout:  # unless it was closed
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except BrokenPipeError:  # whoever read our output, such as head, is gone
        _drop_output()
        return 0
    except PPModelError as error:
        return _refused(str(error), error.grid)
    except click.ClickException as error:  # an unknown option or command, and what was probably meant
        return _refused(_usage(error) if isinstance(error, click.UsageError) else error.message)
    except MemoryError:
        return _refused(str(NO_MEMORY))
    except OSError as error:
        _drop_output()
        place, why = error.filename or "standard output", error.strerror
        return _refused(f"output = {place}: cannot be written ({why}); free some space, or write elsewhere")
    except (click.Abort, KeyboardInterrupt) as stopped:  # a sweep says how far it got
        return _refused(str(stopped) or "interrupted", prefix="", code=EXIT_INTERRUPTED)


def _refused(message, grid=None, prefix="error: ", code=EXIT_REFUSED):
    """Print what is wrong on standard error; if nobody reads it any more, the exit code must do."""
    with suppress(OSError):
        click.echo(prefix + shown(message, LONGEST_LINE), err=True)
        if grid:
            click.echo(plain(str(grid), keep="\n"), err=True)
    return code


def _usage(error):
    """An error that click found, in one line with a remedy."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        form = error.param.metavar or error.param.name.upper()
        name = error.param.opts[-1] if isinstance(error.param, click.Option) else form
        remedy = f"pass {name} {form}" if name != form else f"see {error.ctx.command_path} --help"
        return str(PPModelError(name, None, "is missing", remedy))
    text = " ".join(error.format_message().split()).rstrip(".")
    return f"{text}; see {error.ctx.command_path if error.ctx else 'ppmodel'} --help"


def _drop_output():
    """Discard what is still buffered, so that the interpreter does not fail on it at exit."""
    with suppress(OSError, ValueError, AttributeError):  # standard output is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run():
    """Run the command line, and end the process."""
    is_heard = signal.getsignal(signal.SIGINT) != signal.SIG_IGN  # not as a background job of a shell
    try:
        if is_heard:  # from here on, an interruption may clean up
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
    except KeyboardInterrupt:  # before there was anything to clean up
        code = _refused("interrupted", prefix="", code=EXIT_INTERRUPTED)
    if is_heard:  # nothing more to clean up
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if code == EXIT_INTERRUPTED:  # else Python ends by the signal where that came in `exec`, as of a dataclass
        os._exit(code)
    sys.exit(code)
