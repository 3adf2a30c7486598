"""Argument types, and the options that several commands share."""

import math
import re

import click

from ppmodel import schedules
from ppmodel.errors import PPModelError
from ppmodel.simulation import ALLREDUCE, P2P

_MAX_COUNT = 10**9


def _number(text, kind):
    """Parse a number as people write it; Python would also accept 1_000 and digits of other scripts."""
    text = str(text)
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError
    return kind(text)


class Seconds(click.ParamType):
    """A finite number of seconds."""

    name = "seconds"

    def __init__(self, smallest="0 or more"):
        self.smallest = smallest

    def convert(self, value, param, ctx):
        try:
            seconds = _number(value, float)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and self.smallest == "above 0"):
            rule = f"must be a finite number of seconds, {self.smallest}"
            raise PPModelError(param.opts[0], value, rule, f"pass, for example, {param.opts[0]} 0.5")
        return seconds


class Count(click.ParamType):
    """A whole number, at least 1."""

    name = "count"

    def __init__(self, largest=_MAX_COUNT):
        self.largest = largest

    def convert(self, value, param, ctx):
        try:
            count = _number(value, int)
        except ValueError:
            count = 0
        if not 1 <= count <= self.largest:
            rule, remedy = f"must be a whole number from 1 to {self.largest}", f"pass, for example, {param.opts[0]} 8"
            if "," in str(value):
                remedy += "; lists are for ppmodel sweep, and for ppmodel.compare in Python"
            raise PPModelError(param.opts[0], value, rule, remedy)
        return count


class Digit(click.ParamType):
    """A whole number from 0 to at most 9."""

    name = "digit"

    def __init__(self, largest):
        self.largest = largest

    def convert(self, value, param, ctx):
        words = [str(number) for number in range(self.largest + 1)]
        if str(value) not in words:
            raise PPModelError(param.opts[0], value, f"must be one of {', '.join(words)}", "choose one of them")
        return int(value)


class Share(click.ParamType):
    """A number from 0 to 1."""

    name = "share"

    def convert(self, value, param, ctx):
        try:
            share = _number(value, float)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            raise PPModelError(
                param.opts[0], value, "must be a number from 0 to 1", f"pass, for example, {param.opts[0]} 0.5"
            )
        return share


class Choice(click.ParamType):
    """One of several words."""

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


class Layers(click.ParamType):
    """How layers are divided into stages: a word, numbers separated by commas, or a layout string."""

    name = "layers"

    def convert(self, value, param, ctx):
        listed = re.fullmatch(r" *\d{1,9}( *, *\d{1,9})* *", value, re.ASCII)
        return tuple(map(int, value.split(","))) if listed else value


class Recompute(click.ParamType):
    """A word or a number of layers."""

    name = "recompute"

    def convert(self, value, param, ctx):
        return int(value) if re.fullmatch(r"\d{1,10}", value, re.ASCII) else value


def _together(*options):
    """Combine several options into one decorator, in the order in which help lists them."""

    def decorate(command):
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


sizes = _together(
    click.option("--pp", type=Count(), metavar="S", help="Ranks of the pipeline."),
    click.option("--microbatches", type=Count(), metavar="B", help="Microbatches per iteration."),
)
"""Decorator: the size of a schedule."""

schedule_file = _together(
    click.option(
        "--schedule-file",
        "file",
        type=click.Path(),
        metavar="FILE",
        help="Your own schedule: a generator (.py) or a table (.csv, ours or PyTorch's).",
    ),
    click.option("--time-limit", type=Seconds("above 0"), help="Stop your own generator after this long (default 60)."),
)
"""Decorator: a file that defines a schedule, and how long it may run."""

