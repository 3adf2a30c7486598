"""GPipe, 1F1B and eager 1F1B under every communication semantics: closed forms, simulation, memory."""

import numpy as np
import pandas as pd

from ppmodel import formulas
from ppmodel.costs import uniform_costs
from ppmodel.simulation import P2P, makespans, run_graph
from ppmodel.studies.cases import compiled, label, table_numbers
from ppmodel.studies.times import times

_LINEAR = ("gpipe", "1f1b", "eager-1f1b")


def closed_form_study(num_ranks, num_microbatches, comm, forward=1.0, backward=2.0):
    """Closed forms of GPipe and 1F1B beside their simulation, under every semantics.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    comm : float
        Time of one transfer, in the unit of `forward`; at most `forward`.
    forward, backward : float
        Times of one microbatch on one stage.

    Returns
    -------
    DataFrame
        One row a semantics; columns ``p2p, gpipe_formula, gpipe, 1f1b_formula, 1f1b, 1f1b_over_gpipe``: times in the
        unit of `forward`, and the ratio of the simulated ones less 1.

    Examples
    --------
    >>> closed_form_study(8, 64, 0.22).round(1)[["p2p", "gpipe", "1f1b"]].values.tolist()[1]
    ['overlapped', 216.1, 240.3]
    """
    rows = []
    for p2p in P2P:
        row = {"p2p": p2p}
        for name, formula in (("gpipe", formulas.makespan_gpipe), ("1f1b", formulas.makespan_1f1b)):
            graph = compiled(name, num_ranks, num_microbatches, (), p2p, "excluded")
            costs = uniform_costs(graph.schedule, forward, backward, comm)
            row[f"{name}_formula"] = formula(num_ranks, num_microbatches, forward, backward, comm, p2p)
            row[name] = run_graph(graph, costs).makespan_s
        rows.append(row | {"1f1b_over_gpipe": row["1f1b"] / row["gpipe"] - 1})
    return pd.DataFrame(rows)


def round_trip_study(num_ranks, num_microbatches, comms, p2ps=P2P, forward=1.0, backward=2.0):
    """Time of 1F1B and of eager 1F1B against GPipe's over the length of a transfer.

    Parameters
    ----------
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    comms : sequence of float
        Times of a transfer, in the unit of `forward`.
    p2ps : sequence of str
        Communication semantics.
    forward, backward : float
        Times of one microbatch on one stage.

    Returns
    -------
    DataFrame
        One row a semantics, schedule and transfer; columns ``p2p, schedule, comm_over_forward, relative``: T / T of
        GPipe - 1.
    """
    rows = []
    for p2p in p2ps:
        spans = {}
        for name in _LINEAR:
            graph = compiled(name, num_ranks, num_microbatches, (), p2p, "excluded")
            spans[name] = makespans(graph, [uniform_costs(graph.schedule, forward, backward, comm) for comm in comms])
        for name in _LINEAR[1:]:
            relative = spans[name] / spans["gpipe"] - 1
            rows += [
                {"p2p": p2p, "schedule": label(name), "comm_over_forward": comm / forward, "relative": float(value)}
                for comm, value in zip(comms, relative, strict=True)
            ]
    return pd.DataFrame(rows)


def equivalence_study(model, systems, stages_list, microbatches, p2ps=P2P):
    """The most by which 1F1B's and eager 1F1B's time differs from GPipe's, system by system.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    stages_list, microbatches : sequence of int
        Values of S and of B.
    p2ps : sequence of str
        Communication semantics.

    Returns
    -------
    DataFrame
        One row a schedule and system, one column a semantics: T / T of GPipe - 1 where that is largest by size, over
        all S and B.

    Raises
    ------
    CostError
        If the model does not fit a schedule.
    """
    rows = []
    for name in _LINEAR[1:]:
        largest = {p2p: np.zeros(len(systems)) for p2p in p2ps}
        for p2p in p2ps:
            for num_ranks in stages_list:
                for count in microbatches:
                    one, base = (
                        times((case, ()), num_ranks, count, model, systems, p2p).t_sim_s[0] for case in (name, "gpipe")
                    )
                    apart = one / base - 1
                    largest[p2p] = np.where(abs(apart) > abs(largest[p2p]), apart, largest[p2p])
        rows += [
            {"schedule": label(name), "system": system.name} | {p2p: float(largest[p2p][n]) for p2p in p2ps}
            for n, system in enumerate(systems)
        ]
    return pd.DataFrame(rows)


def eager_study(model, systems, num_ranks, num_microbatches, p2p="overlapped"):
    """What the deeper warm-up buys, and what it costs.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.
    p2p : str
        Communication semantics.

    Returns
    -------
    DataFrame
        One row a schedule; columns ``schedule, peak_activations``, in microbatches on 1/S of the model, and one a
        system: simulated time over that of GPipe, less 1.

    Raises
    ------
    CostError
        If the model does not fit a schedule.
    """
    size = (num_ranks, num_microbatches)
    spans = {name: times((name, ()), *size, model, systems, p2p).t_sim_s[0] for name in _LINEAR}
    rows = []
    for name in _LINEAR:
        relative = (spans[name] / spans["gpipe"] - 1).tolist()
        by_system = dict(zip((system.name for system in systems), relative, strict=True))
        rows.append({"schedule": label(name), "peak_activations": table_numbers(name, *size, ()).peak} | by_system)
    return pd.DataFrame(rows)


def path_transfers(timeline, path):
    """How many transfers a critical path waits for.

    Parameters
    ----------
    timeline : Timeline
        From `engine.simulate`.
    path : list of int
        From `metrics.critical_path`.

    Returns
    -------
    int
        Steps from one rank to another.
    """
    ranks = timeline.graph.schedule.rank[path]
    return int((ranks[1:] != ranks[:-1]).sum())
