"""How a cluster is divided into pipelines of tensor and context groups."""

from itertools import product


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
