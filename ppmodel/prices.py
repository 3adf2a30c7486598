"""Costs of a table, from plain seconds or from a model on a system, under a change; and numbers of each table."""

from itertools import product
from numbers import Real
from typing import NamedTuple
from weakref import WeakKeyDictionary

from ppmodel import metrics
from ppmodel.change import UNCHANGED, as_changes
from ppmodel.costs import check_layout, imbalance, model_costs, stages, uniform_costs
from ppmodel.errors import CostError
from ppmodel.given import listed
from ppmodel.layouts import layout_columns
from ppmodel.tables import brief

SECONDS = ("forward", "backward", "input_grad", "weight_grad", "pair", "comm", "latency", "reduction", "optimizer")
"""Costs that may be given in seconds, instead of a model and a system; see `costs.uniform_costs`."""

_HALVES = {"input_grad", "weight_grad"}


def seconds_costs(table, allreduce="excluded", **seconds):
    """Costs of a table from plain seconds; see `costs.uniform_costs`.

    Raises
    ------
    CostError
        If one is missing, given twice, or has no effect on the table.
    """
    given = require_seconds(seconds)
    for name, value in given.items():
        if not isinstance(value, Real):
            raise CostError(name, repr(value), "must be a number of seconds", "ppmodel.compare takes several")
    if allreduce != "excluded" and "reduction" not in given and (table.num_replicas > 1 or table.reduces):
        raise CostError("reduction", None, f"is missing for allreduce = {allreduce}", "give its seconds")
    if "optimizer" in given and not len(table.steps):
        rule = f"has no effect: {table.name} has no optimizer steps"
        raise CostError("optimizer", given["optimizer"], rule, "add them with table.with_step(), or leave it out")
    if "pair" in given and not table.overlaps.any():
        rule = f"has no effect: no cell of {table.name} has both a forward and a backward"
        raise CostError("pair", given["pair"], rule, "leave it out")
    return uniform_costs(table, **given)


def require_used(seconds, allreduce):
    """Refuse seconds for an all-reduce if no run has one.

    Parameters
    ----------
    seconds : dict
        As in `evaluate.compare`.
    allreduce : str or list of str

    Raises
    ------
    CostError
    """
    if seconds.get("reduction") is not None and set(listed(allreduce)) == {"excluded"}:
        rule = "has no effect: the all-reduce is excluded"
        raise CostError("reduction", seconds["reduction"], rule, "set allreduce to blocking, or leave it out")


def costs_of(table, model, system, allreduce, seconds, layout=None):
    """Costs of a table, with model, system and complete layout; these are None if costs are in seconds."""
    if model is None and system is None:
        require_model(layout)
        return seconds_costs(table, allreduce, **seconds), None, None, None
    require_pair(model, system, seconds)
    model, system = as_model(model), as_system(system)
    layout = layout and check_layout(layout, model, system, table)
    return model_costs(table, model, system, layout=layout), model, system, layout


def require_seconds(seconds):
    """The seconds given, refused if they do not suffice for any table."""
    given = {name: value for name, value in seconds.items() if value is not None}
    halves = given.keys() & _HALVES
    if halves and "backward" in given:
        raise CostError(
            "backward", given["backward"], "cannot be combined with its halves", "leave it out: it is their sum"
        )
    if "forward" not in given:
        remedy = "give forward and backward (or input_grad and weight_grad), or model and system"
        raise CostError("forward", None, "is missing", remedy)
    if "backward" not in given and len(halves) < len(_HALVES):
        raise CostError("backward", None, "is missing", "give backward, or input_grad and weight_grad")
    return given


def require_model(layout, field="layout", value=None, remedy="give model and system, or leave it out"):
    """Refuse a layout without a model and a system.

    Parameters
    ----------
    layout : LayoutSpec or None
    field, value, remedy : optional
        Name of the layout in the message, and the advice.

    Raises
    ------
    CostError
    """
    if layout is not None:
        raise CostError(field, value or layout.name or "given", "needs a model and a system", remedy)