layout = _together(
    click.option(
        "--layout", metavar="NAME|FILE", help="How the run is spread over GPUs; the options below override its values."
    ),
    click.option("--tp", type=Count(), metavar="N", help="Tensor parallelism: GPUs that share each GEMM."),
    click.option("--cp", type=Count(), metavar="N", help="Context parallelism: GPUs that share each sequence."),
    click.option("--ep", type=Count(), metavar="N", help="Expert parallelism, over the GPUs of dp and cp."),
    click.option("--dp", type=Count(), metavar="N", help="Data parallelism: replicas that train side by side."),
    click.option("--gpus", type=Count(), metavar="N", help="GPUs in the run; only checked against tp x cp x pp x dp."),
    click.option("--microbatch-size", type=Count(), metavar="N", help="Sequences per microbatch (default 1)."),
    click.option(
        "--global-batch", type=Count(), metavar="N", help="Sequences per iteration: dp x microbatch size x B."
    ),
    click.option(
        "--sequence-parallel/--no-sequence-parallel", default=None, help="Also split norms and dropout over tp."
    ),
    click.option(
        "--zero",
        type=Digit(3),
        metavar="[0|1|2|3]",
        help="What replicas shard: 1 optimizer state; 2 also gradients; 3 also weights (default 0).",
    ),
    click.option(
        "--recompute",
        type=Recompute(),
        metavar="none|selective|full|N",
        help="Activations to recompute; N: that many layers of each stage in full (default: as the model says).",
    ),
    click.option("--precision", type=Choice(("bf16", "fp8")), help="Precision of GEMMs (default bf16)."),
    click.option(
        "--causal/--no-causal", default=None, help="Whether fused attention skips the masked half (default: it does)."
    ),
    click.option(
        "--context-exchange",
        type=Choice(("ring", "all-gather")),
        help="How cp exchanges keys and values (default ring).",
    ),
    click.option(
        "--overlap-tensor/--no-overlap-tensor", default=None, help="Hide tensor-parallel collectives under GEMMs."
    ),
    click.option(
        "--overlap-backward/--no-overlap-backward",
        default=None,
        help="Hide tensor-parallel collectives of input gradients under weight gradients.",
    ),
    click.option(
        "--overlap-gradients/--no-overlap-gradients", default=None, help="Hide gradient reduction under the backward."
    ),
    click.option(
        "--overlap-parameters/--no-overlap-parameters",
        default=None,
        help="Hide gathering of parameters under the forward.",
    ),
    click.option(
        "--pairing",
        type=Choice(("alternating", "best")),
        help="The order in which the units of two operations in one cell run (default alternating).",
    ),
    click.option(
        "--hand-on",
        type=Choice(("at_end", "when_ready")),
        help="When results of two operations in one cell are sent: at its end (default) or as soon as each is ready.",
    ),
    click.option(
        "--offload",
        type=Share(),
        metavar="0..1",
        help="Fraction of activations to copy to host memory after their forward, and back later (default 0).",
    ),
    click.option(
        "--offload-warm-up", type=Share(), metavar="0..1", help="The same for forwards before a rank's first backward."
    ),
    click.option(
        "--offload-chunks",
        type=Choice(("first", "all")),
        help="Which activations: of each rank's first chunk (default), or of all chunks.",
    ),
    click.option(
        "--layers",
        type=Layers(),
        metavar="WORD|N,N,...|STRING",
        help="Blocks per stage: balanced (default), even, one number for each stage, or Megatron-LM's notation: "
        "'Et*19|t*21|t*21|t*19L'.",
    ),
)
"""Decorator: how a run is spread over GPUs; the options are `layouts.LAYOUT_FIELDS`, None if not given."""

semantics = _together(
    click.option("--p2p", type=Choice(P2P), default="overlapped", show_default=True, help="What a transfer occupies."),
    click.option(
        "--allreduce",
        type=Choice(ALLREDUCE),
        default="excluded",
        show_default=True,
        help="What the gradient all-reduce of replicated stages does.",
    ),
)
"""Decorator: communication semantics."""

costs = _together(
    click.option("--forward", type=Seconds("above 0"), help="Forward of one microbatch on 1/S of the model."),
    click.option("--backward", type=Seconds("above 0"), help="Its backward; each of its halves takes half of this."),
    click.option(
        "--input-grad",
        type=Seconds("above 0"),
        help="Gradient of the input; with --weight-grad, instead of --backward.",
    ),
    click.option(
        "--weight-grad", type=Seconds(), help="Gradient of the weights; with --input-grad, instead of --backward."
    ),
    click.option(
        "--pair", type=Seconds("above 0"), help="A forward and a backward in one cell, F&B (default: their sum)."
    ),
    click.option("--comm", type=Seconds(), help="One transfer (default 0); not divided among chunks."),
    click.option("--reduction", type=Seconds(), help="Gradient all-reduce of 1/S of the model; with --allreduce."),
    click.option("--optimizer", type=Seconds(), help="Optimizer step of 1/S of the model, in tables that have steps."),
    click.option("--model", metavar="NAME|FILE", help="The model; with --system, instead of seconds."),
    click.option("--system", metavar="NAME|FILE", help="The cluster; with --model, instead of seconds."),
)
"""Decorator: what operations cost, in seconds or from a model and a system."""


cell_limit = click.option(
    "--time-limit", "cell_limit", type=Seconds("above 0"), help="Stop a cell that takes longer (default: wait)."
)
"""Decorator: time limit for a notebook cell."""


def schedule_options(command):
    """Decorator: the options of all schedules."""
    known = {}
    for name in schedules.names():
        for option in schedules.get(name).options:
            known.setdefault(option.name, (option, []))[1].append(name)
    for option, owners in reversed(known.values()):
        text = f"{', '.join(owners)}: {option.help}"
        command = click.option(f"--{option.written}", metavar=option.form, help=text)(command)
    return command


def json_option(text):
    """Decorator: print JSON."""
    return click.option("--json", "as_json", is_flag=True, help=text)
