"""Measured runs as people keep them: cells, columns and forms of a file, nearly right; what is written is judged."""

import csv
import io
import math
import random
import re

from ppmodel.clusters.specs import DATA
from ppmodel.studies.measured import COLUMNS, PREDICTED

from .attempt import Attack

_SEED = 23
FILES = {
    "simumax_b200": "b200", "playbook_h100": "h100", "vtrain_single": "a100", "mlperf_h100": "h100", "nemo": "h100",
    "llm_foundry_fsdp": "h100",
}  # fmt: skip
CELLS = [
    "", " ", "0", "-1", "+8", "8.0", "8.5", "1e3", "1e-320", "1e309", "1e308", "-0", "007", "0x10", "1_000", "1,024",
    "1.024,5", "8 GPUs", "12.5 s", "12.5s", "71 GB", "71GiB", "50%", "1/2", "８", "٣", "²", "∞", "inf", "-inf",
    "Infinity", "nan", "NaN", "NA", "N/A", "#N/A", "#REF!", "#DIV/0!", "null", "None", "none", "-", "?", "tbd", "~8",
    ">8", "8?", "8*", "true", "True", "TRUE", "yes", "1", "999999999", "1000000000", "9999999999", "9" * 400, "=8",
    "=1+1", "+1+1", "@SUM(A1)", "-2+3+cmd|' /C calc'!A0", "'8", "''8", '"8"', "\t8", "8\t", "8\n", "8\r\n9", "a\nb",
    "8\u00a0", "8\u200b", "\ufeff8", "\x008", "\x1b[2J", "\u202e8", "\x85", "\u2028", "x" * 5000, "x" * 200000,
    "evil.py", "./evil.csv", "/etc/passwd", "mine.csv", "1f1b", "1F1B", "1f1b ", "interleaved-1f1b",
    "interleaved-1f1b:chunks=2", "zb-v", "chimera", "dualpipe", "hanayo", "asymmetric-chimera", "zb-1p", "stp",
    "flash", "Flash", "unfused", "selective", "full", "light", "fp8", "bf16", "BF16", "fp16", "llama3_70b",
    "llama3_70b.yaml", "megatron", "nemo", "eager", "measured", "oom", "failed", "OOM",
    "kernel flash_attention2 + RMS kernel", "kernel flash_attention", "NeMo",
]  # fmt: skip
"""What stands in a cell: numbers as spreadsheets, people and other languages write them, words of other columns, texts
that mean something to somebody."""

