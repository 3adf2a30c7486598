"""The file of a sweep: its keys, their types, and what must fit together."""

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ppmodel import schedules
from ppmodel.errors import PPModelError, SpecificationError
from ppmodel.noise import Noise
from ppmodel.simulation import ALLREDUCE, P2P
from ppmodel.specs import load_model, load_system, model_names, place_in, read_document, system_names
from ppmodel.sweep.grid import Sweep, Variant

_MAX_ROWS = 10**7
_MAX_SEED = 2**63 - 1
_FORM = "write 'key: value' or 'key: [value, ...]', as in data/templates/sweep.yaml"


def _listed(value):
    """A single value stands for a list of one."""
    return value if isinstance(value, list) else [value]


def _named(entry):
    """A name alone stands for a schedule without options."""
    return entry if isinstance(entry, dict) else {"name": entry}


def _seed_range(entry):
    """A number alone stands for a range of one."""
    return entry if isinstance(entry, dict) else {"from": entry, "to": entry}


_Count = Annotated[int, Field(ge=1, le=10**9, strict=True)]
_Seed = Annotated[int, Field(ge=0, le=_MAX_SEED, strict=True)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Schedule(_Form):
    """A schedule; its options are what the registry lists for it."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: str


class _Seeds(_Form):
    first: _Seed = Field(alias="from")
    last: _Seed = Field(alias="to")


class _Noise(_Form):
    jitter: _Number = 0.0
    straggling: _Number = 0.0
    slowdown: _Number = 1.0


_List = BeforeValidator(_listed)


class _SweepFile(_Form):
    """Keys of a sweep's file."""

    schedules: Annotated[list[Annotated[_Schedule, BeforeValidator(_named)]], _List]
    stages: Annotated[list[_Count], _List]
    microbatches: Annotated[list[_Count], _List]
    waves: Annotated[list[_Count], _List] = Field(default_factory=list)
    p2p: Annotated[list[Literal[P2P]], _List] = Field(default_factory=lambda: ["overlapped"])
    allreduce: Annotated[list[Literal[ALLREDUCE]], _List] = Field(default_factory=lambda: ["excluded"])
    systems: Annotated[list[str], _List]
    models: Annotated[list[str], _List]
    noise: Annotated[list[_Noise], _List] = Field(default_factory=list)
    seeds: Annotated[list[Annotated[_Seeds, BeforeValidator(_seed_range)]], _List] = Field(default_factory=list)


def load_sweep(path):
    """Read a sweep from its file, with the systems and models that it names.

    Parameters
    ----------
    path : str or Path
        A YAML file; ``data/templates/sweep.yaml`` explains the keys. Files that it names are looked up from its
        own folder.

    Returns
    -------
    Sweep
        Checked. Points that no schedule or model defines are part of it; their rows say why they are refused.

    Raises
    ------
    SpecificationError
        One line with file, line, field, value, rule and remedy.

    Examples
    --------
    >>> from ppmodel.specs import DATA
    >>> load_sweep(DATA / "templates" / "sweep.yaml").stages
    (4, 8, 16)
    """
    path = Path(path)
    form = read_document(path, _SweepFile, _FORM)
    for key in type(form).model_fields:
        _require_entries(path, key, getattr(form, key), given=key in form.model_fields_set)
    variants = _variants(path, form)
    seeds = _seeds(path, form)
    sweep = Sweep(
        variants=variants,
        stages=tuple(form.stages),
        microbatches=tuple(form.microbatches),
        p2p=tuple(form.p2p),
        allreduce=tuple(form.allreduce),
        systems=_specifications(path, "systems", form.systems, load_system, system_names()),
        models=_specifications(path, "models", form.models, load_model, model_names()),
        noises=_noises(path, form),
        seeds=seeds,
    )
    if sweep.num_rows > _MAX_ROWS:
        rule = f"must be at most {_MAX_ROWS}"
        raise SpecificationError("rows", sweep.num_rows, rule, "cut the sweep into several files", where=str(path))
    return sweep


def _refuse(path, location, value, rule, remedy):
    name = ".".join(map(str, location))
    raise SpecificationError(name, value, rule, remedy, where=place_in(path, *location))


def _require_entries(path, key, entries, given):
    """Refuse an empty list and an entry that is there twice."""
    if given and not entries:
        _refuse(path, (key,), "[]", "must have an entry", "list at least one, or delete the key")
    seen = []
    for place, entry in enumerate(entries):
        if entry in seen:
            shown = entry.model_dump(by_alias=True) if isinstance(entry, BaseModel) else entry
            _refuse(path, (key, place), shown, "is listed twice", "delete one of the two")
        seen.append(entry)


# ---- schedules -----------------------------------------------------------------------------------


def _variants(path, form):
    """Every schedule with every combination of its options, in the order of the file."""
    variants, used = [], False
    for place, entry in enumerate(form.schedules):
        known = _known_options(path, place, entry.name)
        given = {key: _option_values(path, place, key, value, entry.name, known) for key, value in entry}
        given.pop("name")
        own_waves = given.pop("waves", None)
        waves = ()
        if "waves" in known:
            used |= own_waves is None
            waves = own_waves or tuple(form.waves) or (known["waves"].default,)
        names = [name for name in known if name != "waves" and (name in given or known[name].default is not None)]
        for values in product(*(given.get(name, (known[name].default,)) for name in names)):
            variants.append((place, Variant(entry.name, tuple(zip(names, values, strict=True)), waves)))
    if form.waves and not used:
        _refuse(path, ("waves",), form.waves, "has no effect: no schedule takes it", "delete the key")
    _require_different(path, variants)
    return tuple(variant for _, variant in variants)


def _known_options(path, place, name):
    try:
        return {option.name: option for option in schedules.get(name).options}
    except PPModelError as error:
        return _refuse(path, ("schedules", place), name, error.rule, error.remedy)


def _option_values(path, place, key, value, name, known):
    """The values of one option of a schedule, read as the command line reads them."""
    if key == "name":
        return (value,)
    location = ("schedules", place, key)
    if key not in known:
        listed = ", ".join(known) or "none"
        _refuse(path, location, value, f"is not an option of {name}", f"its options: {listed}")
    if value == []:
        _refuse(path, location, value, "must have an entry", "list at least one, or delete the key")
    values = tuple(_option_value(path, location, entry, known[key]) for entry in _listed(value))
    if len(set(values)) < len(values):
        _refuse(path, location, value, "has an entry twice", "delete one of the two")
    return values


def _option_value(path, location, value, option):
    try:
        if type(value) not in (int, float, str):
            raise ValueError
        return option.parse(str(value))
    except ValueError:
        return _refuse(path, location, value, option.rule, f"write for example {location[-1]}: {option.example}")


def _require_different(path, variants):
    """Refuse a schedule that two entries name with the same options and waves."""
    seen = set()
    for place, variant in variants:
        for waves in variant.waves or (None,):
            key = (variant.name, variant.options, waves)
            if key in seen:
                rule = "is listed twice with the same options"
                _refuse(path, ("schedules", place), variant.name, rule, "delete one of the two")
            seen.add(key)


# ---- systems, models, runs -----------------------------------------------------------------------


def _specifications(path, key, names, load, known):
    """Systems or models, without their sources: no row depends on them."""
    specifications, places = [], {}
    for place, name in enumerate(names):
        is_file = name not in known and name.endswith((".yaml", ".yml"))
        try:
            loaded = load(path.parent / name if is_file else name)
        except SpecificationError as error:
            if error.where is None:
                _refuse(path, (key, place), name, error.rule, error.remedy)
            raise
        if loaded.name in places:
            rule = f"has the same name as {places[loaded.name]}, and rows could not be told apart"
            _refuse(path, (key, place), name, rule, "rename the file")
        places[loaded.name] = name
        specifications.append(replace(loaded, provenance=()))
    return tuple(specifications)


def _noises(path, form):
    noises = []
    for place, entry in enumerate(form.noise):
        try:
            noises.append(Noise(**entry.model_dump()))
        except PPModelError as error:
            _refuse(path, ("noise", place, error.field), error.value, error.rule, error.remedy)
        _require_effect(path, place, noises[-1])
    return tuple(noises)


def _require_effect(path, place, noise):
    """Refuse ranks that are slow but never drawn, or drawn but as fast as the others."""
    if noise.slowdown != 1 and not noise.straggling:
        rule, remedy = "has no effect: no rank is slow", "add for example straggling: 0.02, or delete slowdown"
        _refuse(path, ("noise", place, "slowdown"), noise.slowdown, rule, remedy)
    if noise.straggling and noise.slowdown == 1:
        rule = "has no effect: slow ranks are as fast as the others"
        remedy = "add for example slowdown: 1.5, or delete straggling"
        _refuse(path, ("noise", place, "straggling"), noise.straggling, rule, remedy)


def _seeds(path, form):
    """Ranges of seeds that do not overlap; seeds and noise need one another."""
    if bool(form.noise) != bool(form.seeds):
        there, missing = ("noise", "seeds") if form.noise else ("seeds", "noise")
        example = {"seeds": "seeds: {from: 1, to: 100}", "noise": "noise: {jitter: 0.1}"}[missing]
        _refuse(path, (there,), "given", f"needs {missing}", f"add for example {example}, or delete {there}")
    for place, entry in enumerate(form.seeds):
        if entry.last < entry.first:
            rule = f"must be at least from ({entry.first})"
            _refuse(path, ("seeds", place, "to"), entry.last, rule, "swap the two")
    ordered = sorted((entry.first, entry.last, place) for place, entry in enumerate(form.seeds))
    for before, after in pairwise(ordered):
        if after[0] <= before[1]:
            _refuse(path, ("seeds", max(before[2], after[2])), after[0], "is listed twice", "delete one of the two")
    return tuple(range(entry.first, entry.last + 1) for entry in form.seeds)
