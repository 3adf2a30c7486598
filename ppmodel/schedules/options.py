"""The options of schedules: what they are called, which values are legal, and how these are written."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ppmodel.errors import ScheduleError
from ppmodel.given import as_list, to_builtin
from ppmodel.tables.gathers import FSDP, LOOKAHEAD


class Option(NamedTuple):
    """An option of a schedule, besides its size.

    Attributes
    ----------
    name : str
        Keyword argument of the generator; on the command line, ``--name`` with dashes for underscores.
    read : callable
        Converts text to a value; raises an exception for what is none.
    default : object
        None if it follows from the size.
    form : str
        Placeholder for the value in help texts.
    rule : str
        What values are legal, for error messages.
    help : str
    accepts : callable
        Whether a value of any type is legal; `build` checks this, so that generators need not.
    examples : tuple
        A few values that are legal at any size, for tests.
    tried : tuple
        Values of which `plan` tries each; without them, it leaves the default.
    """

    name: str
    read: Callable
    default: object
    form: str
    rule: str
    help: str
    accepts: Callable = lambda _: True
    examples: tuple = ()
    tried: tuple = ()

    @classmethod
    def count(cls, name, default, form, help, examples=(1, 2, 3), least=1, tried=()):
        """Create an option that is a whole number of at least `least`.

        >>> Option.count("chunks", 2, "V", "stages per rank").checked("3")
        3
        """
        rule = f"must be a whole number of at least {least}"
        digits = re.compile("[0-9]{1,10}")  # without signs, spaces or underscores
        read = lambda text: int(text) if digits.fullmatch(text) else -1  # noqa: E731
        return cls(name, read, default, form, rule, help, lambda value: is_count(value, least), examples, tried)

    @classmethod
    def words(cls, name, words, help, tried=()):
        """Create an option that is one of some words, by default the first.

        >>> Option.words("concat", ("direct", "overlapping"), "how").form
        'direct|overlapping'
        """
        rule = f"must be one of {', '.join(words)}"
        return cls(name, str, words[0], "|".join(words), rule, help, words.__contains__, words, tried)

    def checked(self, given):
        """Return a value, or the one that a text stands for, if it is legal.

        Raises
        ------
        ScheduleError
            Gives the rule and an example.
        """
        given = to_builtin(given)
        given = tuple(as_list(given)) if isinstance(given, list | tuple) else given
        with suppress(Exception):  # anything that a user's own option may raise
            value = self.read(given) if isinstance(given, str) else given
            if self.accepts(value) or value is self.default is None:
                return value
        raise ScheduleError(self.name, given, self.rule, f"write, for example, {self.example}")

    @property
    def written(self):
        """The name as written on the command line.

        >>> Option.count("warm_up", 1, "N", "forwards ahead").written
        'warm-up'
        """
        return self.name.replace("_", "-")

    @property
    def example(self):
        """The default as people write it, or a legal value if the default follows from the size."""
        return option_text(next((value for value in (self.default, *self.examples) if value is not None), self.form))


SHARDING = (
    Option.words(
        "fsdp", FSDP, "fully sharded weights, gathered a stage at a time: keep them between microbatches, or drop them"
    )._replace(default=None),
    Option.count(
        "lookahead", LOOKAHEAD, "N", f"stages of a rank that are gathered at a time, with --fsdp (default: {LOOKAHEAD})"
    ),
)  # fmt: skip
"""The options of every schedule; see `tables.gathers`."""


def option_text(value):
    """Write the value of an option as people do.

    >>> option_text((1, 2)), option_text("direct")
    ('1:2', 'direct')
    """
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


def is_count(value, least=1):
    """Check that a value is a whole number of at least `least`.

    >>> is_count(1), is_count(True), is_count(0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
