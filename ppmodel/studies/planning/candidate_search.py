"""The search: candidates in the order of their lower bounds, until no bound is below what is still looked for."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from itertools import chain, islice, pairwise, product, repeat
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.data_parallel import sharded_bytes
from ppmodel.clusters.costs.partition import StageLayers
from ppmodel.clusters.costs.stage_costs import Stages, layer_counts
from ppmodel.clusters.costs.transformer import layer_numbers
from ppmodel.clusters.memory import Homes, activation_bytes, held_on_ranks, homes_of, on_ranks
from ppmodel.clusters.specs.available import highest_zero, runs_as_modelled
from ppmodel.clusters.specs.layout import ORDERS
from ppmodel.clusters.specs.lengths import SLICINGS
from ppmodel.clusters.specs.recompute import tried_ways
from ppmodel.errors import NothingFitsError, PPModelError, TableError, refusing
from ppmodel.loops.compiled import prepare
from ppmodel.metrics import peak_activations
from ppmodel.schedules import small
from ppmodel.schedules.cases import built
from ppmodel.simulation import makespans
from ppmodel.studies.planning import bounds
from ppmodel.studies.planning.candidates import Candidate, SearchEntry, all_sizes, cases_at, divisions, orders
from ppmodel.studies.planning.columns import Columns
from ppmodel.studies.planning.question import SEARCHED, Sizes
from ppmodel.studies.points.iteration import memory_of, step_graph
from ppmodel.studies.points.margin import memory_margin
from ppmodel.studies.points.order import least_activations, open_options
from ppmodel.studies.points.point import places_of
from ppmodel.studies.workers.runners import require_installed, require_runner, run_tasks
from ppmodel.studies.workers.store import open_store
from ppmodel.studies.workers.versions import versions

_FEW, _SPREAD, _MOST = 64, 256, 2**14
"""Entries of the first chunk, of the second, so that good times are known early, and of the others, to share tables."""

_BLOCK = 2**11
"""Rows that are priced at once: their columns stay in a core's cache."""

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
    seconds = (bounds.mean_bounds(whole, split, question.system) * microbatches + columns.least_step_s(split)) / pp
    kept_bytes, whole_bytes = columns.least_bytes(split), split.activation_bytes
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
    alone, parts = np.array([sizes.ep > 1 and sizes.stage_gpus == 1 for sizes in columns.sizes], dtype=int), []
    for number, (num_ranks, case) in enumerate(listed):
        places, bound = np.flatnonzero(fits & (pp == num_ranks)), bounds.bound_of(case)
        share = 0.0 if bound is None else bounds.least_share(question, small(case.name).slices)
        is_run = [case.user_defined or runs_as_modelled(case.name, framework, way, num_ranks) for way in (False, True)]
        of_case = np.full(len(places), number), places, np.array(is_run)[alone[places]]
        parts.append((*of_case, seconds[bound or 0, places] * share, likely[bound or 0, places]))
    number, place, is_run, least_s, likely_s = map(np.concatenate, zip(*parts, strict=True))
    first = question.cases[0].name if len(question.cases) == 1 else "1f1b"
    others = np.array([case.name != first for _, case in listed])[number]
    keys = [(dict(case.options).get("chunks", 2) > 2, case.name, num_ranks) for num_ranks, case in listed]
    group = np.array([*map(sorted({*keys}).index, keys)])[number]
    has_many = np.array([has_many for has_many, *_ in keys])[number]
    order = _in_turn(np.lexsort((number, place, likely_s, others)), group, has_many, pp[place])
    rows = zip(*(column[order].tolist() for column in (number, place, is_run, least_s, likely_s)), strict=True)
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
    return [candidate for _, candidate in sorted(candidates) if limits.accepts(candidate)]


def point_of(question, candidate, **others):
    """The point of a candidate; `others` are further values of its layout."""
    ways = {name: getattr(candidate, name) for name in SEARCHED}
    listed = {name: value for name, value in candidate.variant if name not in Sizes._fields}  # steps leave these, too
    return question.point(candidate.case, candidate.sizes, **listed | ways | others)


