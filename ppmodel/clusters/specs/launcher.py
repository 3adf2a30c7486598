"""A launcher: the arguments by which a training framework is told a schedule and a layout. Its file is a table."""

import os
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ppmodel.clusters.specs.document import Form, Line, read_document
from ppmodel.clusters.specs.files import specification_path

_FORM = "write, for example, 'tp: [{write: [--tensor-model-parallel-size $tp]}]', as the files in data/launchers do"
_Words = Annotated[str, Field(pattern=r"^[\w./$ -]+$")]  # which a shell leaves alone in double quotes


class Rule(Form):
    """Arguments to write for a field where some fields have some values.

    Parameters
    ----------
    when : dict of str to object
        A legal value for each of some fields, or a list of them; by default, whatever they are.
    write : list of str, optional
        Arguments, with ``$field`` for a field's value, in words as a shell reads them. An empty list says that none is
        needed.
    lacks : str
        Without arguments: why the framework has none.
    """

    when: dict[str, Any] = Field(default_factory=dict)
    write: list[Line] | None = None
    lacks: Line = ""

    def holds(self, values):
        """True if the rule is for these values of the fields."""
        return all(values.get(name) in (legal if isinstance(legal, list) else [legal])
                   for name, legal in self.when.items())  # fmt: skip


def _rules(fields):
    """A text alone is one argument, whatever the values."""
    entries = fields.items() if isinstance(fields, dict) else ()
    return {name: [{"write": [rules]}] if isinstance(rules, str) else rules for name, rules in entries} or fields


class Script(Form):
    """What starts a framework under torchrun, beside the arguments of a layout.

    Parameters
    ----------
    program : str
        What torchrun starts, with ``$NAME`` for what users set.
    arguments : list of str
        What follows the arguments of the layout.
    yours : dict of str to str
        The names that users set, each with what it is.
    """

    program: _Words
    arguments: list[_Words] = Field(default_factory=list)
    yours: dict[Annotated[str, Field(pattern=r"^[A-Z_]+$")], Line] = Field(default_factory=dict)


class Launcher(Form):
    """The arguments of one version of a training framework.

    Parameters
    ----------
    title, version : str
        The framework, and the version whose arguments these are.
    source : str
        Where that version lists them.
    yours : str
        What a run needs beside these arguments.
    form : {"words", "json"}
        Arguments of a command line, or ``section.key=value`` for a file in JSON. ``Name.key=value`` is an argument of
        a call in Python.
    script : Script, optional
        How to start it.
    fields : dict of str to list of Rule
        For each field of a layout, or of what `points.launch` derives, the rules; the first that holds counts.

    Examples
    --------
    >>> load_launcher("megatron").fields["tp"][0].write
    ['--tensor-model-parallel-size $tp']
    """

    title: Line
    version: Line
    source: str
    yours: Line = ""
    form: Literal["words", "json"] = "words"
    script: Script | None = None
    fields: Annotated[dict[str, list[Rule]], BeforeValidator(_rules)]


def load_launcher(name: str | os.PathLike[str]) -> Launcher:
    """Read a launcher by name or from a file.

    Parameters
    ----------
    name : str or Path
        A name in `packaged`, or the path of a ``.yaml`` or ``.yml`` file.

    Returns
    -------
    Launcher

    Raises
    ------
    SpecificationError
        In one line: file, line, field, value, rule and remedy.

    Examples
    --------
    >>> load_launcher("torchtitan").version
    'v0.2.2'
    """
    return read_document(specification_path(name, "launchers"), Launcher, _FORM)
