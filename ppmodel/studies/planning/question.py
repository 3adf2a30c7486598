"""Questions of plans: the model, the GPUs and the batch, and what is fixed beforehand. Checked here, once."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod

from ppmodel.clusters import specs
from ppmodel.clusters.specs.entries import RENAMED
from ppmodel.clusters.specs.layout import DIMENSIONS, LAYOUT_BOUNDS, LAYOUT_OPTIONS, MULTIPLIED, SEARCHED_FOR, Groups
from ppmodel.clusters.specs.layouts import values_of
from ppmodel.errors import PPModelError, did_you_mean
from ppmodel.given import is_number, to_builtin
from ppmodel.schedules import names, small
from ppmodel.schedules.cases import as_cases
from ppmodel.studies.points import Point

SEARCHED = "zero", "recompute", "layers", "order", "slicing"
"""What else is searched of a layout."""

_LARGEST = 2**24


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
    variants : tuple of tuple of (str, object)
        Further values that are fixed, where several are given for some: each is a question of its own.
    """

    model: specs.ModelSpec
    system: specs.SystemSpec
    gpus: int
    global_batch: int
    cases: tuple
    fixed: dict
    most: dict
    within: float = 0.05
    variants: tuple = ()

    def layout(self, sizes, **ways):
        """The layout of a candidate, from its sizes and ways."""
        fixed = {name: value for name, value in self.fixed.items() if name not in (*SEARCHED, "chunks")}
        values = {"sequence_parallel": sizes.tp > 1} | fixed | sizes._asdict() | ways
        values["etp"] = None if sizes.etp == sizes.tp else sizes.etp
        values |= {name: min(values[name], values[size]) for name, size in LAYOUT_BOUNDS.items() if name in values}
        return specs.LayoutSpec(**values).under(self.system.framework)

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
        return Point(case, self.size(sizes), model=self.model, system=self.system, layout=self.layout(sizes, **ways))

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
    for field, given in (("fix", fix), ("most", most)):
        if not isinstance(given, Mapping | None):
            raise PPModelError(field, given, "must map names to values", f'write, for example, {field}={{"tp": 8}}')
    most = {name: value for name, value in (most or {}).items() if value is not None}
    counts = {"gpus": gpus, "global_batch": global_batch, "sequence": 1 if sequence is None else sequence}
    rule = f"must be a whole number from 1 to {_LARGEST}"
    PPModelError.require(
        (name, count, type(count) is int and 1 <= count <= _LARGEST, rule, f"give, for example, {name}=64")
        for name, count in (counts | {f"max_{name}": value for name, value in most.items()}).items()
    )
    system = specs.with_framework(specs.load_system(system), framework).with_links(links)
    model, fix = system.framework.model(specs.load_model(model)), fix or {}
    lists = {name: values_of(name, value) for name, value in fix.items()}
    listed = [name for name, values in lists.items() if len({*map(str, values)}) == len(values) > 1]
    every = [_fixed(fix | dict(zip(listed, each, strict=True))) for each in product(*map(lists.get, listed))]
    fixed = {name: value for name, value in every[0].items() if name not in listed}
    variants = tuple(tuple((name, each.get(name)) for name in listed) for each in every if listed)
    if sequence is not None:
        fixed["sequence"], model = sequence, replace(model, sequence=sequence)
    if memory_limit is not None:
        limit, sizes = to_builtin(memory_limit), (system.reserve_bytes, system.memory_capacity_bytes)
        limit_bytes = limit if is_number(limit) else specs.parse_size(limit, "memory_limit")
        is_legal = sizes[0] < limit_bytes <= ceil(sizes[1] / 2**30) * 2**30  # drivers show 79.65 of 80 GiB
        reserve, capacity = (f"{size / 2**30:.4g} GiB" for size in sizes)
        rule = f"must be more than {system.name} holds back ({reserve}), and no more than a GPU has ({capacity})"
        PPModelError.require([("memory_limit", limit, is_legal, rule, f"write, for example, {capacity}")])
        system = replace(system, memory_capacity_bytes=min(limit_bytes, sizes[1]))
    usual = [name for name in names() if not small(name).has_shards]  # no framework runs the others, which take long
    cases = as_cases(usual if schedules is None else schedules)  # whose order decides between equal times
    cases.sort(key=lambda case: (case.name not in names(), case.name, str(case.options)))
    question = Question(model, system, gpus, global_batch, tuple(cases), fixed, most, within, variants)
    for variant in variants or ((),):
        PPModelError.require(_rules(replace(question, fixed=fixed | dict(variant))))
    if system.nodes is not None:
        most.setdefault("tp", system.nodes.devices_per_node)
    return question


