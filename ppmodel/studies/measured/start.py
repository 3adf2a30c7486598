"""The system that a fit starts from: a file's constants under a framework, and what all rows state."""

from dataclasses import fields, replace

from ppmodel.clusters.specs import FrameworkSpec, Provenance, load_framework, to_unit
from ppmodel.clusters.specs.framework import HOST
from ppmodel.errors import PPModelError
from ppmodel.studies.measured.constants import value_of
from ppmodel.studies.measured.rows import framework_named, stated_value

_UNITS = dict.fromkeys((name.removesuffix("_s") for name in HOST), "us") | {"iteration_overhead": "ms"}


def start_under(system, framework=None, rows=()):
    """A system to start a fit from, with a framework of its own.

    Parameters
    ----------
    system : SystemSpec
        Read from a file.
    framework : FrameworkSpec, optional
        Without it, the one that the column ``framework`` of all rows names; else the system's own; else the one that
        all sources name; else the default.
    rows : iterable of dict of str to str

    Returns
    -------
    SystemSpec
        Its provenance has the framework's values in a block ``framework``, and the constants that the framework
        changes as they are under it: a file with these values is the same system.

    Raises
    ------
    PPModelError
        If rows name different frameworks, or another than the one given.
    """
    usual = (system.framework.packaged or "its own") if system.framework is not None else "megatron"
    named = list(dict.fromkeys(framework_named(row, system) or usual for row in rows)) or [usual]
    if framework is None:
        if len(named) > 1:
            rule = f"must be one for all rows, which name {', '.join(named)}"
            raise PPModelError("framework", named[0], rule, "pass --framework, or calibrate to the files one by one")
        if system.framework is not None and named == [usual]:
            return system
        framework = load_framework(named[0])
    framework = replace(framework, profile=framework.name or framework.profile)
    label = framework.profile or "its own"
    names = [field.name for field in fields(FrameworkSpec)]
    merged = {*HOST, "host_exponent", "fastest", "slowest"}
    merged |= {name for name in names if name.endswith("_factor") or name.startswith(("range_", "experts_"))}
    left_out = merged | {"name", "title", "provenance"}  # the system's constants contain what is merged
    values = {name: getattr(framework, name) for name in names if name not in left_out}
    under = replace(framework.system(system), framework=FrameworkSpec(**values))
    if name := next(filter(None, (framework_named(row, under) for row in rows)), None):
        raise PPModelError("framework", name, f"is a row's, not {label}", "leave out --framework, or what rows name")
    entries = {entry.field: entry for entry in system.provenance if not entry.field.startswith("framework.")}
    stated = {entry.field: entry for entry in framework.provenance}
    for block in ("kernels", "collectives", "memory"):
        before, after = getattr(system, block), getattr(under, block)
        for field in fields(after) if after is not None else ():
            value, usual = getattr(after, field.name), getattr(before, field.name, field.default)
            if value is None or value == usual:
                continue
            name = f"{block}.{field.name.removesuffix('_s')}"
            entry = entries.get(name) or Provenance(name, None, _UNITS.get(name.rpartition(".")[2], ""), "digest", "")
            entries[name] = entry._replace(
                value=to_unit(value_of(under, name), entry.unit), kind="digest",
                source=f"as in the system {system.name} under the framework {label}",
            )  # fmt: skip
    for name, value in values.items():
        entry = stated.get(name)
        if entry or value != getattr(FrameworkSpec, name) or name == "p2p":
            kind, source = (entry.kind, entry.source) if entry else ("our choice", f"the framework {label}")
            entries[f"framework.{name}"] = Provenance(f"framework.{name}", value, "", kind, source)
    return replace(under, provenance=tuple(by_block(entries.values())))


def keeping_stated(system, rows):
    """The system whose framework keeps gradients as all rows state, because `simulate` has no option for it."""
    stated = {row.get("gradient_bytes", "").strip() for row in rows}
    try:
        (value,) = {float(stated_value("gradient_bytes", text)) for text in stated}
    except (PPModelError, ValueError):  # none, several, or what `rows.run_of` refuses
        return system
    entries = [entry for entry in system.provenance if entry.field != "framework.gradient_bytes"]
    entries.append(Provenance("framework.gradient_bytes", value, "", "stated", "all rows"))
    framework = replace(system.framework, gradient_bytes=value)
    return replace(system, framework=framework, provenance=tuple(by_block(entries)))


def by_block(entries):
    """The entries with those of a block together, blocks in order of appearance."""
    blocks = list(dict.fromkeys(entry.field.rpartition(".")[0] for entry in entries))
    return sorted(entries, key=lambda entry: blocks.index(entry.field.rpartition(".")[0]))
