"""The file of a sweep: its keys, their types, and consistency checks."""

from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ppmodel.clusters import specs
from ppmodel.clusters.specs.document import Form, list_text, place_in, read_document
from ppmodel.errors import PPModelError, SpecificationError
from ppmodel.files import read_text
from ppmodel.given import as_list
from ppmodel.schedules.cases import as_case, cases_of_file, is_file, split_options
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
    """Whether an entry is ``[name, {option: value}]``, as notebooks write a schedule."""
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
    for key, entries in form:
        if key in form.model_fields_set and isinstance(entries, list):
            _require_entries(path, key, entries)
    cases, files = _cases(path, form, schedule_files)
    noises, seeds = _noises_and_seeds(path, form)
    layouts = _layouts(path, form)
    systems = _specifications(path, "systems", form.systems, specs.load_system, specs.system_names())
    framework = form.framework
    if framework is not None:
        framework = _specification(path, ("framework",), framework, specs.load_framework, specs.framework_names())
    models = _specifications(path, "models", form.models, specs.load_model, specs.model_names())
    networks = _networks(path, form, links)
    with _located(path, with_field=True):
        grid = resolve(
            cases, form.pp or None, form.microbatches or None, model=models, system=systems, layout=layouts or None,
            framework=framework, links=networks, p2p=form.p2p or None, allreduce=form.allreduce,
        )  # fmt: skip
    asked = _asked(form, layouts, networks)
    sweep = Sweep(**vars(grid), noises=noises, seeds=seeds, files=files, asked=asked)
    if sweep.num_rows > _MAX_ROWS:
        rule = f"must be at most {_MAX_ROWS}"
        raise SpecificationError("rows", sweep.num_rows, rule, "split the sweep into several files", where=str(path))
    return sweep


def _refuse(path, location, value, rule, remedy):
    if location[0] == _ARGUMENT:
        raise SpecificationError(_ARGUMENT, value, rule, remedy)
    raise SpecificationError(".".join(map(str, location)), value, rule, remedy, where=place_in(path, *location))


@contextmanager
def _located(path, *location, value=None, remedy=None, with_field=False):
    """Give errors that name no file the place of an entry or, with their field, of a value in it."""
    try:
        yield
    except PPModelError as error:
        if error.where is not None:
            raise
        place = (*location, error.field) if with_field else location
        _refuse(path, place, error.value if value is None else value, error.rule, remedy or error.remedy)


def _require_entries(path, key, entries):
    """Refuse empty lists and duplicate entries."""
    if not entries:
        _refuse(path, (key,), "[]", *_NO_ENTRY)
    texts = set()
    for place, entry in enumerate(entries):
        if repr(entry) in texts:
            shown = entry.model_dump(by_alias=True, exclude_none=True) if isinstance(entry, BaseModel) else entry
            _refuse(path, (key, place), shown, *_TWICE)
        texts.add(repr(entry))


# ---- schedules -----------------------------------------------------------------------------------


def _cases(path, form, schedule_files):
    """Every schedule with every combination of its options, in file order; and the user's own files."""
    cases, keys, files = [], set(), {}
    entries = [*form.schedules, *(_ScheduleForm(file=str(Path(file).absolute())) for file in schedule_files)]
    for place, entry in enumerate(entries):
        location = ("schedules", place) if place < len(form.schedules) else (_ARGUMENT,)
        for named in _named_cases(path, location, entry, files):
            for case in _with_options(path, location, named, entry.model_extra):
                defaults = {name: option.default for name, option in case.known_options.items()}
                key = case.name, frozenset((defaults | dict(case.options)).items())
                if key in keys:
                    _refuse(path, location, case.name, "is listed twice with the same options", _TWICE[1])
                keys.add(key)
                cases.append(case)
    return cases, tuple(sorted(files.items()))


def _named_cases(path, location, entry, files):
    """What an entry names: a registered schedule, or all schedules in the user's own file."""
    if entry.file is None:
        if entry.name is None:
            _refuse(path, (*location, "name"), None, "is missing", "add the key name, or file")
        if is_file(name := split_options(entry.name)[0]):
            remedy = f"write {{file: {name}}}"
            _refuse(path, (*location, "name"), entry.name, "names a file, not a schedule", remedy)
        with _located(path, *location, value=entry.name, remedy=list_text(entry.name)):
            return [as_case(entry.name)]
    file = path.parent / entry.file
    if not file.is_file():
        _refuse(path, (*location, "file"), entry.file, "is not a file", "check the path")
    cases = cases_of_file(file)
    text = cases[0].user_entry.code if cases[0].user_entry else read_text(file, _LARGEST_FILE)
    if entry.name is not None:
        cases = [case for case in cases if case.name == entry.name]
        if not cases:
            _refuse(path, (*location, "name"), entry.name, f"is not in {entry.file}", "leave it out")
    if files.setdefault(file.name, text) != text:
        _refuse(path, (*location, "file"), entry.file, "has the same name as another", "rename one of them")
    return cases


def _with_options(path, location, case, given):
    """A case with every combination of the values of its options."""
    values = []
    for key, value in given.items():
        option, place = case.known_options.get(key), (*location, key)
        if value == []:
            _refuse(path, place, value, *_NO_ENTRY)
        # read as on the command line; a list of numbers is one value of options like ``split``
        takes_numbers = option and isinstance(option.default or (*option.examples, None)[0], tuple)
        is_single = isinstance(value, list) and not any(isinstance(entry, list | str) for entry in value)
        parsed = []
        for entry in [value] if takes_numbers and is_single else as_list(value):
            text = ":".join(map(str, entry)) if isinstance(entry, list) else str(entry)
            with _located(path, *place, value=text):
                parsed.append(dict(case.with_options({key: text}).options)[key])
        if len(set(parsed)) < len(parsed):
            _refuse(path, place, value, "has an entry twice", _TWICE[1])
        values.append(parsed)
    return [case._replace(options=tuple(zip(given, combination, strict=True))) for combination in product(*values)]


