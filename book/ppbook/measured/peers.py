"""Two other simulators on the measured runs that they can express: their predictions, and their errors beside ours."""

import pandas as pd

from ppbook.measured.fitted_errors import with_errors
from ppmodel.clusters.specs import DATA


def peer_predictions():
    """What Calculon and SimuMax print for measured runs.

    Returns
    -------
    DataFrame
        One row per run and peer of ``data/reference/peers.csv``: ``runs, id, peer, version, predicted_iteration_s,
        predicted_memory_gib, refused``, the reason if it cannot express the run.
    """
    return pd.read_csv(DATA / "reference" / "peers.csv")


def with_peers(layouts):
    """Layouts with what peers predict for them.

    Parameters
    ----------
    layouts : DataFrame
        With ``id``, as from `regret.layouts_of`.

    Returns
    -------
    DataFrame
        With two more columns for each peer: its name, the seconds of an iteration, and its name and ``GiB``; NaN where
        it cannot express the layout.

    Examples
    --------
    >>> with_peers(pd.DataFrame({"id": ["playbook_h100-0001"]})).round(2).to_dict("records")[0]["Calculon"]
    7.08
    """
    table = peer_predictions().pivot(index="id", columns="peer")
    seconds, memory = table.predicted_iteration_s, table.predicted_memory_gib.add_suffix(" GiB")
    return layouts.join(seconds.join(memory), on="id")


def peers_by_source(unfitted, fitted):
    """Mean errors of peers by source, beside ours on the same runs.

    Parameters
    ----------
    unfitted : DataFrame
        From `by_source.unfitted_by_source`.
    fitted : DataFrame
        From `against.runs_of`: predictions by fits that had not seen the run.

    Returns
    -------
    DataFrame
        One row per source and peer: ``source, peer``; ``runs``, how many were measured and are predicted by us, and
        ``expressed``, how many of these by the peer; on the latter the mean of |predicted / measured - 1|: ``theirs``,
        ``unfitted`` and ``fitted`` (NaN where no system was fitted) of ours, and ``constant``, of a constant
        utilization.
    """
    ours = unfitted.merge(fitted[["runs", "id", "predicted_iteration_s"]], on=["runs", "id"], how="left")
    ours = ours.rename(columns={"predicted_s": "unfitted_s", "predicted_iteration_s": "fitted_s"})
    theirs = peer_predictions().rename(columns={"predicted_iteration_s": "theirs_s"})
    table = ours.merge(theirs[["runs", "id", "peer", "theirs_s"]], on=["runs", "id"])
    table["expressed"] = table.theirs_s.notna()
    names = ["theirs", "unfitted", "fitted", "constant"]
    table = with_errors(table.assign(iteration_s=table.iteration_s.where(table.expressed)), *names)
    means = {name: (name, "mean") for name in names}
    groups = table.groupby(["source", "peer"], sort=False)
    return groups.agg(runs=("expressed", "size"), expressed=("expressed", "sum"), **means).reset_index()
