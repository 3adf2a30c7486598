"""The command line: arguments in, one call, text or JSON out."""

import atexit
import json
import math
import os
import sys
import textwrap
import threading
from pathlib import Path

import click

from ppmodel import __version__, schedules
from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.simulation import ALLREDUCE, P2P

_MAX_COUNT = 10**9
_MAX_WORKERS = 1024
_MAX_SHOWN = 16
_FIRST_SHOWN = 8
_EXIT_REFUSED = 2
_EXIT_INTERRUPTED = 130
_END_S = 20


def _plain(text):
    """A number's text as people write it: Python would also take 1_000 and other scripts' digits."""
    text = str(text)
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError
    return text


class _Seconds(click.ParamType):
    """A finite number of seconds."""

    name = "seconds"

    def __init__(self, smallest):
        self.smallest = smallest

    def convert(self, value, param, ctx):
        try:
            seconds = float(_plain(value))
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and self.smallest == "above 0"):
            rule = f"must be a finite number of seconds, {self.smallest}"
            raise PPModelError(param.opts[0], value, rule, f"pass for example {param.opts[0]} 0.5")
        return seconds


class _Count(click.ParamType):
    """A whole number of at least 1."""

    name = "count"

    def __init__(self, largest=_MAX_COUNT):
        self.largest = largest

    def convert(self, value, param, ctx):
        try:
            count = int(_plain(value))
        except ValueError:
            count = 0
        if not 1 <= count <= self.largest:
            rule, remedy = f"must be a whole number from 1 to {self.largest}", f"pass for example {param.opts[0]} 8"
            raise PPModelError(param.opts[0], value, rule, remedy)
        return count


class _Choice(click.ParamType):
    """One of some words."""

    name = "choice"

    def __init__(self, words):
        self.words = words

    def convert(self, value, param, ctx):
        if value not in self.words:
            rule = f"must be one of {', '.join(self.words)}"
            raise PPModelError(param.opts[0], value, rule, "choose one of them")
        return value

    def get_metavar(self, param, ctx=None):
        return "[" + "|".join(self.words) + "]"


def _size_options(command):
    """What names a schedule: its size, and every option that some schedule has."""
    known = {}
    for name in schedules.names():
        for option in schedules.get(name).options:
            known.setdefault(option.name, (option, []))[1].append(name)
    for option, owners in reversed(known.values()):
        text = f"{', '.join(owners)}: {option.help}"
        command = click.option(f"--{option.name}", metavar=option.form, help=text)(command)
    command = click.option("--microbatches", type=_Count(), metavar="B", help="Microbatches.")(command)
    return click.option("--stages", type=_Count(), metavar="S", help="Devices of the pipeline.")(command)


def _build(name, stages, microbatches, options):
    """The schedule that the arguments name; only options that were given count."""
    entry = schedules.get(name)
    for field, value in (("--stages", stages), ("--microbatches", microbatches)):
        if value is None:
            raise PPModelError(field, None, "is missing", f"pass for example {field} 8")
    known = {option.name: option for option in entry.options}
    given = {key: text for key, text in options.items() if text is not None}
    for key, text in given.items():
        if key in known:
            try:
                given[key] = known[key].parse(text)
            except ValueError:
                remedy = f"pass for example --{key} {known[key].example}"
                raise PPModelError(f"--{key}", text, known[key].rule, remedy) from None
    return schedules.build(name, stages, microbatches, **given)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
def cli():
    """Pipeline-parallel schedules as tables: by formula, by slot, and simulated with communication."""


@cli.command("schedules")
def list_schedules():
    """List the schedules, their options and where each is legal."""
    for name in schedules.names():
        entry = schedules.get(name)
        click.echo(f"{name}\n    {entry.title}\n    legal: {entry.legal}")
        for option in entry.options:
            usual = "" if option.default is None else f" (default {option.example})"
            click.echo(f"    --{option.name} {option.form}  {option.help}{usual}")


