"""The recording: values by part, key and column, kept in a few small files."""

import io
import json
import multiprocessing
import os
import tarfile
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from ruamel.yaml import YAML

from . import commands, points
from .texts import are_equal, first_difference

HERE = Path(__file__).parent
FOLDER = HERE / "recorded"
FRAMES = {"points": (points.questions, points.answer), "timelines": (lambda: points.CASES, points.timeline)}
"""Parts that are frames: their questions, and what answers one."""

PARTS = *FRAMES, "plans", "commands", "claims", "book"
OF_THE_MACHINE = "digests", "provenance", "speed", "versions"
"""How the names of files in the book's results begin that tell of the machine and the commit that built it."""


class Difference(NamedTuple):
    """A value that is not what it was.

    Parameters
    ----------
    part, key, column : str
        Where: of points, the key is the question and the row; of commands, their name.
    before, now : str or float, optional
        Of texts, the first lines that differ.
    """

    part: str
    key: str
    column: str
    before: object
    now: object

    def __str__(self):
        return f"{self.part}: {self.key}: {self.column}\n    before {self.before!r}\n    now    {self.now!r}"


def computed(parts, book=None, backwards=False):
    """Compute the values of some parts, in an order or the opposite one, on which no value may depend.

    Returns
    -------
    dict
        From part to a dict from key to a dict from column to value; the book is left out where it is not built.
    """
    jobs = [(part, name) for part in FRAMES if part in parts for name in FRAMES[part][0]()]
    jobs += [(part, name) for part in commands.PARTS if part in parts for name in commands.PARTS[part]]
    jobs = jobs[:: -1 if backwards else 1]
    jobs.sort(key=lambda job: job[0] in FRAMES)  # the long ones first
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context) as pool:
        answers = dict(zip(jobs, pool.map(_answer, jobs), strict=True))
    values = {part: {} for part in parts}
    for (part, name), answer in answers.items():
        values[part] |= answer if part in FRAMES else {name: answer}
    if "book" in parts:
        values["book"] = _book(Path(book))
        if not values["book"]:
            del values["book"]
    return values


def _answer(job):
    part, name = job
    return frame_values(part, name) if part in FRAMES else commands.result(part, name)


def frame_values(part, name):
    """Return the rows of a question, and what is said of all of them, by key and column."""
    frame, said = FRAMES[part][1](name)
    rows = {
        f"{name} [{place}]": {column: points.cell(frame[column].iloc[place]) for column in frame}
        for place in range(len(frame))
    }
    return rows | {name: said}


def _book(folder):
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".csv", ".json"))
    return {
        str(path.relative_to(folder)): {"text": path.read_text("utf-8")}
        for path in files if not path.name.startswith(OF_THE_MACHINE)
    }  # fmt: skip


def write(values):
    """Write values of some parts; the others stay."""
    FOLDER.mkdir(exist_ok=True)
    for part, of_part in values.items():
        if part in FRAMES:
            rows = {key: row for key, row in of_part.items() if key.endswith("]")}
            said = {key: row for key, row in of_part.items() if not key.endswith("]")}
            columns = dict.fromkeys(column for row in rows.values() for column in row)
            cells = {column: points.typed([row.get(column) for row in rows.values()]) for column in columns}
            frame = pd.DataFrame({"key": list(rows)} | cells)
            frame.to_parquet(FOLDER / f"{part}.parquet", compression="zstd", compression_level=19, index=False)
            lists = list(dict.fromkeys(of_all["columns"] for of_all in said.values()))
            said = {key: of_all | {"columns": lists.index(of_all["columns"])} for key, of_all in said.items()}
            _write_json(part, {"columns": lists, "questions": said})
        elif part == "book":
            _write_tar(of_part)
        else:
            _write_json(part, of_part)


def _write_json(name, values):
    text = json.dumps(values, indent=1, ensure_ascii=False)
    (FOLDER / f"{name}.json").write_text(text + "\n", "utf-8")


def _write_tar(files):
    with tarfile.open(FOLDER / "book.tar.xz", "w:xz", preset=9) as tar:
        for name, columns in files.items():
            data = columns["text"].encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def read(parts=PARTS):
    """Read the values that were recorded of some parts."""
    return {part: _read(part) for part in parts}


def _read(part):
    if part in FRAMES:
        frame = pd.read_parquet(FOLDER / f"{part}.parquet")
        frames = json.loads((FOLDER / f"{part}.json").read_text("utf-8"))
        lists, said = frames["columns"], frames["questions"]
        said = {key: of_all | {"columns": lists[of_all["columns"]]} for key, of_all in said.items()}
        columns = {key: [one.rpartition(":")[0] for one in of_all["columns"].split()] for key, of_all in said.items()}
        cells = {column: [points.cell(value) for value in frame[column]] for column in frame}
        return said | {
            key: {column: cells[column][place] for column in columns[key.rpartition(" [")[0]]}
            for place, key in enumerate(cells["key"])
        }
    if part == "book":
        with tarfile.open(FOLDER / "book.tar.xz") as tar:
            return {entry.name: {"text": tar.extractfile(entry).read().decode()} for entry in tar}
    return json.loads((FOLDER / f"{part}.json").read_text("utf-8"))


def expected():
    """Return the changes that are meant: part, key and column as patterns, and the reason."""
    listed = YAML(typ="safe").load((HERE / "expected_changes.yaml").read_text("utf-8")) or []
    return [(one["part"], str(one["key"]), one.get("column", "*")) for one in listed]


def differences(before, now, tolerance=0.0):
    """Compare values.

    Returns
    -------
    found : list of Difference
    known : int
        How many more `expected` lists.
    """
    found, known, meant = [], 0, expected()
    for part, of_part in now.items():
        for key in dict.fromkeys([*before[part], *of_part]):
            old, new = before[part].get(key, {}), of_part.get(key, {})
            for column in dict.fromkeys([*old, *new]):
                values = old.get(column), new.get(column)
                if are_equal(*values, tolerance) or are_equal(*map(_as_text, values), tolerance):
                    continue
                where = part, key, column
                if any(all(map(fnmatchcase, where, patterns)) for patterns in meant):
                    known += 1
                else:
                    found.append(Difference(*where, *first_difference(*values)))
    return found, known


def _as_text(value):
    return repr(value) if isinstance(value, float) else value
