"""What files hold: YAML whose values, keys and nesting are changed one by one, and tables cell by cell."""

import io
import random
from copy import deepcopy

from ruamel.yaml import YAML

from .attempt import Attack
from .rooms import DOCUMENTS, TABLES

_SEED = 12
NODES = [
    None, True, -1, 0, 1.5, 2**63, 10**400, float("inf"), float("nan"), -0.0, "", " ", "1", "1 GiB", "x" * 5000, "\x85",
        "日本",
    "=1", [], {}, [[]], [None], {"a": 1}, {"value": 1}, {"value": None, "kind": None, "source": None}, {1: 2},
    {None: 1},
    {"<<": 1}, [1] * 2000, ["gpipe"] * 40, {"from": 1, "to": 0}, {"from": 0, "to": 2**62}, {"name": "1f1b",
    "chunks": []},
    {"file": "/dev/zero"}, {"file": "mine.yaml"}, {"value": 5, "kind": "stated", "source": ""},
    {"value": "1e-400 GB/s", "kind": "stated", "source": "x"}, {"value": "9e999 GB/s", "kind": "stated", "source": "x"},
    {"value": 10**30, "kind": "stated", "source": "x"}, {"value": 3, "kind": "measured by me", "source": "x"},
    {"value": 7919, "kind": "our choice", "source": "x"}, {"value": -5, "kind": "our choice", "source": "x"},
]  # fmt: skip
RAW = [
    "%YAML 1.1\n---\n{}", "%TAG ! tag:x,2000:\n---\n{}", "--- {}\n--- {}\n", "{}\n...\n{}", "\ufeff{}", "{}\n\x0b",
    "? {}\n", "!!omap\n{}",
    "!!set {{a, b}}\n{}", "- {}", "x: &x {{a: *x}}\n{}", "a: &a [1]\nb: [*a, *a]\n{}", "{}\n<<: {{title: 1}}\n",
    "{}\ntitle: 1\n",
    "{}\n'title': 1\n", "{}\n? !!str title\n: 1\n", "{}\n" + "  " * 400 + "x: 1\n", "{}\n" + "x:\n " * 3,
    "{}\nx: |\n  y\n z\n", "{}\nx: \"\\xZZ\"\n",
    "{}\nx: !!timestamp 2026-13-45\n", "{}\nx: !!int abc\n", "{}\nx: !!float abc\n", "{}\nx: !!binary ****\n",
    "{}\nx: !include /etc/passwd\n",
    "{}\nx: ${{PATH}}\n", "{}\n" + "k: [" * 300, "{}\nx: 0x" + "f" * 4000, "{}\nx: 1:60:60\n", "{}\r\rx: 1\r",
    "{}\n\t: 1\n", "{}\nx: @y\n",
]  # fmt: skip