# ---- layouts -------------------------------------------------------------------------------------


def _layouts(path, form):
    """Every layout that is named or written out, with each combination of values in lists."""
    if form.layouts and form.noise:
        _refuse(path, ("noise",), "given", "cannot be combined with layouts", "leave out one of the two")
    layouts = []
    for place, entry in enumerate(form.layouts):
        written = entry if isinstance(entry, dict) else {"name": entry}
        name = written.get("name")
        if isinstance(name, str) and name not in specs.layout_names() and name.endswith((".yaml", ".yml")):
            name = path.parent / name
        values = {key: value for key, value in written.items() if key not in ("name", "pp")}
        with _located(path, "layouts", place, with_field=True):
            base = specs.as_layout(name, {"pp": written["pp"]} if "pp" in written else None)
            several = [replace(layout, provenance=()) for layout in specs.as_layouts(base, values)]
        for layout in several:
            if layout in layouts:
                _refuse(path, ("layouts", place), entry, *_TWICE)
            layouts.append(layout)
    for key in ("pp", "microbatches"):
        if not getattr(form, key) and (not layouts or any(getattr(layout, key) is None for layout in layouts)):
            rule = "is missing, also in a layout" if layouts else "is missing"
            _refuse(path, (key,), None, rule, f"add the key {key}")
    return layouts


def _asked(form, layouts, networks):
    """What the file itself says of layouts, once for all of them, of semantics, and of links."""
    written = {key for entry in form.layouts if isinstance(entry, dict) for key in entry} & {*specs.layout_keywords()}
    single = {key for key in written if len({getattr(layout, key) for layout in layouts}) == 1}
    semantics, links = form.model_fields_set & {"p2p", "allreduce"}, {"links"} if any(networks) else set()
    return tuple(sorted(single | semantics | links))


# ---- systems, models, runs -----------------------------------------------------------------------


def _specification(path, location, name, load, packaged):
    is_file = name not in packaged and name.endswith((".yaml", ".yml"))
    remedy = f"write {name}.yaml" if (path.parent / f"{name}.yaml").is_file() else list_text(name)
    with _located(path, *location, value=name, remedy=remedy):
        return replace(load(path.parent / name if is_file else name), provenance=())


def _specifications(path, key, names, load, packaged):
    """Systems or models, without their sources, which rows do not depend on."""
    loaded = {}
    for place, name in enumerate(names):
        entry = _specification(path, (key, place), name, load, packaged)
        if entry.name in loaded:
            rule = f"has the same name as {names[list(loaded).index(entry.name)]}, so rows would be ambiguous"
            _refuse(path, (key, place), name, rule, "rename the file")
        loaded[entry.name] = entry
    return list(loaded.values())


def _networks(path, form, links):
    """The links of each network that is asked for; None for the systems' own."""
    if links is not None:
        if form.links:
            remedy = f"leave it out, or delete it in {path}"
            raise SpecificationError("links", links, "is also a key of the file", remedy)
        return [specs.as_links(links)]
    networks = []
    for place, entry in enumerate(form.links):
        with _located(path, "links", place):
            networks.append(None if entry is None else specs.as_links(entry))
    return networks or [None]


def _noises_and_seeds(path, form):
    """Every `Noise`, and the ranges of seeds; refuses noise without effect, and seeds that overlap."""
    if bool(form.noise) != bool(form.seeds):
        key, missing = ("noise", "seeds") if form.noise else ("seeds", "noise")
        example = {"seeds": "seeds: {from: 1, to: 100}", "noise": "noise: {jitter: 0.1}"}[missing]
        _refuse(path, (key,), "given", f"needs {missing}", f"add, for example, {example}, or delete {key}")
    for place, entry in enumerate(form.seeds):
        if entry.last < entry.first:
            _refuse(path, ("seeds", place, "to"), entry.last, f"must be at least from ({entry.first})", "swap the two")
    ordered = sorted((entry.first, entry.last, place) for place, entry in enumerate(form.seeds))
    for before, after in pairwise(ordered):
        if after[0] <= before[1]:
            _refuse(path, ("seeds", max(before[2], after[2])), after[0], *_TWICE)
    count = sum(entry.last - entry.first + 1 for entry in form.seeds)
    if count > _MAX_ROWS:
        _refuse(path, ("seeds",), f"{count} of them", f"must be at most {_MAX_ROWS}", "list fewer")
    for place, noise in enumerate(form.noise):
        if noise.slowdown != 1 and not noise.straggling:
            remedy = "add, for example, straggling: 0.02, or delete slowdown"
            _refuse(path, ("noise", place, "slowdown"), noise.slowdown, "has no effect: no rank is slow", remedy)
        if noise.straggling and noise.slowdown == 1:
            rule = "has no effect: slow ranks are as fast as the others"
            remedy = "add, for example, slowdown: 1.5, or delete straggling"
            _refuse(path, ("noise", place, "straggling"), noise.straggling, rule, remedy)
    noises = tuple(Noise(**entry.model_dump()) for entry in form.noise)
    return noises, tuple(range(entry.first, entry.last + 1) for entry in form.seeds)
