"""What the specifications say, and how sure it is."""

from typing import get_args

import pandas as pd

from ppmodel.costs import model_costs, slowest_transfer_s
from ppmodel.specs import Kind
from ppmodel.studies.cases import built


def specification_table(spec):
    """Every value of a model or system with the kind of its source.

    Parameters
    ----------
    spec : ModelSpec or SystemSpec
        The specification.

    Returns
    -------
    DataFrame
        One row a value of the file, as written; columns ``field, value, unit, kind, source``.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> specification_table(load_system("mid_cp_mid_nw")).loc[0, ["field", "unit"]].tolist()
    ['peak_compute', 'PFLOP/s']
    """
    return pd.DataFrame(spec.provenance)


def kinds_table(specs):
    """How many values of each specification are of which kind of source.

    Parameters
    ----------
    specs : iterable of ModelSpec or SystemSpec
        The specifications.

    Returns
    -------
    DataFrame
        One row a specification; columns ``specification`` and the values of `specs.Kind`.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> kinds_table([load_system("mid_cp_mid_nw")]).columns.tolist()
    ['specification', 'stated', 'digest', 'inferred', 'our choice']
    """
    counts = {spec.name: pd.Series([entry.kind for entry in spec.provenance]).value_counts() for spec in specs}
    kinds = list(get_args(Kind))
    table = pd.DataFrame(counts).reindex(kinds).fillna(0).astype(int).T
    return table.rename_axis("specification").reset_index()


def stage_table(models, systems, num_ranks, num_microbatches):
    """What the first stage of 1F1B takes, for some models and systems.

    Parameters
    ----------
    models : iterable of ModelSpec
        The models.
    systems : sequence of SystemSpec
        The systems.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.

    Returns
    -------
    DataFrame
        One row a model and system; columns ``model, system, forward_s, backward_s, transfer_s,
        comm_over_forward, backward_over_forward``, times in seconds for one microbatch; of the slowest transfer
        where a system has nodes.

    Raises
    ------
    CostError
        If a model does not fit the schedule: too few blocks, or a batch that does not divide.
    """
    schedule = built("1f1b", num_ranks, num_microbatches, ())
    rows = []
    for model in models:
        for system in systems:
            costs = model_costs(schedule, model, system)
            forward, backward = costs.compute_s[:2, 0]
            transfer = slowest_transfer_s(costs)
            rows.append({
                "model": model.name, "system": system.name, "forward_s": forward, "backward_s": backward,
                "transfer_s": transfer, "comm_over_forward": transfer / forward,
                "backward_over_forward": backward / forward,
            })  # fmt: skip
    return pd.DataFrame(rows)
