"""Two other simulators on measured runs: every number belongs to a run, and errors are of the same runs as ours."""

import numpy as np
import pandas as pd
import pytest

from ppbook.measured.peers import peer_predictions, peers_by_source, with_peers
from ppbook.measured.unfitted import MEASURED

KNOWN = [[53741.017859, 1139216.8762], [47571.710555, 829276.3765]]
"""Sums of seconds and GiB, of Calculon and SimuMax."""


def test_every_prediction_is_of_a_measured_run():
    """Each run once for a peer; it is refused for a reason, or has seconds and memory above 0."""
    peers = peer_predictions()
    assert not peers.duplicated(["runs", "id", "peer"]).any()
    for stem, rows in peers.groupby("runs"):
        assert set(rows.id) <= set(pd.read_csv(MEASURED / f"{stem}.csv").id)
    expressed = peers[peers.refused.isna()]
    assert (expressed[["predicted_iteration_s", "predicted_memory_gib"]] > 0).all(axis=None)
    assert peers[peers.refused.notna()].predicted_iteration_s.isna().all()
    assert set(zip(peers.peer, peers.version, strict=True)) == {
        ("Calculon", "0.1.0 (caa4b11)"), ("SimuMax", "1.2 (4dcaae5)")
    }  # fmt: skip


def test_a_changed_prediction_is_noticed():
    """Sums of the seconds and of the memory, by peer."""
    sums = peer_predictions().groupby("peer")[["predicted_iteration_s", "predicted_memory_gib"]].sum()
    assert sums.to_numpy() == pytest.approx(np.array(KNOWN), rel=1e-9)


def test_errors_are_of_the_runs_that_a_peer_expresses():
    """Ours are on the same runs as the peer's; what it cannot express is counted and no more."""
    peers = peer_predictions()
    of_file = peers[(peers.runs == "dgxc_h100") & (peers.peer == "Calculon")].head(60)
    unfitted = of_file[["runs", "id"]].assign(source="s", iteration_s=2.0, predicted_s=3.0, constant_s=1.0)
    unfitted.loc[of_file.refused.isna().to_numpy(), "predicted_s"] = 2.0
    fitted = unfitted[["runs", "id"]].assign(predicted_iteration_s=2.2)
    table = peers_by_source(unfitted, fitted).set_index("peer").loc["Calculon"]
    seconds = of_file.predicted_iteration_s.dropna()
    assert (table.runs, table.expressed) == (60, len(seconds))
    assert 0 < len(seconds) < 60
    assert [table.unfitted, table.fitted, table.constant] == pytest.approx([0, 0.1, 0.5])
    assert table.theirs == pytest.approx((seconds / 2.0 - 1).abs().mean())


def test_layouts_keep_their_order_and_get_what_peers_say():
    """A layout that no peer was asked for has no seconds."""
    layouts = with_peers(pd.DataFrame({"id": ["layouts_a100-0002", "none", "layouts_a100-0001"]}))
    assert layouts.Calculon.isna().tolist() == [False, True, False]
    assert (layouts["SimuMax GiB"].dropna() > 0).all()
