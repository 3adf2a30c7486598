"""Layouts and schedules that are tried on a GPU cluster, and where the fastest of them save time."""

from itertools import product
from typing import NamedTuple

import pandas as pd

from ppmodel.analysis.overlap import FRAMEWORKS, compare_overlapped
from ppmodel.errors import PPModelError
from ppmodel.measured import is_tight
from ppmodel.points import PARTS
from ppmodel.specs import ModelSpec, SystemSpec

FASTEST_FIRST = ["iteration_s", "peak_memory_bytes", "label"]
"""What rows are sorted by: the fastest first, and of two that are as fast the smaller."""

_RECOMPUTED = {"none": "", "selective": ", selective recomputation", "full": ", full recomputation"}


class Training(NamedTuple):
    """A model that is trained on some GPUs.

    Parameters
    ----------
    model : ModelSpec
    system : SystemSpec
    gpus, global_batch : int
    given : dict
        What all layouts share, as keywords of `ppmodel.compare`.
    """

    model: ModelSpec
    system: SystemSpec
    gpus: int
    global_batch: int
    given: dict

    def __str__(self):
        device = self.system.title.split(",")[0]
        return f"{self.model.title}, {self.gpus:,} x {device}, {self.global_batch:,} sequences"

    def compare(self, cases, pp, tp, cp, overlap=FRAMEWORKS, **layout):
        """Compare schedules in one layout of all GPUs; those that it refuses are left out.

        Parameters
        ----------
        cases : list
            Each as in `cases.as_case`.
        pp, tp, cp : int
        overlap : str
            A key of `analysis.overlap.OVERLAP`.
        **layout
            More of the layout, as keywords of `ppmodel.compare`.

        Returns
        -------
        DataFrame
        """
        point = {"model": self.model, "system": self.system, "global_batch": self.global_batch, **self.given, **layout}
        rows = compare_overlapped(cases, pp, overlap, tp=tp, cp=cp, dp=self.gpus // (pp * tp * cp), **point)
        rows = rows[rows.refused.isna()].astype({"fits": bool})
        return rows.assign(where=str(self), overlap=overlap)

    def changed(self, case, row, **changes):
        """Simulate a schedule in the layout of a row with something changed, for example its ``recompute``."""
        return self.compare([case], row.pp, row.tp, row.cp, **{"recompute": row.recompute} | changes)

    def under(self, overlap, rows, cases):
        """Simulate rows under another overlap than the framework's; without tensor parallelism they are kept.

        Parameters
        ----------
        overlap : str
            A key of `analysis.overlap.OVERLAP`.
        rows : DataFrame
            From `fitting`.
        cases : dict of str to Case
            By label.

        Returns
        -------
        DataFrame
        """
        frames = []
        for sizes, points in rows.groupby(["pp", "tp", "cp"], sort=False):
            ways = points.groupby("label", sort=False).recompute.agg(tuple)
            for again, labels in ways.groupby(ways, sort=False).groups.items() if sizes[1] > 1 else ():
                schedules = [cases[label] for label in labels]
                frames.append(self.compare(schedules, *sizes, overlap, recompute=list(again)))
            frames += [points] * (sizes[1] == 1)
        return pd.concat(frames, ignore_index=True).assign(overlap=overlap)

    def fitting(self, cases, usual, sizes, layers):
        """Compare schedules in every layout that fits into memory.

        Parameters
        ----------
        cases : list of Case
        usual : Case
            Tried without a pipeline, where all schedules are the same.
        sizes : tuple of sequence of int
            Sizes of ``pp``, ``tp`` and ``cp`` that are tried.
        layers : list of int
            Layers of a stage that are recomputed where no recomputation does not fit and full recomputation does.

        Returns
        -------
        DataFrame
            With ``room`` and ``layout``, as `room` and `layout_text` give them.

        Raises
        ------
        PPModelError
            If no layout fits.
        """
        frames, ways = [], ["none", "selective", "full"]
        for pp, tp, cp, _ in divisions(self.gpus, self.global_batch, *sizes):
            frames.append(self.compare(cases if pp > 1 else [usual], pp, tp, cp, recompute=ways))
            fits = frames[-1][frames[-1].fits].groupby("label").recompute.agg(set)
            if between := [case for case in cases if fits.get(case.label) == {"full"}]:
                frames.append(self.compare(between, pp, tp, cp, recompute=layers))
        rows = pd.concat(frames, ignore_index=True).query("fits") if frames else pd.DataFrame()
        if rows.empty:
            raise PPModelError("gpus", self.gpus, f"has no layout that fits for {self.model.name}", "try other sizes")
        return rows.assign(room=room(rows), layout=layout_text(rows))


def divisions(gpus, global_batch, pp, tp, cp):
    """Every way to divide all GPUs into pipelines of tensor and context groups, so that the batch divides among them.

    Parameters
    ----------
    gpus, global_batch : int
    pp, tp, cp : sequence of int
        Sizes that are tried.

    Yields
    ------
    tuple of int
        ``pp``, ``tp``, ``cp`` and ``dp``, the number of replicas.

    Examples
    --------
    >>> list(divisions(8, 12, [1, 2], [2, 4], [1]))
    [(1, 2, 1, 4), (1, 4, 1, 2), (2, 2, 1, 2), (2, 4, 1, 1)]
    """
    for sizes in product(pp, tp, cp):
        replicas, rest = divmod(gpus, sizes[0] * sizes[1] * sizes[2])
        if replicas and not rest and global_batch % replicas == 0:
            yield *sizes, replicas


def room(rows):
    """Whether layouts fit into memory: yes; no; or tight, by less than predictions of memory have been off.

    Parameters
    ----------
    rows : DataFrame
        From `ppmodel.compare`.

    Returns
    -------
    Series of str

    Examples
    --------
    >>> rows = pd.DataFrame({"peak_memory_bytes": [7, 79, 81], "fits": [True, True, False]})
    >>> room(rows.assign(memory_capacity_bytes=80)).tolist()
    ['yes', 'tight', 'no']
    """
    tight = is_tight(rows.peak_memory_bytes, rows.memory_capacity_bytes).astype(bool)
    return rows.fits.astype(object).map({True: "yes", False: "no"}).mask(tight, "tight")


def layout_text(rows):
    """The layout of each row in short.

    Parameters
    ----------
    rows : DataFrame
        From `ppmodel.compare`.

    Returns
    -------
    Series of str
    """
    recomputed = rows.recompute.map(lambda way: _RECOMPUTED.get(way, f", {way} layers of a stage recomputed"))
    text = "pp " + rows.pp.astype(str) + ", tp " + rows.tp.astype(str)
    text += (", cp " + rows.cp.astype(str)).where(rows.cp > 1, "") + ", dp " + rows.dp.astype(str)
    text += (", ep " + rows.ep.astype(str)).where(rows.ep > 1, "")
    text += (", " + rows.microbatch_size.astype(str) + " sequences a microbatch").where(rows.microbatch_size > 1, "")
    return text + recomputed.str.replace(", 1 layers", ", 1 layer")


def saving_by_cause(training, base, winner):
    """Where a schedule in its layout saves time on another in its own.

    Parameters
    ----------
    training : Training
    base, winner : tuple of Case and row
        A schedule and the layout that it runs in.

    Returns
    -------
    shares : dict of str to float
        Of the base's time: ``saved`` in all; in the winner's layout by ``hidden`` collectives, a shorter ``bubble``,
        less that is recomputed, ``again_here``, and the ``rest``; and by that layout in place of the base's own, what
        is recomputed less, ``again``, and the rest, ``layout``.
    parts : DataFrame
        Seconds by part of the base, of the base in the winner's layout and of the winner: columns of `PARTS`, and
        ``again_s``, what recomputation adds to all of them; and whether that fits.
    """
    rows = []
    for (case, _), (_, row) in ((base, base), (base, winner), (winner, winner)):
        whole, plain = (training.changed(case, row, recompute=way) for way in (row.recompute, "none"))
        if len(whole) and len(plain):
            again_s = whole.iteration_s - plain.iteration_s
            rows.append(plain[[*PARTS]].assign(again_s=again_s, fits=whole.fits))
    parts = pd.concat([rows[0], rows[1], rows[-1]], ignore_index=True)  # the winner's twice where the base has none
    seconds = parts.drop(columns="fits").astype(float)
    order, layout = seconds.iloc[1] - seconds.iloc[2], seconds.iloc[0] - seconds.iloc[1]
    whole = seconds.sum(axis=1)
    shares = {
        "saved": whole[0] - whole[2], "hidden": order.tensor_s, "bubble": order.bubble_s, "again_here": order.again_s,
        "rest": order.drop(["tensor_s", "bubble_s", "again_s"]).sum(), "again": layout.again_s,
        "layout": layout.drop("again_s").sum(),
    }  # fmt: skip
    return {name: share / whole[0] for name, share in shares.items()}, parts
