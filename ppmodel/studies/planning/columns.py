"""Candidates as columns: what many of them cost at once, from the functions that price a point."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial

import numpy as np

from ppmodel.clusters.costs import buffer_bytes
from ppmodel.clusters.costs.collectives import collective_line
from ppmodel.clusters.costs.data_parallel import Sharing, gather_s, reduction_s, sharded_bytes, sharing_of
from ppmodel.clusters.costs.layers import BUSY, LayerCosts, layer_works
from ppmodel.clusters.costs.partition import LayerTimes, hides_backward, rank_loads, stage_layers
from ppmodel.clusters.costs.stage_costs import Stages, StageWork, layer_counts, without_heads
from ppmodel.clusters.costs.transformer import layer_numbers
from ppmodel.clusters.memory import held_on_ranks
from ppmodel.clusters.specs.entries import unchecked
from ppmodel.errors import CostError, PPModelError
from ppmodel.ops import OpKind
from ppmodel.schedules import names, small
from ppmodel.schedules.cases import built
from ppmodel.studies.planning.bounds import traits_of
from ppmodel.studies.planning.candidates import divisions
from ppmodel.studies.points.point import places_of

_HIDES_ALL_S = 1e30  # of the last backwards: what they may hide is in no lower bound


def is_regular(case):
    """Return whether all cells of a schedule hold one operation, and backwards are whole or split, in any table."""
    kinds = np.unique(small(case.name).kind) if case.source is None and case.name in names() else ()
    return OpKind.F in kinds and not {OpKind.B, OpKind.W} <= set(kinds) and not small(case.name).joined.any()


class Layers:
    """The layers of all sizes in one way to recompute, one after another; those of a kind are priced when asked for.

    Parameters
    ----------
    columns : Columns
    recompute : str or int
    hides : bool
        Whether collectives of the backward are hidden.
    zero : int
        ZeRO stage; what is sharded changes layers only from ZeRO 2 on.
    slices : int
        Of each microbatch; layers are those of a mean one.

    Attributes
    ----------
    costs : LayerCosts
        Of some of them.
    names : list of (str, str)
        Those of each of the sizes, as in `LayerWork`.
    seconds, bytes, parameters : ndarray of float, shape (num_sizes * num_names, ...)
        As in `LayerCosts` and `LayerColumns`.
    times : ndarray of float, shape (5, num_sizes)
        Their `LayerTimes`, rounded.
    runs : dict of int to LayerCosts
        By the place of sizes, for their `LayerCosts.pair_times`.
    """

    def __init__(self, columns, *way):
        self.columns, self.way, self.runs, self.priced = columns, way, {}, set()
        self.times = np.zeros((len(LayerTimes._fields), len(columns.sizes)))

    def of(self, places):
        """The places of the layers of some sizes, shape (n, 1, num_names)."""
        kinds = [*{self.columns.kinds[place] for place in places.tolist()} - self.priced]
        experts = self.columns.question.model.experts
        alone = experts and experts.number  # an expert on each GPU
        for some in places_of((*(size > 1 for size in kind), kind[1] == alone) for kind in kinds).values():
            self._price([kinds[number] for number in some])
        return places[:, None, None] * len(self.names) + np.arange(len(self.names))

    def _price(self, kinds):
        columns, (recompute, hides, zero, slices) = self.columns, self.way
        places = np.concatenate([columns.alike[kind] for kind in kinds])
        layouts = (columns.layout(columns.sizes[place], zero, recompute) for place in places)
        layouts = [unchecked(each, overlap_backward=hides, microbatch_size=each.microbatch_size / slices)
                   for each in layouts]  # fmt: skip
        work = layer_works(columns.question.model, layouts)
        self.costs = LayerCosts(work, columns.system)
        self.names = work.layers[: len(work.layers) // len(places)]
        of_kind = self.costs.seconds, self.costs.bytes, work.sizes.parameters
        if not self.priced:
            shapes = ((len(columns.sizes) * len(self.names), *column.shape[1:]) for column in of_kind)
            self.seconds, self.bytes, self.parameters = map(np.empty, shapes)
        index = (places[:, None] * len(self.names) + np.arange(len(self.names))).ravel()
        for column, values in zip((self.seconds, self.bytes, self.parameters), of_kind, strict=True):
            column[index] = values
        layers_s = self.costs.seconds.sum(axis=(1, 2)).reshape(len(places), -1)
        for column, values in zip(self.times, self.costs.times_of(self.names, layers_s.T).rounded, strict=True):
            column[places] = values
        self.runs |= zip(places.tolist(), self.costs.runs(len(places)), strict=True)
        self.priced.update(kinds)


class Columns:
    """The costs of a question's candidates, for many at once.

    Parameters
    ----------
    question : Question
    sizes : list of Sizes
        Of all candidates.
    """

    def __init__(self, question, sizes):
        self.question, self.sizes, self.system = question, sizes, question.system.timed
        self.place = {size: place for place, size in enumerate(sizes)}
        self.kinds = [(s.tp, s.ep, s.etp, min(s.cp, 2), min(s.pp, 2)) for s in sizes]
        self.alike, self.layers = places_of(self.kinds), cache(partial(Layers, self))
        self.divisions, self.traits = cache(partial(divisions, question)), cache(traits_of)
        self.checked, self.tables, self.shapes, self.regular, self.lines, self.line_s = {}, {}, {}, {}, [], None
        for method in ("counts", "shape", "divides", "layout", "sharing", "buffer_bytes"):
            setattr(self, method, cache(getattr(self, method)))

    def highest_zero(self, sizes):
        """The highest ZeRO stage that any schedule tries at some sizes."""
        may_gather = any(case.sharding or case.user_defined for case in self.question.cases)
        return self.divisions(sizes, may_gather)[0][0]

    def layout(self, sizes, zero, recompute="none"):
        """The layout of candidates; those that differ in their sizes alone are checked once."""
        key = sizes.tp > 1, sizes.ep, sizes.pp == 1, zero, recompute
        if key not in self.checked:
            self.checked[key] = self.question.layout(sizes, zero=zero, recompute=recompute, layers="even")
        values = sizes._asdict() | {"etp": None if sizes.etp == sizes.tp else sizes.etp, "gpus": self.question.gpus}
        return unchecked(self.checked[key], **values, global_batch=self.question.global_batch)

    def sharing(self, sizes, zero):
        """The `Sharing` of candidates; its collectives are added to the lines."""
        layout, lines = self.layout(sizes, zero), {}
        *numbers, reduction, gathering = sharing_of(self.question.model, layout, lines)
        first, system = len(self.lines), self.system
        self.lines += [collective_line(kind, group, layout, system, copies) for kind, group, copies in lines]
        return *numbers, reduction + first, gathering + first

    def buffer_bytes(self, sizes, table):
        """Bytes of their buffers, on as many ranks as a table has."""
        return buffer_bytes(table, self.question.model, self.layout(sizes, 0))

    def whole(self, hides, zero=1):
        """The `Stages` of the whole model as one stage, in all sizes and without recomputation."""
        layers, numbers = self.layers("none", hides, 1, 1), layer_numbers(self.question.model)
        index = layers.of(np.arange(len(self.sizes)))
        counts = np.array([[[float(numbers[part]) for part, _ in layers.names]]])
        return self.priced(layers, counts, index, self.shared(self.sizes, [zero] * len(self.sizes)))

    def least_bytes(self, whole):
        """Lower bounds on the bytes of the most loaded GPU in all sizes: the mean of what does not change."""
        parameters = whole.parameters - whole.expert_parameters, whole.expert_parameters
        zeros = [self.highest_zero(sizes) for sizes in self.sizes]
        kept = sharded_bytes(parameters, self.shared(self.sizes, zeros))
        pp = np.array([sizes.pp for sizes in self.sizes])
        return sum(part[:, 0] for part in kept) / pp + self.system.reserve_bytes

    def least_step_s(self, whole):
        """Lower bounds on the seconds of a whole model's reduction, gathering and optimizer step, in all sizes."""
        reduced_s = np.minimum(self.whole(False, 0).reduction_s, whole.reduction_s + whole.gather_s)[:, 0]
        is_once = [self.highest_zero(sizes) < 2 for sizes in self.sizes]  # not with every microbatch
        return reduced_s * is_once + whole.optimizer_s[:, 0]

    def table(self, case, sizes):
        """A table with the stages of a schedule: of few microbatches, where these change no more than their number."""
        if id(case) not in self.regular:
            self.regular[id(case)] = is_regular(case)
        fewest = self.regular[id(case)]
        count = None if fewest else self.question.size(sizes)[1]
        key = id(case), sizes.pp, count
        if key not in self.tables:
            self.tables[key] = None
            for tried in self.counts(sizes.pp) if fewest else [count]:
                with suppress(PPModelError):
                    self.tables[key] = built(case, sizes.pp, tried)
                    break
        return self.tables[key]

    def counts(self, num_ranks):
        """The numbers of microbatches that occur on some ranks, in order."""
        return sorted({self.question.size(sizes)[1] for sizes in self.sizes if sizes.pp == num_ranks})

    def shape(self, table, zero):
        """All that stages depend on: a table with the same ones, if backwards hide collectives, what is sharded.

        What ZeRO 1 shards makes no difference, and tables with gathers exchange nothing with a microbatch.
        """
        layout, zero = next(iter(self.checked.values())), zero if zero > 1 and not table.gathers else 1
        hides = hides_backward(layout, self.question.system.framework, table)
        loads = rank_loads(table).tobytes()
        stages = table.placement.shape, table.placement.tobytes(), table.stage_shares.tobytes(), table.slices
        stages = *stages, table.has_shards
        return self.shapes.setdefault((*stages, loads, hides, zero), (table, hides, zero))

    def cut(self, table, layers, times):
        """How a table's layers are divided in a way of a layout, by the `LayerTimes` of many."""
        layout = unchecked(next(iter(self.checked.values())), layers=layers, recompute=None)
        return stage_layers(table, self.question.model, layout, times)

    def divides(self, table, layers):
        """Return whether a table's stages can have layers that are divided in a way."""
        with suppress(CostError):
            return bool(self.cut(table, layers, None))
        return False

    def shared(self, sizes, zeros):
        """The `Sharing` of some sizes and ZeRO stages, each column of shape (num_candidates, 1)."""
        alike, known = (size._replace(microbatch_size=1) for size in sizes), len(self.lines)
        columns = [np.array(column)[:, None] for column in zip(*map(self.sharing, alike, zeros), strict=True)]
        self.line_s = self.line_s if len(self.lines) == known else np.array(self.lines)
        return Sharing(*columns)

    def priced(self, layers, counts, index, sharing, cut=None, chunks=1, has_shards=False):
        """The `Stages` of layers that occur so often; reductions that computation may hide are left out."""
        work, lines = StageWork(counts, index, None, None, None, chunks, sharing), self.line_s
        parts_s, (dense, experts) = work.parts_s(layers.seconds, self.system), work.parameters(layers.parameters)
        halves_s, of_layers = np.moveaxis(parts_s.sum(axis=-1), -1, 0), layers.bytes
        held = work.bytes(without_heads(of_layers, layers.names) if has_shards else of_layers)
        busy_s = parts_s[..., 0, BUSY].sum(axis=-1)
        how = sharing, lines, self.system
        reduced_s = reduction_s((dense, experts), _HIDES_ALL_S, *how)
        gathered_s = gather_s((dense, experts), busy_s, *how)
        step_s = reduced_s, gathered_s, work.optimizer_s((dense, experts), self.system)
        return Stages(cut and cut.blocks, counts, parts_s, *halves_s, *held, dense + experts, experts, *step_s, cut)


