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
    settings = {"terminal_width": _COLUMNS, "max_content_width": _COLUMNS}
    texts = []
    for name in ["ppmodel", *(f"ppmodel {name}" for name in group.list_commands(context))]:
        command = group.get_command(context, name.partition(" ")[2]) if " " in name else group
        with click.Context(command, info_name=name, **command.context_settings | settings) as place:
            heading = f"## {name}\n\n" if command is not group else ""
            texts.append(f"{heading}```text\n{command.get_help(place)}\n```\n")
    return "\n".join(texts)