def fitting_of(question, columns, entries, limits):
    """Yield the candidates that fit and may be fast enough, after the least seconds that each takes and its place.

    Each recomputes no more than it must to fit, or not to be tight. Of ways that divide the layers alike, the first
    counts.
    """
    usual, capacity = highest_zero(question.system.framework.packaged), question.system.memory_capacity_bytes
    groups, seen = {}, set()
    for number, entry in enumerate(entries):
        if table := columns.table(entry.case, entry.place):
            rows = groups.setdefault(table.has_shards, [])
            rows += [(number, entry, *way) for way in columns.ways(table, entry.place)]
    blocks = (rows[first : first + _BLOCK] for rows in groups.values() for first in range(0, len(rows), _BLOCK))
    for rows in blocks:
        priced = Rows(columns, rows, limits)
        for row, number, recompute, at_least_s, peak, slicing in priced.candidates():
            place, (case, sizes, is_run, *_), way, zero, layers, *_ = rows[row]
            is_run = is_run and (zero <= usual or "zero" in question.fixed)
            same = place, zero, recompute, priced.text(row, recompute), slicing
            for order in orders(question, sizes, zero) if same not in seen else ():
                candidate = Candidate(case, sizes, is_run, zero, recompute, layers, order, peak, np.inf, slicing)
                if order != ORDERS[0] and is_timed(columns, rows[row][1], slicing):
                    candidate = candidate._replace(peak_bytes=timed_bytes(question, candidate))
                if candidate.peak_bytes <= capacity:
                    yield at_least_s, (place, way, number, order, slicing), candidate
            seen.add(same)


def is_timed(columns, entry, slicing=SLICINGS[0]):
    """Return whether memory depends on times, of copies or of a searched order, or on parts or gathers that differ."""
    fixed, table = columns.question.fixed, columns.table(entry.case, entry.place)
    is_cut = table and table.slices > 1 and slicing != SLICINGS[0]
    is_unlike = is_cut or fixed.get("lengths", "equal") != "equal" or (table and (table.gathers or table.has_shards))
    is_copied = any(fixed.get(name) for name in ("offload", "offload_warm_up"))
    return bool(is_unlike or is_copied or open_options(entry.case))


def timed_bytes(question, candidate):
    """Bytes of the most loaded GPU of a candidate whose memory depends on its times."""
    return float(memory_of(point_of(question, candidate)).total.max())


class Costs(NamedTuple):
    """The costs of some rows; of those that cost the same, one.

    Parameters
    ----------
    rows : ndarray of int, shape (n,)
    places : ndarray of int
        The place of every row among these.
    spread : bounds.Spread
        Of the n rows, as are the rest.
    stages : Stages
    others : ndarray of float, shape (num_ranks,)
        Bytes of ranks without activations.
    """

    rows: np.ndarray
    places: np.ndarray
    spread: bounds.Spread
    stages: Stages
    others: np.ndarray


