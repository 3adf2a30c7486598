"""What the package offers is annotated: parameters, results and attributes."""

import inspect
from pathlib import Path

import pytest
from typed import consumer

import ppmodel
from ppmodel.clusters import specs

PUBLIC = {name: getattr(room, name) for room in (ppmodel, specs) for name in room.__all__}
PUBLIC = {name: value for name, value in PUBLIC.items() if inspect.isclass(value) or inspect.isfunction(value)}


def functions(owner):
    """A function, or the public functions that a class of ours defines, those behind properties among them."""
    if not inspect.isclass(owner):
        yield owner.__name__, owner
        return
    for name, value in vars(owner).items():
        value = (
            getattr(value, "__func__", None) or getattr(value, "fget", None) or getattr(value, "func", None) or value
        )
        public = not name.startswith("_") or (name == "__init__" and value.__module__ == owner.__module__)
        if public and inspect.isfunction(value):
            yield f"{owner.__name__}.{name}", value


def unannotated(function):
    """The parameters of a function without a type, and ``return``."""
    signature = inspect.signature(function)
    bare = [
        name
        for name, given in signature.parameters.items()
        if name not in ("self", "cls") and given.annotation is given.empty
    ]
    return bare + ["return"] * (signature.return_annotation is signature.empty)


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_is_annotated(name):
    """Every parameter and result of a public name, and of the public methods and properties of a class."""
    assert {place: bare for place, function in functions(PUBLIC[name]) if (bare := unannotated(function))} == {}


def test_the_checked_example_runs(tmp_path):
    """The code that a type checker reads strictly, in typed/consumer.py, does what its types say."""
    assert isinstance(consumer.tables(tmp_path), ppmodel.Schedule)
    assert len(consumer.runs(tmp_path)) == 2
    assert [type(spec) for spec in consumer.specifications()] == [specs.ModelSpec, specs.SystemSpec]
    assert isinstance(consumer.refused("none"), str)


def test_the_package_says_that_it_is_typed():
    """Type checkers of those who import it read its annotations."""
    assert (Path(ppmodel.__file__).parent / "py.typed").exists()