def documents(each=20):
    """Of every kind of file in YAML: a node replaced, a key removed, renamed or doubled; and odd forms of the whole."""
    chance = random.Random(_SEED)
    for room, (good, lines, writes) in DOCUMENTS.items():
        for number in range(each):
            text, name = _changed(good, chance)
            words = lines[number % len(lines)].format("mine.yaml").split()
            yield Attack("YAML", f"{room}: {name}", words, {"mine.yaml": text}, writes=writes)
        for raw in chance.sample(RAW, len(RAW) // 2):
            text = (
                raw.replace("{{", "\0")
                .replace("}}", "\1")
                .replace("{}", good, 1)
                .replace("{}", "")
                .replace("\0", "{")
                .replace("\1", "}")
            )
            words = lines[0].format("mine.yaml").split()
            yield Attack("YAML", f"{room}: {raw[:40]!r}", words, {"mine.yaml": text}, writes=writes)


def _changed(good, chance):
    """A document with one node, or one key, that is not as it was."""
    content = deepcopy(YAML(typ="safe", pure=True).load(good))
    holder, key = chance.choice(list(_places(content)))
    deed, node = chance.choice(["replace"] * 5 + ["remove", "rename", "nest"]), chance.choice(NODES)
    if deed == "replace":
        holder[key] = node
    elif deed == "nest":
        holder[key] = [holder[key]]
    else:
        value = holder.pop(key)
        if deed == "rename" and isinstance(holder, dict):
            holder[f"{key}s"] = value
    out = io.StringIO()
    YAML().dump(content, out)
    return out.getvalue(), f"{deed} {key} {str(node)[:40] if deed == 'replace' else ''}"


def _places(node):
    """Where values stand in a document: the list or mapping, and the index or key."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


# ---- tables --------------------------------------------------------------------------------------

CELLS = ["", "0F0", "3B7", "0F8", "4F0", "0f0", "0F-1", "0F0.0", "0F0@1", "0F0&0B0", "0B0&0F0", "0F0&0F1", "0I0", "0W0",
    "0R", "R0", "~", ".",
         "F0", "0F", "00F00", "0F٣", "0F0 ", '"0F0"', '"0F0', "0F0;0B0", "None", "nan", "=1", "0SEND_F0", "0UNSHARD",
         "9" * 40 + "F0",
         "0F" + "9" * 40, "(0F0;3B0)OVERLAP_F_B", "0F0&" * 20 + "0F0", "\x1b[2J", "\ufeff0F0"]  # fmt: skip


def tables(room=TABLES, count=60):
    """A file of rows with cells replaced, moved or doubled, rows and columns turned, other separators."""
    chance = random.Random(_SEED)
    good = [line.split(",") for line in room.good.splitlines() if not line.startswith("#")]
    for number in range(count):
        rows, deeds = [list(row) for row in good], []
        for _ in range(chance.randint(1, 2)):
            deed = chance.choice(list(_DEEDS))
            rows = _DEEDS[deed](rows, chance)
            deeds.append(deed)
        separator, end = chance.choice([(",", "\n")] * 4 + [(", ", "\r\n"), (";", "\n"), ("\t", "\n"), (" ", "\r")])
        text = end.join(separator.join(row) for row in rows) + chance.choice(["", end])
        for line in dict.fromkeys((room.lines[number % len(room.lines)], room.lines[0])):
            name = f"{' and '.join(deeds)} ({number})"
            yield Attack(
                "CSV", name, line.format("mine.csv").split(), {"mine.csv": text}, writes=room.writes, seconds=60
            )


def _cell(rows, chance):
    rows[chance.randrange(len(rows))][0:1] = [chance.choice(CELLS)]
    return rows


def _swap(rows, chance):
    row = chance.choice(rows)
    one, other = (chance.randrange(len(row)) for _ in range(2))
    row[one], row[other] = row[other], row[one]
    return rows


def _turned(rows, _):
    return [list(column) for column in zip(*rows, strict=True)] if len({len(row) for row in rows}) == 1 else rows


def _wide(rows, chance):
    chance.choice(rows).extend([""] * 10**5)
    return rows


def _comment(rows, chance):
    key = chance.choice(
        ["microbatches", "stage_shares", "letters", "schedule", "microbatch_parts", "ppmodel table 9", "x"]
    )
    return [[f"# {key}: {chance.choice(['', '-1', '0', '1e400', 'x', '8', '1 1 1 1', '1 2', '1e-320 1 1 1'])}"], *rows]


_DEEDS = {
    "cell": _cell, "cells swapped": _swap, "turned": _turned, "wide": _wide, "comment": _comment,
    "row doubled": lambda rows, chance: [*rows, chance.choice(rows)],
    "row removed": lambda rows, chance: rows[: chance.randrange(len(rows))] or rows,
    "rows shuffled": lambda rows, chance: chance.sample(rows, len(rows)),
    "row of a cell": lambda rows, chance: [*rows, [chance.choice(CELLS)]],
    "many rows": lambda rows, _: rows * 300,
    "header": lambda rows, chance: [["rank", *map(str, range(chance.randrange(20)))], *rows],
}  # fmt: skip
