"""Argument types, the options that several commands share, and what the arguments ask for."""

import json
import math
import re
import sys
from contextlib import suppress
from functools import partial, reduce
from io import BytesIO
from pathlib import Path

import click

from ppmodel import schedules
from ppmodel.clusters import specs
from ppmodel.clusters.specs.layout import LARGEST, LAYOUT_OPTIONS
from ppmodel.errors import PPModelError
from ppmodel.files import write_whole
from ppmodel.schedules.cases import as_case, cases_of_file
from ppmodel.simulation import ALLREDUCE, P2P
from ppmodel.studies.points import COLUMNS, SECONDS


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
        if self.name == "COUNT" and (thousands := re.fullmatch(r"(\d+)([kM])", text)):
            powers = (int(thousands[1]) * base ** "kM".index(thousands[2]) * base for base in (1000, 1024))
            remedy = "write {} or {}".format(*powers)
        elif self.name == "COUNT" and re.fullmatch(r"\d{1,3}(,\d{3})+", text):
            remedy = f"write {text.replace(',', '')}"
        elif self.name == "COUNT" and "," in text:
            remedy += "; lists are for ppmodel sweep, and for ppmodel.compare in Python"
        raise PPModelError(param.opts[0], value if text.strip() else repr(text), self.rule, remedy)

    def get_metavar(self, param, ctx=None):
        return self.name


class Several(click.ParamType):
    """Values behind commas, as a tuple; a single one stays alone.

    Parameters
    ----------
    kind : click.ParamType
        Of each.
    by_name : bool
        Whether names may stand before them, as in ``h100=256,b200=96``: then a dict of lists.
    """

    def __init__(self, kind, by_name=False):
        self.kind, self.name, self.by_name = kind, kind.name, by_name

    def convert(self, value, param, ctx):
        texts = str(value).split(",")
        if self.by_name and "=" in texts[0]:
            named = {}
            for name, _, number in (text.rpartition("=") for text in texts):
                named.setdefault(name.strip(), []).append(self.kind.convert(number.strip(), param, ctx))
            return named
        texts = [str(value)] if any(re.match(r"0\d", text) for text in texts[1:]) else texts  # thousands behind a comma
        values = tuple(self.kind.convert(text.strip(), param, ctx) for text in texts)
        return values if len(values) > 1 else values[0]


class Output(click.ParamType):
    """A file to be written, whose name has one of these endings. `commands.Command` checks that it can be."""

    name = "FILE"

    def __init__(self, *suffixes):
        self.suffixes = suffixes

    def convert(self, value, param, ctx):
        if value and value.endswith(self.suffixes or ""):
            return value
        rule, remedy = "must name a file", f"pass, for example, {param.opts[0]} out"
        if value:
            rule, remedy = f"must end in {', '.join(self.suffixes)}", f"write, for example, mine{self.suffixes[0]}"
        raise PPModelError(param.opts[0], value or repr(value), rule, remedy)


def number(low, high, rule=None, name="NUMBER"):
    """A number within limits."""
    rule = rule or f"must be from {low} to {high}"
    return Value(name, float, lambda value: low <= value <= high, rule, "pass, for example, {option} 0.5")


def seconds(smallest="0 or more"):
    """A finite number of seconds."""
    least = 0 if smallest == "0 or more" else math.nextafter(0, 1)
    return number(least, sys.float_info.max, f"must be a finite number of seconds, {smallest}", "SECONDS")


def count(largest=LARGEST):
    """A whole number."""
    rule = f"must be a whole number from 1 to {largest}"
    return Value("COUNT", int, lambda number: 1 <= number <= largest, rule, "pass, for example, {option} 8")


def choice(words):
    """One of several words."""
    return Value(f"[{'|'.join(words)}]", str, words.__contains__, f"must be one of {', '.join(words)}")


class Option(click.Option):
    """An option, and the section of its command's help in which it stands."""

    def __init__(self, *names, section=None, **settings):
        super().__init__(*names, **settings)
        self.section = section


