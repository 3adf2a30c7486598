"""A table as text with the faulty cells marked, as errors show it."""

from collections.abc import Set
from typing import NamedTuple

_PLACES_SHOWN, _RANKS_SHOWN, _LONGEST_CELL = 16, 24, 40


class MarkedTable(NamedTuple):
    """Rows of cells, some of them marked; as a string, aligned text with one line per rank.

    Parameters
    ----------
    rows : list of list of str
        The cells of each rank in program order.
    marks : set of (int, int)
        Rank and index in the row of each marked cell.

    Examples
    --------
    >>> print(MarkedTable([["0F0", "0B0"], ["1F0", "1B0"]], {(1, 0)}))
    rank 0 | 0F0  0B0
    rank 1 |>1F0< 1B0
    """

    rows: list[list[str]]
    marks: Set[tuple[int, int]] = frozenset()

    @property
    def ranks(self):
        """The ranks to show; in a tall table, those around the first mark."""
        top = max(0, min((rank for rank, _ in self.marks), default=0) - _RANKS_SHOWN // 2)
        return range(top, min(top + _RANKS_SHOWN, len(self.rows)))

    @property
    def places(self):
        """The cells of a row to show; in a long table, those around the marks."""
        first = max(0, min((place for _, place in self.marks), default=0) - _PLACES_SHOWN // 2)
        last = max((place for _, place in self.marks), default=0) + _PLACES_SHOWN // 2
        return range(first, min(max(last, first + _PLACES_SHOWN), first + 3 * _PLACES_SHOWN))

    def __str__(self):
        ranks, places = self.ranks, self.places
        shown = {rank: [self._text(rank, place) for place in places if place < len(self.rows[rank])] for rank in ranks}
        width = max((len(text) for row in shown.values() for text in row), default=0)
        digits = len(str(len(self.rows) - 1))
        lines = []
        for rank, row in shown.items():
            cells = "".join(text.ljust(width) for text in row).rstrip()
            before, after = "..." * (places.start > 0), "..." * (places.stop < len(self.rows[rank]))
            lines.append(f"rank {rank:>{digits}} |{before}{cells}{after}")
        above, below = ["..."] * (ranks.start > 0), ["..."] * (ranks.stop < len(self.rows))
        return "\n".join([*above, *lines, *below])

    def _text(self, rank, place):
        cell = self.rows[rank][place]
        cell = cell if len(cell) <= _LONGEST_CELL else f"{cell[:_LONGEST_CELL]}..."
        return f">{cell}<" if (rank, place) in self.marks else f" {cell} "