class Rows:
    """Candidates in all ways to shard and to divide layers, to find those that fit and may be fast enough.

    Parameters
    ----------
    columns : Columns
    rows : list of (int, SearchEntry, int, int, str, Shape, Schedule)
        Number and entry of each, then as from `Columns.ways`; all with a divided output layer, or none.
    limits : Limits
    """

    def __init__(self, columns, rows, limits):
        self.columns, self.question, self.comfortable_bytes = columns, columns.question, limits.comfortable_bytes
        _, self.entries, _, self.zeros, words, shapes, tables = zip(*rows, strict=True)
        self.place, (self.words, self.word) = np.array([entry.place for entry in self.entries]), _distinct(words, str)
        tables, table = _distinct(tables)
        self.has_shards, self.slicing = tables[0].has_shards, self.question.tried("slicing", SLICINGS)[0]
        self.sharing = _each(columns.sharing, columns.placed[self.place], self.zeros)
        of_size = {(each.num_ranks, each.slices): number for number, each in enumerate(tables)}  # buffers depend on it
        alike = np.array([of_size[each.num_ranks, each.slices] for each in tables])[table]
        self.buffers = _each(lambda place, number: columns.buffer_bytes(place, tables[number]), self.place, alike)
        self.shapes, self.shape = _distinct(shapes)
        self.ways = places_of(shape.way for shape in self.shapes)
        homes = [homes_of(shape.table.placement) for shape in self.shapes]
        self.homes, self.ranks = _Parts(each.stages for each in homes), _Parts(each.first for each in homes)
        cuts = [each.cut for each in self.shapes]
        self.cuts = [_Parts(getattr(cut, name) for cut in cuts) for name in ("mtp", "losses", "embeddings")]
        traits, self.trait = _distinct([*map(columns.traits, tables)])
        self.trait = self.trait[table]
        parts, slices, is_split, alone, ends, self.kinds = zip(*traits, strict=True)
        self.alone, self.ends = _Parts(alone), _Parts(ends)
        self.has_pairs = np.array([bool(of_trait) for of_trait in self.kinds])[self.trait]
        parts, self.slices, self.is_split = (np.array(column)[self.trait] for column in (parts, slices, is_split))
        share = bounds.least_share(self.question, self.slices)
        self.microbatches = parts * self.slices * share * np.array(columns.size)[self.place, 1]
        is_alike = self.question.fixed.get("lengths", "equal") == "equal" and not self.has_shards
        self.first = np.full(len(self.place), float(is_alike))
        for way, numbers in self.ways.items():
            if way[-1] > 1:
                some, layers = np.isin(self.shape, numbers), columns.layers("none", *way)
                layers.at(self.place[some])
                self.first[some] *= bounds.first_shares(layers.attention_shares[self.place[some]], way[-1])
        most_s = {is_run: limits.most_s(is_run) for is_run in (True, False)}
        is_run = np.array([entry.is_run for entry in self.entries])
        self.most_s = np.where(is_run, most_s[True], most_s[False])
        self.same = _first(self.place, self.sharing, self.shape, self.trait, self.word, is_run)
        self.num_stages, self.blocks = self.alone.count[self.trait], {}
        self.begin = np.cumsum(self.num_stages) - self.num_stages  # of the stages of each row among those of all

    def spread(self, rows):
        """The `bounds.Spread` of some rows."""
        first, row, stage = _ranges(self.num_stages[rows])
        home_first, home_row, home = _ranges(self.homes.count[self.shape[rows]])
        first_rank, rank_row, rank = _ranges(self.ranks.count[self.shape[rows]])
        stages = self.homes.at(self.shape[rows][home_row], home) + first[home_row]
        homes = Homes(stages, self.ranks.at(self.shape[rows][rank_row], rank) + home_first[rank_row])
        return bounds.Spread(row, stage, first, homes, rank_row, first_rank)

    def costs(self, rows, recompute):
        """The `Costs` of some rows, all recomputed in a way, or so many layers of each."""
        is_word, columns = isinstance(recompute, str), self.columns
        distinct, places = np.unique(self.same[rows] << 32 | (0 if is_word else recompute), return_inverse=True)
        rows, again = distinct >> 32, recompute if is_word else distinct & 2**32 - 1
        spread, layers_of, taken = self.spread(rows), self.layers_of(recompute), []
        shape, place = self.shape[rows], self.place[rows]
        for way, numbers in self.ways.items():
            some = np.flatnonzero(np.isin(shape, numbers))
            if some.size:
                layers = layers_of(way)
                taken.append((some, *layers.at(place[some])))
        order, *of_layers = map(np.concatenate, zip(*taken, strict=True))
        of_layers = [column[np.argsort(order)] for column in of_layers] if len(taken) > 1 else of_layers
        row, of_stages = spread.row, (shape[spread.row], spread.stage)
        blocks = self.divided(rows, recompute if is_word else "none", layers_of)[self.begin[rows][row] + spread.stage]
        mtp, losses, embeddings = (column.at(*of_stages) for column in self.cuts)
        cut, num_ranks = StageLayers(blocks, 0, mtp, losses, embeddings), self.ranks.count[of_stages[0]]
        shard = 1 / num_ranks if self.has_shards else 1.0
        again = again if is_word else again[row]
        counts = layer_counts(layers.names, layers.dense_blocks, cut, again, spread.before(blocks), shard)
        sharing, chunks = columns.shared(self.sharing[rows][row]), self.num_stages[rows][row] / num_ranks
        without = layers.names if self.has_shards else ()
        priced = columns.priced(of_layers, row, counts, sharing, cut, chunks, without)
        persistent = sharded_bytes((priced.parameters - priced.expert_parameters, priced.expert_parameters), sharing)
        everywhere = self.buffers[rows][spread.rank_row], columns.system.reserve_bytes
        others = held_on_ranks(spread.homes, priced, np.zeros(len(spread.rank_row)), persistent, *everywhere).total
        return Costs(rows, places, spread, priced, others)

    def divided(self, rows, mode, layers_of):
        """The blocks of the stages of all rows, of which some are divided now, by the times of layers in a mode."""
        blocks = self.blocks.setdefault(mode, np.zeros(self.num_stages.sum(), dtype=int))
        new = rows[np.maximum.reduceat(blocks, self.begin)[rows] == 0]
        for (number, word), some in places_of(zip(self.shape[new], self.word[new], strict=True)).items():
            of_shape, word, some = self.shapes[number], self.words[word], new[some]
            times = layers_of(of_shape.way).times(self.place[some], mode) if word == "balanced" else None
            stages = self.begin[some][:, None] + np.arange(of_shape.table.num_stages)
            blocks[stages] = self.columns.cut(of_shape.table, word, times).blocks
        return blocks

    def layers_of(self, recompute):
        """The `Layers` of each way of a shape: in full recomputed layers stand beside others, to be counted."""
        way = recompute if isinstance(recompute, str) and recompute != "full" else 1
        return lambda of_shape: self.columns.layers(way, *of_shape)

    def bounds(self, costs, ratios=0.0):
        """Lower bounds on the seconds of rows."""
        rows, spread = costs.rows, costs.spread
        of_stages = (column.at(self.trait[rows][spread.row], spread.stage) for column in (self.alone, self.ends))
        each = self.microbatches[rows], self.first[rows], self.is_split[rows], *of_stages
        return bounds.busy_bounds(spread, costs.stages, *each, self.question.system, ratios)[costs.places]

    @property
    def holds_long(self):
        """False where activations are copied, stages' times include those of other ranks, or long slices pass first."""
        is_copied = self.question.fixed.keys() & {"offload", "offload_warm_up"}
        return self.slicing == SLICINGS[0] and not self.has_shards and not is_copied

    def paired_bounds(self, rows, recompute):
        """As `bounds`, with what cells of two operations take at least."""
        costs, layers_of = self.costs(rows, recompute), self.layers_of(recompute)
        kinds = [self.kinds[trait] for trait in self.trait[costs.rows].tolist()]
        runs = [of_row and layers_of(self.shapes[self.shape[row]].way).run(int(self.place[row]))
                for of_row, row in zip(kinds, costs.rows, strict=True)]  # fmt: skip
        return self.bounds(costs, bounds.least_ratios(costs.spread, costs.stages, runs, kinds))

    def least_bytes(self, costs):
        """Lower bounds on the bytes of the most loaded GPUs of rows that take at most the time that is looked for.

        By Little's law: a stage holds a microbatch's activations at least while it passes all later stages.
        """
        spread, parts_s = costs.spread, costs.stages.parts_s[:, :2]
        alone = self.alone.at(self.trait[costs.rows][spread.row], spread.stage)[:, :2]
        passing_s = (parts_s[..., 0] + alone * parts_s[..., 1:].sum(axis=-1)).sum(axis=-1)
        passing_s *= self.holds_long
        later_s = np.add.reduceat(passing_s, spread.first)[spread.row] - spread.before(passing_s)
        share = later_s * (self.microbatches / self.most_s)[costs.rows][spread.row]
        least = on_ranks(spread.homes, share * costs.stages.activation_bytes) + costs.others
        return spread.most(least)[costs.places]

    def peaks(self, rows, costs, recompute):
        """Bytes of their most loaded GPUs; infinite if they cannot fit or are not defined at their size."""
        peaks, (kept, held) = np.full(len(rows), np.inf), activation_bytes(costs.stages)
        capacity = self.question.system.memory_capacity_bytes
        is_unlike = self.question.fixed.keys() & {"lengths", "offload", "offload_warm_up"}
        may_fit = np.flatnonzero(self.least_bytes(costs) <= capacity)
        again = np.broadcast_to(recompute, len(rows)).tolist()
        entries = [self.entries[row] for row in rows[may_fit].tolist()]
        groups = places_of((id(entry.case), self.columns.size[entry.place]) for entry in entries)
        for (_, size), some in groups.items():
            places, entry = may_fit[some], entries[some[0]]
            distinct, same = np.unique(costs.places[places], return_inverse=True)
            stages = costs.spread.first[distinct][:, None] + np.arange(self.num_stages[rows[places[0]]])
            others = costs.others[costs.spread.first_rank[distinct][:, None] + np.arange(size[0])]
            if not is_timed(self.columns, entry, self.slicing):
                with refusing():
                    activations = peak_activations(built(entry.case, *size), kept[stages], held[stages])
                    peaks[places] = (activations + others).max(axis=-1)[same]
                continue
            least = (least_activations(entry.case, size[1], kept[stages], held[stages]) + others).max(axis=-1)[same]
            places = places if is_unlike else places[least <= capacity]
            for place, row in zip(places.tolist(), rows[places].tolist(), strict=True):
                way = self.zeros[row], again[place], self.words[self.word[row]], ORDERS[0]
                with refusing():  # of layouts of one size, each on its own
                    named = Candidate(*self.entries[row][:2], True, *way, np.inf, np.inf, self.slicing)
                    peaks[place] = timed_bytes(self.question, named)
        return peaks

    def fitting(self, rows, recompute):
        """Those of some rows that may be fast enough: rows, least seconds and bytes."""
        costs = self.costs(rows, recompute)
        seconds = self.bounds(costs)
        fast = seconds <= self.most_s[rows]
        rows, seconds, costs = rows[fast], seconds[fast], costs._replace(places=costs.places[fast])
        peaks = self.peaks(rows, costs, recompute)
        fits = peaks <= self.question.system.memory_capacity_bytes
        seconds[fits] = self.paired(rows[fits], seconds[fits], recompute)
        return rows, seconds, peaks

    def paired(self, rows, seconds, recompute):
        """Lower bounds on the seconds of rows, those with cells of two operations by `paired_bounds`."""
        has_pairs = self.has_pairs[rows]
        if has_pairs.any():
            again = recompute if isinstance(recompute, str) else recompute[has_pairs]
            seconds[has_pairs] = self.paired_bounds(rows[has_pairs], again)
        return seconds

    def may_fit(self, rows):
        """Those of some rows that may be fast enough and fit in some way, if all ranks had the mean of time and bytes.

        By Little's law, as in `least_bytes`.
        """
        distinct, places = np.unique(self.same[rows], return_inverse=True)
        numbers, capacity_bytes = layer_numbers(self.question.model), self.question.system.memory_capacity_bytes
        is_open, fits = np.ones((2, len(distinct)), dtype=bool) & [[True], [False]]
        ways = self.question.tried("recompute", tried_ways(self.question.model))
        for recompute, (way, shapes) in product(ways, self.ways.items()):
            some = np.flatnonzero(np.isin(self.shape[distinct], shapes) & is_open)
            if not some.size:
                continue
            at, layers = distinct[some], self.layers_of(recompute)(way)
            seconds, of_layers, parameters = layers.at(self.place[at])
            counts = np.array([numbers[part] * (mode != "full") for part, mode in layers.names])
            layers_s = np.where(self.has_pairs[at][:, None, None], seconds[..., 0], seconds.sum(axis=-1)).sum(axis=-1)
            num_ranks, num_homes = self.ranks.count[self.shape[at]], self.homes.count[self.shape[at]]
            num_replicas = num_homes / self.num_stages[at]
            spare_s = self.most_s[at] * num_ranks / (self.microbatches[at] * num_replicas) - layers_s @ counts
            added_s = [layers_s[:, place] - layers_s[:, place + 1] for place, (part, mode) in enumerate(layers.names)
                       if mode == "full" and part != "mtp" and numbers[part]]  # fmt: skip
            again = np.floor(spare_s / np.maximum(np.min(added_s, axis=0), 1e-12)) if added_s else np.zeros(len(at))
            held = bounds.least_held(layers.names, numbers, seconds[:, :, :2, 0].sum(axis=-1), of_layers[..., 0], again)
            kept = sharded_bytes(np.einsum("nlp,l->pn", parameters, counts), self.columns.shared(self.sharing[at]))
            of_rank = (held * self.microbatches[at] / self.most_s[at] + sum(kept)) * num_replicas / num_ranks
            everywhere = self.buffers[at] + self.columns.system.reserve_bytes
            fits[some] = (spare_s >= 0) & (of_rank + everywhere <= capacity_bytes)
            is_open[some] = (spare_s >= 0) & ~fits[some]  # to recompute more takes longer
        return rows[fits[places]]

    def candidates(self):
        """Yield what fits and may be fast enough: row, place of its way, the way, seconds, bytes and slicing.

        A rank holds the first slices of a sequence, which equal work makes the longest: where slices of equal tokens do
        not fit, no others do; and the least seconds are the same.
        """
        rows = np.arange(len(self.place))
        for number, slicing in enumerate(self.question.tried("slicing", SLICINGS)):
            self.slicing, rows = slicing, rows[self.slices[rows] > 1] if number else rows
            rows = self.may_fit(rows) if self.holds_long else rows
            found = [*self.in_ways(rows)] if len(rows) else []
            yield from ((*each, slicing) for each in found)
            rows = np.unique([row for row, *_ in found]).astype(int)

    def in_ways(self, rows):
        """As `candidates`, of some rows in one slicing."""
        least, *more = self.question.tried("recompute", tried_ways(self.question.model))
        capacity, comfortable = self.question.system.memory_capacity_bytes, self.comfortable_bytes
        rows, *found = self.fitting(rows, least)
        fits, is_tight = found[1] <= capacity, found[1] > comfortable
        yield from zip(rows[fits], repeat(0), repeat(least), *(column[fits] for column in found), strict=False)
        most = np.where(fits, comfortable, capacity)[is_tight]
        rows = rows[is_tight]
        for number, way in enumerate(more if len(rows) else (), 1):
            if way == 1:
                tight = np.flatnonzero(most > comfortable)
                twice = np.append(np.arange(len(rows)), tight)
                most_bytes = np.append(most, np.full(len(tight), comfortable))
                yield from self.fewest(rows[twice], most_bytes, number)
            else:
                some, *found = self.fitting(rows, way)
                fits = found[1] <= most[np.searchsorted(rows, some)]
                yield from zip(some[fits], repeat(number), repeat(way), *(each[fits] for each in found), strict=False)

    def fewest(self, rows, most_bytes, number):
        """As `candidates`, for the fewest layers that are enough for rows to fit into some bytes each."""
        fast = self.bounds(self.costs(rows, np.ones(len(rows), dtype=int))) <= self.most_s[rows]
        if not fast.any():
            return
        rows, most_bytes = rows[fast], most_bytes[fast]
        costs = self.costs(rows, "full")
        peaks = self.peaks(rows, costs, "full")
        fits = peaks <= most_bytes
        rows, most_bytes, found = rows[fits], most_bytes[fits], (self.bounds(costs)[fits], peaks[fits])
        most, most_s = np.maximum.reduceat(costs.stages.blocks, costs.spread.first), self.most_s[rows]
        most = most[costs.places[fits]]
        low, high = np.ones_like(most), most.copy()
        while (places := np.flatnonzero(low < high)).size:
            middle, open_rows = (low + high)[places] // 2, rows[places]
            costs = self.costs(open_rows, middle)
            seconds, peaks = self.bounds(costs), self.peaks(open_rows, costs, middle)
            enough = peaks <= most_bytes[places]
            for column, values in zip(found, (seconds, peaks), strict=True):
                column[places[enough]] = values[enough]
            high[places[enough]], low[places[~enough]] = middle[enough], middle[~enough] + 1
            is_slow = places[~enough & (seconds > most_s[places])]  # more takes longer
            low[is_slow] = high[is_slow] = -1
            found[0][is_slow] = np.inf
        fast = np.flatnonzero(found[0] <= most_s)
        is_whole = low[fast] == most[fast]
        for some, way in (fast[is_whole], "full"), (fast[~is_whole], low[fast[~is_whole]]):
            found[0][some] = self.paired(rows[some], found[0][some], way)
        for place in fast:
            way = int(low[place]) if low[place] < most[place] else "full"
            tight = number + (most_bytes[place] == self.comfortable_bytes)
            yield rows[place], tight, way, *(column[place] for column in found)

    def text(self, row, recompute):
        """The blocks of a row's stages, as bytes."""
        row = self.same[row]
        stages = slice(self.begin[row], self.begin[row] + self.num_stages[row])
        return self.blocks[recompute if isinstance(recompute, str) else "none"][stages].tobytes()