def option(name, metavar, help, type=None, **settings):
    """An option of a command: its name without dashes, the parameter's behind it if that differs, and its help."""
    return click.option(*f"--{name}".split(), cls=Option, metavar=metavar, help=help, type=type, **settings)


def sectioned(section):
    """Make `option` for options that stand in one section of a command's help."""
    return partial(option, section=section)


_in_size, _in_costs = sectioned("Schedule and size"), sectioned("Costs in seconds")
_in_semantics, in_cluster = sectioned("Communication semantics"), sectioned("Model and system")
in_output, in_computing = sectioned("Output"), sectioned("Computing")


def combined(*options):
    """Combine several options into one decorator, in the order in which help lists them."""
    return lambda command: reduce(lambda command, option: option(command), reversed(options), command)


def written(text):
    """A number, or several behind commas, if a text is one; otherwise the text.

    >>> written("8"), written("15,17"), written("none")
    (8, (15, 17), 'none')
    """
    with suppress(ValueError, RecursionError):
        first, *numbers = json.loads(f"[{text}]")
        return (first, *numbers) if numbers else first if type(first) in (int, float, bool) else text
    return text


def layout_option(name, declared, help):
    """Make the option for a value of a layout, which itself refuses what is illegal."""
    dashed, in_section = name.replace("_", "-"), sectioned(declared.section)

    def kind(text):
        value = written(text)
        if name == "layers":
            return (value,) if isinstance(value, int) else value
        return text if isinstance(value, tuple) else value

    if declared.entry.type is bool:
        return in_section(f"{dashed}/--no-{dashed}", None, help, default=None)
    return in_section(dashed, declared.form, help, kind)


sizes = combined(
    _in_size("pp", "S", "Ranks of the pipeline.", count()),
    _in_size("microbatches", "B", "Microbatches per iteration.", count()),
)
"""Decorator: the size of a schedule."""

schedule_file = _in_size(
    "schedule-file file", "FILE", "Your own schedule: a generator (.py) or a table (.csv, ours or PyTorch's)."
)
"""Decorator: a file that defines a schedule."""

links = in_cluster(
    "link links", "RANKS:delay=TIME,bandwidth=RATE",
    "A link unlike the others: 0-1:delay=60ms, or 0>1:... for one direction. May be repeated. A delay is added; a "
    "bandwidth replaces the network's. If the whole network is slower, change a copy of the system's file.",
    multiple=True, callback=lambda *given: " ".join(given[-1]) if given[-1] else None,
)  # fmt: skip
"""Decorator: links that differ from the others."""

framework = in_cluster("framework", "NAME|FILE", "The training framework (default: the system's own, or megatron).")
"""Decorator: the training framework."""

csv_file = in_output("csv csv_file", "FILE", "Also write the rows to a CSV file.", Output())
"""Decorator: the rows as a file."""

PICTURE = Output(".svg", ".png", ".pdf")
"""The kinds of pictures that `write_figure` writes."""

plot_option = in_output("plot", "FILE", "Also draw it (.svg, .png, .pdf).", PICTURE)
"""Decorator: a picture of what is printed."""

workers = combined(
    in_computing("workers", "N", "Compute in N processes on this machine.", count(1024)),
    in_computing("scheduler", "ADDRESS", "Compute on a Dask cluster instead, such as tcp://host:8786."),
)
"""Decorator: who computes."""

_P2P = f"What a transfer occupies: {', '.join(P2P)} (default: the framework's; with a slow link, as it sends)."
_p2p = _in_semantics("p2p", "WORD", _P2P, choice(P2P))
_ABOVE_0 = "forward", "backward", "input_grad", "pair"

transfers = combined(_p2p, _in_semantics("comm", None, "One transfer (default: what gaps show).", seconds()), links)
"""Decorator: what transfers occupy and take, where operations are measured."""