@cli.command()
@click.argument("name")
@_size_options
@click.option(
    "--format",
    "form",
    type=_Choice(["text", "csv", "pytorch"]),
    default="text",
    help="How to write it; pytorch is the CSV that torch.distributed.pipelining loads.",
)
@click.option("--backward-slots", type=_Count(), metavar="N", help="Slots of a backward (default 2).")
@click.option("--input-grad-slots", type=_Count(), metavar="N", help="Slots of the gradient of the input (default 1).")
@click.option(
    "--weight-grad-slots", type=_Count(), metavar="N", help="Slots of the gradient of the weights (default 1)."
)
def table(name, stages, microbatches, form, backward_slots, input_grad_slots, weight_grad_slots, **options):
    """Print the idealised table of a schedule: ranks x slots, no communication."""
    from ppmodel.export import write_table

    slots = {"backward": backward_slots, "input_grad": input_grad_slots, "weight_grad": weight_grad_slots}
    slots = {kind: count for kind, count in slots.items() if count is not None}
    for kind, count in slots.items():
        if form == "pytorch":
            option = f"--{kind.replace('_', '-')}-slots"
            raise PPModelError(option, count, "has no effect on PyTorch's form, an order without slots", "leave it out")
    click.echo(write_table(_build(name, stages, microbatches, options), form, **slots), nl=False)


@cli.command()
@click.argument("file", type=click.Path())
def check(file):
    """Judge a table file: every operation once, in its place, and no deadlock."""
    from ppmodel import metrics
    from ppmodel.export import read_file

    reading = read_file(file)
    schedule = reading.schedule
    said = f"{reading}\n" if reading.pytorch or reading.letters != "pytorch" else ""
    replicas = f", {schedule.num_replicas} replicas" if schedule.num_replicas > 1 else ""
    sums = int((schedule.kind == OpKind.R).sum())
    reductions = f" and {sums} gradient sums" if sums else ""
    click.echo(
        f"{file}: a schedule of {schedule.num_operations - sums} operations{reductions} "
        f"on {_counted(schedule.num_ranks, 'rank')}, {_counted(schedule.num_stages, 'stage')}{replicas}, "
        f"{_counted(schedule.num_microbatches, 'microbatch')}\n{said}"
        f"idealised table (backward of two slots): {metrics.table_slots(schedule)} slots, "
        f"bubble ratio {metrics.table_bubble_ratio(schedule):.4f}\n"
        f"peak activations by rank: {_numbers(metrics.peak_activations(schedule))}"
    )


