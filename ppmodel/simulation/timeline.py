"""When everything happens: the times of operations and of their transfers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.simulation.copies import Copies
from ppmodel.simulation.graph import ExecutionGraph
from ppmodel.simulation.inputs import COLLECTIVE
from ppmodel.tables import NO_OPERATION
from ppmodel.tables.steps import step_times


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """When everything happens. Its properties are in the order of the schedule's operations.

    Parameters
    ----------
    graph : ExecutionGraph
        The simulated graph.
    times_s : ndarray of float, shape (2, graph.num_operations)
        Start and end in seconds, in the order of the tasks. Operations in one cell share both.
    transfers : callable
        Returns, in the order of the tasks, when the transfer of each result starts and when it arrives; NaN if it
        stays. Shape (2, tasks.num_operations), in seconds; computed on demand.
    steps_s : list of float
        Duration of each optimizer step in seconds, in the order of `Schedule.steps`.
    swept_s : (float, float), optional
        End of the graph's last operation, and longest span, if the table itself was swept: `times_s` is then in the
        table's order, with NaN for operations that the graph leaves out.
    tasks : ExecutionGraph, optional
        The graph of all that ran, if there is more than operations.
    copies : Copies, optional
        The planned copies to the host.
    """

    graph: ExecutionGraph
    times_s: np.ndarray
    transfers: Callable
    steps_s: list
    swept_s: tuple | None = None
    tasks: ExecutionGraph | None = None
    copies: Copies | None = None

    @cached_property
    def start_s(self):
        """Start of each operation in seconds; NaN for drops, and for reductions that the graph excludes."""
        return self._with_steps(0)

    @cached_property
    def end_s(self):
        """End of each operation in seconds."""
        return self._with_steps(1)

    @cached_property
    def sent_s(self):
        """When the transfer of each result starts, in seconds; NaN if it stays."""
        return self._in_order_of_the_schedule(self._transfers_s[0], sent=True)

    @cached_property
    def arrived_s(self):
        """When each result arrives at the other rank, in seconds; NaN if it stays."""
        return self._in_order_of_the_schedule(self._transfers_s[1], sent=True)

    @cached_property
    def collective_s(self):
        """How long barriers' collectives take that pass on results, by `OpKind`, in seconds."""
        tasks, seconds = self.tasks or self.graph, np.zeros(len(OpKind))
        rows = np.flatnonzero(tasks.row == COLLECTIVE)
        seconds[self.graph.schedule.kind[tasks.index[rows]]] = np.diff(self.times_s[:2, rows], axis=0)
        return seconds

    @cached_property
    def copied_s(self):
        """Start and end of the copy of each forward's activations to the host, then of the copy back; (4, operations).

        In seconds, NaN if not copied; None if nothing is offloaded.
        """
        if self.copies is None:
            return None
        copied_s = np.full((4, self.graph.schedule.num_operations), np.nan)
        copied_s[:, self.copies.forward] = self.times_s[:, self.copies.rows].swapaxes(0, 1).reshape(4, -1)
        return copied_s

    @cached_property
    def _transfers_s(self):
        return self.transfers()

    def _in_order_of_the_schedule(self, times_s, sent=False):
        column, tasks, rows = np.full(self.graph.schedule.num_operations, np.nan), self.tasks or self.graph, slice(None)
        if tasks.row is not None:  # of several transfers of a result, the first
            rows = np.flatnonzero(tasks.link != NO_OPERATION)[::-1] if sent else tasks.is_operation
        column[tasks.index[rows]] = times_s[rows]
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
        first, last = (self.tasks or self.graph).ends
        return float((self.times_s[1, last] - self.times_s[0, first]).max())
