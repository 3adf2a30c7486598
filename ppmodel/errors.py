"""One tree of exceptions. Each says which value was given, which rule it breaks, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppmodel.tables.marked import MarkedTable

Rules = Iterable[tuple[str, object, object, str, str]]
"""Field, value, whether the rule holds, rule and remedy, for each of some rules; see `PPModelError.require`."""

_LONGEST_VALUE, LONGEST_LINE = 200, 1200
EXIT_ALL_REFUSED, EXIT_REFUSED, EXIT_INTERRUPTED = 1, 2, 130
"""Exit codes of the command line: no row has numbers; what was typed is refused; Ctrl-C."""


def shown(text, most=_LONGEST_VALUE):
    """Shorten a text to one line without control characters, to quote it in a message.

    Examples
    --------
    >>> shown("two\\nlines \\x1b[31m"), len(shown("x" * 10**6))
    ('two lines \\\\x1b[31m', 200)
    """
    try:
        text = re.sub(r"\s*[\r\n]\s*", " ", str(text))
    except Exception:  # an integer with more digits than Python prints, or an object that cannot be printed
        text = f"a number of {text.bit_length()} bits" if isinstance(text, int) else f"of type {type(text).__name__}"
    if len(text) > most:
        text = f"{text[: most - most // 4 - 5]} ... {text[len(text) - most // 4 :]}"
    return printable(text)


def printable(text):
    """A text whose characters that cannot be printed are escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def counted(number, word):
    """A number with its noun, singular or plural.

    >>> counted(1, "rank"), counted(2, "microbatch")
    ('1 rank', '2 microbatches')
    """
    if number == 1:
        return f"{number} {word}"
    return f"{number} {word}{'es' if word.endswith('ch') else 's'}"


def cause(error):
    """Describe any other exception in one line.

    >>> cause(KeyError("pp")), cause(MemoryError())
    ("KeyError: 'pp'", 'MemoryError')
    """
    return f"{type(error).__name__}: {shown(error)}".removesuffix(": ")


_SHORT, _MOST_MEANT = 3, 3


def did_you_mean(word, candidates):
    """Suggest what an unknown word may mean, as a remedy: words that begin with it, else the one most alike.

    >>> did_you_mean("interleaved", ["1f1b", "interleaved-1f1b", "interleaved-zb"])
    'did you mean interleaved-1f1b or interleaved-zb?'
    >>> did_you_mean("gpip", ["gpipe"]), did_you_mean("layers", ["experts"])
    ('did you mean gpipe?', '')
    """
    word, candidates = str(word).lower(), list(candidates)
    beginning = [candidate for candidate in candidates if len(word) > 1 and candidate.startswith(word)]
    similar = get_close_matches(word, candidates, n=1, cutoff=0.5 if len(word) <= _SHORT else 0.6)
    near = beginning if 0 < len(beginning) <= _MOST_MEANT else similar
    return f"did you mean {' or '.join(near)}?" if near else ""


