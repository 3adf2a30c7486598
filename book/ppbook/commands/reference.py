"""The help of every command as part of a page."""

import click

_COLUMNS = 80


def write_reference(group):
    """Collect the help texts of all commands, for a page to include.

    Parameters
    ----------
    group : click Group
        The command line.

    Returns
    -------
    str
        In MyST: the help of the group, then a section for each of its commands, in order.

    Examples
    --------
    >>> from ppmodel.cli.process import cli
    >>> write_reference(cli).splitlines()[1]
    'Usage: ppmodel [OPTIONS] [COMMAND] [ARGS]...'
    """
    context = click.Context(group, info_name="ppmodel")
    commands = {f"ppmodel {name}": group.get_command(context, name) for name in group.list_commands(context)}
    return "\n".join(
        [_block(group, "ppmodel"), *(f"## {name}\n\n{_block(one, name)}" for name, one in commands.items())]
    )


def print_reference():
    """Print `write_reference` for ppmodel's own command line."""
    from ppmodel.cli.process import cli

    print(write_reference(cli), end="")


def _block(command, called):
    settings = command.context_settings | {"terminal_width": _COLUMNS, "max_content_width": _COLUMNS}
    with click.Context(command, info_name=called, **settings) as context:
        return f"```text\n{command.get_help(context)}\n```\n"
