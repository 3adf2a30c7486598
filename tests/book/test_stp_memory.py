"""STP's peak memory with recomputation and without, as its authors state it."""

import pandas as pd
import pytest

import ppmodel
from ppbook.measured.stp import as_run, load_throughputs, run_of
from ppmodel.clusters.costs import stages
from ppmodel.clusters.specs import DATA, LayoutSpec


def test_recomputation_frees_the_activations_that_it_was_measured_to_free():
    """Of what the fullest rank holds, all but the inputs of blocks: within a tenth of the two measured peaks apart."""
    peaks = pd.read_csv(DATA / "reference" / "stp_recompute.csv").peak_gb
    rows = load_throughputs()
    row = next(rows[(rows.tensor == 4) & (rows.pipeline == 4) & (rows.batch == 128)].itertuples(index=False))
    given = run_of(row)
    table, system = ppmodel.build("stp", given["pp"], given["global_batch"]), ppmodel.load_system("a800")
    held = as_run("stp", recompute="none", system=system, overlap_backward=True, **given).activations_bytes.item()
    layouts = [LayoutSpec(pp=4, tp=4, global_batch=given["global_batch"], recompute=way) for way in ("full", "none")]
    kept = [stages(table, given["model"], system, layout=layout).activation_bytes[0] for layout in layouts]
    assert held * (1 - kept[0] / kept[1]) / 1e9 == pytest.approx(peaks.iloc[0] - peaks.iloc[-1], rel=0.1)
