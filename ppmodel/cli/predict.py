"""ppmodel predict: iteration time and memory of training runs, one row each."""

import click

from ppmodel.cli.arguments import Output, links, option
from ppmodel.cli.commands import command
from ppmodel.cli.text import say
from ppmodel.errors import EXIT_ALL_REFUSED, counted


@command("predict")
@click.argument("rows_file", metavar="ROWS.csv")
@option("system", "NAME|FILE", "The system to predict for.", required=True)
@option("framework", "NAME|FILE", "The training framework of all rows (default: see above).")
@links
@option("out", "FILE.csv", "Where to write the predictions.", Output(), required=True)
def predict_command(rows_file, system, framework, links, out):
    """Predict iteration time, memory and utilization of training runs.

    ROWS.csv has a row for each run. It must have these columns: hidden, heads, kv_heads, layers, mlp_hidden, gated_mlp,
    vocabulary, sequence, attention, schedule, chunks, tp, cp, ep, dp, pp, sequence_parallel, zero, recompute,
    microbatch_size, global_batch. gated_mlp and sequence_parallel are true or false; attention is unfused,
    unfused-fused-softmax or flash; recompute is a word that ppmodel simulate --help lists; chunks is 1 if the schedule
    has no such option.

    It may have these: model, the name of a packaged model, with the model's own columns left empty; with it, etp, the
    GPUs that share each expert; pipeline_runs, how often an iteration runs the whole pipeline; precision or
    number_format, such as bf16 or mxfp8; cuda_graphs, none, modules or full; gradient_bytes, what a GPU keeps for the
    gradient of a parameter; gpus, which must be those of the layout; and framework, the name of a training framework,
    which decides what no column says. Without framework, it is that of the system's file if it was fitted; else the one
    that the column source names (NeMo, Megatron-Bridge, dgxc and MLPerf: nemo; llm-foundry, FSDP and torchtitan: fsdp;
    nanotron and the Playbook: nanotron; vTrain: vtrain; BigScience and Megatron-DeepSpeed: bigscience; DeepSpeed:
    deepspeed; InternEvo: eager; Hagemann: scaling); else megatron. Other columns are copied as notes, unless their
    names nearly match one that is read.

    FILE.csv has the same rows and, behind them, predicted_iteration_s; predicted_memory_gb (1e9 bytes, on the most
    loaded GPU); predicted_fits, whether that is within the capacity; predicted_mfu; refused, why a row has no
    prediction; and predicted_fit: fits, tight, may not fit or does not fit. The margin on either side of the capacity
    covers the errors of nine of ten predictions of memory.

    Exit codes: 0 at least one row is predicted; 1 every row is refused; 2 the command or the file is refused.
    """
    from statistics import fmean, median

    from ppmodel.clusters.specs import load_framework, load_system
    from ppmodel.studies.measured import predict_file

    rows = predict_file(rows_file, load_system(system), out, framework and load_framework(framework), links)
    refused = [row for row in rows if row["refused"] is not None]
    say(f"{out}: {counted(len(rows) - len(refused), 'row')} predicted, {len(refused)} refused")
    measured = [row for row in rows if row["refused"] is None and row.get("iteration_s")]
    if errors := [row["predicted_iteration_s"] / float(row["iteration_s"]) - 1 for row in measured]:
        sizes, largest = [abs(error) for error in errors], max(errors, key=abs)
        summary = f"mean error {fmean(sizes):.1%}, median {median(sizes):.1%}, largest {largest:+.1%}"
        say(f"against the measured iteration_s of {counted(len(errors), 'row')}: {summary} (+ is predicted too long)")
    if refused:
        number = 1 + rows.index(refused[0])
        name = f" ({refused[0]['id']})" if refused[0].get("id") else ""
        say(f"first refused: row {number}{name}, {refused[0]['refused']}")
    return EXIT_ALL_REFUSED if len(refused) == len(rows) else 0
