"""What is typed: command lines, values of options, parameters of notebooks."""

import random
import re

import click

from .attempt import Attack
from .rooms import ON, POINT, SIZE

VALUES = [
    "0", "-1", "-0", "+1", "1e9", "1e-999", "0b1", "०", "Ⅷ", "1/2", "1,5", "NaN", "-inf", "2**31", "2147483648",
    "9223372036854775808", "1e400", "", "\t", "\n", "\x00", "\x1b]0;x\x07", "\x7f", "\udc80", "\u2028", "\u200b",
    "a\rb", "👩‍👩‍👧", "ß" * 300, "~", "~root", "$HOME", "`touch ran`", "; touch ran", "| touch ran", "&& touch ran",
    "$(touch ran)", "{{ cycler.__init__.__globals__.os.system('touch ran') }}",
    "!!python/object/apply:os.system [touch ran]",
    "__import__('os').system('touch ran')", "-h", "--help", "-", "--", "---", "--=", "-p", "@file", "%(x)s",
    "{0.__class__}",
    "theirs", "theirs/thesis.csv", "theirs/../theirs/thesis.csv", ".", "..", "/", "/etc/passwd", "/dev/full",
    "/dev/fd/0",
    "/proc/1/environ", "/proc/self/cmdline", "//", "x" * 256, "a/" * 3000, "file:///etc/passwd", "http://127.0.0.1:1/",
    "s3://a/b", "1f1b:chunks", "1f1b:chunks=", "1f1b::", "hanayo:waves=0", "hanayo:waves=2:waves=3", "1f1b,gpipe",
    "1F1B ",
    "zb-1p:times=1:1:1", "zb-1p:times=1e308:1:1:0", "chimera:concat=direct:x", "64 GiB", "64GiB;", "0 B", "1e400 TB",
    "-1 GB",
]  # fmt: skip
BASES = {
    "schedules": "", "models": "", "systems": "", "notebooks": "", "table": f"1f1b {SIZE}", "check": f"1f1b {SIZE}",
    "simulate": f"1f1b {SIZE} {ON}", "compare": f"1f1b gpipe {SIZE} {ON}", "sweep": "nowhere.yaml --out out.parquet",
    "predict": "nowhere.csv --system a100 --out out.csv", "calibrate": "nowhere.csv --system a100 --out out.yaml",
    "run": "runtime --out theirs", "reproduce": "--system nowhere.yaml", "claims": "--model nowhere.yaml",
}  # fmt: skip
"""A legal line of each command, or for those that take long one that is refused last; others are run without words."""

_LONG = ("sweep", "run", "reproduce", "claims")
_SEED = 11


def lines(count=110):
    """Every command that there is, with options and words drawn from what it knows and from what nobody knows."""
    from ppmodel.cli.process import cli

    chance = random.Random(_SEED)
    context = click.Context(cli)
    names = cli.list_commands(context)
    for number in range(count):
        name = names[number % len(names)]
        command = cli.get_command(context, name)
        options = [option for param in command.params for option in param.opts if option.startswith("-")]
        words = BASES.get(name, "").split()
        for _ in range(chance.randint(1, 3)):
            deed = chance.randrange(6)
            option, value = chance.choice([*options, "--nowhere", "--help"]), chance.choice(VALUES)
            long = name in _LONG and deed in (0, 2)
            if long:
                words += [option, value]
            elif deed == 0 and words:
                words[chance.randrange(len(words))] = value
            elif deed == 1:
                words.append(value)
            elif deed == 2 and words:
                del words[chance.randrange(len(words))]
            elif deed == 3:
                words += [f"{option}={value}"] if option.startswith("--") else [option, value]
            else:
                words[:0] = [option, value]
        words = [word.replace("\x00", "\\0") for word in words]  # no process can be given it
        yield Attack(
            "command line", " ".join([name, *words])[:150], [name, *words], writes=r"[^/]*|theirs/[^/]+", holds=_kept
        )


def _kept(folder, _):
    """Whatever a line names, the file of somebody else is as it was."""
    kept = (folder / "theirs" / "thesis.csv").read_text() == "theirs"
    return None if kept else "a foreign file was changed"