@cli.command()
@click.argument("name", required=False)
@_size_options
@click.option("--table", "file", type=click.Path(), help="A table file instead of a schedule's name.")
@click.option("--p2p", type=_Choice(P2P), default="overlapped", show_default=True, help="What a transfer occupies.")
@click.option(
    "--allreduce", type=_Choice(ALLREDUCE), default="excluded", show_default=True, help="The replicas' gradient sum."
)
@click.option("--forward", type=_Seconds("above 0"), help="Forward of one microbatch on 1/S of the model.")
@click.option("--backward", type=_Seconds("above 0"), help="Backward of the same; a half of it takes half.")
@click.option(
    "--input-grad", type=_Seconds("above 0"), help="Gradient of the input; with --weight-grad, for --backward."
)
@click.option(
    "--weight-grad", type=_Seconds("0 or more"), help="Gradient of the weights; with --input-grad, for --backward."
)
@click.option(
    "--pair", type=_Seconds("above 0"), help="A forward and a backward that share a cell, F&B (default: their sum)."
)
@click.option("--comm", type=_Seconds("0 or more"), help="One transfer (default 0); not divided by chunks.")
@click.option("--reduction", type=_Seconds("0 or more"), help="Gradient sum of 1/S of the model; with --allreduce.")
@click.option("--model", metavar="NAME|FILE", help="Model; with --system, instead of the seconds.")
@click.option("--system", metavar="NAME|FILE", help="System; with --model, instead of the seconds.")
@click.option("--trace", type=click.Path(), metavar="FILE", help="Write a trace for Perfetto or chrome://tracing, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    name,
    stages,
    microbatches,
    file,
    p2p,
    allreduce,
    forward,
    backward,
    input_grad,
    weight_grad,
    pair,
    comm,
    reduction,
    model,
    system,
    trace,
    as_json,
    **options,
):
    """Simulate one iteration of a schedule with communication.

    Idle ratio: what ranks do not compute, over their whole time. Over the ideal time: the same over what they
    compute (Megatron). Over the longest span: over the longest time from a rank's first operation to its last (Zero
    Bubble). An order that is searched for (zb-1p, zb-2p) is searched for the times given, unless --times says others.
    """
    from ppmodel import simulation

    if trace is not None:
        _refuse_inputs(trace, file, model, system)
    schedule = _given_schedule(name, file, stages, microbatches, options)
    seconds = {
        "--forward": forward, "--backward": backward, "--input-grad": input_grad, "--weight-grad": weight_grad,
        "--pair": pair, "--comm": comm, "--reduction": reduction,
    }  # fmt: skip
    specified = {"--model": model, "--system": system}
    costs, *specs = _given_costs(schedule, seconds, specified, allreduce)
    times = _own_times(name, options, schedule, costs)
    if times is not None:
        schedule = _given_schedule(name, file, stages, microbatches, options | {"times": times})
        costs, *specs = _given_costs(schedule, seconds, specified, allreduce)
    compiled = simulation.compile_graph(schedule, p2p, allreduce, _nics(specs[1], schedule.num_ranks, p2p))
    timeline = simulation.run_graph(compiled, costs)
    result = _simulated(timeline) | ({} if times is None else {"ordered_for": times})
    if None not in specs:
        result |= _specified(schedule, *specs) | _on_nodes(schedule, specs[1], p2p)
    if trace is not None:
        result["trace"], result["trace_events"] = trace, _write_trace(trace, timeline, *specs)
    click.echo(json.dumps(result) if as_json else _simulated_text(result, schedule, specs[1]))


def _own_times(name, options, schedule, costs):
    """The times to search an order for, where its user has not said them: the mean stage's, in forwards."""
    if name is None or "times" not in {option.name for option in schedules.get(name).options} or options["times"]:
        return None
    forward, _, *halves, _ = costs.compute_s.mean(axis=1)
    transfer = (costs.occupancy_s + costs.latency_s)[OpKind.F].mean() * schedule.pieces_per_unit
    return ":".join(f"{seconds / forward:.4g}" for seconds in (forward, *halves, transfer))


def _simulated(timeline):
    """What is told of any simulation."""
    from ppmodel import metrics

    graph, schedule = timeline.graph, timeline.graph.schedule
    return {
        "schedule": schedule.name,
        "stages": schedule.num_ranks,
        "microbatches": schedule.num_microbatches,
        "p2p": graph.p2p,
        "allreduce": graph.allreduce,
        "makespan_s": timeline.makespan_s,
        "idle_ratio": metrics.idle_ratio(timeline),
        **{f"bubble_ratio_{over}": ratio for over, ratio in metrics.bubble_ratios(timeline)._asdict().items()},
        "table_bubble_ratio": metrics.table_bubble_ratio(schedule),
        "peak_activations": metrics.peak_activations(schedule).tolist(),
        "operations": graph.num_operations,
    }


def _simulated_text(result, schedule, system):
    """The same in lines, and what is told with a model, a system, nodes or a trace."""
    cut = f", {schedule.num_stages} stages" if schedule.num_stages != schedule.num_ranks else ""
    halves = ", its halves of one" if (schedule.kind == OpKind.I).any() else ""
    lines = [
        f"{result['schedule']}, {result['stages']} ranks{cut}, {result['microbatches']} microbatches; "
        f"transfers {result['p2p']}, all-reduce {result['allreduce']}",
        f"makespan            {result['makespan_s']:.6g} s",
        f"idle ratio          {result['idle_ratio']:.4f}  (over the ideal time {result['bubble_ratio_ideal']:.4f}, "
        f"over the longest span {result['bubble_ratio_span']:.4f})",
        f"table bubble ratio  {result['table_bubble_ratio']:.4f}  (no communication, backward of two slots{halves})",
        f"peak activations    {_peaks(result['peak_activations'])}",
    ]
    if "ordered_for" in result:
        lines.append(
            f"ordered for         {result['ordered_for']}  (forward, halves of the backward, transfer; --times)"
        )
    if "model" in result:
        lines.append(_specified_text(result))
    if "nodes" in result:
        lines.append(_nodes_text(result, system))
    if "trace" in result:
        lines.append(f"trace               {result['trace']}, {result['trace_events']} events")
    return "\n".join(lines)


