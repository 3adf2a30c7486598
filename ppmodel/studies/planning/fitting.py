"""Candidates that fit and may be fast enough: priced in blocks, all that cost the same once."""

from __future__ import annotations

from itertools import repeat
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.data_parallel import sharded_bytes
from ppmodel.clusters.costs.partition import StageLayers
from ppmodel.clusters.costs.stage_costs import Stages, layer_counts
from ppmodel.clusters.costs.transformer import layer_numbers
from ppmodel.clusters.memory import Homes, activation_bytes, held_on_ranks, on_ranks
from ppmodel.clusters.specs.available import highest_zero
from ppmodel.clusters.specs.layout import ORDERS
from ppmodel.clusters.specs.lengths import SLICINGS
from ppmodel.clusters.specs.recompute import tried_ways
from ppmodel.errors import refusing
from ppmodel.metrics import peak_activations
from ppmodel.schedules.cases import built
from ppmodel.studies.planning import bounds
from ppmodel.studies.planning.candidates import Candidate, orders
from ppmodel.studies.planning.columns import numbered
from ppmodel.studies.planning.question import SEARCHED, Sizes
from ppmodel.studies.points.iteration import memory_of
from ppmodel.studies.points.order import least_activations, open_options
from ppmodel.studies.points.point import places_of

_BLOCK = 2**11
"""Rows that are priced at once: their columns stay in a core's cache."""


def point_of(question, candidate):
    """The point of a candidate."""
    ways = {name: getattr(candidate, name) for name in SEARCHED}
    listed = {name: value for name, value in candidate.variant if name not in Sizes._fields}  # steps leave these, too
    return question.point(candidate.case, candidate.sizes, **listed | ways)


def copies(question):
    """Return whether activations are copied to the host."""
    return any(question.fixed.get(name) for name in ("offload", "offload_warm_up"))


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
            place, entry, way, zero, layers, _ = rows[row]
            is_run = entry.is_run and (zero <= usual or "zero" in question.fixed)
            same = place, zero, recompute, priced.text(row, recompute), slicing
            for order in orders(question, entry.sizes, zero) if same not in seen else ():
                ways = zero, recompute, layers, order
                candidate = Candidate(entry.case, entry.sizes, is_run, *ways, peak, np.inf, slicing)
                if order != ORDERS[0] and is_timed(columns, entry, slicing):
                    candidate = candidate._replace(peak_bytes=timed_bytes(question, candidate))
                if candidate.peak_bytes <= capacity:
                    yield at_least_s, (place, way, number, order, slicing), candidate
            seen.add(same)


def is_timed(columns, entry, slicing=SLICINGS[0]):
    """Return whether memory depends on times, of copies or of a searched order, or on parts or gathers that differ."""
    fixed, table = columns.question.fixed, columns.table(entry.case, entry.place)
    is_unlike = table and (table.gathers or table.has_shards or (table.slices > 1 and slicing != SLICINGS[0]))
    are_equal = fixed.get("lengths", "equal") == "equal"
    return bool(is_unlike or not are_equal or copies(columns.question) or open_options(entry.case))


def timed_bytes(question, candidate):
    """Bytes of the most loaded GPU of a candidate whose memory depends on its times."""
    return float(memory_of(point_of(question, candidate)).total.max())


class Costs(NamedTuple):
    """The costs of some rows; of those that cost the same, one.

    Parameters
    ----------
    rows : ndarray of int
    recompute : str or ndarray of int
        The way of all, or so many layers of each.
    distinct : ndarray of int, shape (n,)
        Rows that stand for all.
    places : ndarray of int
        The place of every row among these.
    spread : bounds.Spread
        Of the distinct rows, as are the rest.
    stages : Stages
    others : ndarray of float, shape (num_ranks,)
        Bytes of ranks without activations.
    first_share : ndarray of float, shape (n,)
        From `bounds.first_shares`.
    """

    rows: np.ndarray
    recompute: str | np.ndarray
    distinct: np.ndarray
    places: np.ndarray
    spread: bounds.Spread
    stages: Stages
    others: np.ndarray
    first_share: np.ndarray