def _first(*columns):
    """The first row with the same numbers as each row."""
    sizes = [int(column.max()) + 1 for column in columns]
    _, first, places = np.unique(np.ravel_multi_index(columns, sizes), return_index=True, return_inverse=True)
    return first[places]


def _each(compute, *columns):
    """Compute something of each row, of those with the same numbers once."""
    first = _first(*map(np.asarray, columns))
    distinct, places = np.unique(first, return_inverse=True)
    return np.array([*map(compute, *(np.asarray(column)[distinct].tolist() for column in columns))])[places]


class _Parts:
    """Arrays one after another.

    Parameters
    ----------
    arrays : iterable of ndarray
    """

    def __init__(self, arrays):
        arrays = [*arrays]
        self.count, self.values = np.array([*map(len, arrays)]), np.concatenate(arrays)
        self.first = np.cumsum(self.count) - self.count

    def at(self, number, place):
        """The values at some places of the arrays with some numbers."""
        return self.values[self.first[number] + place]


def _ranges(counts):
    """Of ranges one after another: where each begins, and for all their members the range and the place in it."""
    first, number = np.cumsum(counts) - counts, np.repeat(np.arange(len(counts)), counts)
    return first, number, np.arange(len(number)) - first[number]


def _distinct(values, key=id):
    """The values with different keys, and the number of each."""
    keys = [*map(key, values)]
    distinct = dict(zip(keys, values, strict=True))
    numbers = {key: number for number, key in enumerate(distinct)}
    return [*distinct.values()], np.array([numbers[key] for key in keys])


