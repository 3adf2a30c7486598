"""The search: candidates in the order of their lower bounds, until no bound is below what is still looked for."""

from __future__ import annotations

import json
from bisect import bisect_left
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice

import numpy as np

from ppmodel.clusters.costs import stages
from ppmodel.clusters.memory import memory
from ppmodel.errors import NothingFitsError, PPModelError, TableError, refusing
from ppmodel.loops.compiled import prepare
from ppmodel.schedules.cases import built
from ppmodel.simulation import makespans
from ppmodel.studies.planning.available import highest_zero, recomputed, runs_as_modelled
from ppmodel.studies.planning.bounds import CandidateBounds, busy_bound
from ppmodel.studies.planning.candidates import Candidate, SearchEntry, all_sizes, cases_at, divisions, orders
from ppmodel.studies.points.iteration import memory_of, step_graph
from ppmodel.studies.points.margin import memory_margin
from ppmodel.studies.points.order import open_options
from ppmodel.studies.points.point import places_of
from ppmodel.studies.workers.runners import require_installed, require_runner, run_tasks
from ppmodel.studies.workers.store import open_store
from ppmodel.studies.workers.versions import versions

_ENTRIES = 64
"""Entries of a chunk: enough to share tables, few enough to stop soon."""

LONGEST = 1.25
"""If the fastest candidate is tight: by which factor one that is not may take longer, and is still looked for."""


class Limits:
    """Times up to which candidates are wanted: the best so far of what the framework runs, and of the rest.

    Parameters
    ----------
    question : Question

    Notes
    -----
    Candidates that the framework does not run are looked for only if they are faster than the best that it runs. If
    the fastest is tight, the fastest that is not tight is looked for as well, up to `LONGEST` times as long.
    """

    def __init__(self, question):
        self.within, self.best, self.comfortable = question.within, {}, {}
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
        bests = self.best, self.comfortable
        best_s, comfortable_s = (best[is_run].iteration_s if is_run in best else np.inf for best in bests)
        most_s = best_s * (1 + self.within)
        if not is_run:
            return min(most_s, self.best[True].iteration_s if True in self.best else np.inf)
        return most_s if is_tight else max(most_s, min(comfortable_s * (1 + self.within), best_s * LONGEST))

    def accepts(self, candidate):
        """Return whether a candidate is still wanted."""
        return candidate.iteration_s <= self.most_s(candidate.is_run, self.is_tight(candidate))


def entries_of(question):
    """List the entries of a question whose weights, gradients and optimizer state can fit, by their lower bounds.

    Returns
    -------
    list of SearchEntry
        First those of the simplest schedule, so that a good time is known early. Among them, and among the others, the
        least bound first; ties in the order of sizes and schedules.

    Raises
    ------
    PPModelError
        If the model fits in no way.
    """
    bounds, entries, least_bytes = CandidateBounds(question), [], np.inf
    capacity, every_size = question.system.memory_capacity_bytes, all_sizes(question)
    cases = {pp: cases_at(question, pp) for pp in {sizes.pp for sizes in every_size}}
    for sizes in every_size:
        kept_bytes = min(bounds.bytes(sizes, zero) for zero in {zero for zero, _ in divisions(question, sizes)})
        least_bytes = min(least_bytes, kept_bytes)
        if kept_bytes <= capacity:
            alone = sizes.ep > 1 and sizes.stage_gpus == 1
            for case in cases[sizes.pp]:
                framework = question.system.framework.packaged
                is_run = case.user_defined or runs_as_modelled(case.name, framework, alone, sizes.pp)
                entries.append(SearchEntry(case, sizes, is_run, bounds.seconds(case, sizes)))
    if not any(cases.values()):
        rule = f"leaves no schedule with such chunks and ranks for the {question.model.blocks} layers"
        value = ", ".join(f"{name}={value}" for name, value in question.fixed.items()) or "nothing"
        raise PPModelError("fix", value, rule, "fix fewer chunks or ranks, or name other schedules")
    if not entries:
        reserve = question.system.reserve_bytes
        enough = question.gpus * (least_bytes - reserve) / (capacity - reserve)
        rule = f"is below what weights and optimizer need on {question.gpus} GPUs ({least_bytes / 2**30:.4g} GiB)"
        remedy = f"take at least {8 * -(-enough // 8):.0f} GPUs, or fix less"
        raise NothingFitsError("memory_limit", f"{capacity / 2**30:.3g} GiB", rule, remedy)
    first = question.cases[0].name if len(question.cases) == 1 else "1f1b"
    return sorted(entries, key=lambda entry: (entry.case.name != first, entry.at_least_s))


