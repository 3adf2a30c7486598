"""The constants of a system that can be fitted to measured rows: their names as in its file, values and bounds."""

from dataclasses import dataclass, fields

from ppmodel.clusters.specs import CollectiveSpec, KernelSpec, MemorySpec
from ppmodel.clusters.specs.entries import unchecked
from ppmodel.errors import PPModelError

_SUFFIXES = ("", "_s", "_bytes")
BOUNDS = dict.fromkeys(
    ("compute_efficiency", "memory_efficiency", "collectives.node_efficiency", "collectives.network_efficiency"),
    (1e-300, 1.0),
) | {"collectives.contention": (1.0, 1.99)}
"""Least and most of constants for which a file allows no more; the slope of a fit is taken a little above a value."""


def _names(block, spec):
    return [f"{block}.{field.name.removesuffix('_s')}" for field in fields(spec) if not isinstance(field.default, bool)]


FACTOR = "time_factor"
"""What is left of the errors of few rows is fitted by this."""

TIME = (
    FACTOR, "compute_efficiency", "memory_efficiency", "compute_latency", "memory_latency", "network_latency",
    "nodes.node_latency", *_names("kernels", KernelSpec), *_names("collectives", CollectiveSpec),
)  # fmt: skip
"""Constants on which the time of an iteration depends."""

MEMORY = ("reserve", *_names("memory", MemorySpec))
"""Constants on which memory depends."""

CONSTANTS = {"time": TIME, "memory": MEMORY}
DIGITS = dict.fromkeys((*TIME, *MEMORY), 4) | {FACTOR: 12}
"""To how many digits constants are written: `FACTOR` so that it gives a run's time to all that are shown."""


@dataclass(frozen=True)
class Constant:
    """A constant to fit.

    Parameters
    ----------
    name : str
        Key in the system's file, including its block.
    start : float
        Value in the starting system, in SI units; above 0.
    least, most : float
        Range of the fit.
    """

    name: str
    start: float
    least: float
    most: float


def chosen(system, names=None):
    """List the constants to fit: those named, or all those whose kind in the system's file is not stated.

    Parameters
    ----------
    system : SystemSpec
        The system, with its provenance: it must have been read from a file.
    names : sequence of str, optional

    Returns
    -------
    list of Constant
        In the order of the file.

    Raises
    ------
    PPModelError
        If a name is unknown, not in the system's file, or 0 there.

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_system
    >>> [constant.name for constant in chosen(load_system("a100"), ["kernels.stage_overhead", "compute_efficiency"])]
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: constant = kernels.stage_overhead: is not in the system a100; ...
    """
    kinds = {entry.field: entry.kind for entry in system.provenance if entry.field in (*TIME, *MEMORY)}
    for name in names or ():
        rule, remedy = None, "add a starting value to its file"
        if name not in (*TIME, *MEMORY):
            rule, remedy = f"cannot be fitted; constants are {', '.join((*TIME, *MEMORY))}", "choose from these"
        elif name not in kinds:
            rule = f"is not in the system {system.name}"
        elif value_of(system, name) == 0:
            rule = f"is 0 in the system {system.name}, but a fit must start above 0"
        if rule:
            raise PPModelError("constant", name, rule, remedy)
    fitted = [name for name, kind in kinds.items() if (name in names if names else kind != "stated")]
    values = [(name, value_of(system, name)) for name in fitted]
    return [Constant(name, value, *BOUNDS.get(name, (1e-300, float("inf")))) for name, value in values if value > 0]


def _place(system, name):
    """The block of a constant, empty for the system itself, what holds it, and its field there."""
    block, _, key = name.rpartition(".")
    holder = getattr(system, block) if block else system
    return block, holder, next(key + suffix for suffix in _SUFFIXES if hasattr(holder, key + suffix))


def value_of(system, name):
    """The value of a constant, in SI units; NaN if it is left open."""
    _, holder, field = _place(system, name)
    value = getattr(holder, field)
    return float("nan" if value is None else value)


def with_values(system, values):
    """Replace the values of some constants of a system.

    Parameters
    ----------
    system : SystemSpec
    values : dict of str to float
        By name, in SI units.

    Returns
    -------
    SystemSpec

    Examples
    --------
    >>> from ppmodel.clusters.specs import load_system
    >>> changed = with_values(load_system("a100"), {"compute_efficiency": 0.5, "kernels.block_host": 1e-3})
    >>> changed.compute_efficiency, changed.kernels.block_host_s
    (0.5, 0.001)
    """
    blocks = {}
    for name, value in values.items():
        block, holder, field = _place(system, name)
        blocks.setdefault(block, (holder, {}))[1][field] = value
    changed = {block: unchecked(holder, **fields) for block, (holder, fields) in blocks.items()}
    return unchecked(changed.pop("", system), **changed)