class PPModelError(ValueError):
    """Input that breaks a rule.

    Parameters
    ----------
    field : str
        What was set, by the name that the user knows.
    value : object
        The value given.
    rule : str
        The rule it breaks.
    remedy : str
        What to write instead.
    where : str, optional
        The file and line that the value came from.
    why : str, optional
        The reason for the rule, printed after it.
    grid : MarkedTable or str, optional
        Printed below the message: the cells of a table, with the faulty ones marked.
    names_fields : bool
        Whether the remedy names fields, in braces; ``{field}`` is the one that was set.

    Examples
    --------
    >>> print(PPModelError("microbatches", 0, "must be at least 1", "pass --microbatches 1 or more"))
    microbatches = 0: must be at least 1; pass --microbatches 1 or more
    >>> print(PPModelError("pp", None, "is missing", "give {field} or {layout}", names_fields=True))
    pp is missing; give pp or layout
    """

    def __init__(
        self, field: str | None, value: object, rule: str | None, remedy: str | None, *, where: str | None = None,
        why: str | None = None, grid: MarkedTable | str | None = None, names_fields: bool = False,
    ) -> None:  # fmt: skip
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy
        self._template = remedy if names_fields else None
        self.write_fields({})
        self.where, self.why, self.grid = where, why, grid
        super().__init__(field, value, rule, remedy)

    @classmethod
    def require(cls, rules: Rules) -> None:
        """Raise the error for the first rule that does not hold.

        >>> PPModelError.require([("tp", 3, 64 % 3 == 0, "must divide 64", "choose 4")])
        Traceback (most recent call last):
        ...
        ppmodel.errors.PPModelError: tp = 3: must divide 64; choose 4
        """
        for field, value, holds, rule, remedy in rules:
            if not holds:
                raise cls(field, value, rule, remedy)

    def write_fields(self, names: Mapping[str, str]) -> None:
        """Write the field, and those that the remedy names, as a command line or a file does.

        Parameters
        ----------
        names : mapping of str to str
            By the names of arguments; others stay as they are.

        Examples
        --------
        >>> error = PPModelError("pp", 0, "must be at least 1", "leave out {field} or {layout}", names_fields=True)
        >>> error.write_fields({"pp": "--pp"})
        >>> str(error)
        '--pp = 0: must be at least 1; leave out --pp or layout'
        """
        self.field = self.field and names.get(self.field, self.field)
        if self._template is not None:
            written = {**names, "field": str(self.field)}
            self.remedy = re.sub(r"{(\w+)}", lambda name: written.get(name[1], name[1]), self._template)

    def _render_traceback_(self):
        """Show the message in a notebook instead of a traceback, with the grid below it."""
        return [f"{type(self).__name__}: {self}", *str(self.grid or "").splitlines()]

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        field = self.field if self.value is None else f"{self.field} = {shown(self.value)}:"
        rule = f"{self.rule}: {self.why}" if self.why else self.rule
        return shown(f"{place}{field} {rule}; {self.remedy}", LONGEST_LINE)


NO_MEMORY = PPModelError("memory", "full", "is not enough for this", "choose a smaller size")
"""How a MemoryError is reported."""


class ScheduleError(PPModelError):
    """A schedule that no generator defines: an unknown name, or a size that is not legal."""


class SizeError(ScheduleError):
    """A number of ranks or microbatches for which a schedule is not defined."""


class GeneratorError(ScheduleError):
    """Any other exception in a user's own generator."""


class TableError(PPModelError):
    """A table that is not a schedule: an operation is missing, duplicated, misplaced or waits forever."""


class SpecificationError(PPModelError):
    """A model or system file with a wrong, unknown, missing or duplicate value."""


class CostError(PPModelError):
    """Impossible durations, or a model that does not fit a schedule: negative times, more stages than blocks."""


class BlocksError(CostError):
    """A model with fewer blocks than a schedule has stages."""


class BatchError(CostError):
    """A global batch that cannot be divided evenly into the microbatches of a table."""


class NothingFitsError(PPModelError):
    """A question of a plan that no layout answers, since none has enough memory or is defined."""


class SweepError(PPModelError):
    """A sweep that cannot start or continue because of its files, its cluster or rows that could not be computed."""


@contextmanager
def refusing(*rows):
    """Catch errors within the context, note them in rows, and go on.

    An error that is not about a point ends everything; so does a lack of memory that no row can tell of. Rows do not
    show the cells of a table that a user's generator makes wrong, but say what does.

    Examples
    --------
    >>> row = {}
    >>> with refusing(row):
    ...     raise SizeError("pp", 3, "must be even", "pass 4")
    >>> row
    {'refused': 'pp = 3: must be even; pass 4'}
    """
    try:
        yield
    except (PPModelError, MemoryError) as error:
        if isinstance(error, SweepError | GeneratorError) or not (rows or isinstance(error, PPModelError)):
            raise
        if isinstance(error, TableError) and error.where:
            error.remedy = f"ppmodel check {error.where.rpartition(':')[0]} marks the cells"
        for row in rows:
            row["refused"] = str(NO_MEMORY if isinstance(error, MemoryError) else error)