run = combined(
    *(_in_costs(column.name.replace("_", "-"), None, f"{column.doc[0].upper()}{column.doc[1:]}.",
                seconds("above 0" if column.name in _ABOVE_0 else "0 or more"))
      for column in COLUMNS if column.group == "seconds"),
    in_cluster("model", "NAME|FILE", "The model, or its config.json; with --system, instead of seconds."),
    in_cluster("system", "NAME|FILE", "The cluster; with --model, instead of seconds."),
    framework, links, _p2p,
    _in_semantics(
        "allreduce", "WORD", f"Gradient all-reduce of replicated stages: {', '.join(ALLREDUCE)}.", choice(ALLREDUCE),
        default="excluded", show_default=True,
    ),
    option("layout", "NAME|FILE", "How the run is spread over GPUs; the options below override its values.",
           section="Layout"),
    *(layout_option(name, LAYOUT_OPTIONS[name], LAYOUT_OPTIONS[name].described) for name in specs.LAYOUT_KEYWORDS),
)  # fmt: skip
"""Decorator: costs, in seconds or from a model and a system; communication semantics; and how the run is spread."""


def schedule_options(command):
    """Decorator: the options of all schedules; help has a line for each way in which one is declared."""
    declared, options = {}, {name: schedules.get(name).options for name in schedules.names()}
    for name, entries in {**options, "all": schedules.options.SHARDING}.items():
        for entry in entries:
            declared.setdefault(entry.written, {}).setdefault((entry.form, entry.help), []).append(name)
    for written, owners in reversed(declared.items()):
        forms = dict.fromkeys(form for form, _ in owners)
        lines = (f"{', '.join(names)}: {help}" for (_, help), names in owners.items())
        command = _in_size(written, "|".join(forms), "\n\n".join(lines))(command)
    return command


def schedule(metavar="[NAME|FILE]"):
    """Decorator: a schedule by name or file, its size and its options."""
    return combined(click.argument("name", metavar=metavar, required=False), schedule_file, sizes, schedule_options)


launch_option = in_output(
    "launch", "NAME|FILE", "Also print the arguments for a framework, such as megatron; see ppmodel launchers."
)
"""Decorator: print what to write to run it."""


def write_figure(figure, path, name="--plot"):
    """Write a picture as an option asks for it, without a date, so that it is the same every time."""
    form, picture = path.rpartition(".")[2], BytesIO()
    dates = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}
    figure.savefig(picture, format=form, metadata=dates[form])
    write_whole(path, picture.getvalue(), name)


def json_option(text):
    """Decorator: print JSON."""
    return in_output("json as_json", None, text, is_flag=True)


def given(arguments):
    """Keep the arguments that were given."""
    return {name: value for name, value in arguments.items() if value is not None}


def require_unit(links):
    """Refuse a delay without a unit where no other option is in seconds."""
    if unitless := re.search(r"delay=[\d.e+-]+(?![\w.])", links or ""):
        raise PPModelError("--link", unitless[0], "needs a unit of time", f"write {unitless[0]}ms or {unitless[0]}s")


def asked_costs(arguments):
    """Take the costs and the layout out of the arguments, as keywords of `ppmodel.simulate`."""
    require_unit(arguments.get("model") and arguments.get("links"))
    names = (*SECONDS, "model", "system", "framework", "links", "layout", *specs.LAYOUT_KEYWORDS)
    return given({name: arguments.pop(name) for name in names})


def asked_case(name, file, options):
    """Find the one schedule that a name, a file and options select.

    Parameters
    ----------
    name : str or None
        As in `cases.cases_of_text`; with a generator's file, a schedule that the file registers.
    file : str or None
        A generator or a table.
    options : dict
        The schedule's options as text; None if not given.

    Returns
    -------
    Case

    Raises
    ------
    PPModelError
        If they select none, or several.
    """
    if name is None and file is None:
        remedy = "pass a schedule's name, or --schedule-file FILE"
        raise PPModelError("NAME", None, "must be given unless you name a file", remedy)
    registered = [case.name for case in cases_of_file(file) if case.user_entry] if name and file else None
    case = as_case(Path(file) if name is None else name)
    if registered is not None and case.name not in registered:
        raise PPModelError("NAME", name, f"is not in {file}, which has no effect", "leave out one of the two")
    for option in dict(case.options).keys() & given(options):
        written = option.replace("_", "-")
        raise PPModelError(f"--{written}", options[option], f"is also in {name}", "leave out one of the two")
    return case.with_options(given(options))
