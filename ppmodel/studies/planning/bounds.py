"""Lower bounds on the time and memory of candidates, below which no simulation can come."""

from dataclasses import replace
from functools import cache

import numpy as np

from ppmodel.clusters.costs import persistent_bytes
from ppmodel.clusters.costs.pairs import contention
from ppmodel.clusters.memory import on_ranks
from ppmodel.ops import OpKind
from ppmodel.schedules import names, small
from ppmodel.schedules.cases import as_case


class CandidateBounds:
    """Lower bounds for the candidates of a question.

    Parameters
    ----------
    question : Question

    Notes
    -----
    The most loaded rank computes at least as long as the mean of all ranks: B microbatches through the whole model,
    without recomputation, over pp. It keeps at least the mean of weights, gradients and optimizer state.
    """

    def __init__(self, question):
        self.question, self._stages = question, cache(self._one_stage)

    def stages(self, sizes):
        """The `Stages` of the model as one stage, with whole and with split backwards.

        They are the same for all sizes that differ in pp and dp alone.
        """
        return self._stages(sizes._replace(pp=1, dp=self.question.gpus // sizes.stage_gpus))

    def _one_stage(self, sizes):
        ways = {"zero": 0, "recompute": "none", "layers": "even"}
        points = (self.question.point(as_case(name), sizes, **ways) for name in ("1f1b", "zb-h1"))
        return [replace(point, size=(1, 1)).costs.stages for point in points]

    def seconds(self, case, sizes):
        """A lower bound on the seconds of an iteration of a schedule at some sizes."""
        if case.name not in names() or case.user_entry or "concat" in dict(case.options):  # two microbatches
            return 0.0
        both, (_, microbatches) = self.stages(sizes), self.question.size(sizes)
        microbatch_s = min(float(of_stages.parts_s.sum()) for of_stages in both)  # with exposed collectives
        if _has_pairs(case.name):  # which hide them
            computing_s = float(both[-1].parts_s[..., 0].sum())
            microbatch_s = _paired_s(computing_s, microbatch_s - computing_s, self.question.system)
        return float(microbatches * microbatch_s / sizes.pp)

    def bytes(self, sizes, zero):
        """A lower bound on the bytes of the most loaded GPU."""
        layout = self.question.layout(sizes, zero=zero)
        of_model = persistent_bytes(self.stages(sizes)[-1], self.question.model, layout)
        return float(sum(part.sum() for part in of_model)) / sizes.pp + self.question.system.reserve_bytes


@cache
def _has_pairs(name):
    """Return whether a schedule has cells of two operations."""
    return bool(small(name).joined.any())


def _paired_s(computing_s, exchanged_s, system):
    """The least seconds of cells of two operations: neither stream has less work, and each slows the other down."""
    shorter, longer = np.sort([computing_s, exchanged_s], axis=0)
    return longer + (contention(system) - 1) * shorter


def busy_bound(table, system):
    """A function that returns a lower bound on the seconds of an iteration of a table.

    Parameters
    ----------
    table : Schedule
    system : SystemSpec

    Returns
    -------
    callable
        Of the table's `Stages` in a layout; returns a float.

    Notes
    -----
    All work of a rank comes after the forwards of the stages before its first one. A whole backward is followed by
    those of the stages before it, then every rank has its optimizer step; split backwards may leave the weight
    gradients for last. Cells of two operations may hide collectives.
    """
    microbatches, is_split = table.table_microbatches / table.num_replicas, bool((table.kind == OpKind.W).any())
    is_paired = bool(table.joined.any())
    first = np.full(table.num_ranks, table.num_stages - 1)
    for homes in table.placement:
        np.minimum.at(first, homes, np.arange(table.num_stages))

    def seconds(of_stages):
        computing_s, whole_s = of_stages.parts_s[..., 0], of_stages.parts_s.sum(axis=2)
        forward_s, input_s, weight_s = (computing_s if is_paired else whole_s).T
        late_s = whole_s[:, 2] * is_split
        microbatch_s = np.column_stack([computing_s.sum(axis=1), (whole_s - computing_s).sum(axis=1), late_s])
        columns = np.column_stack([microbatches * microbatch_s, of_stages.optimizer_s])
        computing, exchanged, late, step = on_ranks(table.placement, table.num_ranks, columns).T
        work = _paired_s(computing, exchanged, system) if is_paired else computing + exchanged
        before_s = np.concatenate([[0.0], np.cumsum(forward_s)])[first]
        after_s = np.concatenate([[0.0], np.cumsum(input_s + weight_s * (not is_split))])[first]
        return float((before_s + np.maximum(work + step, work - late + after_s)).max())

    return seconds