class _Parts:
    """Arrays of rows, one after another.

    Parameters
    ----------
    arrays : iterable of ndarray
    """

    def __init__(self, arrays):
        arrays = [*arrays]
        self.count, self.values = np.array([*map(len, arrays)]), np.concatenate(arrays)
        self.first = np.cumsum(self.count) - self.count

    def of(self, rows):
        """Of the values of some rows: which row has each, their places, and where those of each row begin."""
        count = self.count[rows]
        first, row = np.cumsum(count) - count, np.repeat(np.arange(len(rows)), count)
        return row, np.arange(len(row)) + (self.first[rows] - first)[row], first


class Rows:
    """Candidates in all ways to shard and to divide layers, to find those that fit and may be fast enough.

    Parameters
    ----------
    columns : Columns
    rows : list of (int, SearchEntry, int, int, str, Shape)
        Number and entry of each, then as from `Columns.ways`; all with a divided output layer, or none.
    limits : Limits
    """

    def __init__(self, columns, rows, limits):
        self.columns, self.question, self.comfortable_bytes = columns, columns.question, limits.comfortable_bytes
        self.tried_ways = self.question.tried("recompute", tried_ways(self.question.model))
        _, self.entries, _, zeros, self.words, self.shapes = zip(*rows, strict=True)
        self.has_shards, self.slicing = self.shapes[0].table.has_shards, self.question.tried("slicing", SLICINGS)[0]
        places, is_run = [entry.place for entry in self.entries], [entry.is_run for entry in self.entries]
        self.place, self.zero = np.array(places), np.array(zeros)
        self.hides = columns.shared(self.place, self.zero).overlap_gradients
        self.are_equal = self.question.fixed.get("lengths", "equal") == "equal"
        self.buffers = np.array([*map(columns.buffer_bytes, places, (shape.like for shape in self.shapes))])
        self.ways, self.way = numbered(shape.way for shape in self.shapes)
        self.stages = _Parts(shape.of_stages for shape in self.shapes)
        self.homes, self.ranks = (_Parts(getattr(shape.homes, name) for shape in self.shapes) for name in Homes._fields)
        of_shapes = [(shape.parts, shape.way[-1], shape.is_split, shape.kinds != []) for shape in self.shapes]
        parts, self.slices, *flags = np.array(of_shapes).T
        self.is_split, self.has_pairs = np.array(flags, dtype=bool)
        share = bounds.least_share(self.question, self.slices)
        self.microbatches = parts * self.slices * share * np.array(columns.size)[self.place, 1]
        most_s, first, self.blocks = {is_run: limits.most_s(is_run) for is_run in (True, False)}, {}, {}
        self.most_s = np.array([most_s[each] for each in is_run])
        each = enumerate(zip(places, zeros, self.words, self.shapes, is_run, strict=True))
        self.same = np.array([first.setdefault(alike, row) for row, alike in each])  # the first that costs the same

    def spread(self, rows):
        """The `bounds.Spread` of some rows."""
        row, stage, first = self.stages.of(rows)
        home_row, home, first_home = self.homes.of(rows)
        rank_row, rank, first_rank = self.ranks.of(rows)
        homes = Homes(self.homes.values[home] + first[home_row], self.ranks.values[rank] + first_home[rank_row])
        alone = self.stages.values[stage, :3]  # of unequal lengths, perhaps the shortest
        return bounds.Spread(row, stage, first, homes, rank_row, first_rank, alone if self.are_equal else alone // 1)

    def layers_of(self, way, recompute):
        """The `Layers` of a way of shapes: in full recomputed layers stand beside others, to be counted."""
        return self.columns.layers(recompute if isinstance(recompute, str) and recompute != "full" else 1, *way)

    def layers_at(self, rows, recompute):
        """The `Layers` of any of some rows, and the columns of all."""
        taken, way_of, places = [], self.way[rows], self.place[rows]
        for number, way in enumerate(self.ways):
            some = np.flatnonzero(way_of == number)
            if some.size:
                layers = self.layers_of(way, recompute)
                taken.append((some, *layers.at(places[some])))
        if len(taken) == 1:
            return layers, taken[0][1:]
        order, *columns = map(np.concatenate, zip(*taken, strict=True))
        return layers, [column[np.argsort(order)] for column in columns]

    def costs(self, rows, recompute):
        """The `Costs` of some rows, all recomputed in a way, or so many layers of each."""
        is_word, columns = isinstance(recompute, str), self.columns
        distinct, places = np.unique(self.same[rows] << 32 | (0 if is_word else recompute), return_inverse=True)
        again, distinct = distinct & 2**32 - 1, distinct >> 32
        spread, (layers, of_layers) = self.spread(distinct), self.layers_at(distinct, recompute)
        row, blocks = distinct[spread.row], self.divided(distinct, recompute if is_word else "none")[spread.stage]
        cut, num_ranks = StageLayers(blocks, 0, *self.stages.values[spread.stage, 4:].T), self.ranks.count[row]
        how = recompute if is_word else again[spread.row], spread.before(blocks), 1 / num_ranks**self.has_shards
        counts = layer_counts(layers.names, layers.dense_blocks, cut, *how)
        sharing, chunks = columns.shared(self.place[row], self.zero[row]), self.stages.count[row] / num_ranks
        without = layers.names if self.has_shards else ()
        priced = columns.priced(of_layers, spread.row, counts, sharing, cut, chunks, without)
        persistent = sharded_bytes((priced.parameters - priced.expert_parameters, priced.expert_parameters), sharing)
        everywhere = self.buffers[distinct][spread.rank_row], columns.system.reserve_bytes
        others = held_on_ranks(spread.homes, priced, np.zeros(len(spread.rank_row)), persistent, *everywhere).total
        first_share = of_layers[-1].min(axis=1) * (self.are_equal and not self.has_shards)
        return Costs(rows, recompute, distinct, places, spread, priced, others, first_share)

    def divided(self, rows, mode):
        """The blocks of the stages of all rows, of which some are balanced now, by the times of layers in a mode."""
        if mode not in self.blocks:
            is_balanced = np.repeat([word == "balanced" for word in self.words], self.stages.count)
            self.blocks[mode] = np.where(is_balanced, -1, self.stages.values[:, 3].astype(int))
        blocks = self.blocks[mode]
        new = rows[blocks[self.stages.first[rows]] < 0]
        shapes = (self.shapes[row] for row in new.tolist())
        for (table, way), some in places_of((shape.table, shape.way) for shape in shapes).items():
            times = self.layers_of(way, mode).times(self.place[new[some]], mode)
            stages = self.stages.first[new[some]][:, None] + np.arange(table.num_stages)
            blocks[stages] = self.columns.cut(table, "balanced", times).blocks
        return blocks

    def bounds(self, costs, paired=()):
        """Lower bounds on the seconds of rows; where a mask says so, also by what cells of two operations take."""
        rows, pairs = costs.distinct, {}
        for place in {*costs.places[paired].tolist()} if len(paired) else ():
            shape = self.shapes[rows[place]]
            pairs[place] = self.layers_of(shape.way, costs.recompute).run(int(self.place[rows[place]])), shape.kinds
        ratios = bounds.least_ratios(costs.spread, costs.stages, pairs) if pairs else 0.0
        flags = self.is_split[rows], self.has_pairs[rows], self.hides[rows]
        each = self.microbatches[rows], costs.first_share, *flags, self.question.system, ratios
        return bounds.busy_bounds(costs.spread, costs.stages, *each)[costs.places]

    @property
    def holds_long(self):
        """False where activations are copied, stages' times include those of other ranks, or long slices pass first."""
        return self.slicing == SLICINGS[0] and not self.has_shards and not copies(self.question)

    def least_bytes(self, costs):
        """Lower bounds on the bytes of the most loaded GPUs of rows that take at most the time that is looked for.

        By Little's law: a stage holds a microbatch's activations at least while it passes all later stages.
        """
        spread, parts_s = costs.spread, costs.stages.parts_s[:, :2]
        passing_s = (parts_s[..., 0] + spread.alone[:, :2] * parts_s[..., 1:].sum(axis=-1)).sum(axis=-1)
        later_s = np.add.reduceat(passing_s, spread.first)[spread.row] - spread.before(passing_s)
        share = later_s * (self.holds_long * self.microbatches / self.most_s)[costs.distinct][spread.row]
        least = on_ranks(spread.homes, share * costs.stages.activation_bytes) + costs.others
        return spread.most(least)[costs.places]

    def peaks(self, costs, is_fast=True):
        """Bytes of their most loaded GPUs; infinite if not fast, too large, or not defined at their size."""
        capacity, (kept, held) = self.question.system.memory_capacity_bytes, activation_bytes(costs.stages)
        rows, peaks = costs.rows, np.full(len(costs.rows), np.inf)
        may_fit = np.flatnonzero((self.least_bytes(costs) <= capacity) & is_fast)
        entries = [self.entries[row] for row in rows[may_fit].tolist()]
        groups = places_of((id(entry.case), self.columns.size[entry.place]) for entry in entries)
        for (_, size), some in groups.items():
            places, entry = may_fit[some], entries[some[0]]
            distinct, same = np.unique(costs.places[places], return_inverse=True)
            stages = costs.spread.first[distinct][:, None] + np.arange(self.stages.count[rows[places[0]]])
            others = costs.others[costs.spread.first_rank[distinct][:, None] + np.arange(size[0])]
            if not is_timed(self.columns, entry, self.slicing):
                with refusing():
                    activations = peak_activations(built(entry.case, *size), kept[stages], held[stages])
                    peaks[places] = (activations + others).max(axis=-1)[same]
                continue
            if self.are_equal and not copies(self.question):
                least = least_activations(entry.case, size[1], kept[stages], held[stages]) + others
                places = places[least.max(axis=-1)[same] <= capacity]
            for place in places.tolist():
                row, again = rows[place], np.broadcast_to(costs.recompute, len(rows))[place].item()
                ways = int(self.zero[row]), again, self.words[row], ORDERS[0]
                with refusing():  # of layouts of one size, each on its own
                    named = Candidate(*self.entries[row][:2], True, *ways, np.inf, np.inf, self.slicing)
                    peaks[place] = timed_bytes(self.question, named)
        return peaks

    def fitting(self, rows, recompute):
        """The least seconds of rows, and bytes of those that may be fast enough; infinite of the others."""
        costs = self.costs(rows, recompute)
        seconds = self.bounds(costs)
        peaks = self.peaks(costs, seconds <= self.most_s[rows])
        fits = self.has_pairs[rows] & (peaks <= self.question.system.memory_capacity_bytes)
        return self.bounds(costs, fits) if fits.any() else seconds, peaks

    def may_fit(self, rows):
        """Those of some rows that may be fast enough and fit, if all ranks had the mean of time and bytes.

        By Little's law, as in `least_bytes`; recomputed by whole layers alone.
        """
        ways, numbers = self.tried_ways, layer_numbers(self.question.model)
        if not (self.holds_long and {*ways} <= {"none", 1} and len(rows)):
            return rows
        at, places = np.unique(self.same[rows], return_inverse=True)
        layers, (seconds, of_layers, parameters, _) = self.layers_at(at, ways[-1])
        counts = np.array([numbers[part] * (mode != "full") for part, mode in layers.names])
        layers_s = np.where(self.has_pairs[at][:, None, None], seconds[..., 0], seconds.sum(axis=-1)).sum(axis=-1)
        share = self.homes.count[at] / self.stages.count[at] / self.ranks.count[at]  # of a rank in all replicas' work
        most_s = self.most_s[at] / bounds.ROUNDING
        spare_s = most_s / (self.microbatches[at] * share) - layers_s @ counts
        added_s = [layers_s[:, place] - layers_s[:, place + 1] for place, (part, mode) in enumerate(layers.names)
                   if mode == "full" and part != "mtp" and numbers[part]]  # fmt: skip
        again = np.floor(spare_s / np.maximum(np.min(added_s, axis=0), 1e-12)) if added_s else np.zeros(len(at))
        held = bounds.least_held(layers.names, numbers, seconds[:, :, :2, 0].sum(axis=-1), of_layers[..., 0], again)
        sharing = self.columns.shared(self.place[at], self.zero[at])
        kept = sum(sharded_bytes(np.einsum("nlp,l->pn", parameters, counts), sharing))
        of_rank = (held * self.microbatches[at] / most_s + kept) * share + self.buffers[at]
        capacity_bytes = self.question.system.memory_capacity_bytes - self.question.system.reserve_bytes
        return rows[((spare_s >= 0) & (of_rank <= capacity_bytes))[places]]

    def candidates(self):
        """Yield what fits and may be fast enough: row, place of its way, the way, seconds, bytes and slicing.

        A rank holds the first slices of a sequence, which equal work makes the longest: where slices of equal tokens do
        not fit, no others do; and the least seconds are the same.
        """
        rows = np.arange(len(self.place))
        for number, slicing in enumerate(self.question.tried("slicing", SLICINGS)):
            self.slicing, rows = slicing, self.may_fit(rows[self.slices[rows] > 1] if number else rows)
            found = [*self.in_ways(rows)] if len(rows) else []
            yield from ((*each, slicing) for each in found)
            rows = np.unique([row for row, *_ in found]).astype(int)

    def in_ways(self, rows):
        """As `candidates`, of some rows in one slicing."""
        capacity, comfortable = self.question.system.memory_capacity_bytes, self.comfortable_bytes
        most_bytes = np.full(len(rows), capacity)
        for number, way in enumerate(self.tried_ways):
            if number and way == 1:
                tight = most_bytes > comfortable
                twice = np.append(rows, rows[tight]), np.append(most_bytes, np.full(tight.sum(), comfortable))
                yield from self.fewest(*twice, number)
                continue
            seconds, peaks = self.fitting(rows, way)
            is_fast = seconds <= self.most_s[rows]
            fits = is_fast & (peaks <= most_bytes)
            yield from zip(rows[fits], repeat(number), repeat(way), seconds[fits], peaks[fits], strict=False)
            if number == 0:
                tight = is_fast & (peaks > comfortable)
                rows, most_bytes = rows[tight], np.where(peaks > capacity, capacity, comfortable)[tight]
            if not len(rows):
                return

    def fewest(self, rows, most_bytes, number):
        """As `candidates`, for the fewest layers that are enough for rows to fit into some bytes each."""
        fast = self.bounds(self.costs(rows, np.ones(len(rows), dtype=int))) <= self.most_s[rows]
        if not fast.any():
            return
        rows, most_bytes = rows[fast], most_bytes[fast]
        costs = self.costs(rows, "full")
        fits = self.peaks(costs) <= most_bytes
        most = np.maximum.reduceat(costs.stages.blocks, costs.spread.first)[costs.places[fits]]
        rows, most_bytes, low, high = rows[fits], most_bytes[fits], np.ones_like(most), most.copy()
        while (places := np.flatnonzero(low < high)).size:
            middle = (low + high)[places] // 2
            enough = self.peaks(self.costs(rows[places], middle)) <= most_bytes[places]
            high[places[enough]], low[places[~enough]] = middle[enough], middle[~enough] + 1
        numbers = number + (most_bytes == self.comfortable_bytes)
        for some in filter(len, (np.flatnonzero(low < most), np.flatnonzero(low == most))):
            again = low[some] if low[some[0]] < most[some[0]] else "full"
            seconds, peaks = self.fitting(rows[some], again)
            each = rows[some], numbers[some], np.broadcast_to(again, len(some)).tolist(), seconds, peaks
            yield from (of_row for of_row in zip(*each, strict=True) if of_row[-1] < np.inf)

    def text(self, row, recompute):
        """The blocks of a row's stages, as bytes."""
        row = self.same[row]
        stages = slice(self.stages.first[row], self.stages.first[row] + self.stages.count[row])
        return self.blocks[recompute if isinstance(recompute, str) else "none"][stages].tobytes()
