"""Memory of many rows of training runs on many systems: the fast twin of `predicted`."""

import numpy as np

from ppmodel.costs import buffer_bytes
from ppmodel.costs.data_parallel import Held, shares
from ppmodel.costs.held import Sizes
from ppmodel.costs.model import list_bytes
from ppmodel.measured.batch import laid_by_kernels
from ppmodel.measured.rows import with_kernels
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind

_LISTS = 3


class PeakBatch:
    """Memory of rows on many systems that differ only in what a calibration fits.

    Parameters
    ----------
    rows : sequence of dict of str to str
        All of them must be accepted; see `read_rows`.
    system : SystemSpec
        Gives the framework, which does not change.
    """

    def __init__(self, rows, system):
        self.size = len(rows)
        self._groups = [(places, named, _Group(laid)) for places, named, laid in laid_by_kernels(rows, system)]

    def bytes(self, systems):
        """Bytes of the most loaded rank of each row, shape (len(systems), num_rows)."""
        found = np.empty((len(systems), self.size))
        for places, named, group in self._groups:
            found[:, places] = [group.bytes(with_kernels(system, named)) for system in systems]
        return found


class _Row:
    """The memory of a row that does not depend on fitted constants, by stage or by rank."""

    def __init__(self, one):
        self.table = one.table
        counts = np.zeros((_LISTS, one.table.num_stages))
        counts[0] = one.layers.blocks
        counts[1, one.layers.embedding] = counts[2, one.layers.head] = 1
        self.counts, model = counts, one.run.model
        held = sum(count * dense for count, dense in zip(counts, one.work.parameters.dense, strict=True))
        widths = model.optimizer_bytes, model.gradient_bytes, model.element_bytes
        kept = [shares(Held(held, 0.0), one.layout, stage) * width for stage, width in enumerate(widths, start=1)]
        self.ranks = one.table.placement[0]
        persistent = np.bincount(self.ranks, sum(kept), one.table.num_ranks)
        self.fixed = persistent + buffer_bytes(one.table, model, one.layout)
        plain = one.table.num_stages == one.table.num_ranks and not (one.table.kind == OpKind.W).any()
        self.in_flight = peak_activations(one.table, np.ones(one.table.num_stages)) if plain else None

    def total(self, kept, between, logits, working):
        """Bytes of each rank without the reserve, from the values of the lists."""
        kept, between, logits = (self.counts.T @ column for column in (kept, between, logits))
        working = (working * (self.counts.T > 0)).max(axis=1)
        if self.in_flight is not None:
            return (
                self.fixed + self.in_flight * kept[np.argsort(self.ranks)] + (working + logits)[np.argsort(self.ranks)]
            )
        share = np.divide(between, kept, out=np.zeros(len(kept)), where=kept > 0)
        total = self.fixed + peak_activations(self.table, kept, share)
        for column in (working, logits):
            most = np.zeros(len(total))
            np.maximum.at(most, self.ranks, column)
            total = total + most
        return total


class _Group:
    """Rows that name the same kernels."""

    def __init__(self, laid):
        self.rows = [_Row(one) for one in laid]
        sizes = [len(one.work.sizes.saved) for one in laid]
        self.first = np.cumsum([0, *sizes]).tolist()
        self.sizes = Sizes(*map(np.concatenate, zip(*(one.work.sizes for one in laid), strict=True)))
        self.held = np.concatenate([one.work.held for one in laid], axis=1)
        self.tp = np.repeat([one.layout.tp for one in laid], sizes)

    def bytes(self, system):
        """Bytes of the most loaded rank of each row."""
        held, working = list_bytes(self.sizes, self.held, self.tp, system)
        found = np.empty(len(self.rows))
        for place, row in enumerate(self.rows):
            own = slice(self.first[place], self.first[place + 1])
            found[place] = row.total(*held[:, own], working[own]).max() + system.reserve_bytes
        return found
