"""Candidates as columns: what many of them cost at once, from the functions that price a point."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import product

import numpy as np

from ppmodel.clusters.costs import buffer_bytes
from ppmodel.clusters.costs.collectives import collective_line
from ppmodel.clusters.costs.data_parallel import Sharing, gather_s, reduction_s, sharing_of
from ppmodel.clusters.costs.layers import BLOCKS, BUSY, LayerCosts, layer_works, split_works
from ppmodel.clusters.costs.partition import hides_backward, rank_loads, stage_layers
from ppmodel.clusters.costs.stage_costs import Stages, StageWork, without_heads
from ppmodel.clusters.costs.transformer import layer_numbers
from ppmodel.clusters.memory import homes_of
from ppmodel.clusters.specs.entries import unchecked
from ppmodel.errors import CostError, PPModelError
from ppmodel.ops import OpKind
from ppmodel.schedules import names, small
from ppmodel.schedules.cases import built
from ppmodel.studies.planning.bounds import first_shares, traits_of
from ppmodel.studies.planning.candidates import divisions

_ZEROS = 4
_HIDES_ALL_S = 1e30  # of the last backwards: what they may hide is in no lower bound


@lru_cache(2**12)
def is_regular(case):
    """Return whether all cells of a schedule hold one operation, and backwards are whole or split, in any table."""
    kinds = np.unique(small(case.name).kind) if case.source is None and case.name in names() else ()
    return OpKind.F in kinds and not {OpKind.B, OpKind.W} <= set(kinds) and not small(case.name).joined.any()


@dataclass(frozen=True, eq=False)
class Shape:
    """All that costs and bounds of candidates depend on beside their sizes.

    Parameters
    ----------
    table : Schedule
        One with the same stages on the same ranks.
    like : Schedule
        One with as many ranks and slices, whose buffers are the same.
    way : (bool, int, int)
        Whether backwards hide collectives, the ZeRO stage, and slices: of `Layers`.
    homes : Homes
    parts, is_split, kinds
        From `bounds.traits_of`.
    of_stages : ndarray of float, shape (num_stages, 7)
        Shares from `bounds.traits_of`; blocks, unless balanced, MTP layers, losses and embeddings as in `StageLayers`.
    """

    table: object
    like: object
    way: tuple
    homes: object
    parts: float
    is_split: bool
    kinds: list
    of_stages: np.ndarray


def numbered(values):
    """The different values, and the number of each value among them."""
    numbers = {}
    return numbers, np.array([numbers.setdefault(value, len(numbers)) for value in values])


class Layers:
    """The layers of all sizes in one way to recompute, which are priced when asked for.

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
    names : list of (str, str)
        Those of each of the sizes, as in `LayerWork`.
    columns : list of ndarray of float, shape (num_sizes, num_names, ...)
        Seconds, bytes and parameters, as in `LayerCosts` and `LayerColumns`; of the seconds of all but kernels and
        tensor parallelism, the sums; then `bounds.first_shares`.
    """

    def __init__(self, of_question, *way):
        self.of_question, self.way, self.source, self.columns = of_question, way, {}, None
        self.is_priced, self.run = np.zeros(len(of_question.sizes), dtype=bool), cache(self.run)

    def at(self, places):
        """The columns of some sizes."""
        missing = np.unique(places[~self.is_priced[places]])
        for number in np.unique(self.of_question.alike_of[missing]).tolist():
            self._price(missing[self.of_question.alike_of[missing] == number])
        return [column[places] for column in self.columns]

    def _price(self, places):
        question, (recompute, hides, zero, slices) = self.of_question, self.way
        distinct, placed = np.unique(question.placed[places], return_inverse=True)
        layouts = [unchecked(question.layout(question.placements[place], zero, recompute), overlap_backward=hides)
                   for place in distinct.tolist()]  # fmt: skip
        work = question.works(int(question.alike_of[places[0]]), recompute, slices)
        self.names, self.dense_blocks = work.layers, work.dense_blocks
        work = layer_works(question.question.model, work, question.split[places], layouts, placed)
        self.costs = LayerCosts(work, question.system)
        seconds = np.add.reduceat(self.costs.seconds, (0, 1, 2), axis=-1)
        columns = seconds, self.costs.bytes, work.sizes.parameters, first_shares(self.costs, slices)
        columns = [column.reshape(len(places), len(self.names), *column.shape[1:]) for column in columns]
        if self.columns is None:
            self.columns = [np.empty((len(self.is_priced), *column.shape[1:])) for column in columns]
        for column, values in zip(self.columns, columns, strict=True):
            column[places] = values
        self.source |= {place: (self.costs, number, len(places)) for number, place in enumerate(places.tolist())}
        self.is_priced[places] = True

    def run(self, place):
        """The `LayerCosts` of one of the sizes."""
        costs, *which = self.source[place]
        return costs.run(*which)

    def times(self, places, recompute):
        """The rounded `LayerTimes` of some sizes, of blocks that are not recomputed if only some are."""
        mode, layers_s = recompute if isinstance(recompute, str) else "none", self.at(places)[0].sum(axis=(2, 3)).T
        counted = [number for number, (part, each) in enumerate(self.names) if part not in BLOCKS or each == mode]
        return self.costs.times_of([self.names[number] for number in counted], layers_s[counted]).rounded


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
        self.places = np.arange(len(sizes))
        self.size, self.is_alone = [*map(question.size, sizes)], [each.data_gpus == 1 for each in sizes]
        placements, self.placed = numbered(each._replace(microbatch_size=1) for each in sizes)
        self.placements = [*placements]
        pp, *splits = np.array([each.sizes(("pp", "microbatch_size", "tp", "cp", "ep", "etp")) for each in sizes]).T
        splits, experts = np.column_stack(splits), question.model.experts
        most = np.minimum(splits[:, 3], question.fixed.get("expert_imbalance", 1))
        flags = np.column_stack([splits[:, 1:] > 1, pp > 1, splits[:, 3] == (experts.number if experts else 0), most])
        _, self.alike_of = np.unique(flags, axis=0, return_inverse=True)
        self.alike = [np.flatnonzero(self.alike_of == number) for number in range(self.alike_of.max() + 1)]
        self.split, self.distinct = np.empty(len(sizes), dtype=int), []
        for places in self.alike:
            distinct, self.split[places] = np.unique(splits[places], axis=0, return_inverse=True)
            self.distinct.append(distinct)
        self.layers, self.checked = cache(partial(Layers, self)), {}
        self.shapes, self.known_ways, self.alike_tables = {}, {}, {}
        for method in ("counts", "layout", "works", "buffer_bytes", "first_built"):
            setattr(self, method, cache(getattr(self, method)))
        may_gather = any(case.sharding or case.user_defined for case in question.cases)
        highest = [divisions(question, each, may_gather)[0][0] for each in self.placements]
        self.highest_zero = np.array(highest)[self.placed]  # that any schedule tries
        sharings, lines = [], []
        for each, zero in product(self.placements, range(_ZEROS)):
            layout, of_layout = self.layout(each, zero), {}
            *numbers, reduction, gathering = sharing_of(question.model, layout, of_layout)
            sharings.append((*numbers, reduction + len(lines), gathering + len(lines)))
            lines += [collective_line(kind, group, layout, self.system, copies) for kind, group, copies in of_layout]
        self.sharings, self.lines = [np.array(column) for column in zip(*sharings, strict=True)], np.array(lines)

    def works(self, alike, recompute, slices):
        """The `split_works` of sizes that can be priced at once, sliced in so many parts."""
        some, splits = self.sizes[self.alike[alike][0]], self.distinct[alike] / [slices, 1, 1, 1, 1]
        return split_works(self.question.model, self.layout(some._replace(microbatch_size=1), 1, recompute), splits)

    def layout(self, sizes, zero, recompute="none"):
        """The layout of candidates; those that differ in their sizes alone are checked once."""
        key = sizes.tp > 1, sizes.ep, sizes.pp == 1, zero, recompute
        if key not in self.checked:
            self.checked[key] = self.question.layout(sizes, zero=zero, recompute=recompute, layers="even")
        values = sizes._asdict() | {"etp": None if sizes.etp == sizes.tp else sizes.etp, "gpus": self.question.gpus}
        return unchecked(self.checked[key], **values, global_batch=self.question.global_batch)

    def buffer_bytes(self, place, table):
        """Bytes of the buffers of the sizes in a place."""
        return buffer_bytes(table, self.question.model, self.layout(self.sizes[place], 0))

    def whole(self, hides, zero=1):
        """The `Stages` of the whole model as one stage, in all sizes and without recomputation."""
        layers, numbers, places = self.layers("none", hides, 1, 1), layer_numbers(self.question.model), self.places
        columns = layers.at(places)
        counts = np.tile([float(numbers[part]) for part, _ in layers.names], (len(places), 1))
        return self.priced(columns, places, counts, self.shared(places, zero))

    def table(self, case, place):
        """A table with the stages of a schedule: of few microbatches, where these change no more than their number."""
        num_ranks, count = self.size[place]
        return self.first_built(case, num_ranks, self.counts(num_ranks) if is_regular(case) else (count,))

    def first_built(self, case, num_ranks, counts):
        """The table of a schedule with the first number of microbatches at which it is defined; None if at none."""
        for count in counts:
            with suppress(PPModelError):
                return built(case, num_ranks, count)
        return None

    def counts(self, num_ranks):
        """The numbers of microbatches that occur on some ranks, in order."""
        return tuple(sorted({count for ranks, count in self.size if ranks == num_ranks}))

    def ways(self, table, place):
        """The ways to shard and to divide layers that are tried with a table at the sizes in a place.

        Returns
        -------
        list of (int, int, str, Shape)
            Number, ZeRO stage, division of layers and shape; those that its stages cannot have are left out. What ZeRO
            1 shards makes no difference to stages, and tables with gathers exchange nothing with a microbatch.
        """
        alike = table, self.is_alone[place]
        if alike in self.known_ways:
            return self.known_ways[alike]
        ways = self.known_ways[alike] = []
        hides = hides_backward(self.layout(self.sizes[0], 0), self.question.system.framework, table)
        like = self.alike_tables.setdefault((table.num_ranks, table.slices), table)
        *traits, alone = traits_of(table)
        arrays = table.placement, table.stage_shares, rank_loads(table)
        first = self.alike_tables.setdefault((table.has_shards, *(array.tobytes() for array in arrays)), table)
        key = like, first, hides, str(traits), alone.tobytes()
        for number, (zero, layers) in enumerate(divisions(self.question, self.sizes[place], bool(table.gathers))):
            shared = zero if zero > 1 and not table.gathers else 1
            with suppress(CostError):
                if (key, shared) not in self.shapes:
                    cut, way = self.cut(first, layers, None), (hides, shared, table.slices)
                    columns = np.column_stack([alone, cut.blocks, cut.mtp, cut.losses, cut.embeddings])
                    self.shapes[key, shared] = Shape(first, like, way, homes_of(first.placement), *traits, columns)
                ways.append((number, zero, layers, self.shapes[key, shared]))
        return ways

    def cut(self, table, layers, times):
        """How a table's layers are divided in a way of a layout, by the `LayerTimes` of many."""
        layout = unchecked(self.layout(self.sizes[0], 0), layers=layers, recompute=None, offload=0.0)
        return stage_layers(table, self.question.model, layout, times)

    def shared(self, places, zero):
        """The `Sharing` of the sizes in some places, by their ZeRO stages, as columns."""
        return Sharing(*(column[self.placed[places] * _ZEROS + zero] for column in self.sharings))

    def priced(self, columns, row, counts, sharing, cut=None, chunks=1.0, without=()):
        """The `Stages` of many candidates, one after another; reductions that computation may hide are left out.

        Parameters
        ----------
        columns : list of ndarray
            The layers of candidates, from `Layers.at`.
        row : ndarray of int, shape (num_stages,)
            The candidate of each stage.
        counts : ndarray of float, shape (num_stages, num_names)
            How often each layer occurs.
        sharing : Sharing
            Of each stage.
        cut : StageLayers, optional
        chunks : float or ndarray of float, shape (num_stages,)
            Stages per rank.
        without : list of (str, str)
            Layers of a model whose output layer is divided.
        """
        index = row[:, None] * counts.shape[1] + np.arange(counts.shape[1])
        seconds, of_layers, parameters = (column.reshape(-1, *column.shape[2:]) for column in columns[:3])
        work = StageWork(counts, index, None, None, None, chunks, sharing)
        parts_s, (dense, experts) = work.parts_s(seconds, self.system), work.parameters(parameters)
        held = work.bytes(without_heads(of_layers, without) if without else of_layers)
        how = sharing, self.lines, self.system
        reduced_s = reduction_s((dense, experts), _HIDES_ALL_S, *how)
        gathered_s = gather_s((dense, experts), parts_s[..., 0, BUSY].sum(axis=-1), *how)
        step_s = reduced_s, gathered_s, work.optimizer_s((dense, experts), self.system)
        halves_s, blocks = np.moveaxis(parts_s.sum(axis=-1), -1, 0), cut and cut.blocks
        return Stages(blocks, counts, parts_s, *halves_s, *held, dense + experts, experts, *step_s, cut)