def _refuse_inputs(trace, *inputs):
    """Refuse a trace in place of a file that the same command reads."""
    if not trace:
        raise PPModelError("--trace", repr(trace), "must be the name of a file", "pass for example --trace trace.json")
    for path in inputs:
        if path is not None and os.path.exists(path) and os.path.realpath(path) == os.path.realpath(trace):
            raise PPModelError("--trace", trace, "is what this command reads", "name another file")


def _write_trace(path, timeline, model, system):
    """Write a timeline as a trace, with bytes where there is a model, and say of how many events."""
    from ppmodel.costs import stages
    from ppmodel.export import write_trace

    if model is None:
        return write_trace(path, timeline)
    held = stages(timeline.graph.schedule, model, system)
    return write_trace(path, timeline, held, model=model.name, system=system.name)


def _counted(number, word):
    return f"{number} {word}" if number == 1 else f"{number} {word}{'es' if word.endswith('ch') else 's'}"


def _numbers(values):
    return " ".join(f"{value:.4g}" for value in values)


def _peaks(values):
    """Peaks of the ranks: all of them, or of many the largest, the smallest and the first."""
    if len(values) <= _MAX_SHOWN:
        return f"{_numbers(values)}  (microbatches on 1/S of the model, by rank)"
    return (
        f"largest {max(values):.4g}, smallest {min(values):.4g}; "
        f"from rank 0 on {_numbers(values[:_FIRST_SHOWN])} ...  "
        f"(microbatches on 1/S of the model; --json has all {len(values)})"
    )


def _specified(schedule, model, system):
    """Names of model and system, and what the fullest rank holds of its memory."""
    from ppmodel.costs import microbatch_sequences, stages
    from ppmodel.metrics import memory

    held = memory(schedule, model, stages(schedule, model, system)).total
    return {
        "model": model.name, "system": system.name,
        "microbatch_sequences": microbatch_sequences(schedule, model), "peak_memory_bytes": float(held.max()),
        "memory_capacity_bytes": system.memory_capacity_bytes,
    }  # fmt: skip


def _specified_text(result):
    """The same in lines."""
    held, room = (result[key] / 2**30 for key in ("peak_memory_bytes", "memory_capacity_bytes"))
    fits = "" if held <= room else ": does not fit"
    if fits and result["microbatch_sequences"] > 1:
        fits += f"; with more microbatches each has fewer than {result['microbatch_sequences']} sequences"
    return (
        f"microbatch          {_counted(result['microbatch_sequences'], 'sequence')}\n"
        f"memory              {held:.4g} GiB on the fullest rank, of {room:.4g}{fits}\n"
        f"model, system       {result['model']}, {result['system']}"
    )


def _on_nodes(schedule, system, p2p):
    """Where the ranks lie, their messages, and whether these pass shared nics; nothing without nodes."""
    from ppmodel.metrics import messages_by_node
    from ppmodel.specs import nodes_of

    nodes = nodes_of(system, schedule.num_ranks)
    if nodes is None:
        return {}
    spec, held = system.nodes, _nics(system, schedule.num_ranks, p2p) is not None
    inside, between = messages_by_node(schedule, nodes)
    nics = "own links"
    if spec.shared_nic:
        nics = "held" if held else "not used" if not nodes.any() else f"not held under {p2p}"
    return {
        "nodes": {
            "placement": spec.placement if isinstance(spec.placement, str) else list(spec.placement),
            "devices_per_node": spec.devices_per_node, "used": int(nodes.max()) + 1,
        },
        "messages_inside_nodes": inside, "messages_between_nodes": between, "shared_nics": held, "nics": nics,
    }  # fmt: skip


