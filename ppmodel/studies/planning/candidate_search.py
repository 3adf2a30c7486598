"""The search: candidates in the order of their lower bounds, until no bound is below what is still looked for."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from itertools import chain, islice, pairwise

import numpy as np

from ppmodel.clusters.costs.data_parallel import sharded_bytes
from ppmodel.clusters.specs.available import runs_as_modelled
from ppmodel.clusters.specs.recompute import tried_ways
from ppmodel.errors import NothingFitsError, PPModelError, TableError, refusing
from ppmodel.loops.compiled import prepare
from ppmodel.schedules import small
from ppmodel.simulation import makespans
from ppmodel.studies.planning import bounds
from ppmodel.studies.planning.candidates import Candidate, SearchEntry, all_sizes, cases_at, divisions
from ppmodel.studies.planning.columns import Columns, numbered
from ppmodel.studies.planning.fitting import fitting_of, point_of
from ppmodel.studies.points.iteration import memory_of, step_graph
from ppmodel.studies.points.margin import memory_margin
from ppmodel.studies.points.order import open_options
from ppmodel.studies.points.point import places_of
from ppmodel.studies.workers.runners import require_installed, require_runner, run_tasks
from ppmodel.studies.workers.store import open_store
from ppmodel.studies.workers.versions import versions

_FEW, _SPREAD, _MOST = 64, 256, 2**14
"""Entries of the first chunk, of the second, so that good times are known early, and of the others, to share tables."""

_FIRST = 16
"""Candidates that are simulated first; then twice as many, and so on."""

LONGEST = 1.25
"""If the fastest candidate is tight: by which factor one that is not may take longer, and is still looked for."""


class Limits:
    """Times up to which candidates are wanted: the best so far of what the framework runs, and of the rest.

    Parameters
    ----------
    question : Question

    Notes
    -----
    Candidates that the framework does not run are looked for only if they are faster than the first that it runs. If
    the fastest is tight, the fastest that is not tight is looked for as well, up to `LONGEST` times as long.
    """

    def __init__(self, question):
        self.question, self.within, self.best, self.comfortable = question, question.within, {}, {}
        share = question.system.framework.slow_above_memory_share
        self.comfortable_bytes = question.system.memory_capacity_bytes * (share or 1 - memory_margin())

    def is_tight(self, candidate):
        """Return whether a candidate fits by less than predictions of memory are off, or may be crowded."""
        return candidate.peak_bytes > self.comfortable_bytes

    def add(self, candidates):
        """Take note of candidates."""
        for candidate in candidates:
            for best in (self.best,) if self.is_tight(candidate) else (self.best, self.comfortable):
                if candidate.is_run not in best or candidate.iteration_s < best[candidate.is_run].iteration_s:
                    best[candidate.is_run] = candidate

    def most_s(self, is_run, is_tight=False):
        """The longest time at which candidates of a kind are still wanted."""
        bests, more = (self.best, self.comfortable), 1 + self.within
        best_s, comfortable_s = (best[is_run].iteration_s if is_run in best else np.inf for best in bests)
        if not is_run:  # below the first answer, which is not tight if that is within the share
            first_s, next_s = (best[True].iteration_s if True in best else np.inf for best in bests)
            return min(best_s * more, first_s * more, next_s)
        return best_s * more if is_tight else max(best_s * more, min(comfortable_s * more, best_s * LONGEST))

    def accepts(self, candidate):
        """Return whether a candidate is still wanted."""
        return candidate.iteration_s <= self.most_s(candidate.is_run, self.is_tight(candidate))


def entries_of(question, columns=None):
    """List the entries of a question whose weights, gradients and optimizer state can fit, by their lower bounds.

    Returns
    -------
    list of SearchEntry
        First some of the simplest schedule, then some of each schedule on each number of ranks, the likely best of each
        first, so that good times are known early; then the others by their numbers of ranks, which share tables.

    Raises
    ------
    PPModelError
        If the model fits in no way.
    """
    columns, capacity = columns or Columns(question, all_sizes(question)), question.system.memory_capacity_bytes
    framework, (pp, microbatches) = question.system.framework.packaged, np.array(columns.size).T
    listed = [(num_ranks, case) for num_ranks in sorted({*pp.tolist()}) for case in cases_at(question, num_ranks)]
    if not listed:
        rule = f"leaves no schedule with such chunks and ranks for the {question.model.blocks} layers"
        value = ", ".join(f"{name}={value}" for name, value in question.fixed.items()) or "nothing"
        raise PPModelError("fix", value, rule, "fix fewer chunks or ranks, or name other schedules")
    whole, split = columns.whole(True), columns.whole(False)
    reduced_s = np.minimum(columns.whole(False, 0).reduction_s, split.reduction_s + split.gather_s)
    step_s = reduced_s * (columns.highest_zero < 2) + split.optimizer_s  # from ZeRO 2 on with every microbatch
    seconds = (bounds.mean_bounds(whole, split, question.system) * microbatches + step_s) / pp
    parameters = split.parameters - split.expert_parameters, split.expert_parameters
    kept = sharded_bytes(parameters, columns.shared(columns.places, columns.highest_zero))
    kept_bytes, whole_bytes = sum(kept) / pp + question.system.reserve_bytes, split.activation_bytes
    fits = kept_bytes <= capacity
    if not fits.any():
        reserve = question.system.reserve_bytes
        least_bytes = kept_bytes.min()
        enough = question.gpus * (least_bytes - reserve) / (capacity - reserve)
        rule = f"is below what weights and optimizer need on {question.gpus} GPUs ({least_bytes / 2**30:.4g} GiB)"
        remedy = f"take at least {8 * -(-enough // 8):.0f} GPUs, or fix less"
        raise NothingFitsError("memory_limit", f"{capacity / 2**30:.3g} GiB", rule, remedy)
    again = 1 + np.clip((kept_bytes + whole_bytes - capacity) / whole_bytes, 0, 1) / 3  # what does not fit, recomputed
    likely = seconds * again * (1 + (pp - 1) / microbatches)
    first, of_cases, groups = question.cases[0].name if len(question.cases) == 1 else "1f1b", [], []
    for num_ranks, case in listed:
        bound, has_many = bounds.bound_of(case), dict(case.options).get("chunks", 2) > 2
        share = 0.0 if bound is None else bounds.ROUNDING * bounds.least_share(question, small(case.name).slices)
        is_run = [case.user_defined or runs_as_modelled(case.name, framework, way, num_ranks) for way in (False, True)]
        of_cases.append((bound or 0, share, *is_run, has_many, case.name != first))
        groups.append((num_ranks, case.name, has_many))
    number, place = np.nonzero(fits & (pp == np.array([[num_ranks] for num_ranks, _ in listed])))
    bound, share, is_run, is_run_alone, has_many, others = np.array(of_cases).T[:, number]
    alone = np.array([sizes.ep > 1 and sizes.stage_gpus == 1 for sizes in columns.sizes])[place]
    least_s, likely_s = seconds[bound.astype(int), place] * share, likely[bound.astype(int), place]
    group = numbered(groups)[1][number]
    order = _in_turn(np.lexsort((number, place, likely_s, others)), group, has_many, pp[place])
    is_run = np.where(alone, is_run_alone, is_run).astype(bool)
    rows = zip(*(column[order].tolist() for column in (number, place, is_run, least_s)), strict=True)
    return [SearchEntry(listed[number][1], columns.sizes[place], *more, place) for number, place, *more in rows]


def _in_turn(order, group, is_late, num_ranks):
    """Entries in order of likelihood, so cut that the second chunk has some of each group, and ranks stand together."""
    first, rest = order[:_FEW], order[_FEW:]
    by_group = rest[np.argsort(group[rest], kind="stable")]
    turn = np.empty(len(group), dtype=int)
    turn[by_group] = np.arange(len(rest)) - np.searchsorted(group[by_group], group[by_group])
    second, rest = np.split(rest[np.lexsort((turn[rest], is_late[rest]))], [_SPREAD])
    return np.concatenate([first, second, rest[np.argsort(num_ranks[rest], kind="stable")]])


def simulated(question, columns, entries, limits):
    """The candidates of some entries that can be as fast as asked for, and that fit, with their simulated times.

    Those with the least bounds are simulated first, so that fewer of the others can win.

    Parameters
    ----------
    question : Question
    columns : Columns
    entries : sequence of SearchEntry
    limits : Limits

    Returns
    -------
    list of Candidate
        In the order of their entries.
    """
    fitting, candidates, first = sorted(fitting_of(question, columns, entries, limits)), [], 0
    while first < len(fitting):
        last = 2 * first + _FIRST
        wanted = [
            (place, candidate) for at_least_s, place, candidate in fitting[first:last]
            if at_least_s <= limits.most_s(candidate.is_run, limits.is_tight(candidate))
        ]  # fmt: skip
        points = [point_of(question, candidate) for _, candidate in wanted]
        groups = places_of((point.graph_key, point.layout.overlap_gradients) for point in points)
        for (_, overlaps), places in groups.items():
            with refusing(), suppress(TableError):  # ranks may wait for each other forever
                graph = step_graph(points[places[0]].graph, overlaps)
                seconds = makespans(graph, [points[place].costs for place in places]).tolist()
                for place, time_s in zip(places, seconds, strict=True):
                    number, candidate = wanted[place]
                    candidates.append((number, candidate._replace(iteration_s=time_s)))
                    limits.add([candidates[-1][1]])
        first = last
    return [candidate for _, candidate in sorted(candidates)]


class _Search:
    """The entries of a question, and what is still looked for; each process has its own."""

    def __init__(self, question):
        self.question, self.limits, self.columns = question, Limits(question), Columns(question, all_sizes(question))
        self.entries = entries_of(question, self.columns)
        cases = {id(entry.case): entry.case for entry in self.entries}
        self.is_late = {key: bool(open_options(case)) for key, case in cases.items()}
        ends = 0, _FEW, *range(_FEW + _SPREAD, len(self.entries), _MOST)
        self.chunks = list(pairwise([*(end for end in ends if end < len(self.entries)), len(self.entries)]))

    def wanted(self, first, last):
        """Those of some entries that may be fast enough, by their lower bounds."""
        most_s = {is_run: self.limits.most_s(is_run) for is_run in (True, False)}
        return [entry for entry in self.entries[first:last] if entry.at_least_s <= most_s[entry.is_run]]

    def chunk(self, first, last):
        """The candidates of some entries: those whose order is searched come last, when good times are known."""
        found = []
        for is_late in (False, True):
            entries = [entry for entry in self.wanted(first, last) if self.is_late[id(entry.case)] is is_late]
            found += simulated(self.question, self.columns, entries, self.limits)
        return list(filter(self.limits.accepts, found))


_latest = []


def candidates_of(limits, first, last):
    """The candidates of some entries of a question within `Limits`, in any process; as `sweep.rows.compute_rows`."""
    if not (_latest and _latest[0].question == limits.question):
        _latest[:] = [_Search(limits.question)]
    _latest[0].limits.add([*limits.best.values(), *limits.comfortable.values()])  # found elsewhere
    return _latest[0].chunk(first, last)


def search(question, on_progress=None, workers=None, scheduler=None, resume=None):
    """Find every candidate that fits and takes at most the share `within` longer than the best of its kind.

    Parameters
    ----------
    question : Question
    on_progress : callable, optional
        Called now and then with the `Candidate.row` of the best so far, and ``searched``, the share that is done.
    workers, scheduler : optional
        As in `sweep.run_sweep`. Who computes changes nothing but the time.
    resume : str or Path, optional
        A folder that keeps what is computed; the same question goes on from there. With variants, each has its own,
        numbered behind the name.

    Returns
    -------
    list of Candidate
        In the order of their entries, but for those whose order is searched.

    Raises
    ------
    PPModelError
        If none fits, workers cannot be had, or the folder cannot.
    """
    if question.variants:
        return _of_variants(question, on_progress, workers, scheduler, resume)
    require_runner(workers, scheduler)
    prepare(10**7)  # operations: enough that compiled code is worth loading
    here, candidates, kept = _Search(question), {}, nullcontext()
    _latest[:], limits = [here], here.limits
    chunks = ((number, *ends) for number, ends in enumerate(here.chunks))
    tasks = (task for task in chunks if task[0] not in candidates and here.wanted(*task[1:]))

    if resume is not None:
        require_installed(pyarrow="sweep", filelock="sweep")
        cases = [(*case[:3], case.user_entry and case.user_entry.texts) for case in question.cases]
        about = f"{versions()}\n{replace(question, cases=cases)}\n"
        kept = open_store(resume, about, {"candidate": str}, "--resume")

    def take(number, found):
        candidates[number] = found
        limits.add(found)
        if on_progress and limits.best:
            best = limits.best.get(True) or limits.best[False]
            on_progress(best.row | {"searched": (number + 1) / len(here.chunks)})

    try:
        with kept as store:
            places = {entry[:2]: place for place, entry in enumerate(here.entries)} if store else {}
            for number in range(len(here.chunks)) if store else ():
                if number in store:
                    rows = map(json.loads, store.read(number)["candidate"])
                    take(number, [Candidate(*here.entries[place][:2], *values) for place, *values in rows])
            first = run_tasks(candidates_of, limits, islice(tasks, 2))  # here: the others then know the limits
            with closing(run_tasks(candidates_of, limits, tasks, workers, scheduler)) as others:
                for number, found in chain(first, others):
                    if store:
                        rows = [(places[candidate[:2]], *candidate[2:-1]) for candidate in found]
                        store.put(number, {"candidate": list(map(json.dumps, rows))})
                    take(number, found)
    except KeyboardInterrupt:
        how_far = f"{len(candidates)} of at most {len(here.chunks)} parts searched"
        raise KeyboardInterrupt(how_far + "; the same command goes on" * (resume is not None)) from None
    if not any(candidates.values()):
        _refuse(question, here.entries)
    return [candidate for number in sorted(candidates) for candidate in candidates[number] if limits.accepts(candidate)]


def _of_variants(question, on_progress, workers, scheduler, resume):
    """The candidates of all variants, within limits for all together; a variant in which nothing fits has none."""
    limits, candidates = Limits(question), []
    for number, variant in enumerate(question.variants, 1):
        one = replace(question, fixed=question.fixed | dict(variant), variants=())
        may_fail = candidates or number < len(question.variants)
        with suppress(NothingFitsError) if may_fail else nullcontext():
            found = search(one, on_progress, workers, scheduler, resume and f"{resume}.{number}")
            candidates += [candidate._replace(variant=variant) for candidate in found]
    limits.add(candidates)
    return list(filter(limits.accepts, candidates))


def _refuse(question, entries):
    """Raise why there is no candidate: none is defined, what fits waits for itself forever, or none fits."""
    refusals, is_defined = [], False
    *_, recompute = question.tried("recompute", tried_ways(question.model))  # what needs the least memory
    capacity_bytes = question.system.memory_capacity_bytes
    ways = ((entry, way) for entry in entries for way in divisions(question, entry.sizes, bool(entry.case.sharding)))
    for entry, (zero, layers) in ways:
        try:
            point = question.point(*entry[:2], zero=zero, layers=layers, recompute=recompute)
            if memory_of(point).total.max() <= capacity_bytes:
                point.run()
        except TableError:
            raise
        except PPModelError as error:
            refusals.append(error)
        else:
            is_defined = True
    if not is_defined:
        raise refusals[0]
    capacity = f"{capacity_bytes / 2**30:.3g} GiB"
    rule = f"is too little for {question.model.name} on {question.gpus} GPUs in every layout of these schedules"
    raise NothingFitsError("memory_limit", capacity, rule, "take more GPUs or other schedules, or fix less")
