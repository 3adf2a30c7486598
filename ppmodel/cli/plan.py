"""ppmodel plan: which layout and which schedule for a model on some GPUs."""

import re

import click

from ppmodel.cli import arguments, text
from ppmodel.cli.commands import command
from ppmodel.clusters.specs.layout import LAYER_WORDS, LAYOUT_OPTIONS, SEARCHED_FOR, STAGE_GROUPS
from ppmodel.errors import PPModelError
from ppmodel.files import write_whole

_LIMITED = "pp", *STAGE_GROUPS, "ep", "dp"
_FIXED = {name: declared for name, declared in LAYOUT_OPTIONS.items() if name not in SEARCHED_FOR}
_in_run, _in_search = arguments.sectioned("Run"), arguments.sectioned("Search")
_in_training = arguments.sectioned("Days, money and failures")
_TRAINING = {
    "tokens": ("N", "Tokens to train on, such as 15T: adds days and GPU-hours."),
    "price": ("N", "Of a GPU-hour, or of each system's, as in h100=2.5,b200=4 (default: the system's, if it says "
              "one)."),
    "finish": ("TIME", "Find the least GPUs predicted to end in this time, such as 30d: of --gpus, or of round ones."),
    "budget": ("N", "Find the least GPUs that cost at most this, such as 5M, and keep --finish if given."),
    "mtbf": ("TIME", "Mean time between failures of one GPU, such as 50000h: all numbers then count lost time."),
    "checkpoint": ("SIZE", "Of a checkpoint (default: 14 bytes for each parameter)."),
    "checkpoint_bandwidth": ("RATE", "At which all GPUs together write it, such as '200 GB/s'; training waits."),
    "restart": ("TIME", "From a failure until the run goes on (default: 10min)."),
}  # fmt: skip
_SEVERAL, _COUNTS = arguments.Several(click.STRING), arguments.Several(arguments.count(2**24))
_LISTS = "system", "framework", "gpus", "global_batch", "sequence"


@command("plan")
@click.argument("words", metavar="[SCHEDULE|NAME=VALUE]...", nargs=-1)
@arguments.in_cluster("model", "NAME|FILE", "The model, or its config.json: see ppmodel models.", required=True)
@arguments.in_cluster("system", "NAME|FILE,...", "The cluster: see ppmodel systems.", _SEVERAL, required=True)
@arguments.in_cluster("framework", "NAME|FILE,...", "The training framework (default: the system's own, or megatron).",
                      _SEVERAL)  # fmt: skip
@arguments.links
@arguments.in_cluster("memory-limit", "SIZE", "Memory of a GPU to use, such as '64 GiB' (default: all of it).")
@_in_run("gpus", "N,...", "GPUs of the run, or of each system, as in h100=256,b200=96. Several numbers, systems, "
         "batches and so on make a table.", arguments.Several(arguments.count(2**24), by_name=True))  # fmt: skip
@_in_run("global-batch", "N,...", "Sequences per iteration.", _COUNTS, required=True)
@_in_run("sequence", "N,...", "Tokens of a sequence (default: the model's).", _COUNTS)
@arguments.combined(*(_in_training(name.replace("_", "-"), *texts) for name, texts in _TRAINING.items()))
@_in_search("schedules", "SCHEDULE...", "Schedules to try (default: all); 1f1b,interleaved-1f1b takes far less time.",
            multiple=True)  # fmt: skip
@arguments.combined(*(
    _in_search(f"max-{name}", "N", f"The largest {name} to try{' (default: a node)' * (name == 'tp')}.",
               arguments.count()) for name in _LIMITED
))  # fmt: skip
@_in_search("within", None, "List answers that take at most this share longer than the best.", arguments.number(0, 1),
            default=0.05, show_default=True)  # fmt: skip
@arguments.option("fix", "NAME=VALUE...", "Values that all layouts have, as in tp=8 zero=1; --tp 8 --zero 1 says the "
                  "same. Of a list each value is tried, as in dispatcher=all-to-all,deepep.", multiple=True,
                  section="Layout")  # fmt: skip
@arguments.combined(*(arguments.layout_option(name, declared, declared.help) for name, declared in _FIXED.items()))
@arguments.workers
@arguments.in_computing("resume", "FOLDER", "Keep what is computed in FOLDER (with --pareto also in FOLDER.1, "
                        "FOLDER.2, ...); the same command goes on from there.")  # fmt: skip
@arguments.in_output("rows", None, "Answers to list.", arguments.count(1000), default=10, show_default=True)
@arguments.in_output("explain", "ROW", "Row of the answer to explain.", arguments.count(1000), default=1,
                     show_default=True)  # fmt: skip
@arguments.in_output("plot", "FILE", "Also draw tokens per second over GPUs, as .svg, .png or .pdf.", arguments.PICTURE)
@arguments.in_output("pareto", "FILE", "Also draw time against memory, as .svg, .png or .pdf.", arguments.PICTURE)
@arguments.launch_option
@arguments.in_output("out", "FILE", "With --launch, also write a script that starts it, such as run.sh.",
                     arguments.Output())  # fmt: skip
