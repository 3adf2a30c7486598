"""ppmodel predict: iteration time and memory of training runs, one row each."""

from contextlib import suppress

import click

from ppmodel.cli.arguments import Output, links, option
from ppmodel.cli.commands import command
from ppmodel.cli.text import say
from ppmodel.errors import EXIT_ALL_REFUSED, counted


@command("predict")
@click.argument("rows_file", metavar="ROWS.csv")
@option("system", "NAME|FILE", "The system to predict for.", required=True)
@option("framework", "NAME|FILE", "The training framework of all rows (default: see below).")
@links
@option("out", "FILE.csv", "Where to write the predictions.", Output(), required=True)
def predict_command(rows_file, system, framework, links, out):
    """Predict iteration time, memory and utilization of training runs.

    ROWS.csv has one row for each run and must have all of these columns: hidden, heads, kv_heads, layers,
    mlp_hidden, gated_mlp, vocabulary, sequence, attention, schedule, chunks, tp, cp, ep, dp, pp, sequence_parallel,
    zero, recompute, microbatch_size, global_batch. gated_mlp and sequence_parallel are true or false; attention is
    unfused, unfused-fused-softmax or flash; recompute is a word that ppmodel simulate --help lists; chunks is 1 if the
    schedule has no such option. These columns are optional: model, the name of a packaged model, where the columns of
    the model are empty, and beside it etp, the GPUs that share each expert; flushes, how many times an iteration
    runs the whole pipeline; precision, bf16 or fp8; gradient_bytes, what a GPU keeps for the gradient of a parameter;
    gpus, which must be those of the layout; and framework, the name of a training framework. What no column says is as
    in that framework. Without one, it is that of the system's file if it was fitted, or else one that the column
    source names (NeMo, Megatron-Bridge, dgxc and MLPerf: nemo; llm-foundry, FSDP and torchtitan: fsdp; nanotron and
    the Playbook: nanotron; Megatron-DeepSpeed and vTrain: megatron_deepspeed; BigScience: bigscience; DeepSpeed:
    deepspeed; InternEvo: eager; Hagemann: scaling), or else megatron. Other columns are notes and copied, unless
    their names are nearly those of columns that are read.

    FILE.csv has the same rows, followed by predicted_iteration_s, predicted_memory_gb (1e9 bytes, on the most loaded
    GPU), predicted_fits, predicted_mfu, refused, the reason if a row has no prediction, and predicted_fit: fits, tight,
    may not fit or does not fit, where nine of ten predictions of memory are off by less than the margin between these.
    predicted_fits is false above the capacity, where that word is one of the last two.

    Exit codes: 0 at least one row is predicted; 1 every row is refused; 2 the command or the file is refused.
    """
    from statistics import fmean, median

    from ppmodel.clusters.specs import load_framework, load_system
    from ppmodel.studies.measured import predict_file

    rows = predict_file(rows_file, load_system(system), out, framework and load_framework(framework), links)
    refused = [row for row in rows if row["refused"] is not None]
    say(f"{out}: {counted(len(rows) - len(refused), 'row')} predicted, {len(refused)} refused")
    errors = []
    for row in rows:
        with suppress(ValueError):  # it was not measured
            measured_s = float(row.get("iteration_s", ""))
            if row["refused"] is None and measured_s > 0:
                errors.append(row["predicted_iteration_s"] / measured_s - 1)
    if errors:
        sizes, largest = [abs(error) for error in errors], max(errors, key=abs)
        summary = f"mean error {fmean(sizes):.1%}, median {median(sizes):.1%}, largest {largest:+.1%}"
        rows_measured = counted(len(errors), "row")
        say(f"against the measured iteration_s of {rows_measured}: {summary} (+ is predicted too long)")
    if refused:
        number = 1 + next(place for place, row in enumerate(rows) if row["refused"] is not None)
        name = f" ({refused[0]['id']})" if refused[0].get("id") else ""
        say(f"first refused: row {number}{name}, {refused[0]['refused']}")
    return EXIT_ALL_REFUSED if len(refused) == len(rows) else 0