def simulated(question, entries, limits):
    """The candidates of some entries that can be as fast as asked for, and that fit, with their simulated times.

    Parameters
    ----------
    question : Question
    entries : sequence of SearchEntry
    limits : Limits

    Returns
    -------
    list of Candidate
    """
    fitting, candidates = [], []
    for entry in entries:
        with refusing():  # not defined at this size
            fitting += _fitting(question, entry, limits)
    groups = places_of((point.graph_key, point.layout.overlap_gradients) for _, point in fitting)
    for (_, overlaps), places in groups.items():
        points = [fitting[place][1] for place in places]
        graph = step_graph(points[0].graph, overlaps)
        with suppress(TableError):  # ranks may wait for each other forever
            seconds = makespans(graph, [point.costs for point in points]).tolist()
            timed = zip(places, seconds, strict=True)
            candidates += [fitting[place][0]._replace(iteration_s=time_s) for place, time_s in timed]
    return list(filter(limits.accepts, candidates))


def _fitting(question, entry, limits):
    """The candidates of an entry that fit and may be fast enough, still without their times, each with its point.

    Each recomputes no more than it must to fit, or not to be tight. Of ways that divide the layers alike, the first
    counts. If ZeRO 1 leaves no candidate, ZeRO 0, which needs more memory, is not tried.
    """
    table = built(entry.case, *question.size(entry.sizes))
    cuts, hopeless, least_s = set(), set(), busy_bound(table, question.system)
    usual, capacity = highest_zero(question.system.framework.packaged), question.system.memory_capacity_bytes
    most_s = limits.most_s(entry.is_run)
    for zero, layers in sorted(divisions(question, entry.sizes), key=lambda way: -way[0]):
        if zero == 0 and (1, layers) in hopeless:
            continue
        hopeless.add((zero, layers))
        is_run = entry.is_run and (zero <= usual or "zero" in question.fixed)
        recomputing = cache(partial(divided, question, entry, table, zero, layers))
        ways = partial(_least_recomputed, question, recomputing, lambda of_stages: least_s(of_stages) <= most_s)
        with refusing():  # more stages than layers
            for recompute in chain(*map(ways, (capacity, limits.comfortable_bytes))):
                hopeless.discard((zero, layers))
                point, of_stages, peak_bytes = recomputing(recompute)
                cut = zero, recompute, of_stages.layers.tobytes()
                for order in orders(question, entry.sizes, zero) if cut not in cuts else ():
                    ordered = replace(point, layout=replace(point.layout, order=order))
                    if (peak := peak_bytes(ordered)) <= capacity:
                        yield Candidate(*entry[:2], is_run, zero, recompute, layers, order, peak, np.inf), ordered
                cuts.add(cut)


def divided(question, entry, table, zero, layers, recompute):
    """An entry that is sharded, divided among stages and recomputed in one way.

    Returns
    -------
    point : Point
    of_stages : Stages
    peak_bytes : callable
        Returns the bytes of the most loaded GPU, of the point itself or of one with another order of the dimensions.
    """
    point = question.point(entry.case, entry.sizes, zero=zero, layers=layers, recompute=recompute)
    layout = point.layout_of(table)
    of_stages = stages(table, point.model, point.system, layout=layout)
    is_timed = layout.offloads or open_options(point.case)
    resident = cache(partial(memory, table, point.model, of_stages, layout, point.system))
    return point, of_stages, lambda ordered=point: float((memory_of(ordered) if is_timed else resident()).total.max())


def _least_recomputed(question, recomputing, is_fast, most_bytes):
    """Yield the cheapest ways to recompute that fit into some memory and are fast enough."""

    def fits(recompute):
        return recomputing(recompute)[-1]() <= most_bytes

    least, *others = question.tried("recompute", recomputed(question.model))
    if not is_fast(recomputing(least)[1]):
        return
    if fits(least):
        yield least
        return
    for recompute in (way for way in others if is_fast(recomputing(way)[1])):
        if recompute != 1 and fits(recompute):
            yield recompute
        if recompute == 1 and fits("full"):
            most = int(recomputing("full")[1].blocks.max())
            fewest = bisect_left(range(most), True, lo=1, key=fits)
            fewest = "full" if fewest >= most else fewest
            if is_fast(recomputing(fewest)[1]):
                yield fewest


