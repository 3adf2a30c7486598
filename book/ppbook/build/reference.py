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
    settings = group.context_settings | {"terminal_width": _COLUMNS, "max_content_width": _COLUMNS}
    with click.Context(group, info_name="ppmodel", **settings) as context:
        texts = [f"```text\n{group.get_help(context)}\n```\n"]
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            with click.Context(command, context, name, **command.context_settings) as place:
                texts.append(f"## ppmodel {name}\n\n```text\n{command.get_help(place)}\n```\n")
    return "\n".join(texts)