PARAMETERS = [
    "", "[]", "{}", "[[]]", "[[[[[[1]]]]]]", "null", "~", "true", "yes", "-1", "0", "1.5", ".inf", ".nan", "1e400",
    "9" * 400, "[1, 1]", "[8, 'eight']", "{8: 9}", "2026-01-01", "0o17", "1_000", "!!set {1}", "!!binary aGk=", "'",
    "{{ 7*7 }}", "a: b: c", "- - -", "? x", "%YAML 9.9", "--- 1\n--- 2", "[" * 2000, "&a [1, *a]", "nowhere.yaml",
    "theirs/thesis.csv",
    "/dev/zero", "../..", "<script>alert(1)</script>", "\x1b[31m", "\u202e8", "x" * 5000,
    "[gpipe, [hanayo, {waves: 0}]]",
    "[[1f1b, {chunks: 2}]]", "!!python/object/apply:os.system [touch ran]",
]  # fmt: skip


def parameters(each=2):
    """Every parameter of every notebook with values that are none; where a value is one, its folder is somebody's."""
    import nbformat

    from ppbook.build.run import notebook_names
    from ppbook.parameters import declared

    chance = random.Random(_SEED)
    for notebook, path in notebook_names().items():
        for name in declared(nbformat.read(path, as_version=4)):
            for value in chance.sample(PARAMETERS, each):
                words = ["run", notebook, "-p", name, value, "--out", "theirs"]
                yield Attack("parameters", f"{notebook}: {name} = {value[:60]!r}", words, codes=(2,))


FORMULAS = ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>",
            "{{ 7*7 }}", "{% raw %}", "${7*7}", "\x1b[2J\x1b[H", "\x1b]8;;http://x\x07", "\u202eevil", "a\nb", "a\r\nb",
            "\x00",
            "'; touch ran; '", "`touch ran`", "$(touch ran)", "\u2028", "]]>", "*/", "%n%s", "\\u001b",
            "é" * 400]  # fmt: skip
"""Texts that mean something to a spreadsheet, a page, a terminal or a shell."""


def injection():
    """Texts as names, titles and sources: on the terminal, in JSON, CSV and traces they stand for themselves."""
    model = "simulate 1f1b --pp 4 --microbatches 8 --model paper --system mine.yaml"
    for number, text in enumerate(FORMULAS):
        quoted = (
            '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\x1b", "\\e").replace("\x00", "\\0") + '"'
        )
        quoted = quoted.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\x07", "\\a")
        system = re.sub(r"title: .*", lambda _: f"title: {quoted}", _system(), count=1)  # noqa: B023
        yield Attack("injection", f"title {text!r}", model.split(), {"mine.yaml": system})
        table = "# schedule: " + text + "\n0F0,0B0\n1F0,1B0\n"
        line = f"compare mine.csv 1f1b {ON} --csv out.csv"
        yield Attack(
            "injection", f"schedule {text!r}", line.split(), {"mine.csv": table}, writes=r"out\.csv", holds=_no_formula
        )
        name = re.sub(r"[/\x00]", "_", text)[:60]
        line = ["compare", f"{name}.csv", "1f1b", *ON.split(), "--json"]
        yield Attack("injection", f"file {name!r}", line, {f"{name}.csv": "0F0,0B0\n1F0,1B0\n"})
        if number % 3 == 0:
            line = f"simulate mine.csv {ON} --trace out.json"
            yield Attack(
                "injection", f"trace {text!r}", line.split(), {"mine.csv": table}, writes=r"out\.json", holds=_json
            )


def _system():
    from .rooms import DOCUMENTS

    return DOCUMENTS["system"].good


def _no_formula(folder, _):
    import csv

    if not (folder / "out.csv").exists():
        return None
    with open(folder / "out.csv", newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    odd = [cell for cell in cells if cell[:1] in "=+@\t\r" and cell and not re.fullmatch(r"[+-]?[\d.e+-]+", cell)]
    return f"a spreadsheet computes {odd[:2]}" if odd else None


def _json(folder, done):
    import json

    try:
        json.loads((folder / "out.json").read_text()) if done.code == 0 else None
    except ValueError as error:
        return f"a trace that is no JSON: {error}"
    return None


__all__ = ["POINT", "injection", "lines", "parameters"]
