"""The tables of `OpCosts` of many systems beside each other, and with the classes of pairs behind the others."""

import numpy as np

from ppmodel.simulation.costs import TABLES
from ppmodel.simulation.inputs import timeless


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
        From `side_by_side`; durations first, all others are of transfers.
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
    factors = np.stack([costs.pair_factors(schedule) for costs in many_costs], axis=-1)[pairs.pair]
    of_pairs = [table[pairs.base] for table in tables]
    of_pairs[0] = of_pairs[0] * factors
    return np.append(tables, of_pairs, axis=1)


def with_units(tables, schedule, many_costs):
    """Tables with a class for each unit of work of each class: durations and occupancies times the factors of `Units`.

    Parameters are those of `with_pairs`, whose classes may be among those of the tables.
    """
    longer = np.stack([costs.units.compute for costs in many_costs], axis=-1)
    longer = longer[:, None].repeat(schedule.num_replicas, axis=1).reshape(-1, *longer.shape[2:])
    if len(tables[0]) > len(longer):
        longer = np.append(longer, longer[schedule.pairs.base], axis=0)
    larger = np.stack([costs.units.tokens for costs in many_costs], axis=-1)
    factors = longer, larger, *np.ones((len(tables) - 2, *larger.shape))
    of_units = (table[:, None] * factor for table, factor in zip(tables, factors, strict=True))
    return [table.reshape(-1, len(many_costs)) for table in of_units]


def tables_of(graph, many_costs):
    """All costs of the rows of a graph by class, with those of pairs and of collectives behind the schedule's classes.

    Parameters
    ----------
    graph : ExecutionGraph
    many_costs : sequence of OpCosts, or ndarray of float, shape (n, 3, 10, num_stages)
        All with as many units; each class then has one class for each of them.

    Returns
    -------
    tables : sequence of ndarray of float, shape (num_classes, n)
        Durations, occupancies, latencies, and the delays in these that matter under ``streams``.
    classes : ndarray of int, shape (num_operations,)
        The class of each row.
    """
    if isinstance(many_costs, np.ndarray):
        tables, systems = np.ascontiguousarray(many_costs.reshape(len(many_costs), 3, -1).transpose(1, 2, 0)), ()
    else:
        tables, systems = side_by_side(many_costs, graph.schedule.num_replicas), many_costs
    delays, has_pairs = np.zeros(tables.shape[1:]), any(costs.pairs for costs in systems)
    for place, costs in enumerate(systems if graph.p2p == "streams" else ()):
        if costs.delay_s is not None:
            delays[:, place] = costs.delay_s.ravel()
    tables = *tables, delays
    if has_pairs:
        tables = with_pairs(tables, graph.schedule, systems)
    classes, num_units = graph.pair_class if has_pairs else graph.cost_class, systems[0].num_units if systems else 1
    if num_units > 1:
        tables = with_units(tables, graph.schedule, systems)
        classes = classes * num_units + graph.schedule.microbatch[graph.index] % num_units
    if graph.row is not None:  # a collective of a barrier takes as long as the transfer of the last result it waits for
        _, *others = (table[: (timeless(graph.schedule) + 1) * num_units] for table in tables)
        of_collectives = others[0] + others[1], *others
        tables = [np.append(*both, axis=0) for both in zip(tables, of_collectives, strict=True)]
    return tables, classes