def _nodes_text(result, system):
    """The same in lines; and that the network is not used, where all ranks lie on one node."""
    from ppmodel.specs import one_node_text

    nodes = result["nodes"]
    placement = nodes["placement"] if isinstance(nodes["placement"], str) else "by the file's list"
    way = " through shared nics" if result["shared_nics"] else ""
    lines = [
        f"nodes               {nodes['used']} of up to {nodes['devices_per_node']} ranks, {placement}",
        f"messages            {result['messages_inside_nodes']} inside nodes, "
        f"{result['messages_between_nodes']} between them{way}",
    ]
    if result["nics"].startswith("not held"):
        lines.append(f"shared nics: {result['nics']}")
    said = one_node_text(system, [result["stages"]])
    return "\n".join([*lines, said] if said else lines)


def _given_schedule(name, file, stages, microbatches, options):
    if (name is None) == (file is None):
        rule = "must be given, or --table, and not both"
        raise PPModelError("NAME", name, rule, "pass a schedule's name or --table FILE")
    if file is None:
        return _build(name, stages, microbatches, options)
    from ppmodel.export import read_table

    given = {"stages": stages, "microbatches": microbatches, **options}
    for key, value in given.items():
        if value is not None:
            raise PPModelError(f"--{key}", value, "is part of the table", f"leave --{key} out")
    return read_table(file)


def _given_costs(schedule, seconds, specified, allreduce):
    """Costs from seconds, and None twice; or from a model and a system, and these. Not from both."""
    from ppmodel import costs

    by_seconds = any(value is not None for value in seconds.values()) or not any(specified.values())
    wanted, unwanted = (_wanted(seconds), specified) if by_seconds else (tuple(specified), seconds)
    given = seconds | specified
    for option in unwanted:
        if given[option] is not None:
            beside = [other for other in given if given[other] is not None and other not in unwanted] or wanted
            rule = f"cannot stand beside {' and '.join(beside)}"
            raise PPModelError(option, given[option], rule, "give either seconds or model and system")
    for option in wanted:
        if given[option] is None:
            remedy = "pass --forward and --backward (or --input-grad and --weight-grad), or --model and --system"
            raise PPModelError(option, None, "is missing", remedy)
    if by_seconds:
        if allreduce != "excluded" and seconds["--reduction"] is None:
            raise PPModelError("--reduction", None, f"is missing for --allreduce {allreduce}", "pass its seconds")
        if seconds["--pair"] is not None and not schedule.overlaps.any():
            rule = f"has no effect: no cell of {schedule.name} holds a forward and a backward"
            raise PPModelError("--pair", seconds["--pair"], rule, "leave it out")
        named = {option[2:].replace("-", "_"): value for option, value in seconds.items() if value is not None}
        return costs.uniform_costs(schedule, **named), None, None
    from ppmodel.specs import load_model, load_system

    model, system = load_model(specified["--model"]), load_system(specified["--system"])
    return costs.model_costs(schedule, model, system), model, system


def _wanted(seconds):
    """The seconds that must be given: those of a backward, or of both its halves."""
    halves = "--input-grad", "--weight-grad"
    if all(seconds[half] is None for half in halves):
        return "--forward", "--backward"
    if seconds["--backward"] is not None:
        rule = f"cannot stand beside {' and '.join(halves)}"
        raise PPModelError("--backward", seconds["--backward"], rule, "leave it out: it is their sum")
    return "--forward", *halves


def _nics(system, num_ranks, p2p):
    """The NIC of each rank, where a system's nodes share nics that messages hold."""
    if system is None:
        return None
    from ppmodel.specs import nics_of

    return nics_of(system, num_ranks, p2p)