def _fixed(fix):
    """The fixed values, each checked on its own."""
    known = [name for name in LAYOUT_OPTIONS if name not in SEARCHED_FOR]
    fix = {RENAMED.get(name, name): value for name, value in fix.items()}
    for name in fix:
        if name not in known:
            remedy = did_you_mean(name, known) or f"fix any of {', '.join(known)}"
            raise PPModelError("fix", name, "is not a value of a layout that is searched", remedy)
    try:
        checked = specs.LayoutSpec(**fix)
    except PPModelError as error:
        error.field = f"fix {error.field}"
        raise
    return {name: value for name in fix if (value := getattr(checked, name)) is not None}


def _rules(question):
    """Field, value, whether the rule holds, rule and remedy; the first that does not hold is reported."""
    fix, most, gpus, batch, model = question.fixed, question.most, question.gpus, question.global_batch, question.model
    within, tables = to_builtin(question.within), [case.name for case in question.cases if case.size]
    yield "schedules", "nothing", question.cases, "must name one", "leave it out, which tries all"
    rule, remedy = "is a table of one size, and layouts have many", "name a schedule, or give a generator"
    yield "schedules", ", ".join(tables), not tables, rule, remedy
    yield "within", within, is_number(within) and 0 <= within <= 1, "must be from 0 to 1", "write 0.05 for 5 %"
    experts = model.experts.number if model.experts else 0
    for sizes, whole, text in (
        (("pp", *MULTIPLIED), gpus, f"{gpus} GPUs"), (("dp", "microbatch_size"), batch, f"a global batch of {batch}"),
        (("ep",), experts, f"the experts of {model.name} ({experts})"),
    ):  # fmt: skip
        values = {name: fix[name] for name in sizes if name in fix}
        product, named = prod(values.values()), " ".join(f"{name}={value}" for name, value in values.items())
        nearest = sorted(divisors(whole), key=lambda divisor: abs(divisor - product))[:2]
        several = len(values) > 1
        rule, remedy = f"({product} in all) " * several + f"must divide {text}", " or ".join(map(str, sorted(nearest)))
        yield "fix", named, whole % product == 0, rule, f"choose {remedy}{' in all' * several}"
        fills, rule = product == whole or len(values) <= len(MULTIPLIED), f"({product} in all) leaves {whole - product}"
        yield "fix", named, fills, f"{rule} of {text} without work", f"choose {whole} in all, or fix one less"
    of_experts = {f"fix {name}": fix[name] for name in fix if LAYOUT_OPTIONS[name].section.endswith("experts")}
    for field, value in {**of_experts, "max_ep": most.get("ep", 1)}.items():
        yield field, value, value == 1 or experts, f"has no effect: {model.name} has no experts", "leave it out"
    sizes, remedy = {"ep": max(1, experts)} | fix, "choose a smaller one, or leave out one of the two"
    bounds = [(name, sizes.get(of, gpus), f"the most of {of} for {model.name}") for name, of in LAYOUT_BOUNDS.items()]
    for name, bound, limit in [*bounds, *((name, bound, f"its max_{name}") for name, bound in most.items())]:
        yield f"fix {name}", fix.get(name), fix.get(name, 0) <= bound, f"is more than {bound}, {limit}", remedy


def divisors(number, most=None):
    """The divisors of a whole number, ascending.

    >>> divisors(12, 6)
    [1, 2, 3, 4, 6]
    """
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return [n for n in sorted({*small, *(number // n for n in small)}) if n <= (most or number)]
