"""The tables of `OpCosts` of many systems beside each other, and with the classes of pairs behind the others."""

import numpy as np

from ppmodel.simulation.costs import TABLES


def side_by_side(many_costs, num_replicas, names=TABLES):
    """Combine the tables of many systems, flattened in the order of `ExecutionGraph.cost_class`.

    Parameters
    ----------
    many_costs : sequence of OpCosts
        All for the same number of stages.
    num_replicas : int
        Copies of the pipeline.
    names : sequence of str
        The tables to combine.

    Returns
    -------
    ndarray of float, shape (len(names), 10 * num_replicas * num_stages, len(many_costs))
        In seconds.

    Examples
    --------
    >>> from ppmodel.simulation import OpCosts
    >>> costs = OpCosts(np.ones((6, 4)), np.zeros((6, 4)), np.zeros((6, 4)))
    >>> side_by_side([costs, costs, costs], 2).shape
    (3, 80, 3)
    """
    if not many_costs:
        return np.empty((len(names), 0, 0))
    columns = []
    for name in names:
        tables = [getattr(costs, name) for costs in many_costs]
        if num_replicas == 1:
            tables = np.array([table.reshape(-1) for table in tables])
        elif all(table.ndim == 2 for table in tables):  # without a replica axis, replicas are alike
            tables = np.repeat(np.array(tables)[:, :, None], num_replicas, axis=2)
        else:
            tables = [np.repeat(table[:, None], num_replicas, axis=1) if table.ndim == 2 else table for table in tables]
        columns.append(np.reshape(tables, (len(many_costs), -1)).T)
    return np.array(columns)


def with_pairs(tables, schedule, many_costs):
    """Append the cost classes of a table's pairs to tables of cost classes.

    Parameters
    ----------
    tables : sequence of ndarray of float, shape (num_classes, ...)
        From `OpCosts.by_class` or `side_by_side`; durations first, all others are of transfers.
    schedule : Schedule
    many_costs : sequence of OpCosts
        What the last axis of `side_by_side` stands for.

    Returns
    -------
    ndarray of float, shape (len(tables), num_all_classes, ...)
        In seconds; `Schedule.pairs` numbers the classes.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.simulation import OpCosts
    >>> table = build("combined-1f1b", 2, 4)
    >>> costs = OpCosts(np.ones((6, 4)), np.zeros((6, 4)), np.zeros((6, 4)), pairs={(0, 0, 1, 2): 0.75})
    >>> (compute_s,) = with_pairs(side_by_side([costs], 1, ["compute_s"]), table, [costs])
    >>> compute_s[40:46, 0].tolist()
    [0.75, 0.75, 1.0, 1.0, 1.0, 1.0]
    """
    pairs = schedule.pairs
    factors = np.stack([costs.pair_factors(schedule) for costs in many_costs], axis=-1)
    extended = []
    for place, table in enumerate(tables):
        of_pairs = table[pairs.base]
        if place == 0:
            of_pairs = of_pairs * factors[pairs.pair].reshape(of_pairs.shape)
        extended.append(np.concatenate([table, of_pairs]))
    return np.stack(extended)
