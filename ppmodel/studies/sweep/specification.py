"""The file of a sweep: its keys, their types, and consistency checks."""

from contextlib import contextmanager
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ppmodel.clusters import specs
from ppmodel.clusters.specs.document import Form, list_text, place_in, read_document
from ppmodel.errors import PPModelError, SpecificationError
from ppmodel.files import read_text
from ppmodel.given import as_list
from ppmodel.schedules.cases import case_of_data, cases_of_file, is_file
from ppmodel.simulation import ALLREDUCE, P2P
from ppmodel.studies.noise import MAX_JITTER, MAX_SLOWDOWN, Noise
from ppmodel.studies.points import resolve
from ppmodel.studies.sweep.grid import Sweep

_ARGUMENT = "--schedule-file"
_MAX_ROWS = 10**7
_LARGEST_FILE = 2**26
_NO_ENTRY = "must have an entry", "list at least one, or delete the key"
_TWICE = "is listed twice", "delete one of the two"
_FORM = "write 'key: value' or 'key: [value, ...]', as in data/templates/sweep.yaml"


def _is_pair(entry):
    """Return whether an entry is ``[name, {option: value}]``, as notebooks write a schedule."""
    pair = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], dict)
    return pair and not {"name", "file"} & entry[1].keys()


_Count = Annotated[int, Field(ge=1, le=10**9)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]


class _ScheduleForm(Form):
    """A schedule by name or from the user's own file, with the options that the registry lists for it."""

    model_config = ConfigDict(extra="allow")
    name: str | None = None
    file: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, entry):
        """A name alone stands for a schedule without options."""
        if _is_pair(entry):
            return {**entry[1], "name": entry[0]}
        return entry if isinstance(entry, dict) else {"name": entry}


class _SeedsForm(Form):
    first: _Seed = Field(alias="from")
    last: _Seed = Field(alias="to")


class _NoiseForm(Form):
    model_config = ConfigDict(allow_inf_nan=False)
    jitter: float = Field(0.0, ge=0, le=MAX_JITTER)
    straggling: float = Field(0.0, ge=0, le=1)
    slowdown: float = Field(1.0, ge=1, le=MAX_SLOWDOWN)


_List = BeforeValidator(as_list)
_ListOrPair = BeforeValidator(lambda value: [value] if _is_pair(value) else as_list(value))
_SeedOrRange = BeforeValidator(lambda entry: entry if isinstance(entry, dict) else {"from": entry, "to": entry})


class _SweepFile(Form):
    """Keys of a sweep's file."""

    schedules: Annotated[list[_ScheduleForm], _ListOrPair]
    pp: Annotated[list[_Count], _List] = ()
    microbatches: Annotated[list[_Count], _List] = ()
    p2p: Annotated[list[Literal[P2P]], _List] = ()
    allreduce: Annotated[list[Literal[ALLREDUCE]], _List] = ("excluded",)
    systems: Annotated[list[str], _List]
    models: Annotated[list[str], _List]
    framework: str = None
    links: Annotated[list[str | dict[str, dict[str, Any]] | None], _List] = ()
    layouts: Annotated[list[str | dict[str, Any]], _List] = ()
    noise: Annotated[list[_NoiseForm], _List] = ()
    seeds: Annotated[list[Annotated[_SeedsForm, _SeedOrRange]], _List] = ()


