"""What is declared of a layout's value; the only place that says how it is checked, written and shown."""

from dataclasses import field
from typing import Annotated, Any, Literal, NamedTuple

LARGEST = 10**9


class Declared(NamedTuple):
    """What is declared of a layout's value.

    Parameters
    ----------
    type : type
        ``int``, ``float``, ``bool`` or ``str``.
    help : str
        For the command line.
    low, high : int
        Range of a number.
    words : tuple of str
        The legal words, if the value is a word; with the type ``int``, also a number is legal.
    column : bool
        Whether frames have a column for it.
    of_schedule : bool
        Whether the schedule or the model has the value, too: it is then no keyword and no option.
    of_runs : bool
        Whether rows of measured runs state it.
    """

    type: type
    help: str
    low: int = 1
    high: int = LARGEST
    words: tuple = ()
    column: bool = False
    of_schedule: bool = False
    of_runs: bool = False

    @property
    def texts(self):
        """The legal values by what people write, if they are few: words, switches, or digits; otherwise None."""
        if self.type is bool:
            return {"true": True, "false": False}
        if self.words:
            return {word: word for word in self.words}
        is_digit = self.type is int and self.high < 10
        return {str(digit): digit for digit in range(self.low, self.high + 1)} if is_digit else None

    @property
    def form(self):
        """Placeholder for the value in help texts."""
        if self.type is tuple:
            return "WORD|N,N,...|STRING"
        if self.words:
            words = "|".join(self.words)
            return f"{words}|N" if self.type is int else f"[{words}]"
        if self.high < 10:
            return "0..1" if self.type is float else f"[{'|'.join(map(str, range(self.low, self.high + 1)))}]"
        return "N"

    def pydantic_type(self):
        """The type that pydantic checks."""
        from pydantic import Field, StrictBool

        if self.type in (bool, tuple):
            return {bool: StrictBool, tuple: Any}[self.type]
        number = Annotated[self.type, Field(ge=self.low, le=self.high, strict=True)]
        words = Literal[self.words] if self.words else None
        return (words if self.type is str else words | number) if words else number


def declared(default, type, help, *arguments, **keywords):
    if isinstance(default, str):
        help = f"{help.removesuffix('.')} (default {default})."
    return field(default=default, metadata={"option": Declared(type, help, *arguments, **keywords)})