@cli.command("sweep")
@click.argument("specification", metavar="SPEC", type=click.Path())
@click.option("--out", type=click.Path(), required=True, metavar="FILE", help="The output; must end in .parquet.")
@click.option(
    "--workers",
    type=_Count(_MAX_WORKERS),
    metavar="N",
    help="Compute on N processes of this machine, a local Dask cluster (default: in this process alone).",
)
@click.option("--scheduler", metavar="ADDRESS", help="Compute on a Dask cluster instead, such as tcp://host:8786.")
@click.option("--force", is_flag=True, help="Replace an output, or unfinished parts, of another sweep.")
def run_sweep(specification, out, workers, scheduler, force):
    """Compute a grid of points, a row each; the same command resumes it.

    SPEC is a YAML file; data/templates/sweep.yaml is one to copy, and explains the keys.

    Exit codes: 0 the output is complete; 1 it is, and every row of it is refused; 2 the command, the file or the
    cluster is refused, or rows cannot be computed; 130 interrupted.
    """
    from ppmodel.sweep import SweepStopped
    from ppmodel.sweep import run_sweep as run_whole_sweep

    try:
        done = run_whole_sweep(specification, out, workers, scheduler, force, process_ends=True)
    except SweepStopped as stopped:
        click.echo(stopped, err=True)
        return _EXIT_INTERRUPTED
    click.echo(_summary(done))
    return 1 if done.refused.rows == done.rows else 0


def _summary(done):
    """What a sweep came to, in one line."""
    from ppmodel.sweep.progress import counted

    refused, alike, example = done.refused
    text = f"{done.out}: {counted(done.rows)}, "
    text += "there already, nothing to do" if done.computed is None else f"{done.computed} computed now"
    number = "every row is" if refused == done.rows else str(refused)
    text += f"; {number} refused"
    if example:
        text += f", {'all' if alike == refused else alike} like this: {example}" if refused > 1 else f": {example}"
    return text


@cli.command("run")
@click.argument("notebook")
@click.option("-p", "--parameter", "given", nargs=2, multiple=True, metavar="NAME VALUE", help="May be repeated.")
@click.option("--out", type=click.Path(), metavar="FOLDER", help="For notebook and results (default: its name).")
def run_notebook(notebook, given, out):
    """Run one notebook, by name or file, with parameters of your own."""
    _require_folder(out)
    from ppmodel.artefact.reproduce import run

    click.echo(run(notebook, given, out))


@cli.command()
@click.option("--system", metavar="NAME|FILE", help="Your system, in front of the paper's.")
@click.option("--model", metavar="NAME|FILE", help="Your model, instead of the paper's.")
@click.option("--memory-limit", metavar="SIZE", help='Memory to use of a rank, such as "64 GiB" (default: all).')
@click.option(
    "--out", type=click.Path(), metavar="FOLDER", help="For the built book (default book/_build, or one in it)."
)
@click.option("--jobs", type=_Count(), default=2, metavar="N", help="Notebooks run at once (default 2).")
def reproduce(system, model, memory_limit, out, jobs):
    """Run every notebook and build the book; for your own system, a book of its own."""
    _require_folder(out)
    from ppmodel.artefact.reproduce import reproduce as build_book

    click.echo(build_book(system=system, model=model, memory_limit=memory_limit, out=out, jobs=jobs))


def _require_folder(out):
    if out is not None and not out.strip():
        raise PPModelError("--out", repr(out), "must name a folder", "pass a folder, or leave --out away")