class Price(NamedTuple):
    """One source of costs: seconds, or a model on a system, under a change; `columns` identify it in a row."""

    columns: dict
    seconds: dict
    model: object = None
    system: object = None
    change: object = UNCHANGED
    layout: object = None

    def costs(self, table, allreduce):
        if self.model is None:
            has = {"pair": table.overlaps.any(), "optimizer": len(table.steps)}  # in some of several schedules
            seconds = {name: value for name, value in self.seconds.items() if has.get(name, True)}
            return self.change.costs(seconds_costs(table, allreduce, **seconds), table)
        return changed_costs(table, self.model, self.change, self.system, self.layout_of(table))

    def layout_of(self, table):
        """The complete layout of a table; None without one."""
        return self.layout and check_layout(self.layout, self.model, self.system, table)

    def memory(self, table):
        if self.model is None:
            return {}
        held = memory_numbers(table, self.model, self.system)
        return held | {"memory_capacity_bytes": self.system.memory_capacity_bytes}


def changed_costs(table, model, change, system, layout=None):
    """Costs of a table on a changed system; the same for all semantics."""

    def changed():
        return change.costs(model_costs(table, model, change.system(system), layout=layout), table)

    return once(table, (model, change, system, layout), changed)


def priced(model, system, seconds, changes, layouts=(None,)):
    """List every `Price` that the arguments describe, by layout: systems vary slowest, then models, then changes.

    Parameters
    ----------
    model, system, seconds, changes
        As in `evaluate.compare`.
    layouts : sequence of LayoutSpec or None
        From `layouts.as_layouts`.

    Returns
    -------
    dict of LayoutSpec or None to list of Price
    """
    in_seconds = model is None and system is None
    several = [(one, {} if changes is None else {"change": repr(one)}) for one in as_changes(changes, in_seconds)]
    if in_seconds:
        for layout in layouts:
            require_model(layout)
        given = {name: listed(value) for name, value in require_seconds(seconds).items()}
        points = [dict(zip(given, values, strict=True)) for values in product(*given.values())]
        return {None: [Price(point | said, point, change=change) for point in points for change, said in several]}
    require_pair(model, system, seconds)
    systems, models = [as_system(one) for one in listed(system)], [as_model(one) for one in listed(model)]
    points = list(product(systems, models, several))
    return {layout: [_price(*point, layout) for point in points] for layout in layouts}


def _price(system, model, changed, layout):
    change, said = changed
    named = {} if layout is None else layout_columns(layout)
    return Price({"system": system.name, "model": model.name} | said | named, {}, model, system, change, layout)


# ---- what is known of a table --------------------------------------------------------------------


def table_numbers(table):
    """Numbers that depend only on the table: bubble ratio, peak of the most loaded rank, messages."""
    return once(
        table,
        "numbers",
        lambda: {
            "table_bubble_ratio": metrics.table_bubble_ratio(table),
            "peak_activations": float(metrics.peak_activations(table).max()),
            "messages": brief(table).messages,
        },
    )


def memory_numbers(table, model, system):
    """Bytes on the most loaded rank, bytes of its activations, and the balance of computing time.

    They are the same on all systems, unless layers are balanced by their times.
    """

    def read():
        cut = stages(table, model, system)
        held = metrics.memory(table, model, cut)
        most = held.total.argmax()
        _, uneven = imbalance(table, [one.forward_s + one.input_grad_s + one.weight_grad_s for one in cut])
        return {
            "peak_memory_bytes": float(held.total[most]), "activations_bytes": float(held.activations[most]),
            "slowest_over_mean": uneven,
        }  # fmt: skip

    return once(table, (model, system) if model.vocabulary else model, read)


_known_of = WeakKeyDictionary()  # what is known of each table, forgotten with the table


def once(table, key, compute):
    """Compute something of a table once, and forget it with the table."""
    known = _known_of.setdefault(table, {})
    try:
        return known[key]
    except KeyError:
        return known.setdefault(key, compute())


# ---- what was given ------------------------------------------------------------------------------


def as_model(given):
    """The `ModelSpec` of a name, a file or a specification."""
    from ppmodel.specs import ModelSpec, load_model

    return given if isinstance(given, ModelSpec) else load_model(given)


def as_system(given):
    """The `SystemSpec` of a name, a file or a specification."""
    from ppmodel.specs import SystemSpec, load_system

    return given if isinstance(given, SystemSpec) else load_system(given)


def require_pair(model, system, seconds):
    """Refuse a model without a system, and either combined with seconds."""
    for name, value in seconds.items():
        if value is not None:
            rule, remedy = "cannot be combined with model and system", "give either seconds or model and system"
            raise CostError(name, value, rule, remedy)
    for name, value in (("model", model), ("system", system)):
        if value is None:
            raise CostError(name, None, "is missing", "give model and system, or seconds")
