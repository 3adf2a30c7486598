"""One tree of exceptions. Each says what was given, which rule it breaks, and what to do instead."""

import re

_LONGEST_VALUE, LONGEST_LINE = 200, 1200


def shown(text, most=_LONGEST_VALUE):
    """A text on one line of bounded length, without control characters, as messages show what a user wrote.

    Examples
    --------
    >>> shown("two\\nlines \\x1b[31m"), len(shown("x" * 10**6))
    ('two lines \\\\x1b[31m', 200)
    """
    try:
        text = re.sub(r"\s*[\r\n]\s*", " ", str(text))
    except ValueError:  # a whole number of more digits than Python writes
        text = f"a number of {text.bit_length()} bits"
    if len(text) > most:
        text = f"{text[: most - most // 4 - 5]} ... {text[len(text) - most // 4 :]}"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def cause(error):
    """What an error of another origin is, in one line.

    >>> cause(KeyError("pp")), cause(MemoryError())
    ("KeyError: 'pp'", 'MemoryError')
    """
    return f"{type(error).__name__}: {shown(error)}".removesuffix(": ")


class PPModelError(ValueError):
    """Input that breaks a rule.

    Parameters
    ----------
    field : str
        What was set, under the name that its user knows.
    value : object
        What it was set to.
    rule : str
        The rule that the value breaks.
    remedy : str
        What to write instead.
    where : str, optional
        The file, and the line in it, that the value came from.
    why : str, optional
        What the rule rests on, in more words than fit a heading; said after the rule.
    grid : Grid or str, optional
        What is shown below the message: of a table, its cells and which of them are in question.

    Examples
    --------
    >>> print(PPModelError("microbatches", 0, "must be at least 1", "pass --microbatches 1 or more"))
    microbatches = 0: must be at least 1; pass --microbatches 1 or more
    """

    def __init__(self, field, value, rule, remedy, *, where=None, why=None, grid=None):
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy
        self.where, self.why, self.grid = where, why, grid
        super().__init__(field, value, rule, remedy)

    def _render_traceback_(self):
        """What a notebook shows in place of a traceback: the message, and the grid below it."""
        return [f"{type(self).__name__}: {self}", *str(self.grid or "").splitlines()]

    def __str__(self):
        place = f"{self.where}: " if self.where else ""
        value = "nothing" if self.value is None else shown(self.value)
        rule = f"{self.rule}: {self.why}" if self.why else self.rule
        return shown(f"{place}{self.field} = {value}: {rule}; {self.remedy}", LONGEST_LINE)


NO_MEMORY = PPModelError("memory", "full", "is not enough for this", "choose a smaller size")
"""What a MemoryError is told as."""


class ScheduleError(PPModelError):
    """A schedule that its generator does not define: an unknown name or an illegal size."""


class SizeError(ScheduleError):
    """A size, ranks or microbatches, at which a schedule is not defined."""


class TableError(PPModelError):
    """A table that is not a schedule: an operation is missing, doubled, misplaced or waits forever."""


class SpecificationError(PPModelError):
    """A model or system file with a wrong, unknown, missing or repeated value."""


class CostError(PPModelError):
    """Durations, or a model on a schedule, that cannot be: negative times, more stages than blocks."""


class BlocksError(CostError):
    """A model with fewer blocks than a schedule has stages."""


class BatchError(CostError):
    """A global batch that does not divide into the microbatches of a table."""


class ReproduceError(PPModelError):
    """A run of the notebooks or a build of the book that could not be finished."""


class SweepError(PPModelError):
    """A sweep that cannot begin or go on: its files, its cluster, or rows that could not be computed."""
