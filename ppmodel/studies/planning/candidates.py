"""The candidates of a question: sizes of layouts, schedules with their options, and ways to shard and recompute."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from ppmodel.clusters.costs import check_layout
from ppmodel.clusters.specs.available import highest_zero, orders_of
from ppmodel.clusters.specs.layout import ORDERS, STAGE_GROUPS
from ppmodel.clusters.specs.lengths import SLICINGS
from ppmodel.errors import PPModelError
from ppmodel.given import as_list
from ppmodel.schedules.cases import Case, as_case, built
from ppmodel.studies.planning.question import Question, Sizes, divisors

MICROBATCH_SIZES = range(1, 9)
"""Sequences of a microbatch that are tried."""

_FEWEST_TOKENS = 512  # of a sequence on a GPU
IN_PAIRS = "combined-1f1b"
"""The schedule that also runs without a pipeline, on one chunk, so that pairs hide what experts exchange."""


class SearchEntry(NamedTuple):
    """A schedule at some sizes, in all ways to shard, to recompute and to divide layers.

    Parameters
    ----------
    case : Case
    sizes : Sizes
    is_run : bool
        Whether the framework runs the schedule as it is modelled.
    at_least_s : float
        A lower bound on its seconds, from `bounds.mean_bounds`; 0 if there is none.
    place : int
        Of its sizes, in `Columns`.
    """

    case: Case
    sizes: Sizes
    is_run: bool
    at_least_s: float
    place: int


class Candidate(NamedTuple):
    """A candidate that fits, with its time.

    Parameters
    ----------
    case : Case
    sizes : Sizes
    is_run : bool
        As in `SearchEntry`; and whether runs under the framework were measured with the ZeRO stage, or one above it.
    zero : int
    recompute : str or int
    layers, order : str
    peak_bytes : float
        On the most loaded GPU.
    iteration_s : float
    slicing : str
    variant : tuple of (str, object)
        Its values of those that are listed as fixed; see `Question`.
    """

    case: Case
    sizes: Sizes
    is_run: bool
    zero: int
    recompute: str | int
    layers: str
    order: str
    peak_bytes: float
    iteration_s: float
    slicing: str = SLICINGS[0]
    variant: tuple = ()

    @property
    def row(self) -> dict[str, Any]:
        """Those columns of `plan` that are known so far."""
        names = "is_run", "zero", "recompute", "layers", "order", "peak_memory_bytes", "iteration_s", "slicing"
        return {"label": self.case.label} | self.sizes._asdict() | dict(zip(names, self[2:-1], strict=True))


def all_sizes(question: Question) -> list[Sizes]:
    """List the sizes that divide GPUs, batch and model, in order.

    Raises
    ------
    PPModelError
        If there are none: of what is given, the first that leaves none.

    Notes
    -----
    Tensor groups stay within a node unless `max_tp` says otherwise. A GPU has at least 512 tokens of a sequence.
    Microbatches have 1 to 8 sequences.
    """
    model, gpus, tried, sizes = question.model, question.gpus, question.tried, []
    experts = divisors(model.experts.number) if model.experts else [1]
    for (stage, etps), pp in product(_stages(question), tried("pp", divisors(gpus, model.blocks + 2))):
        replicas = question.filled(stage._replace(pp=pp))
        if replicas and replicas.dp in tried("dp", [replicas.dp]):
            others = product(tried("microbatch_size", MICROBATCH_SIZES), tried("ep", experts), etps)
            every = (replicas._replace(microbatch_size=size, ep=ep, etp=etp) for size, ep, etp in others)
            sizes += filter(question.filled, every)
    if not sizes:
        rule = f"divides among {gpus} GPUs in no way that also divides {model.name}, by what is fixed and limited"
        remedy = f"choose a multiple of {gpus}, or " * (question.global_batch % gpus > 0) + "fix and limit less"
        raise PPModelError("global_batch", question.global_batch, rule, remedy)
    return sizes


def _stages(question):
    """The sizes of groups that can share a stage, all else 1, each with the etp that the model allows beside them."""
    model, table, stages, refused = question.model, built(as_case("1f1b"), 1, 1), {}, {}
    most = {name: max(1, model.sequence // _FEWEST_TOKENS) for name in STAGE_GROUPS if name != "tp"}
    tried = [question.tried(name, divisors(question.gpus, most.get(name))) for name in STAGE_GROUPS]
    for stage in (Sizes(1, *groups) for groups in product(*tried)):
        stages[stage] = []
        for etp in question.tried("etp", sorted({1, stage.tp}) if model.experts else [stage.tp]):
            try:
                check_layout(question.layout(stage._replace(etp=etp, dp=etp)), model, question.system, table)
            except PPModelError as error:
                refused.setdefault(error.field, error)
            else:
                stages[stage].append(etp)
    for name in () if any(stages.values()) else (*question.fixed, *refused):
        if name in refused and (name in question.fixed or name not in Sizes._fields):
            raise refused[name]
    return stages.items()


def cases_at(question, num_ranks):
    """The schedules to try on some ranks, with their options.

    Without a pipeline, 1F1B for any other, and combined 1F1B for what experts exchange.

    Of what is fixed of a layout, ``chunks`` alone is an option of schedules; others may only have the same name. A
    schedule is left out that does not take that number, or has no such option and the number is not 1.

    Parameters
    ----------
    question : Question
    num_ranks : int

    Returns
    -------
    list of Case
    """
    cases, fixed = [], {name: value for name, value in question.fixed.items() if name == "chunks"}
    has_chunks = fixed.get("chunks", 1) > 1
    if num_ranks == 1:
        usual = [case for case in question.cases if case.name == "1f1b"]
        usual = usual or [as_case("1f1b")] * any(case.name != IN_PAIRS for case in question.cases)
        pairs = [case.with_options({"chunks": 1}) for case in question.cases if case.name == IN_PAIRS
                 and "chunks" not in dict(case.options) and (question.model.experts or not usual)]  # fmt: skip
        return [] if has_chunks else [*usual, *pairs]
    for case in question.cases:
        known = case.known_options
        tried = {name: as_list(fixed.get(name, option.tried)) for name, option in known.items()}
        tried = {name: values for name, values in tried.items() if values and name not in dict(case.options)}
        if not all(known[name].accepts(value) if name in tried else value == 1 for name, value in fixed.items()):
            continue
        for values in product(*tried.values()):
            options = dict(zip(tried, values, strict=True))
            fits = num_ranks * options.get("chunks", 1) <= question.model.blocks + 2
            if fits and (case.name, options.get("chunks")) != (IN_PAIRS, 1):
                cases.append(case.with_options(options))
    return cases


def divisions(question, sizes, gathers=False):
    """The ways to shard state and to divide layers that are tried at some sizes: pairs of ``zero`` and ``layers``.

    Those that need the least memory come first. Pipelines shard as much as the framework does; tables that gather
    weights, as `gathers` says, shard these.
    """
    profile = question.system.framework.packaged
    most = 0 if sizes.data_gpus == 1 else 3 if sizes.pp == 1 or gathers else highest_zero(profile, sizes.pp)
    layers = ("even", "balanced") if sizes.pp > 1 else ("even",)
    zeros = range(most, most - 1 if gathers else -1, -1)
    return list(product(question.tried("zero", zeros), question.tried("layers", layers)))


def orders(question, sizes, zero):
    """The orders of dimensions over GPUs that are tried at some sizes; two only where links make a difference.

    Replicas inside ranks of the pipeline, or the other way round, is the same where neither is within a node. What
    ZeRO 2 and 3 exchange with every microbatch stays within nodes as far as it can. Replicas outside ranks leave
    experts the GPUs of a stage alone.
    """
    nodes, within = question.system.nodes, sizes.stage_gpus
    is_alike = nodes is None or 1 in (sizes.pp, sizes.dp) or not within % nodes.devices_per_node
    are_apart = question.model.experts is not None and sizes.ep * sizes.etp != within
    tried = question.tried("order", orders_of(question.system.framework.packaged))
    if are_apart and sizes.dp > 1:  # as `check_layout` says
        tried = [order for order in tried if order == ORDERS[0]]
    return tried[:1] if is_alike or zero > 1 or question.gpus <= nodes.devices_per_node else tried
