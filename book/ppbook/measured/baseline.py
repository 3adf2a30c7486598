"""The simple model that every engineer has in mind: a constant share of the peak, and the bubble by its formula."""

import numpy as np

from ppmodel.clusters.costs import model_flops
from ppmodel.studies.measured.calibrate import FOLDS, SEED
from ppmodel.studies.measured.fit import parted
from ppmodel.studies.measured.rows import configuration, run_of


def ideal_s(row, system):
    """Seconds of an iteration at the peak: its arithmetic, including recomputation, and the bubble by its formula.

    Parameters
    ----------
    row : dict of str to str
        See `read_rows`.
    system : SystemSpec

    Returns
    -------
    float
        The FLOPs of `model_flops` over those of all GPUs, times 1 + (S - 1) / (v B) for v chunks.

    Raises
    ------
    PPModelError
        If the row is refused.

    Examples
    --------
    >>> from ppmodel.studies.measured import COLUMNS
    >>> from ppmodel.clusters.specs import load_system
    >>> row = dict.fromkeys(COLUMNS, "1") | {"gated_mlp": "false", "attention": "flash", "schedule": "1f1b"}
    >>> row |= {"sequence_parallel": "false", "recompute": "none", "hidden": "1024", "heads": "16", "kv_heads": "16"}
    >>> single, double = ({"layers": "4", "global_batch": "8", "pp": pp} for pp in ("1", "2"))
    >>> system = load_system("a100")
    >>> round(ideal_s(row | double, system) / ideal_s(row | single, system), 4)  # half, and a bubble of an eighth
    0.5625
    """
    run = run_of(row, system.framework)
    layout = run.layout
    flops = model_flops(run.model, sequences=layout.global_batch, recompute=layout.recompute)
    bubble = (layout.pp - 1) / ((layout.chunks or 1) * run.num_microbatches)
    gpus = layout.replica_gpus * layout.dp
    return run.pipeline_runs * flops / (gpus * system.peak_compute_flops) * (1 + bubble)


def constant_utilization(rows, system):
    """Iteration times at a constant utilization, which for each row is that of the other folds' rows.

    Parameters
    ----------
    rows : sequence of dict of str to str
        With a number in ``iteration_s``.
    system : SystemSpec

    Returns
    -------
    ndarray of float, shape (num_rows,)
        In seconds. The utilization is the median over the other folds; the folds are those of `calibrated`.
    """
    return scaled_to_others(np.array([ideal_s(row, system) for row in rows]), rows)


def scaled_to_others(seconds, rows):
    """Predicted times by one factor, which for each row is that of the other folds' rows.

    Parameters
    ----------
    seconds : ndarray of float, shape (num_rows,)
        Predicted, up to a factor.
    rows : sequence of dict of str to str
        With a number in ``iteration_s``.

    Returns
    -------
    ndarray of float, shape (num_rows,)
        Predicted over measured times then have a median of one over the other folds; the folds are those of
        `calibrated`. NaN where all rows are of one configuration.
    """
    shares = seconds / np.array([float(row["iteration_s"]) for row in rows])
    scaled = np.empty(len(rows))
    for seen, held_out in parted([configuration(row) for row in rows], FOLDS, SEED):
        seen_shares = shares[seen]
        scaled[held_out] = seconds[held_out] / np.median(seen_shares) if len(seen_shares) else np.nan
    return scaled
