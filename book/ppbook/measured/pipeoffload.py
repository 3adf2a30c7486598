"""PipeOffload's runs on A100 (Wan et al., 2025, Fig. 15) beside what is predicted: MFU, memory, and what does not fit.

Copies run at the 15 GB/s of its equation 1, here in both directions at once. The source leaves out three things. One
sequence per microbatch makes its activations come out; 32,000 words, counted once, give all six models of its Table 2
the parameters that they are named after. What a GPU gets of the network between nodes was chosen from 25, 12.5, 6.25
and 3.125 GB/s on the models of 10.5B and 18.1B, on one and two nodes; that of 42.9B, on four, was left out. That PO-F
copies only what fits is the authors' rule, which was read after its runs had been simulated without it; so were their
scripts, which leave dropout on (sail-sg/zero-bubble, 3fd87fd1, pretrain_offload.sh) and run it again.
"""

from dataclasses import replace
from functools import cache

import pandas as pd

from ppmodel.clusters.specs import DATA, load_model, load_system
from ppmodel.studies.measured.rows import even_layers
from ppmodel.studies.points.grid import resolve_point

HOST, NETWORK = 15e9, 6.25e9
CHOSEN_ON = "10.5B", "18.1B"
METHODS = {
    "1f1b": ("1f1b", {}, {}), "interleaved_1f1b": ("interleaved-1f1b", {}, {}),
    "gis (generalised interleaved)": ("grouped-interleaving", {}, {}),
    "gis_h": ("grouped-interleaving", {"group": "half"}, {}),
    "po_h": ("grouped-interleaving", {"group": 1}, {"offload": 1.0, "offload_chunks": "half"}),
    "po_f": ("grouped-interleaving", {"group": 1}, {"offload": 1.0, "offload_chunks": "fitting"}),
}  # fmt: skip
"""Their names of the methods, our schedules with options, and what a layout offloads."""

LABELS = dict(zip(METHODS, ("1F1B", "interleaved 1F1B", "GIS", "GIS-H", "PO-H", "PO-F"), strict=True))


@cache
def predicted(network=NETWORK):
    """Simulate every run that was tried.

    Parameters
    ----------
    network : float
        Bytes per second of a GPU between nodes.

    Returns
    -------
    DataFrame
        Columns ``model, sequence, method``; ``measured_mfu, predicted_mfu, error``, as fractions, and ``measured_gib,
        predicted_gib`` of activations, missing where memory ran out; ``ran`` and ``fits``, measured and predicted.
    """
    tried = pd.read_csv(DATA / "reference/schedules_measured/pipeoffload.csv")
    tried, results = tried[tried.value != "SKIP"], []
    for row in tried.itertuples():
        numbers = _run(row, network).to_dict()
        results.append((numbers["model_flops_utilization"], numbers["activations_bytes"] / 2**30, numbers["fits"]))
    frame = pd.DataFrame(results, columns=["predicted_mfu", "predicted_gib", "fits"])
    for name, column in (("model", "model"), ("sequence", "seq"), ("method", "schedule")):
        frame[name] = tried[column].to_numpy()
    frame["measured_mfu"] = pd.to_numeric(tried.value, errors="coerce").to_numpy() / 100
    frame["measured_gib"] = pd.to_numeric(tried.memory, errors="coerce").to_numpy()
    frame["ran"] = frame.measured_mfu.notna()
    return frame.assign(error=frame.predicted_mfu / frame.measured_mfu - 1, method=frame.method.map(LABELS))


def _run(row, network):
    """The simulated run of a row."""
    name, options, offloaded = METHODS[row.schedule]
    chunks = {"chunks": int(row.chunks)} if name != "1f1b" else {}
    model = replace(
        load_model("zero_bubble_6_2b"), hidden=row.hidden, heads=row.heads, kv_heads=8, mlp_hidden=4 * row.hidden,
        blocks=row.layers, sequence=row.seq, attention="fused",
    )  # fmt: skip
    system = replace(load_system("a100"), host_bandwidth_bytes_per_s=HOST, network_bandwidth_bytes_per_s=network)
    return resolve_point(
        (name, chunks | options), row.pp, model=model, system=system, global_batch=row.m, recompute="light",
        layers=even_layers(row.layers, row.pp * int(row.chunks)), **offloaded,
    ).run()  # fmt: skip