def load_sweep(path, schedule_files=(), links=None):
    """Read a sweep from its file, including the systems and models that it names.

    Parameters
    ----------
    path : str or Path
        A YAML file; ``data/templates/sweep.yaml`` explains the keys. Paths in it are relative to its folder.
    schedule_files : sequence of str or Path
        Further generators and tables of your own, in addition to those that the file names.
    links : dict or str, optional
        As in `run_sweep`.

    Returns
    -------
    Sweep
        Checked. It includes undefined points; their rows say why they are refused.

    Raises
    ------
    PPModelError
        In one line: file, line, field, value, rule and remedy.

    Examples
    --------
    >>> from ppmodel.clusters.specs import DATA
    >>> load_sweep(DATA / "templates" / "sweep.yaml").pp
    (4, 8, 16)
    """
    path = Path(path)
    form = read_document(path, _SweepFile, _FORM)
    if links is not None and form.links:
        raise SpecificationError("links", links, "is also a key of the file", f"leave it out, or delete it in {path}")
    with _placed(path):
        SpecificationError.require(_rules(form))
        cases, files = _cases(path, form, schedule_files)
        grid = resolve(
            cases, form.pp or None, form.microbatches or None, layout=_layouts(path, form) or None,
            system=_loaded(path, "systems", form.systems, specs.load_system),
            model=_loaded(path, "models", form.models, specs.load_model),
            framework=_loaded(path, "framework", form.framework, specs.load_framework) or None,
            links=form.links or [links], p2p=form.p2p or None, allreduce=form.allreduce,
        )  # fmt: skip
        asked = {key for entry in form.layouts if isinstance(entry, dict) for key in entry}
        asked |= form.model_fields_set & {"p2p", "allreduce"} | ({"links"} if links or form.links else set())
        noises = tuple(Noise(**entry.model_dump()) for entry in form.noise)
        seeds = tuple(range(entry.first, entry.last + 1) for entry in form.seeds)
        sweep = Sweep(**vars(grid), noises=noises, seeds=seeds, files=files, asked=tuple(sorted(asked)))
        is_small, rule = sweep.num_rows <= _MAX_ROWS, f"must be at most {_MAX_ROWS}"
        SpecificationError.require([("rows", sweep.num_rows, is_small, rule, "split the sweep into several files")])
    return sweep


@contextmanager
def _placed(path, place="", value=None, remedy=None):
    """Give errors the line of the entry that they name, unless another file, or an argument, is at fault.

    They name a value, which stands at a place, or a key below that place.
    """
    try:
        yield
    except PPModelError as error:
        if error.where is not None or error.field == _ARGUMENT:
            raise
        is_whole = value is not None or place == _ARGUMENT
        field = place if is_whole else f"{place}.{error.field}".lstrip(".")
        where = place_in(path, *(int(key) if key.isdecimal() else key for key in field.split(".")))
        parts = error.value if value is None else value, error.rule, remedy or error.remedy
        raise SpecificationError(field, *parts, where=None if place == _ARGUMENT else where) from None


def _rules(form):
    """Field, value, whether the rule holds, rule and remedy; the first that does not hold is reported."""
    for key, entries in form:
        if key in form.model_fields_set and isinstance(entries, list):
            yield key, "[]", entries, *_NO_ENTRY
            texts = set()
            for place, entry in enumerate(entries):
                shown = entry.model_dump(by_alias=True, exclude_none=True) if isinstance(entry, BaseModel) else entry
                yield f"{key}.{place}", shown, repr(entry) not in texts, *_TWICE
                texts.add(repr(entry))
    examples = {"seeds": "seeds: {from: 1, to: 100}", "noise": "noise: {jitter: 0.1}"}
    for key, missing in (("noise", "seeds"), ("seeds", "noise")):
        remedy = f"add, for example, {examples[missing]}, or delete {key}"
        yield key, "given", getattr(form, missing) or not getattr(form, key), f"needs {missing}", remedy
    rule = "cannot be combined with layouts"
    yield "noise", "given", not (form.noise and form.layouts), rule, "leave out one of the two"
    for place, entry in enumerate(form.seeds):
        rule = f"must be at least from ({entry.first})"
        yield f"seeds.{place}.to", entry.last, entry.last >= entry.first, rule, "swap the two"
    ordered = sorted((entry.first, entry.last, place) for place, entry in enumerate(form.seeds))
    for (_, last, place), (first, _, other) in pairwise(ordered):
        yield f"seeds.{max(place, other)}", first, first > last, *_TWICE
    count = sum(last - first + 1 for first, last, _ in ordered)
    yield "seeds", f"{count} of them", count <= _MAX_ROWS, f"must be at most {_MAX_ROWS}", "list fewer"
    for place, noise in enumerate(form.noise):
        rule, remedy = "has no effect: no rank is slow", "add, for example, straggling: 0.02, or delete slowdown"
        yield f"noise.{place}.slowdown", noise.slowdown, noise.slowdown == 1 or noise.straggling, rule, remedy
        rule = "has no effect: slow ranks are as fast as the others"
        remedy = "add, for example, slowdown: 1.5, or delete straggling"
        yield f"noise.{place}.straggling", noise.straggling, noise.slowdown > 1 or not noise.straggling, rule, remedy


