"""One simulated iteration: its numbers, data frame, picture and trace."""

from __future__ import annotations  # help() shows types by their names

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmodel import metrics
from ppmodel.clusters.costs import cell_streams_of
from ppmodel.simulation import Iterations, Timeline
from ppmodel.studies.points.iteration import Iteration, iterations_of, memory_of
from ppmodel.studies.points.order import ordered_for
from ppmodel.studies.points.rows import evaluate, point_columns, table_columns

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from pandas import DataFrame

    from ppmodel.clusters.memory import Memory
    from ppmodel.studies.points.point import Point


class Run:
    """One simulated iteration of a point, as `ppmodel.simulate` returns it.

    Its numbers are attributes; `to_dict` returns them as a row of `ppmodel.compare`. `to_frame`, `plot` and `to_trace`
    show its timeline.

    Attributes
    ----------
    point : Point
        What was simulated.
    timeline : Timeline
        Start and end of every operation and transfer.
    table : Schedule
    p2p, allreduce : str
        Communication semantics, as given.
    costs : OpCosts
    model : ModelSpec or None
    system : SystemSpec or None
        Both None if costs were given in seconds.
    layout : LayoutSpec or None
        Complete, with pp and the global batch; None if none was given.

    Examples
    --------
    >>> import ppmodel as pp
    >>> run = pp.simulate("zb-v", 4, 8, forward=1, backward=2, comm=0.1)
    >>> run
    <Run ZB-V: pp=4, microbatches=8: 26.8 s, 10.4 % idle, peak 4 microbatches>
    >>> round(run.makespan_s, 1), run.messages
    (26.8, 96)
    >>> pp.simulate("zb-v", 4, 8, model="llama3_8b", system="h100", tp=8)
    <Run ZB-V: pp=4, microbatches=8, 32 GPUs: iteration 0.4929 s, MFU 24.3 %>
    """

    def __init__(self, point: Point, timeline: Timeline) -> None:
        self.point, self.timeline, self.costs = point, timeline, point.costs
        self.table, (self.p2p, self.allreduce) = point.table, point.semantics
        self.model, self.system, self.layout = point.model, point.changed_system, point.complete_layout

    def __reduce__(self):
        return type(self.point).run, (self.point,)

    def __repr__(self) -> str:
        size = f"{self.point.case.label}: pp={self.table.num_ranks}, microbatches={self.table.num_microbatches}"
        if self.layout is None:
            idle, peak = f"{100 * self.idle_ratio:.1f} % idle", f"peak {self.peak_activations:.4g} microbatches"
            return f"<Run {size}: {self.makespan_s:.4g} s, {idle}, {peak}>"
        gpus, mfu = self.layout.gpus, self.to_dict()["model_flops_utilization"]
        return f"<Run {size}, {gpus} GPUs: iteration {self.iteration_s:.4g} s, MFU {100 * mfu:.1f} %>"

    @property
    def ordered_for(self) -> str | None:
        """The values for which its order was searched, as in `ppmodel.compare`; None if none was."""
        return ordered_for(self.point)

    @property
    def makespan_s(self) -> float:
        """Seconds from the start of the first operation to the end of the last."""
        return self.timeline.makespan_s

    @property
    def idle_ratio(self) -> float:
        """Fraction of the ranks' time in which they do not compute; the same as `bubble_ratio_total`."""
        return self._numbers["idle_ratio"]

    @property
    def bubble_ratio_total(self) -> float:
        """Idle time over the makespan (Huang et al., 2019)."""
        return self._numbers["bubble_ratio_total"]

    @property
    def bubble_ratio_ideal(self) -> float:
        """Idle time over the computing time (Narayanan et al., 2021)."""
        return self._numbers["bubble_ratio_ideal"]

    @property
    def bubble_ratio_span(self) -> float:
        """Idle time over the longest span from a rank's first to its last operation (Qi et al., 2024)."""
        return self._numbers["bubble_ratio_span"]

    @cached_property
    def _numbers(self):
        timeline = self.timeline
        ends = np.array([[timeline.makespan_s], [timeline.reduced_s], [timeline.longest_span_s]])
        return evaluate(timeline.graph, [self.costs], Iterations(*ends))[0]

    @property
    def table_bubble_ratio(self) -> float:
        """Idle fraction of the idealised table, without communication and with a backward of two slots."""
        return table_columns(self.table)["table_bubble_ratio"]

    @property
    def peak_activations(self) -> float:
        """Peak activations of the most loaded rank, in microbatches on 1/S of the model."""
        return table_columns(self.table)["peak_activations"]

    @property
    def peak_activations_by_rank(self) -> NDArray[np.float64]:
        """Peak activations of each rank, shape (pp,), in microbatches on 1/S of the model."""
        return metrics.peak_activations(self.table)

    @property
    def peak_memory_bytes(self) -> float | None:
        """Bytes on the most loaded rank; None without a model."""
        return None if self.memory_of_ranks is None else float(self.memory_of_ranks.total.max())

    @cached_property
    def memory_of_ranks(self) -> Memory | None:
        """The `Memory` of each rank, in bytes; None without a model."""
        return None if self.model is None else memory_of(self.point, self.timeline)

    @property
    def memory(self) -> DataFrame | None:
        """Bytes on one GPU of each rank, a row per rank; None without a model.

        Columns are ``peak_memory_bytes``, the sum, and its parts as in `ppmodel.compare`.

        >>> import ppmodel as pp
        >>> run = pp.simulate("1f1b", 4, 8, model="llama3_8b", system="h100", tp=8)
        >>> (run.memory.weights_bytes / 2**30).round(2).tolist()
        [0.53, 0.41, 0.41, 0.53]
        """
        import pandas as pd

        return self.memory_of_ranks and pd.DataFrame(self.memory_of_ranks.columns).rename_axis("rank")

    @cached_property
    def iteration(self) -> Iteration | None:
        """Time of the whole iteration by part, a `points.iteration.Iteration`; None without a layout."""
        if self.layout is None:
            return None
        return iterations_of(self.timeline.graph, [self.point], [self.costs], [self.makespan_s])[0]

    @property
    def iteration_s(self) -> float | None:
        """Seconds of the whole iteration, with gradient reduction and optimizer; None without a layout."""
        return None if self.iteration is None else self.iteration.iteration_s

    @property
    def messages(self) -> int:
        """Point-to-point messages in the iteration, over all ranks."""
        return table_columns(self.table)["messages"]

    def critical_path(self) -> list[int]:
        """Find the operations on the critical path; see `metrics.critical_path`.

        Returns
        -------
        list of int
            Their indices, in order: positions in `to_frame`, for `table.op`.

        Examples
        --------
        >>> import ppmodel as pp
        >>> run = pp.simulate("gpipe", 2, 1, forward=1, backward=2)
        >>> [str(run.table.op(index)) for index in run.critical_path()]
        ['0F0', '1F0', '1B0', '0B0']
        """
        return metrics.critical_path(self.timeline)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as a row of `ppmodel.compare`, with the same names and values.

        Returns
        -------
        dict
            Without model, system and memory if costs were given in seconds.
        """
        results = self._numbers | point_columns(self.point, self.iteration)
        return self.point.coordinates | {"ordered_for": self.ordered_for} | results

    def to_frame(self) -> DataFrame:
        """Return every operation with its times.

        Returns
        -------
        DataFrame
            One row per operation, rank by rank in program order; columns ``rank, operation, kind, stage, microbatch,
            replica, start_s, end_s, sent_s, arrived_s``. The last two are NaN if the result stays on its rank.
        """
        timeline, names = self.timeline, ("start_s", "end_s", "sent_s", "arrived_s")
        return self.table.frame_with({name: getattr(timeline, name) for name in names})

    def plot(self, title: str | None = None, critical_path: bool = False) -> Figure:
        """Draw the timeline: one row per rank, with the transfers.

        Parameters
        ----------
        title : str, optional
            The figure's title.
        critical_path : bool
            Whether to outline the operations on the critical path.

        Returns
        -------
        matplotlib Figure
        """
        from ppmodel.plot import context, plot_timelines

        name, sizes = self.point.case.label, {"S": self.table.num_ranks, "B": self.table.num_microbatches}
        shown = context(self.model and self.model.name, self.p2p, self.allreduce, **sizes)
        paths = {name: self.critical_path()} if critical_path else None
        return plot_timelines({name: self.timeline}, title or f"{name}: one iteration", shown, paths)

    def to_trace(self, path: str | os.PathLike[str]) -> int:
        """Write the timeline for Perfetto or ``chrome://tracing``.

        It includes memory if there is a model, and two streams per rank if the layout has collectives.

        Parameters
        ----------
        path : str or Path
            The file; JSON in the trace-event format.

        Returns
        -------
        int
            Number of events written.
        """
        from ppmodel.export import write_trace

        if self.model is None or self.system is None:
            return write_trace(path, self.timeline)
        streams = None if self.layout is None else cell_streams_of(self.table, self.model, self.system, self.layout)
        names = {"model": self.model.name, "system": self.system.name}
        return write_trace(path, self.timeline, self.costs.stages, streams, **names)