@cli.command()
@click.option("--system", metavar="NAME|FILE", help="Judge on this system instead of the paper's nine.")
@click.option("--model", metavar="NAME|FILE", default="paper", show_default=True, help="Model.")
@click.option(
    "--setting", metavar="NAME|FILE", default="default", show_default=True, help="What the paper leaves open."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, an object a row.")
def claims(system, model, setting, as_json):
    """Judge the paper's claims; exit code 1 where a verdict is not the expected one."""
    from ppmodel.artefact.claims import disagreements, judge, load_claims
    from ppmodel.specs import load_model, load_setting, load_system, setting_names

    if setting not in setting_names() and Path(setting).stem in setting_names():
        from ppmodel.specs import same_name

        raise PPModelError("--setting", setting, *same_name(setting, "settings"))
    usual = system is None and (model, setting) == ("paper", "default")
    system = None if system is None else load_system(system)
    judgements = judge(load_claims(), load_model(model), load_setting(setting), system)
    others = disagreements(judgements, margins=usual)
    click.echo(json.dumps([_judged(one) for one in judgements]) if as_json else _report(judgements, others))
    return 1 if others else 0


def _judged(judgement):
    """A judgement as an object; what could not be measured is null."""
    from ppmodel.artefact.claims import condition

    row = judgement.row
    measured, margin = (None if math.isnan(n) else n for n in (judgement.measured, judgement.margin))
    return {
        "id": row.id, "statement": row.statement, "verdict": judgement.verdict, "expected": row.expected.verdict,
        "measured": measured, "relation": row.relation, "value": row.value, "tolerance": row.tolerance,
        "unit": row.unit, "margin": margin, "condition": condition(judgement), "reason": judgement.reason,
        "page": row.page,
    }  # fmt: skip


def _report(judgements, others):
    """A line a row, the condition of what holds only sometimes below it, and what was not expected."""
    from ppmodel.artefact.claims import VERDICTS, condition, signed

    form = "{:<23} {:<14} {:<4} {:>10} {:>15} {:>11}  {}"
    lines = [form.format("id", "verdict", "here", "measured", "claimed", "margin", "read on")]
    for one in judgements:
        row = one.row
        numbers = (row.number(one.measured), row.reference, signed(row, one.margin))
        here = {"no case": ""}.get(one.verdict, "yes" if one.holds_here else "no")
        lines.append(form.format(row.id, VERDICTS[one.verdict], here, *numbers, row.page))
        said = condition(one) or one.reason
        lines += textwrap.wrap(said, 100, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    counts = ", ".join(f"{sum(one.verdict == key for one in judgements)} {word}" for key, word in VERDICTS.items())
    lines.append(
        f"\n{sum(one.holds_here for one in judgements)} of {len(judgements)} rows hold here, under this setting; "
        f"under all assumptions tried: {counts}\n"
        "margin: how far inside what is claimed the number lies here; below 0 it lies outside"
    )
    if others:
        lines.append("\ndiffers from data/claims.yaml, which expects the paper's systems and model:")
    for one in others:
        row = one.row
        pairs = ((one.verdict, one.margin), (row.expected.verdict, row.expected.margin))
        seen, expected = (f"{VERDICTS[verdict]} (margin {signed(row, margin)})" for verdict, margin in pairs)
        lines.append(f"{row.id}: {seen}, expected {expected}")
    return "\n".join(lines)


def main(argv=None):
    """Run the command line; what a user typed wrong costs one line and exit code 2."""
    try:
        code = cli.main(args=argv, prog_name="ppmodel", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except PPModelError as error:
        click.echo(f"error: {error}", err=True)
        if error.grid:
            click.echo(str(error.grid), err=True)
        return _EXIT_REFUSED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        return _EXIT_REFUSED
    except click.ClickException as error:
        text = " ".join(error.format_message().split())
        command = error.ctx.command_path if getattr(error, "ctx", None) else "ppmodel"
        click.echo(f"error: {text.rstrip('.')}; see '{command} --help'", err=True)
        return _EXIT_REFUSED
    except BrokenPipeError:  # the reader of our output has gone, for example head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        click.echo(f"error: output = {error.filename or 'standard output'}: cannot be written ({error.strerror}); "
                   "make room, or write elsewhere", err=True)  # fmt: skip
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_REFUSED
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return _EXIT_INTERRUPTED


def run():
    """Run the command line as a process, and end it."""
    code = main()
    if code == _EXIT_INTERRUPTED:  # no thread or connection that is left is waited for, or not for long
        last = threading.Timer(_END_S, os._exit, [code])
        last.daemon = True
        last.start()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
