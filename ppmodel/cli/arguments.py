"""Argument types, and the options that several commands share."""

import math
import re
from contextlib import suppress
from functools import reduce

import click

from ppmodel import schedules
from ppmodel.errors import PPModelError
from ppmodel.simulation import ALLREDUCE, P2P
from ppmodel.specs.layout import layout_options
from ppmodel.specs.option import LARGEST


class Value(click.ParamType):
    """A value with a rule; a value that breaks it is refused in one line.

    Parameters
    ----------
    name : str
        Placeholder in help texts.
    read : callable
        Converts text; ValueError refuses it.
    is_legal : callable
        Whether a converted value is legal.
    rule : str
    remedy : str
        ``{option}`` stands for the option as typed.
    """

    def __init__(self, name, read, is_legal, rule, remedy="choose one of them"):
        self.name, self.read, self.is_legal, self.rule, self.remedy = name, read, is_legal, rule, remedy

    def convert(self, value, param, ctx):
        text = str(value)
        # as people write it: Python would also read 1_000 and digits of other scripts
        if self.read is str or (text.isascii() and "_" not in text and text == text.strip()):
            with suppress(ValueError):
                if self.is_legal(legal := self.read(text)):
                    return legal
        remedy = self.remedy.format(option=param.opts[0])
        if self.name == "COUNT" and "," in text:
            remedy += "; lists are for ppmodel sweep, and for ppmodel.compare in Python"
        raise PPModelError(param.opts[0], value, self.rule, remedy)

    def get_metavar(self, param, ctx=None):
        return self.name


class Output(click.Path):
    """A file to be written. `commands.Command` checks it before the command runs."""


def seconds(smallest="0 or more"):
    """A finite number of seconds."""
    least = 0 if smallest == "0 or more" else math.nextafter(0, 1)
    rule = f"must be a finite number of seconds, {smallest}"
    return Value("SECONDS", float, lambda time: least <= time < math.inf, rule, "pass, for example, {option} 0.5")


def count(largest=LARGEST, smallest=1, rule=None):
    """A whole number."""
    rule = rule or f"must be a whole number from {smallest} to {largest}"
    remedy = f"pass, for example, {{option}} {min(8, largest)}"
    return Value("COUNT", int, lambda number: smallest <= number <= largest, rule, remedy)


def choice(words):
    """One of several words."""
    return Value(f"[{'|'.join(words)}]", str, words.__contains__, f"must be one of {', '.join(words)}")


def combined(*options):
    """Combine several options into one decorator, in the order in which help lists them."""
    return lambda command: reduce(lambda command, option: option(command), reversed(options), command)


def _layout_option(name, option):
    """The command line's option for a value of a layout."""
    dashed = name.replace("_", "-")
    if option.type is bool:
        return click.option(f"--{dashed}/--no-{dashed}", default=None, help=option.help)
    if option.words and option.type is str:
        return click.option(f"--{dashed}", type=choice(option.words), help=option.help)
    if option.words or option.type is tuple:  # the layout itself refuses what is neither a word nor a number

        def kind(text):
            if option.type is int:
                return int(text) if re.fullmatch(r"\d{1,10}", text, re.ASCII) else text
            is_list = re.fullmatch(r" *\d{1,9}( *, *\d{1,9})* *", text, re.ASCII)
            return tuple(map(int, text.split(","))) if is_list else text

    elif option.type is float:
        remedy = f"pass, for example, {{option}} {0.5 if option.high == 1 else option.low}"
        kind = Value("NUMBER", float, lambda number: option.low <= number <= option.high, option.rule, remedy)
    else:
        kind = count(option.high, option.low, option.rule)
    return click.option(f"--{dashed}", type=kind, metavar=option.form, help=option.help)


sizes = combined(
    click.option("--pp", type=count(), metavar="S", help="Ranks of the pipeline."),
    click.option("--microbatches", type=count(), metavar="B", help="Microbatches per iteration."),
)
"""Decorator: the size of a schedule."""