def _cases(path, form, schedule_files):
    """Every schedule with every combination of its options, in file order; and name and text of the user's files."""
    cases, files = {}, set()
    entries = [(f"schedules.{place}", entry) for place, entry in enumerate(form.schedules)]
    entries += [(_ARGUMENT, _ScheduleForm(file=str(Path(file).absolute()))) for file in schedule_files]
    for place, entry in entries:
        if entry.file is not None:
            with _placed(path, place):
                named = cases_of_file(path.parent / entry.file)
                if generator := named[0].user_entry:
                    files.update(generator.texts)
                else:  # a table
                    files.add((Path(entry.file).name, read_text(path.parent / entry.file, _LARGEST_FILE)))
            named = [case for case in named if entry.name in (None, case.name)]
            if not named:
                raise SpecificationError(f"{place}.name", entry.name, f"is not in {entry.file}", "leave it out")
        elif entry.name is None:
            raise SpecificationError(f"{place}.name", None, "is missing", "add the key name, or file")
        else:
            remedy = f"write {{file: {entry.name}}}" if is_file(entry.name) else list_text(entry.name)
            with _placed(path, place, entry.name, remedy):
                named = [case_of_data(entry.name)]
        for case in chain.from_iterable(_with_options(path, place, case, entry.model_extra) for case in named):
            defaults = {name: option.default for name, option in case.known_options.items()}
            key = case.name, frozenset((defaults | dict(case.options)).items())
            if key in cases:
                raise SpecificationError(place, case.name, "is listed twice with the same options", _TWICE[1])
            cases[key] = case
    return list(cases.values()), tuple(sorted(files))


def _with_options(path, place, case, given):
    """A case with every combination of the values of its options."""
    several = {}
    for key, value in given.items():
        if value == []:
            raise SpecificationError(f"{place}.{key}", value, *_NO_ENTRY)
        option = case.known_options.get(key)
        takes_numbers = option and isinstance(option.default or (*option.examples, None)[0], tuple)  # as ``split``
        is_single = isinstance(value, list) and not any(isinstance(entry, list | str) for entry in value)
        several[key] = [value] if takes_numbers and is_single else as_list(value)
    with _placed(path, place):
        return [case.with_options(dict(zip(several, values, strict=True))) for values in product(*several.values())]


def _layouts(path, form):
    """Every layout that is named or written out, with each combination of values in lists."""
    layouts = []
    for place, entry in enumerate(form.layouts):
        written = entry if isinstance(entry, dict) else {"name": entry}
        values = {key: value for key, value in written.items() if key not in ("name", "pp")}
        with _placed(path, f"layouts.{place}"):
            stated = {"pp": written["pp"]} if "pp" in written else None
            several = specs.as_layouts(specs.as_layout(_beside(path, written.get("name")), stated), values)
        for layout in several:
            if layout in layouts:
                raise SpecificationError(f"layouts.{place}", entry, *_TWICE)
            layouts.append(layout)
    for key in ("pp", "microbatches"):
        if not getattr(form, key) and (not layouts or any(getattr(layout, key) is None for layout in layouts)):
            rule = "is missing, also in a layout" if layouts else "is missing"
            raise SpecificationError(key, None, rule, f"add the key {key}")
    return layouts


def _beside(path, name):
    """The path of a YAML file whose name is relative to that of another file; any other name as it is."""
    return path.parent / name if isinstance(name, str) and name.endswith((".yaml", ".yml")) else name


def _loaded(path, key, names, load):
    """The specifications of a list of names, or of a single one, each of another name."""
    loaded = {}
    for place, name in enumerate(as_list(names) if names is not None else ()):
        field = f"{key}.{place}" if isinstance(names, list) else key
        is_beside = (path.parent / f"{name}.yaml").is_file()
        with _placed(path, field, name, f"write {name}.yaml" if is_beside else list_text(name)):
            entry = load(_beside(path, name))
        if entry.name in loaded:
            rule = "has the same name as another, so rows would be ambiguous"
            raise SpecificationError(field, name, rule, "rename the file")
        loaded[entry.name] = entry
    return list(loaded.values())