class Ways:
    """Layouts with the same stages on the same ranks.

    Parameters
    ----------
    columns : Columns
    shape : (Schedule, bool, int)
        From `Columns.shape`.
    ways : list of (Sizes, int, str)
        Sizes, ZeRO stage and division of layers of each.
    """

    def __init__(self, columns, shape, ways):
        self.columns, (self.table, self.hides, self.zero) = columns, shape
        sizes, zeros, self.words = zip(*ways, strict=True)
        self.places, self.sharing = np.array([columns.place[each] for each in sizes]), columns.shared(sizes, zeros)
        self.buffers = np.array([[columns.buffer_bytes(each, self.table)] for each in sizes])

    def stages(self, ways, recompute):
        """The `Stages` of some ways, and the bytes of their ranks without activations.

        Parameters
        ----------
        ways : ndarray of int, shape (n,)
        recompute : str or ndarray of int, shape (n,)
            The way to recompute of all, or the number of layers of each.

        Returns
        -------
        of_stages : Stages
            Columns of shape (n, num_stages); as in `Columns.priced`.
        others : ndarray of float, shape (n, num_ranks)
        """
        is_word, places = isinstance(recompute, str), self.places[ways]
        layers = self.columns.layers(recompute if is_word else 1, self.hides, self.zero, self.table.slices)
        index, blocks = layers.of(places), np.empty((len(ways), self.table.num_stages), dtype=int)
        for word, some in places_of(self.words[way] for way in ways.tolist()).items():
            cut = self.columns.cut(self.table, word, LayerTimes(*layers.times[:, places[some]]))
            blocks[some] = cut.blocks
        cut = cut._replace(blocks=blocks)
        again = recompute if is_word else recompute[:, None]
        counts = layer_counts(layers.names, layers.costs.work.dense_blocks, cut, again, self.table)
        sharing = Sharing(*(column[ways] for column in self.sharing))
        of_table = self.table.chunks_per_rank, self.table.has_shards
        of_stages = self.columns.priced(layers, counts, index, sharing, cut, *of_table)
        parameters = of_stages.parameters - of_stages.expert_parameters, of_stages.expert_parameters
        others = sharded_bytes(parameters, sharing), self.buffers[ways], self.columns.system.reserve_bytes
        nothing = np.zeros((len(ways), self.table.num_ranks))
        return of_stages, held_on_ranks(self.table.placement, of_stages, nothing, *others).total