class _Search:
    """The entries of a question, and what is still looked for; each process has its own."""

    def __init__(self, question):
        self.question, self.limits, self.columns = question, Limits(question), Columns(question, all_sizes(question))
        self.entries = entries_of(question, self.columns)
        ends = 0, _FEW, *range(_FEW + _SPREAD, len(self.entries), _MOST)
        self.chunks = list(pairwise([*(end for end in ends if end < len(self.entries)), len(self.entries)]))

    def wanted(self, first, last):
        """Those of some entries that may be fast enough, by their lower bounds."""
        most_s = {is_run: self.limits.most_s(is_run) for is_run in (True, False)}
        return [entry for entry in self.entries[first:last] if entry.at_least_s <= most_s[entry.is_run]]

    def chunk(self, first, last):
        """The candidates of some entries."""
        return simulated(self.question, self.columns, self.wanted(first, last), self.limits)


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
        Called now and then with the `Candidate.row` of the best so far, and ``searched``, the share that is done.
    workers, scheduler : optional
        As in `sweep.run_sweep`. Who computes changes nothing but the time.
    resume : str or Path, optional
        A folder that keeps what is computed; the same question goes on from there. With variants, each has its own,
        numbered behind the name.

    Returns
    -------
    list of Candidate
        In the order of their entries.

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
            best = limits.best.get(True) or limits.best[False]
            on_progress(best.row | {"searched": (number + 1) / len(here.chunks)})

    try:
        with kept as store:
            places = {entry[:2]: place for place, entry in enumerate(here.entries)} if store else {}
            for number in range(len(here.chunks)) if store else ():
                if number in store:
                    rows = map(json.loads, store.read(number)["candidate"])
                    take(number, [Candidate(*here.entries[place][:2], *values) for place, *values in rows])
            first = run_tasks(candidates_of, question, islice(tasks, 1))  # here: the others then know the limits
            with closing(run_tasks(candidates_of, question, tasks, workers, scheduler)) as others:
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