@arguments.json_option("Print one JSON object.")
@arguments.csv_file
def plan_command(words, schedules, fix, rows, explain, launch, out, as_json, csv_file, pareto, plot, **given):
    """Find the fastest layout and schedule for a model on some GPUs, and what training takes.

    Tries all sizes of tensor (with sequence parallelism), context, expert, pipeline and data parallelism, ZeRO,
    microbatches of 1 to 8 sequences, recomputation, ways to divide layers and sequences, and every schedule with its
    options. It prunes by exact lower bounds and simulates the rest. You see the best answer with its range, answers
    that are about as good but differ in what matters, where the time goes, and what one step in each dimension would
    cost. Answers that the framework does not run as modelled, or that no measured run resembles, are listed apart. The
    dispatcher of experts is the framework's unless you fix it or list several; one step away from an answer shows the
    other.

    SCHEDULE is as in ppmodel compare, with options if need be (interleaved-1f1b:chunks=4). In tables, b is the
    microbatch size, and ep 8 x 2 means an etp of 2. If your runs take longer than predicted, plan for the system that
    ppmodel calibrate writes.

    Exit codes: 0 there is an answer; 2 the command or a file is refused, or nothing fits.
    """
    from ppmodel.cli.planned import drawn_front, front_lines, plan_dict, planned_lines
    from ppmodel.clusters.specs.launcher import load_launcher
    from ppmodel.export import write_rows
    from ppmodel.studies.planning import Training, are_many, planned, plans
    from ppmodel.studies.planning.question import Sizes
    from ppmodel.studies.workers.progress import passing

    launcher = load_launcher(launch) if launch is not None else None  # refused before the search
    if out is not None and (launcher is None or launcher.script is None):
        raise PPModelError("out", out, "needs a launcher that says how to start it", "add --launch megatron")
    arguments.require_unit(given["links"])
    fixed, named = _separated(fix, words, schedules, arguments.given({name: given.pop(name) for name in _FIXED}))
    most, chosen = {name: given.pop(f"max_{name}") for name in _LIMITED}, named if named or schedules else None
    training = Training(**{name: given.pop(name) for name in _TRAINING})
    given |= {"schedules": chosen, "fix": fixed, "most": most, "training": training}
    several = plot or given["gpus"] is None or are_many(map(given.get, _LISTS), training)
    for name, value in {"pareto": pareto, "launch": launch}.items():
        if several and value is not None:
            rule = "is about one answer to one question" + ", unlike --plot" * bool(plot)
            raise PPModelError(name, value, rule, "leave it out" + ", or ask one question" * (not plot))

    def show_best(best):
        sizes = ", ".join(f"{name} {best[name]}" for name in Sizes._fields)
        show(f"best {best['iteration_s']:.4g} s: {text.plain(best['label'])}, {sizes}", best["searched"])

    figures = {}
    with passing("searching") as show:
        if several:
            from ppmodel.cli.scaled import drawn_scaling, scaled_lines

            frame = plans(show=show, **given)
            result, answer = frame.to_dict("records"), scaled_lines(frame, training)
            figures["--plot"] = plot, plot and drawn_scaling(frame)
        else:
            plan = planned(on_progress=show_best, **given)
            frame = plan.frame
            if explain > len(plan.answers):
                rule = f"is not among the {len(plan.answers)} answers"
                raise PPModelError("explain", explain, rule, "choose a smaller row")
            result = plan_dict(plan, explain - 1) if as_json else {}
            answer = [] if as_json else [*planned_lines(plan, rows, explain - 1)]
        if pareto is not None:
            front, figure = drawn_front(plan, given["workers"], given["scheduler"], given["resume"])
            figures["--pareto"] = pareto, figure
            result, answer = result | {"front": front}, [*answer, "", *front_lines(front)]
    if launcher is not None:
        from ppmodel.cli.launched import launched, started

        point = plan.point(plan.answers[explain - 1])
        written, pasted = launched(launch, launcher, point)
        result, answer = result | {"launch": written}, [*answer, "", *pasted]
    if csv_file is not None:
        write_rows(csv_file, list(frame.columns), frame.to_dict("records"), "--csv")
    for name, (path, figure) in figures.items():
        if path is not None:
            arguments.write_figure(figure, path, name)
    if out is not None:
        write_whole(out, started(launcher, point), "--out")
    text.say_json(result) if as_json else text.say(answer)


def _separated(fix, words, schedules, options):
    """Values of the layout, and schedules: ``--fix tp=8 pp=4`` and ``--schedules 1f1b zb-v`` leave words behind."""
    given, named = [], [name for text in schedules for name in re.split(r",(?!\d|[^:,]*=)", text)]  # not within options
    for word in [*fix, *words]:
        name, sign, value = word.partition("=")
        if not sign and word in fix:
            raise PPModelError("fix", word, "must be a name and its value", "write, for example, tp=8")
        if word.replace(",", "").isdigit():
            raise PPModelError("schedule", word, "is a number", "join several with commas, as in --gpus 32,64")
        if sign and ":" not in name:
            given.append((name.replace("-", "_"), arguments.written(value)))
        else:
            named.append(word)
    fixed = {}
    for name, value in [*given, *options.items()]:
        texts = value.split(",") if isinstance(value, str) and name != "lengths" else []
        is_list = len(texts) > 1 and all(texts) and (name != "layers" or {*texts} <= {*LAYER_WORDS})
        value = [*map(arguments.written, texts)] if is_list else value
        if fixed.setdefault(name, value) != value:
            raise PPModelError(f"fix {name}", value, f"contradicts {name} = {fixed[name]}", "leave out one of the two")
    return fixed, [name for name in named if name]
