"""When everything happens: the times of operations and of their transfers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ppmodel.simulation.graph import ExecutionGraph


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """When everything happens. What is read off it follows the order of the schedule's operations.

    Parameters
    ----------
    graph : ExecutionGraph
        What was simulated.
    times_s : ndarray of float, shape (2, graph.num_operations)
        Start and end in seconds, in the graph's order. Operations of one cell share both.
    transfers : callable
        Returns, in the graph's order, when the transfer of each result begins and when the other rank has it; NaN where
        it stays. Shape (2, graph.num_operations), in seconds; computed when it is asked for.
    swept_s : (float, float), optional
        Makespan and longest span, where the table itself was swept: `times_s` is then in the order of its operations,
        with NaN for reductions that the graph excludes.
    """

    graph: ExecutionGraph
    times_s: np.ndarray
    transfers: Callable
    swept_s: tuple | None = None

    @cached_property
    def start_s(self):
        """Start of each operation in seconds; NaN for reductions that the graph excludes."""
        return self._in_order_of_the_schedule(self.times_s[0]) if self.swept_s is None else self.times_s[0]

    @cached_property
    def end_s(self):
        """End of each operation in seconds."""
        return self._in_order_of_the_schedule(self.times_s[1]) if self.swept_s is None else self.times_s[1]

    @cached_property
    def sent_s(self):
        """When the transfer of each result begins, in seconds; NaN where it stays."""
        return self._in_order_of_the_schedule(self._transfers_s[0])

    @cached_property
    def arrived_s(self):
        """When the other rank has each result, in seconds; NaN where it stays."""
        return self._in_order_of_the_schedule(self._transfers_s[1])

    @cached_property
    def _transfers_s(self):
        return self.transfers()

    def _in_order_of_the_schedule(self, times_s):
        column = np.full(self.graph.schedule.num_operations, np.nan)
        column[self.graph.index] = times_s
        return column

    @property
    def makespan_s(self):
        """From the start of the first operation to the end of the last, T_sim."""
        return float(self.times_s[1].max()) if self.swept_s is None else self.swept_s[0]

    @property
    def longest_span_s(self):
        """The longest time of a rank from its first to the end of its last operation, reductions left out."""
        if self.swept_s is not None:
            return self.swept_s[1]
        first, last = self.graph.ends
        return float((self.times_s[1, last] - self.times_s[0, first]).max())
