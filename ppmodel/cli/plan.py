"""ppmodel plan: which layout and which schedule for a model on some GPUs."""

import re
from pathlib import Path

import click

from ppmodel.cli import arguments, text
from ppmodel.cli.commands import command
from ppmodel.clusters.specs.layout import SEARCHED_FOR, STAGE_GROUPS, layout_options
from ppmodel.errors import PPModelError
from ppmodel.files import write_whole

_PICTURE = arguments.Output(".svg", ".png", ".pdf")
_LIMITED = "pp", *STAGE_GROUPS, "ep", "dp"
_FIXED = {name: declared for name, declared in layout_options() if name not in SEARCHED_FOR}
_in_run, _in_search = arguments.sectioned("Run"), arguments.sectioned("Search")


@command("plan")
@click.argument("words", metavar="[SCHEDULE|NAME=VALUE]...", nargs=-1)
@arguments.in_cluster("model", "NAME|FILE", "The model: see ppmodel models.", required=True)
@arguments.in_cluster("system", "NAME|FILE", "The cluster: see ppmodel systems.", required=True)
@arguments.framework
@arguments.links
@arguments.in_cluster("memory-limit", "SIZE", "Memory of a GPU to use, such as '64 GiB' (default: all of it).")
@_in_run("gpus", "N", "GPUs of the run.", arguments.count(2**20), required=True)
@_in_run("global-batch", "N", "Sequences per iteration.", arguments.count(2**24), required=True)
@_in_run("sequence", "N", "Tokens of a sequence (default: the model's).", arguments.count(2**24))
@_in_search("schedules", "SCHEDULE...", "Schedules to try (default: all).", multiple=True)
@arguments.combined(*(
    _in_search(f"max-{name}", "N", f"The largest {name} to try{' (default: a node)' * (name == 'tp')}.",
               arguments.count()) for name in _LIMITED
))  # fmt: skip
@_in_search("within", None, "List answers that take at most this share longer than the best.", arguments.number(0, 1),
            default=0.05, show_default=True)  # fmt: skip
@arguments.option("fix", "NAME=VALUE...", "Values that all layouts have, as in tp=8 zero=1; --tp 8 --zero 1 says the "
                  "same.", multiple=True, section="Layout")  # fmt: skip
@arguments.combined(*(arguments.layout_option(name, declared, declared.help) for name, declared in _FIXED.items()))
@arguments.workers
@arguments.in_computing("resume", "FOLDER", "Keep what is computed in FOLDER (with --pareto also in FOLDER.1, "
                        "FOLDER.2, ...); the same command goes on from there.")  # fmt: skip
@arguments.in_output("rows", None, "Answers to list.", arguments.count(1000), default=10, show_default=True)
@arguments.in_output("explain", "ROW", "Row of the answer to explain.", arguments.count(1000), default=1,
                     show_default=True)  # fmt: skip
@arguments.in_output("pareto", "FILE", "Also draw time against memory, as .svg, .png or .pdf.", _PICTURE)
@arguments.launch_option
@arguments.json_option("Print one JSON object.")
@arguments.csv_file
def plan_command(words, schedules, fix, rows, explain, launch, as_json, csv_file, pareto, **given):
    """Find the fastest layout and schedule for a model on some GPUs.

    Tries all sizes of tensor (with sequence parallelism), context, expert, pipeline and data parallelism, ZeRO,
    microbatches of 1 to 8 sequences, recomputation, ways to divide the layers, and every schedule with its options. It
    prunes by exact lower bounds and simulates the rest. You see the best answer with its range, answers that are about
    as good but differ in what matters, where the time goes, and what one step in each dimension would cost. Answers
    that the framework does not run as modelled, or that no measured run resembles, are listed apart.

    SCHEDULE is as in ppmodel compare, with options if need be (interleaved-1f1b:chunks=4). In tables, b is the
    microbatch size, and ep 8 x 2 means an etp of 2. If your runs take longer than predicted, plan for the system that
    ppmodel calibrate writes.

    Exit codes: 0 there is an answer; 2 the command or a file is refused, or nothing fits.
    """
    from ppmodel.cli.planned import drawn_front, front_lines, plan_dict, planned_lines
    from ppmodel.clusters.specs.launcher import load_launcher
    from ppmodel.export import write_rows
    from ppmodel.studies.planning import planned
    from ppmodel.studies.workers.progress import passing

    if launch is not None:
        load_launcher(launch)  # refused before the search
    if unitless := re.search(r"delay=[\d.e+-]+(?![\w.])", given["links"] or ""):
        raise PPModelError("--link", unitless[0], "needs a unit of time", f"write {unitless[0]}ms or {unitless[0]}s")
    options = arguments.given({name: given.pop(name) for name in _FIXED})
    fixed, named = _separated(fix, words, schedules, options)
    most, chosen = {name: given.pop(f"max_{name}") for name in _LIMITED}, named if named or schedules else None

    def show_best(best):
        fastest = best.get(True) or best[False]
        sizes = ", ".join(f"{name} {value}" for name, value in fastest.sizes._asdict().items())
        show(f"searching ... so far {fastest.iteration_s:.4g} s: {text.plain(fastest.case.label)}, {sizes}")

    with passing("searching ...") as show:
        plan = planned(schedules=chosen, fix=fixed, most=most, on_progress=show_best, **given)
        if explain > len(plan.answers):
            rule = f"is not among the {len(plan.answers)} answers"
            raise PPModelError("explain", explain, rule, "choose a smaller row")
        result = plan_dict(plan, explain - 1) if as_json else {}
        answer = [] if as_json else [*planned_lines(plan, rows, explain - 1)]
        if pareto is not None:
            how = given["workers"], given["scheduler"], given["resume"]
            front, picture = drawn_front(plan, Path(pareto).suffix[1:], *how)
            result, answer = result | {"front": front}, [*answer, "", *front_lines(front)]
    if launch is not None:
        from ppmodel.cli.launched import launched

        written, pasted = launched(launch, plan.point(plan.answers[explain - 1]))
        result, answer = result | {"launch": written}, [*answer, "", *pasted]
    if csv_file is not None:
        write_rows(csv_file, list(plan.frame.columns), plan.frame.to_dict("records"), "--csv")
    if pareto is not None:
        write_whole(pareto, picture, "--pareto")
    text.say_json(result) if as_json else text.say(answer)


def _separated(fix, words, schedules, options):
    """Values of the layout, and schedules: ``--fix tp=8 pp=4`` and ``--schedules 1f1b zb-v`` leave words behind."""
    fixed, named = {}, [name for text in schedules for name in ([text] if ":" in text else text.split(","))]
    for word in [*fix, *words]:
        name, sign, value = word.partition("=")
        if not sign and word in fix:
            raise PPModelError("fix", word, "must be a name and its value", "write, for example, tp=8")
        if not sign or ":" in name:
            named.append(word)
            continue
        name = name.replace("-", "_")
        fixed[name] = arguments.written(value)
    return fixed | options, [name for name in named if name]
