"""What each part of the model buys: errors without it, with the other constants kept and with them fitted again."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ppbook.refits import fitted_values, refitted
from ppmodel.measured.batch import Batch
from ppmodel.measured.calibrate import SCALE, equal_weights
from ppmodel.measured.constants import TIME, chosen, with_values
from ppmodel.measured.fit import Problem

_FASTEST = 1e30
_SHAPES = "kernels.product_half_rows", "kernels.product_half_width"
_FIXED = (
    "kernels.block_host", "kernels.tensor_host", "kernels.softmax_host", "kernels.stage_overhead",
    "kernels.iteration_overhead", "collectives.message_overhead",
)  # fmt: skip


class Part(NamedTuple):
    """A part of the model.

    Parameters
    ----------
    without : tuple of str
        What a `Batch` leaves out.
    values : dict of str to float
        Values of constants with which a system has no such part, by the names in `constants`.
    """

    without: tuple = ()
    values: Mapping = MappingProxyType({})


PARTS = {
    "GEMMs by their shape": Part((), dict.fromkeys(_SHAPES, 0.0)),
    "kernels that memory bounds": Part((), {"memory_bandwidth_bytes_per_s": _FASTEST}),
    "host and fixed costs": Part((), dict.fromkeys(_FIXED, 0.0)),
    "recomputation": Part(("recomputation",)),
    "tensor-parallel collectives": Part(("tensor",)),
    "data-parallel collectives": Part(("data",)),
    "transfers between stages": Part(("transfers",)),
    "waiting in the pipeline": Part(("bubble",)),
}
"""The parts of the model that can be taken away, by the names that tables give them."""


def ablated(rows, files, start, system, part):
    """Iteration times of rows, predicted without one part of the model.

    Parameters
    ----------
    rows : sequence of dict of str to str
        With a number in ``iteration_s``.
    files : sequence of str
        The file of each row; all files weigh the same.
    start, system : SystemSpec
        The system from which the fit started, and the fitted one.
    part : Part

    Returns
    -------
    kept, refitted : ndarray of float, shape (num_rows,)
        In seconds, with the constants of `system`, and with all of them fitted again to the same rows.
    """
    batch = Batch(rows, system, part.without)
    measured = np.array([float(row["iteration_s"]) for row in rows])
    weights = equal_weights(files)
    values = fitted_values(system, TIME)

    def seconds(points):
        return batch.seconds([with_values(system, point | part.values) for point in points])

    constants = chosen(start, list(values))
    problem = Problem(constants, lambda points: weights * np.log(seconds(points) / measured), SCALE, 0.5)
    return seconds([values])[0], seconds([refitted(problem, values)])[0]