class _Search:
    """The entries of a question, and what is still looked for; each process has its own."""

    def __init__(self, question):
        self.question, self.limits, self.entries = question, Limits(question), entries_of(question)
        self.chunks = [(first, first + _ENTRIES) for first in range(0, len(self.entries), _ENTRIES)]

    def wanted(self, first, last):
        """Those of some entries that may be fast enough, by their lower bounds."""
        return [entry for entry in self.entries[first:last] if entry.at_least_s <= self.limits.most_s(entry.is_run)]

    def chunk(self, first, last):
        """The candidates of some entries."""
        candidates = simulated(self.question, self.wanted(first, last), self.limits)
        self.limits.add(candidates)
        return candidates


_latest = []


def candidates_of(question, first, last):
    """The candidates of some entries of a question, in any process; as `sweep.rows.compute_rows`."""
    if not (_latest and _latest[0].question == question):
        _latest[:] = [_Search(question)]
    return _latest[0].chunk(first, last)


def search(question, on_progress=None, workers=None, scheduler=None, resume=None):
    """Find every candidate that fits and takes at most the share `within` longer than the best of its kind.

    Parameters
    ----------
    question : Question
    on_progress : callable, optional
        Called now and then with the best candidates so far, by whether the framework runs them.
    workers, scheduler : optional
        As in `sweep.run_sweep`. Who computes changes nothing but the time.
    resume : str or Path, optional
        A folder that keeps what is computed; the same question goes on from there.

    Returns
    -------
    list of Candidate
        In the order of their entries.

    Raises
    ------
    PPModelError
        If none fits, workers cannot be had, or the folder cannot.
    """
    require_runner(workers, scheduler)
    prepare(10**7)  # operations: enough that compiled code is worth loading
    here, candidates, kept = _Search(question), {}, nullcontext()
    places = {entry[:2]: place for place, entry in enumerate(here.entries)}
    _latest[:], limits = [here], here.limits
    numbered = ((number, *rows) for number, rows in enumerate(here.chunks))
    tasks = (task for task in numbered if task[0] not in candidates and here.wanted(*task[1:]))

    if resume is not None:
        require_installed(pyarrow="sweep", filelock="sweep")
        cases = [(*case[:3], case.user_entry and case.user_entry.texts) for case in question.cases]
        about = f"{versions()}\n{replace(question, cases=cases)}\n"
        kept = open_store(resume, about, {"candidate": str}, "--resume")

    def take(number, found):
        candidates[number] = found
        limits.add(found)
        if on_progress and limits.best:
            on_progress(limits.best)

    try:
        with kept as store:
            for number in range(len(here.chunks)) if store else ():
                if number in store:
                    rows = map(json.loads, store.read(number)["candidate"])
                    take(number, [Candidate(*here.entries[place][:2], *values) for place, *values in rows])
            first = run_tasks(candidates_of, question, islice(tasks, 1))  # here: the others then know the limits
            with closing(run_tasks(candidates_of, question, tasks, workers, scheduler)) as others:
                for number, found in chain(first, others):
                    if store:
                        rows = [(places[candidate[:2]], *candidate[2:]) for candidate in found]
                        store.put(number, {"candidate": list(map(json.dumps, rows))})
                    take(number, found)
    except KeyboardInterrupt:
        how_far = f"{len(candidates)} of at most {len(here.chunks)} parts searched"
        raise KeyboardInterrupt(how_far + "; the same command goes on" * (resume is not None)) from None
    if not any(candidates.values()):
        _refuse(question, here.entries)
    return [candidate for number in sorted(candidates) for candidate in candidates[number] if limits.accepts(candidate)]


def _refuse(question, entries):
    """Raise why there is no candidate: none is defined, what fits waits for itself forever, or none fits."""
    refusals, is_defined = [], False
    *_, recompute = question.tried("recompute", recomputed(question.model))  # what needs the least memory
    capacity_bytes = question.system.memory_capacity_bytes
    for entry, way in ((tried, way) for tried in entries for way in divisions(question, tried.sizes)):
        try:
            table = built(entry.case, *question.size(entry.sizes))
            point, _, peak_bytes = divided(question, entry, table, *way, recompute)
            if peak_bytes() <= capacity_bytes:
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
