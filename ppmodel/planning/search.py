"""The search: candidates in the order of their lower bounds, until no bound is below what is still looked for."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np

from ppmodel.compiled import prepare
from ppmodel.costs import check_layout, stages
from ppmodel.costs.offload import offloads
from ppmodel.errors import PPModelError, SweepError, reason
from ppmodel.measured import memory_margin
from ppmodel.metrics import memory
from ppmodel.planning.available import highest_zero, recomputed, runs_as_modelled
from ppmodel.planning.bounds import Bounds, busy_bound
from ppmodel.planning.candidates import Candidate, Entry, all_sizes, cases_at, orders, ways
from ppmodel.planning.kept import KeptSearch
from ppmodel.points.iteration import memory_of, step_graph
from ppmodel.points.order import open_options
from ppmodel.schedules.cases import built
from ppmodel.simulation import graph_of, makespans
from ppmodel.sweep.runners import run_on_workers, run_with_scheduler
from ppmodel.sweep.versions import versions

_ENTRIES = 64
"""Entries of a chunk: enough to share tables, few enough to stop soon."""

LONGEST = 1.25
"""How much longer than the fastest, if that is tight, one that is not may take to be looked for.

Where a run that is short of memory goes on, several times slower, also to be the first answer."""

_LONG = 10**7  # operations, for which compiled code is worth loading


class Limits:
    """What is still looked for: the best times so far of what the framework runs, and of the rest.

    Parameters
    ----------
    question : Question

    Notes
    -----
    The rest is looked for only where it is faster than the best that the framework runs. If the fastest is tight, so is
    the fastest that is not, as long as it takes at most a quarter longer.
    """

    def __init__(self, question):
        self.within, self.best, self.roomy = question.within, {}, {}
        crowded_from = question.system.framework.crowded_from
        self.roomy_bytes = question.system.memory_capacity_bytes * (crowded_from or 1 - memory_margin())
        self.roomy_within = LONGEST - 1 if crowded_from else question.within

    def is_tight(self, candidate):
        """Whether a candidate fits by less than predictions of memory are off, or may be crowded."""
        return candidate.peak_bytes > self.roomy_bytes

    def add(self, candidates):
        """Take note of candidates; whether one of them is the best of its kind so far."""
        before = dict(self.best)
        for candidate in candidates:
            for best in (self.best,) if self.is_tight(candidate) else (self.best, self.roomy):
                if candidate.is_run not in best or candidate.iteration_s < best[candidate.is_run].iteration_s:
                    best[candidate.is_run] = candidate
        return self.best != before

    def most_s(self, is_run, is_tight=False):
        """Candidates of a kind that take longer are not looked for."""
        best_s, roomy_s = (best[is_run].iteration_s if is_run in best else np.inf for best in (self.best, self.roomy))
        most_s = best_s * (1 + self.within)
        if not is_run:
            return min(most_s, self.best[True].iteration_s if True in self.best else np.inf)
        return most_s if is_tight else max(most_s, min(roomy_s * (1 + self.within), best_s * LONGEST))

    def keeps(self, candidate):
        """Whether a candidate is looked for."""
        return candidate.iteration_s <= self.most_s(candidate.is_run, self.is_tight(candidate))


def entries_of(question):
    """List the entries of a question whose weights, gradients and optimizer state can fit, by their lower bounds.

    Returns
    -------
    list of Entry
        First those of the simplest schedule, so that a good time is known early. Among them, and among the others, the
        least bound first; ties in the order of sizes and schedules.

    Raises
    ------
    PPModelError
        If the model fits in no way.
    """
    bounds, entries, least_bytes = Bounds(question), [], np.inf
    capacity, cases = question.system.memory_capacity_bytes, {}
    for sizes in all_sizes(question):
        kept_bytes = min(bounds.bytes(sizes, zero) for zero in {zero for zero, _ in ways(question, sizes)})
        least_bytes = min(least_bytes, kept_bytes)
        if sizes.pp not in cases:
            cases[sizes.pp] = cases_at(question, sizes.pp)
        if kept_bytes <= capacity:
            for case in cases[sizes.pp]:
                entries.append(Entry(case, sizes, _is_run(question, case, sizes), bounds.seconds(case, sizes)))
    if not any(cases.values()):
        rule = f"leaves no schedule that divides the {question.model.blocks} layers of {question.model.name}"
        value = ", ".join(f"{name}={value}" for name, value in question.fixed.items()) or "nothing"
        raise PPModelError("fix", value, rule, "fix fewer chunks or ranks, or name other schedules")
    if not entries:
        reserve = question.system.reserve_bytes
        enough = question.gpus * (least_bytes - reserve) / (capacity - reserve)
        rule = f"is below what weights and optimizer need on {question.gpus} GPUs ({least_bytes / 2**30:.3g} GiB)"
        remedy = f"take at least {8 * -(-enough // 8):.0f} GPUs, or fix less"
        raise PPModelError("memory_limit", f"{capacity / 2**30:.3g} GiB", rule, remedy)
    first = question.cases[0].name if len(question.cases) == 1 else "1f1b"
    return sorted(entries, key=lambda entry: (entry.case.name != first, entry.at_least_s))


def _is_run(question, case, sizes):
    exchange_alone = bool(question.model.experts) and sizes.ep > 1 and sizes.tp * sizes.cp == 1
    return case.is_own or runs_as_modelled(case.name, question.system.framework.packaged, exchange_alone, sizes.pp)


def evaluate(question, entries, limits):
    """Simulate the candidates of some entries that can be as fast as asked for, and that fit.

    Parameters
    ----------
    question : Question
    entries : sequence of Entry
    limits : Limits

    Returns
    -------
    list of Candidate
    """
    groups, usual = {}, highest_zero(question.system.framework.packaged)
    for entry in entries:
        for way, point in _fitting(question, entry, limits.most_s(entry.is_run)):
            key = entry.case, point.ordered_case.options, point.size, point.layout.overlap_gradients
            is_run = entry.is_run and (way[0] <= usual or "zero" in question.fixed)
            groups.setdefault(key, []).append((Candidate(*entry[:2], is_run, *way, np.inf), point))
    candidates = []
    for (*_, overlaps), members in groups.items():
        points = [point for _, point in members]
        graph = step_graph(graph_of(points[0].table, *points[0].semantics), overlaps)
        seconds = makespans(graph, [point.costs for point in points]).tolist()
        candidates += [
            candidate._replace(iteration_s=time_s) for (candidate, _), time_s in zip(members, seconds, strict=True)
        ]
    return list(filter(limits.keeps, candidates))


def _fitting(question, entry, most_s):
    """The ways of an entry that fit and may be fast enough: zero, recompute, layers, order and bytes, with the point.

    Each recomputes no more than it must. Of ways that divide the layers alike, the first counts. Where the optimizer's
    state has to be shared to fit, or to leave enough time, all of it on every GPU need not be tried.
    """
    size = entry.sizes.pp, question.global_batch // (entry.sizes.dp * entry.sizes.microbatch_size)
    try:
        table = built(entry.case, *size)
    except PPModelError as error:  # not defined at this size
        reason(error)
        return
    cuts, hopeless, least_s = set(), set(), busy_bound(table, question.system)
    for zero, layers in sorted(ways(question, entry.sizes), key=lambda way: -way[0]):
        if zero == 0 and (1, layers) in hopeless:
            continue
        hopeless.add((zero, layers))
        try:
            for recompute, layout, of_stages, peak in _recomputed(
                question, entry, table, least_s, (zero, layers), most_s
            ):
                hopeless.discard((zero, layers))
                cut = zero, recompute, of_stages.layers.tobytes()
                if cut not in cuts:
                    for order in orders(question, entry.sizes, zero):
                        point = question.point(entry.case, size, replace(layout, order=order))
                        peak = _timed_peak_bytes(point) or peak
                        if peak <= question.system.memory_capacity_bytes:
                            yield (zero, recompute, layers, order, peak), point
                cuts.add(cut)
        except PPModelError:  # more stages than layers
            continue


def _recomputed(question, entry, table, least_s, way, most_s):
    """The least that has to be recomputed to fit, nothing or scores or the fewest layers, if fast enough.

    Each with its layout, the stages in that, and the bytes of the most loaded GPU.
    """
    model, system, (zero, layers) = question.model, question.system, way

    @cache
    def divided(recompute):
        layout = question.layout(entry.sizes, zero=zero, layers=layers, recompute=recompute)
        complete = check_layout(layout, model, system, table)
        return layout, complete, stages(table, model, system, layout=complete)

    @cache
    def peak_bytes(recompute):
        layout, complete, of_stages = divided(recompute)
        timed = _timed_peak_bytes(question.point(entry.case, (table.num_ranks, table.num_microbatches), layout))
        return timed or float(memory(table, model, of_stages, complete, system).total.max())

    def fits(recompute):
        return peak_bytes(recompute) <= system.memory_capacity_bytes

    def is_fast(recompute):
        return least_s(divided(recompute)[2]) <= most_s

    def priced(recompute):
        layout, _, of_stages = divided(recompute)
        return recompute, layout, of_stages, peak_bytes(recompute)

    least, *others = question.tried("recompute", recomputed(model))
    if not is_fast(least):
        return
    if fits(least):
        yield priced(least)
        return
    for recompute in filter(is_fast, others):
        if recompute in ("light", "selective") and fits(recompute):
            yield priced(recompute)
        if recompute == 1 and fits("full"):
            fewest = _fewest(fits, int(divided("full")[2].blocks.max()))
            if is_fast(fewest):
                yield priced(fewest)


def _timed_peak_bytes(point):
    """The bytes of the most loaded GPU where they depend on times; else None."""
    is_timed = offloads(point.layout) or open_options(point.case)
    return float(memory_of(point).total.max()) if is_timed else None


def _fewest(fits, most):
    """The fewest layers of a stage that are recomputed to fit; all of them are ``full``."""
    too_few, enough, fewest = 0, most, "full"
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if fits(middle):
            fewest = enough = middle
        else:
            too_few = middle
    return fewest


class _Search:
    """The entries of a question, and what is still looked for; each process has its own."""

    def __init__(self, question):
        self.question, self.limits, self.entries = question, Limits(question), entries_of(question)

    def chunk(self, first, last):
        """The candidates of some entries."""
        wanted = [entry for entry in self.entries[first:last] if self._is_wanted(entry)]
        candidates = evaluate(self.question, wanted, self.limits)
        self.limits.add(candidates)
        return candidates

    def _is_wanted(self, entry):
        return entry.at_least_s <= self.limits.most_s(entry.is_run)

    def tasks(self):
        """The chunks that are wanted, as the runners of sweeps take them."""
        for number, first in enumerate(range(0, len(self.entries), _ENTRIES)):
            last = min(first + _ENTRIES, len(self.entries))
            if any(map(self._is_wanted, self.entries[first:last])):
                yield number, first, last


_latest = []


def candidates_of(question, first, last, wanted=None):
    """The candidates of some entries of a question, for other processes; as `sweep.rows.compute_rows`."""
    if wanted not in (None, versions()):
        raise SweepError("worker", versions(), f"differs from {wanted}", "install the same version on all machines")
    if not (_latest and _latest[0].question == question):
        _latest[:] = [_Search(question)]
    return _latest[0].chunk(first, last)


def search(question, on_better=None, workers=None, scheduler=None, resume=None):
    """Find every candidate that fits and takes at most the share `within` longer than the best of its kind.

    Parameters
    ----------
    question : Question
    on_better : callable, optional
        Called with the best candidates so far, by whether the framework runs them, whenever there is a better one.
    workers, scheduler : optional
        As in `sweep.run_sweep`. Who computes changes nothing but the time.
    resume : str or Path, optional
        A file that keeps what is computed; the same question goes on from there.

    Returns
    -------
    list of Candidate
        In the order of their entries.

    Raises
    ------
    PPModelError
        If none fits, or workers cannot be had.
    """
    if workers is not None and scheduler is not None:
        raise SweepError("--workers", workers, "cannot be combined with --scheduler", "pass one of them")
    prepare(_LONG)
    here = _Search(question)
    limits, kept = here.limits, KeptSearch(resume, question, here.entries)

    def take(chunks):
        for number, candidates in chunks:
            kept.put(number, candidates)
            if limits.add(candidates) and on_better:
                on_better(limits.best)

    if limits.add([candidate for candidates in kept.chunks.values() for candidate in candidates]) and on_better:
        on_better(limits.best)
    tasks = (task for task in here.tasks() if task[0] not in kept.chunks)
    if workers is None and scheduler is None:
        take((number, here.chunk(*rows)) for number, *rows in tasks)
    else:
        first = list(islice(tasks, 1))  # here, so that what is looked for is known to all
        take((number, here.chunk(*rows)) for number, *rows in first)
        if scheduler is not None:
            take(run_with_scheduler(question, tasks, [], scheduler, candidates_of))
        else:
            take(run_on_workers(question, tasks, [], workers, candidates_of))
    candidates = [candidate for number in sorted(kept.chunks) for candidate in kept.chunks[number]]
    if not candidates:
        _refuse(question, here.entries)
    return list(filter(limits.keeps, candidates))


def _refuse(question, entries):
    named = ", ".join(dict.fromkeys(case.name for case in question.cases))
    if len(question.cases) == 1 and not any(entry.case.name == "1f1b" for entry in entries):
        rule = f"is defined, or fits, in no layout of {question.gpus} GPUs and {question.global_batch} sequences"
        raise PPModelError("schedules", named, rule, "try others, or fix less")
    capacity = f"{question.system.memory_capacity_bytes / 2**30:.3g} GiB"
    rule = f"is too little for {question.model.name} in every layout of {question.gpus} GPUs"
    raise PPModelError("memory_limit", capacity, rule, "take more GPUs, or fix less")
