"""Megatron-LM's twelve measured runs of 2021 (Narayanan et al., Figs. 11 and 12), as absolute throughput."""

from dataclasses import replace

import pandas as pd

from ppmodel.clusters.costs import model_flops
from ppmodel.clusters.specs import DATA, FrameworkSpec, load_system
from ppmodel.studies.measured import COLUMNS, predicted, run_of

_PLAIN = dict.fromkeys(("cp", "ep", "dp", "microbatch_size"), 1) | {
    "gated_mlp": False, "vocabulary": 51200, "sequence": 2048, "attention": "unfused-fused-softmax",
    "sequence_parallel": False, "zero": 0, "recompute": "full",
}  # fmt: skip


def row_of(run):
    """A run of the file as `ppmodel predict` reads runs.

    Parameters
    ----------
    run : namedtuple
        Of ``megatron_sc21.csv``.

    Returns
    -------
    dict of str to str
        Figure 11 has three blocks for each stage, of 20,480 and 128 heads; Figure 12 has GPT-3. Full recomputation and
        the vocabulary are those of the paper's equation 3, by which it counts its FLOPs.
    """
    hidden, heads, blocks = (20480, 128, 3 * run.pipeline) if run.figure == 11 else (12288, 96, 96)
    stated = {
        "hidden": hidden, "heads": heads, "kv_heads": heads, "layers": blocks, "mlp_hidden": 4 * hidden,
        "schedule": "1f1b" if run.chunks == 1 else "interleaved-1f1b", "chunks": run.chunks, "tp": run.tensor,
        "pp": run.pipeline, "global_batch": run.batch, "microbatch_size": run.microbatch_size,
    }  # fmt: skip
    return {name: str((_PLAIN | stated)[name]) for name in COLUMNS}


def throughput(compute_efficiency=None):
    """Predicted TFLOP/s of a GPU for each run, on the packaged ``a100``.

    With one constant changed, the framework is that of the paper, which hides nothing and, with interleaved 1F1B
    alone, cuts messages over tensor-parallel ranks (section 4.1, Fig. 12); the packaged profile, which holds otherwise,
    is fitted to later versions.

    Parameters
    ----------
    compute_efficiency : float, optional
        In place of the system's.

    Returns
    -------
    DataFrame
        The file's columns, ``predicted``, and ``error``, predicted over measured less 1.

    Examples
    --------
    >>> frame = throughput(0.82)
    >>> len(frame), bool(frame.error.abs().mean() < 0.03)
    (12, True)
    """
    system = load_system("a100")
    if compute_efficiency is not None:
        system = replace(system, compute_efficiency=compute_efficiency)
    runs = pd.read_csv(DATA / "reference" / "megatron_sc21.csv")
    rates = []
    for row in map(row_of, runs.itertuples(index=False)):
        of_paper = FrameworkSpec(scatter_messages=row["schedule"] == "interleaved-1f1b")
        ran_on = system if compute_efficiency is None else replace(system, framework=of_paper)
        run = run_of(row)
        flops = model_flops(run.model, sequences=run.layout.global_batch, recompute="full")
        gpu_s = predicted(row, ran_on)["predicted_iteration_s"] * run.layout.tp * run.layout.pp
        rates.append(flops / gpu_s / 1e12)
    return runs.assign(predicted=rates, error=rates / runs.tflops_per_gpu - 1)
