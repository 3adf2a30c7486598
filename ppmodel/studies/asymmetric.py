"""Asymmetric Chimera against the symmetric base (Fig. 6)."""

from itertools import pairwise

import pandas as pd

from ppmodel.costs import model_costs, uniform_costs
from ppmodel.simulation import P2P, compile_graph, run_graph
from ppmodel.studies.cases import built
from ppmodel.studies.runtime import relative_to, runtime_study
from ppmodel.studies.times import WITHOUT_NETWORK

_NO_GAIN = 1e-5


def asymmetric_study(model, systems, stages_list, microbatches, splits, p2p="overlapped"):
    """Asymmetric Chimera relative to the symmetric base; see `relative_to`.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    stages_list, microbatches : sequence of int
        Values of S and of B. Sizes at which a schedule is not defined are left out.
    splits : sequence of (int, int)
        Blocks of the front and of the back half of the pipeline, a : b.
    p2p : str
        Communication semantics, one of `graph.P2P`.

    Returns
    -------
    DataFrame
        The columns of `runtime_study` and ``base, relative``: the base's time in seconds, and T_sim / base - 1.

    Raises
    ------
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    PPModelError
        If a semantics is unknown.
    """
    cases = ["chimera"] + [("asymmetric-chimera", {"split": split}) for split in splits]
    studies = [runtime_study(model, systems, num_ranks, microbatches, cases, p2p) for num_ranks in stages_list]
    return relative_to(pd.concat(studies), "Chimera")


def best_split_study(model, systems, stages_list, microbatches, splits):
    """The most that an asymmetric Chimera gains on the symmetric one, under every semantics.

    Parameters
    ----------
    model : ModelSpec
        The model.
    systems : sequence of SystemSpec
        The systems.
    stages_list, microbatches : sequence of int
        Values of S and of B.
    splits : sequence of (int, int)
        Blocks of the front and of the back half of the pipeline, a : b.

    Returns
    -------
    DataFrame
        One row an S and semantics; columns ``stages, p2p, gain, schedule, system, microbatches``: the
        fastest split, and where; nothing where no split gains a thousandth of a percent. The gain is 1 - T_sim
        / T_sim of the symmetric one.

    Raises
    ------
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for p2p in P2P:
        study = asymmetric_study(model, systems, stages_list, microbatches, splits, p2p)
        for num_ranks, group in study.groupby("stages", sort=False):
            best = group.loc[group.relative.idxmin()]
            row = {"stages": num_ranks, "p2p": p2p, "gain": 0.0, "schedule": "none", "system": "", "microbatches": ""}
            if best.relative < -_NO_GAIN:
                row |= {"gain": -best.relative, "schedule": best.schedule, "system": best.system,
                        "microbatches": str(best.microbatches)}  # fmt: skip
            rows.append(row)
    return pd.DataFrame(rows).sort_values("stages", kind="stable", ignore_index=True)


def asymmetric_causes(model, system, stages_list, num_microbatches, split):
    """What an asymmetric split costs against the symmetric base, cause by cause.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        The system.
    stages_list : sequence of int
        Values of S, each even.
    num_microbatches : int
        Microbatches, B; a multiple of each S.
    split : (int, int)
        Blocks of the front and of the back half of the pipeline, a : b.

    Returns
    -------
    DataFrame
        One row an S; columns ``stages, table, backward, blocks, network``: T_sim / base - 1 with a backward of
        exactly two forwards and fractions of blocks; what the model's own backward adds; what whole blocks add;
        what the network adds. They sum to the whole.

    Raises
    ------
    ScheduleError
        If a schedule is not defined at a size, or the split is illegal.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for num_ranks in stages_list:
        base = built("chimera", num_ranks, num_microbatches, ())
        uneven = built("asymmetric-chimera", num_ranks, num_microbatches, (("split", tuple(split)),))
        forward, backward = model_costs(base, model, system).compute_s[:2, 0]

        def over(costs, base=base, uneven=uneven, num_ranks=num_ranks):
            graphs = (compile_graph(schedule) for schedule in (uneven, base))
            times = [run_graph(graph, costs(graph.schedule)).makespan_s for graph in graphs]
            return times[0] / times[1] - 1

        steps = [
            over(lambda schedule: uniform_costs(schedule, 1, 2)),
            over(lambda schedule, f=forward, b=backward: uniform_costs(schedule, f, b)),
            over(lambda schedule: WITHOUT_NETWORK.costs(model_costs(schedule, model, system), schedule)),
            over(lambda schedule: model_costs(schedule, model, system)),
        ]
        added = [later - earlier for earlier, later in pairwise([0.0, *steps])]
        rows.append(dict(zip(["stages", "table", "backward", "blocks", "network"], [num_ranks, *added], strict=True)))
    return pd.DataFrame(rows)
