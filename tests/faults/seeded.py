"""The faults of `faults.yaml`, and how one is seeded into a copy of the checkout."""

from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


class Fault(NamedTuple):
    """A change of one place in one file that makes the library wrong.

    Parameters
    ----------
    name : str
    file : str
        Path from the root of the checkout.
    was, becomes : str
        The text, which occurs once in the file, and what replaces it.
    """

    name: str
    file: str
    was: str
    becomes: str


def faults():
    """All faults of the list."""
    entries = YAML(typ="safe").load((Path(__file__).parent / "faults.yaml").read_text())
    return [Fault(name, **entry) for name, entry in entries.items()]


def seed(fault, folder):
    """Write a fault into the checkout at a folder."""
    path = Path(folder) / fault.file
    text = path.read_text()
    if text.count(fault.was) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has {text.count(fault.was)} times {fault.was!r}")
    path.write_text(text.replace(fault.was, fault.becomes))