NAMES = [
    "{} ", " {}", "{}s", "{}.1", "{}_", "Unnamed: 0", "", "iteration_ms", "iteration (s)", "memory_gib", "memory",
    "Flushes", "precison", "gpu", "num_gpus", "predicted_iteration_s", "refused", "models", "etp ", "frame_work",
    "\ufeff{}", '"{}"', "=1+1", "x" * 300, "a\nb", "status", "id", "source", "mfu_percent", "note",
]  # fmt: skip
_FORMS = {
    "as it is": lambda text: text, "BOM": lambda text: "\ufeff" + text, "two BOMs": lambda text: "\ufeff\ufeff" + text,
    "CRLF": lambda text: text.replace("\n", "\r\n"), "CR": lambda text: text.replace("\n", "\r"),
    "semicolons": lambda text: text.replace(",", ";"), "tabs": lambda text: text.replace(",", "\t"),
    "blank lines": lambda text: text.replace("\n", "\n\n"), "UTF-16": lambda text: text.encode("utf-16"),
    "Latin-1": lambda text: (text + "é").encode("latin-1"), "sep=": lambda text: "sep=,\n" + text,
    "no end": lambda text: text.rstrip("\n"), "a quote": lambda text: text + '"',
    "a comment": lambda text: "# x\n" + text,
    "trailing commas": lambda text: text.replace("\n", ",\n"), "NUL": lambda text: text + "\0\n",
    "a row twice": lambda text: text + text.splitlines()[-1] + "\n", "no rows": lambda text: text.splitlines()[0],
    "no header": lambda text: text.partition("\n")[2], "headers twice": lambda text: text + text,
    "cut": lambda text: text[: len(text) * 2 // 3], "spaces": lambda text: text.replace(",", " , "),
}  # fmt: skip
_RUN = set(COLUMNS) - {"schedule", "gated_mlp", "attention", "sequence_parallel", "recompute", "layers", "zero"}
"""Columns whose cells are whole numbers, wherever they are not empty."""


def _rows(name, count=3):
    with open(DATA / "reference" / "measured" / f"{name}.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    at = header.index("status") if "status" in header else None
    rows = [row for row in rows if at is None or row[at] == "measured"]
    step = max(1, len(rows) // count)
    return [header, *rows[::step][:count]]


def _text(rows):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def cells(count=900, seed=_SEED):
    """Rows through `predict` and, one in six, `calibrate`, with one or two of these; the others' rows stay the same."""
    chance = random.Random(seed)
    good = {name: _rows(name) for name in FILES}
    for number in range(count):
        file = chance.choice(list(FILES))
        rows, deeds, touched = [list(row) for row in good[file]], [], set()
        deed = chance.choice(["cell"] * 7 + ["cells", "name", "twice", "missing", "form", "form"])
        if deed in ("cell", "cells"):
            for _ in range(1 + (deed == "cells")):
                line, place, value = (
                    chance.randrange(1, len(rows)),
                    chance.randrange(len(rows[0])),
                    chance.choice(CELLS),
                )
                rows[line][place] = value
                touched.add(line - 1)
                deeds.append(f"{rows[0][place]} = {value[:30]!r}")
        elif deed in ("name", "twice"):
            place = chance.randrange(len(rows[0]))
            name = chance.choice(NAMES).format(rows[0][place]) if deed == "name" else rows[0][place]
            if deed == "name" and chance.random() < 0.5:
                rows[0][place] = name
            else:
                rows = [[*row, name if row is rows[0] else chance.choice(CELLS[:20])] for row in rows]
            touched = {0, 1, 2}
            deeds.append(f"column {name[:30]!r}")
        elif deed == "missing":
            place = chance.randrange(len(rows[0]))
            deeds.append(f"without {rows[0][place]}")
            rows = [row[:place] + row[place + 1 :] for row in rows]
            touched = {0, 1, 2}
        form = chance.choice(list(_FORMS)) if deed == "form" else "as it is"
        content = _FORMS[form](_text(rows))
        calibrates = number % 6 == 5
        if calibrates:
            line = f"calibrate mine.csv --system {FILES[file]} --constants compute_efficiency --out out.yaml"
        else:
            line = f"predict mine.csv --system {FILES[file]} --out out.csv"
        name = f"{file} {'calibrated' if calibrates else 'predicted'}: {', '.join(deeds) or form} ({number})"
        holds = _fitted if calibrates else _judged(good[file], rows, touched, form == "as it is")
        yield Attack(
            "cells", name, line.split(), {"mine.csv": content}, writes=r"out\.(csv|yaml)", seconds=90, holds=holds
        )


_usual = {}


def _judged(good, given, touched, is_plain):
    """What `predict` wrote: every row as it was given, with numbers or a reason; others' numbers are untouched."""

    def holds(work, done):
        if done.code == 2:
            return None
        with open(work / "out.csv", encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file)
        header = [name.removeprefix("'") for name in names]
        if header[-len(PREDICTED) :] != [*PREDICTED]:
            return f"columns {header[-7:]}"
        for row in rows:
            *numbers, reason = (row[header.index(name)] for name in (*PREDICTED[:2], PREDICTED[3], "refused"))
            if reason and any(numbers):
                return f"refused, with numbers: {reason[:80]}"
            if not reason and not all(_is_sound(number) for number in numbers):
                return f"odd numbers {numbers}"
        if not is_plain:
            return None
        if len(rows) != len(given) - 1:
            return f"{len(rows)} rows of {len(given) - 1}"
        kept = [name for name in given[0] if name.removeprefix("'") not in PREDICTED]
        for place, (row, before) in enumerate(zip(rows, given[1:], strict=True)):
            for name in kept:
                text, cell = before[given[0].index(name)], row[header.index(name.removeprefix("'"))]
                if cell.removeprefix("'") != text.removeprefix("'"):
                    return f"{name}: {text[:40]!r} became {cell[:40]!r}"
                is_number = re.fullmatch("[0-9]{1,10}|", text.strip().removeprefix("'"), re.ASCII)
                if name in _RUN and not is_number and not row[header.index("refused")]:
                    return f"{name} = {text[:40]!r} was taken"
            if place not in touched and row[header.index(PREDICTED[0])] != _of(good, work)[place]:
                return f"row {place} changed with another"
        return None

    return holds


def _is_sound(text):
    return bool(text) and math.isfinite(float(text)) and float(text) > 0


def _of(good, work):
    """The predictions of a file as it is, once."""
    from ppmodel.clusters.specs import load_system
    from ppmodel.studies.measured import predict_file

    name = next(name for name in FILES if _rows(name) == good)
    if name not in _usual:
        (work / "usual.csv").write_text(_text(good), encoding="utf-8")
        rows = predict_file(work / "usual.csv", load_system(FILES[name]), work / "usual_out.csv")
        _usual[name] = [str(row[PREDICTED[0]] if row[PREDICTED[0]] is not None else "") for row in rows]
    return _usual[name]


def _fitted(work, done):
    """What `calibrate` wrote is a system, whose constants are ordinary numbers."""
    from ppmodel.clusters.specs import load_system

    if done.code != 0:
        return None
    attained = load_system(work / "out.yaml").compute_efficiency
    return None if 0 < attained <= 1 else f"compute_efficiency {attained}"


__all__ = ["cells"]
