"""Questions of plans: the model, the GPUs and the batch, and what is fixed beforehand. Checked here, once."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from ppmodel.clusters.specs import (
    LayoutSpec,
    ModelSpec,
    SystemSpec,
    load_model,
    load_system,
    parse_size,
    with_framework,
)
from ppmodel.clusters.specs.entries import RENAMED
from ppmodel.clusters.specs.layout import DIMENSIONS, MULTIPLIED, SEARCHED_FOR, Groups, layout_bounds, layout_options
from ppmodel.errors import PPModelError, did_you_mean
from ppmodel.given import is_number, to_builtin
from ppmodel.schedules import names
from ppmodel.schedules.cases import as_cases
from ppmodel.studies.points import Point

SEARCHED = "zero", "recompute", "layers", "order"
"""What else is searched of a layout."""

_MOST_GPUS, _MOST_BATCH = 2**20, 2**24


class Sizes(Groups, namedtuple("_Sizes", ("pp", *DIMENSIONS, "microbatch_size"), defaults=[1] * 4)):
    """The sizes of a layout that are searched, from ep on 1 unless given; see `specs.LayoutSpec`."""


@dataclass(frozen=True)
class Question:
    """A question: layout and schedule for a model on some GPUs.

    Parameters
    ----------
    model : ModelSpec
        With the length of sequences that is asked for, and the framework's bytes per parameter.
    system : SystemSpec
        Under its framework, with the memory that is asked for.
    gpus, global_batch : int
    cases : tuple of Case
        Schedules to try; their options as given, or all that are sensible.
    fixed : dict
        Values of the layout that hold in every candidate, by name.
    most : dict
        The largest value of a size, by name.
    within : float
        Candidates that take longer than the best by more than this share of its time are not looked for.
    """

    model: ModelSpec
    system: SystemSpec
    gpus: int
    global_batch: int
    cases: tuple
    fixed: dict
    most: dict
    within: float = 0.05

    def layout(self, sizes, **ways):
        """The layout of a candidate, from its sizes and ways."""
        fixed = {name: value for name, value in self.fixed.items() if name not in (*SEARCHED, "chunks")}
        values = {"sequence_parallel": sizes.tp > 1} | fixed | sizes._asdict() | ways
        values["etp"] = None if sizes.etp == sizes.tp else sizes.etp
        values |= {name: min(values[name], values[size]) for name, size in layout_bounds().items() if name in values}
        return LayoutSpec(**values).under(self.system.framework)

    def filled(self, sizes):
        """The sizes with as many replicas as there are GPUs for; None if those, the batch or experts do not divide."""
        dp, rest = divmod(self.gpus, sizes.replica_gpus)
        sizes = sizes._replace(dp=dp)
        fits = dp and not rest and self.global_batch % (dp * sizes.microbatch_size) == 0
        return sizes if fits and sizes.rank_gpus % (sizes.ep * sizes.etp) == 0 else None

    def size(self, sizes):
        """Ranks and microbatches."""
        return sizes.pp, self.global_batch // (sizes.dp * sizes.microbatch_size)

    def point(self, case, sizes, **ways):
        """The point of a schedule in the `layout` of some sizes and ways."""
        layout = self.layout(sizes, **ways)
        return Point(case, self.size(sizes), model=self.model, system=self.system, layout=layout)

    def tried(self, name, values):
        """The values of a size or a way to try: those given, or the one that is fixed."""
        if name in self.fixed:
            return [self.fixed[name]]
        limits = self.most if name in Sizes._fields else {}
        return [value for value in values if value <= limits.get(name, value)]


def asked(
    model, system, gpus, global_batch, *, sequence=None, framework=None, links=None, memory_limit=None, schedules=None,
    fix=None, most=None, within=0.05,
):  # fmt: skip
    """Check what is asked.

    Parameters
    ----------
    model, system, gpus, global_batch, sequence, framework, links, memory_limit, schedules, fix, most, within
        As in `plan`.

    Returns
    -------
    Question

    Raises
    ------
    PPModelError
        If something is unknown, or nothing could be planned.
    """
    gpus = _whole("gpus", gpus, _MOST_GPUS)
    batch = _whole("global_batch", global_batch, _MOST_BATCH)
    system = with_framework(load_system(system), framework).with_links(links)
    model = system.framework.model(load_model(model))
    for field, given in (("fix", fix), ("most", most)):
        if not isinstance(given, Mapping | None):
            raise PPModelError(field, given, "must map names to values", f'write, for example, {field}={{"tp": 8}}')
    fixed = _fixed(fix or {}, gpus, batch, model)
    if sequence is not None:
        fixed["sequence"] = _whole("sequence", sequence, _MOST_BATCH)
        model = replace(model, sequence=sequence)
    if memory_limit is not None:
        system = replace(system, memory_capacity_bytes=_limit(memory_limit, system))
    if not (is_number(to_builtin(within)) and 0 <= within <= 1):
        raise PPModelError("within", within, "must be from 0 to 1", "write 0.05 for 5 %")
    most = {name: _whole(f"max_{name}", value) for name, value in (most or {}).items() if value is not None}
    for field, ep in (("fix ep", fixed.get("ep", 1)), ("max_ep", most.get("ep", 1))):
        if ep > 1 and model.experts is None:
            raise PPModelError(field, ep, f"has no effect: {model.name} has no experts", "leave it out")
    for name, largest in most.items():
        if fixed.get(name, 0) > largest:
            rule = f"contradicts max_{name} = {largest}"
            raise PPModelError(f"fix {name}", fixed[name], rule, "leave out one of the two")
    if "tp" not in most and system.nodes is not None:
        most["tp"] = system.nodes.devices_per_node
    return Question(model, system, gpus, batch, _cases(schedules), fixed, most, within)


def _whole(field, value, largest=_MOST_GPUS):
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        rule = f"must be a whole number from 1 to {largest}"
        raise PPModelError(field, value, rule, "give, for example, {field}=64", names_fields=True)
    return value


def _limit(limit, system):
    limit = to_builtin(limit)
    limit_bytes = limit if is_number(limit) else parse_size(limit, "memory_limit")
    if not system.reserve_bytes < limit_bytes <= system.memory_capacity_bytes:
        reserve, capacity = (f"{size / 2**30:.4g} GiB" for size in (system.reserve_bytes, system.memory_capacity_bytes))
        rule = f"must be more than {system.name} holds back ({reserve}), and no more than a GPU has ({capacity})"
        raise PPModelError("memory_limit", limit, rule, f"write, for example, {capacity}")
    return limit_bytes


def _cases(schedules):
    cases, order = as_cases(names() if schedules is None else schedules), names()
    if not cases:
        raise PPModelError("schedules", "nothing", "must name one", "leave it out, which tries all")
    rule, remedy = "is a table of one size, and layouts have many", "name a schedule, or give a generator"
    PPModelError.require(("schedules", case.name, case.size is None, rule, remedy) for case in cases)

    def place(case):  # decides between equal times, however schedules are named
        return order.index(case.name) if case.name in order else len(order), case.name, str(case.options)

    return tuple(sorted(cases, key=place))


def _fixed(fix, gpus, batch, model):
    """The fixed values, checked."""
    known = [name for name, _ in layout_options() if name not in SEARCHED_FOR]
    fix = {RENAMED.get(name, name): value for name, value in fix.items()}
    for name in fix:
        if name not in known:
            remedy = did_you_mean(name, known) or f"fix any of {', '.join(known)}"
            raise PPModelError("fix", name, "is not a value of a layout that is searched", remedy)
    try:
        checked = LayoutSpec(**fix)
    except PPModelError as error:
        error.field = f"fix {error.field}"
        raise
    fix = {name: getattr(checked, name) for name in fix if getattr(checked, name) is not None}
    PPModelError.require(_rules(fix, gpus, batch, model))
    return fix


def _rules(fix, gpus, batch, model):
    """Field, value, whether the rule holds, rule and remedy; the first that does not hold is reported."""
    shares = {name: fix[name] for name in ("pp", *MULTIPLIED) if name in fix}
    product = prod(shares.values())
    named = " ".join(f"{name}={value}" for name, value in shares.items())
    nearest = sorted(divisors(gpus), key=lambda divisor: abs(divisor - product))[:2]
    remedy = f"choose {' or '.join(map(str, sorted(nearest)))} in all"
    yield "fix", named, gpus % product == 0, f"({product} in all) must divide {gpus} GPUs", remedy
    each = fix.get("dp", 1) * fix.get("microbatch_size", 1)
    named = " ".join(f"{name}={fix[name]}" for name in ("dp", "microbatch_size") if name in fix)
    batches = [whole * each for whole in (batch // each, batch // each + 1) if whole]
    remedy = f"choose a batch of {' or '.join(map(str, batches))}, or fix another"
    yield "fix", named, batch % each == 0, f"does not divide a global batch of {batch}", remedy
    experts, ep, pp = model.experts.number if model.experts else 0, fix.get("ep", 1), fix.get("pp", 1)
    yield "fix ep", ep, experts % ep == 0, f"must divide the experts of {model.name} ({experts})", "choose a divisor"
    for name, size in layout_bounds().items():
        most = fix.get(size, max(1, experts) if size == "ep" else gpus)
        rule = f"is more than {most}, the most of {size} for {model.name}"
        yield f"fix {name}", fix.get(name), fix.get(name, 0) <= most, rule, "choose a smaller one"
    rule = f"is more than the layers of {model.name} ({model.blocks})"
    yield "fix pp", pp, pp <= model.blocks + 2, rule, "choose a smaller pp"


def divisors(number, most=None):
    """The divisors of a whole number, ascending.

    >>> divisors(12, 6)
    [1, 2, 3, 4, 6]
    """
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return [n for n in sorted({*small, *(number // n for n in small)}) if n <= (most or number)]
