"""When everything happens: the times of operations and of their transfers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ppmodel.simulation.graph import ExecutionGraph
from ppmodel.tables.steps import step_times


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """When everything happens. Its properties are in the order of the schedule's operations.

    Parameters
    ----------
    graph : ExecutionGraph
        The simulated graph.
    times_s : ndarray of float, shape (2, graph.num_operations)
        Start and end in seconds, in the graph's order. Operations in one cell share both.
    transfers : callable
        Returns, in the graph's order, when the transfer of each result starts and when it arrives; NaN if it stays.
        Shape (2, graph.num_operations), in seconds; computed on demand.
    steps_s : list of float
        Duration of each optimizer step in seconds, in the order of `Schedule.steps`.
    swept_s : (float, float), optional
        End of the graph's last operation, and longest span, if the table itself was swept: `times_s` is then in the
        table's order, with NaN for operations that the graph leaves out.
    copies : (Copies, ndarray of float), optional
        The planned copies to the host, and the start and end of each copy out and each copy in, shape
        (4, graph.num_operations), in seconds, in the graph's order; NaN if nothing is copied.
    """

    graph: ExecutionGraph
    times_s: np.ndarray
    transfers: Callable
    steps_s: list
    swept_s: tuple | None = None
    copies: tuple | None = None

    @cached_property
    def start_s(self):
        """Start of each operation in seconds; NaN for reductions that the graph excludes."""
        return self._with_steps(0)

    @cached_property
    def end_s(self):
        """End of each operation in seconds."""
        return self._with_steps(1)

    @cached_property
    def sent_s(self):
        """When the transfer of each result starts, in seconds; NaN if it stays."""
        return self._in_order_of_the_schedule(self._transfers_s[0])

    @cached_property
    def arrived_s(self):
        """When each result arrives at the other rank, in seconds; NaN if it stays."""
        return self._in_order_of_the_schedule(self._transfers_s[1])

    @cached_property
    def copied_s(self):
        """Start and end of the copy of each forward's activations to the host, then of the copy back; (4, operations).

        In seconds, NaN if not copied; None if nothing is offloaded.
        """
        return self.copies and np.array([self._in_order_of_the_schedule(times) for times in self.copies[1]])

    @cached_property
    def _transfers_s(self):
        return self.transfers()

    def _in_order_of_the_schedule(self, times_s):
        column = np.full(self.graph.schedule.num_operations, np.nan)
        operations = slice(None) if self.graph.row is None else self.graph.is_operation
        column[self.graph.index[operations]] = times_s[operations]
        return column

    def _with_steps(self, which):
        """Start or end of each operation, including optimizer steps."""
        times_s = self.times_s[which]
        column = times_s if self.swept_s is not None else self._in_order_of_the_schedule(times_s)
        if self.steps_s:
            column[self.graph.schedule.steps] = step_times(self.graph.schedule, self.reduced_s, self.steps_s)[which]
        return column

    @property
    def makespan_s(self):
        """From the start of the first operation to the end of the last, T_sim, with reductions and optimizer steps."""
        if self.steps_s:
            return max(step_times(self.graph.schedule, self.reduced_s, self.steps_s)[1])
        return self.reduced_s

    @cached_property
    def reduced_s(self):
        """When all gradients are summed and the optimizer steps start, in seconds; without steps, the makespan."""
        return float(self.times_s[1].max()) if self.swept_s is None else self.swept_s[0]

    @property
    def longest_span_s(self):
        """The longest time of a rank from the start of its first to the end of its last forward or backward."""
        if self.swept_s is not None:
            return self.swept_s[1]
        first, last = self.graph.ends
        return float((self.times_s[1, last] - self.times_s[0, first]).max())