schedule_file = combined(
    click.option(
        "--schedule-file",
        "file",
        type=click.Path(),
        metavar="FILE",
        help="Your own schedule: a generator (.py) or a table (.csv, ours or PyTorch's).",
    ),
    click.option("--time-limit", type=seconds("above 0"), help="Stop your own generator after this long (default 60)."),
)
"""Decorator: a file that defines a schedule, and how long it may run."""

SECONDS = {
    "forward": ("above 0", "Forward of one microbatch on 1/S of the model."),
    "backward": ("above 0", "Its backward; each of its halves takes half of this."),
    "input-grad": ("above 0", "Gradient of the input; with --weight-grad, instead of --backward."),
    "weight-grad": ("0 or more", "Gradient of the weights; with --input-grad, instead of --backward."),
    "pair": ("above 0", "A forward and a backward in one cell, F&B (default: their sum)."),
    "comm": ("0 or more", "One transfer (default 0); not divided among chunks."),
    "reduction": ("0 or more", "Gradient all-reduce of 1/S of the model; with --allreduce."),
    "optimizer": ("0 or more", "Optimizer step of 1/S of the model, in tables that have steps."),
}

links = click.option(
    "--link", "links", multiple=True, metavar="RANKS:delay=TIME,bandwidth=RATE",
    callback=lambda *given: " ".join(given[-1]) if given[-1] else None,
    help="A link that differs, as in 0-1:delay=60ms (0>1: one direction); may be repeated. A delay is added, a "
    "bandwidth replaces the network's. For a slower network as a whole, change it in a copy of the system's file.",
)  # fmt: skip
"""Decorator: links that differ from the others."""

framework = click.option(
    "--framework", metavar="NAME|FILE", help="The training framework (default: the system's own, or megatron)."
)
"""Decorator: the training framework."""

_p2p = click.option(
    "--p2p", type=choice(P2P), help="What a transfer occupies (default: as the framework; else its link)."
)

transfers = combined(
    _p2p, click.option("--comm", type=seconds(SECONDS["comm"][0]), default=0.0, help=SECONDS["comm"][1]), links
)
"""Decorator: what transfers occupy and take, where operations are measured."""

run = combined(
    _p2p,
    click.option(
        "--allreduce",
        type=choice(ALLREDUCE),
        default="excluded",
        show_default=True,
        help="What the gradient all-reduce of replicated stages does.",
    ),
    *(click.option(f"--{name}", type=seconds(low), help=text) for name, (low, text) in SECONDS.items()),
    click.option("--model", metavar="NAME|FILE", help="The model; with --system, instead of seconds."),
    click.option("--system", metavar="NAME|FILE", help="The cluster; with --model, instead of seconds."),
    framework,
    links,
    click.option(
        "--layout", metavar="NAME|FILE", help="How the run is spread over GPUs; the options below override its values."
    ),
    *(_layout_option(name, option) for name, option in layout_options(of_schedule=False)),
)
"""Decorator: communication semantics; costs, in seconds or from a model and a system; and how the run is spread."""


def schedule_options(command):
    """Decorator: the options of all schedules."""
    declared = {}
    for name in schedules.names():
        for option in schedules.get(name).options:
            declared.setdefault(option.name, (option, []))[1].append(name)
    for option, owners in reversed(declared.values()):
        text = f"{', '.join(owners)}: {option.help}"
        command = click.option(f"--{option.written}", metavar=option.form, help=text)(command)
    return command


launch_option = click.option(
    "--launch",
    metavar="NAME|FILE",
    help="Also print what to paste to run it with megatron, nemo, ...: see ppmodel launchers.",
)
"""Decorator: print what to write to run it."""


def json_option(text):
    """Decorator: print JSON."""
    return click.option("--json", "as_json", is_flag=True, help=text)
