"""What `measure` reads: JSON and printed tables whose pieces are changed one by one, cut off, packed, or endless."""

import gzip
import json
import random
from copy import deepcopy

from .attempt import Attack
from .rooms import MEASURED

_SEED = 13
VALUES = [
    None, True, -1, 0, 1e-300, 1e300, 10**400, float("nan"), float("inf"), "", "1", "1e9", "ms", "\x1b[2J", "x" * 5000,
    [], {}, [[]], [1, 2, 3], {"a": 1}, "[0, 1", "[]", "[0,,1]", "c10::Half", "fp8", "bf16", "tflops", 2**63, "日本",
]  # fmt: skip
CUTS = (0, 1, 7, 40, -1, -2, -40)


def timings(each=40):
    """Of every kind of file: values replaced, removed or nested; the text cut; the file packed, badly or too much."""
    chance = random.Random(_SEED)
    for room, (good, lines, _) in MEASURED.items():
        texts = _documents(good, chance, each) if good.lstrip()[:1] == "{" else _lines(good, chance, each)
        texts += [(f"cut at {cut}", good[:cut]) for cut in CUTS]
        texts += [
            ("in UTF-16", good.encode("utf-16")),
            ("nested", "[" * 10**5),
            ("null", "null"),
            ("doubled", good * 2),
        ]
        for name, text in texts:
            yield _attack(room, name, lines[0], "mine.txt", text)
        packed = gzip.compress(good.encode())
        kinds = {
            "packed": packed, "packed and cut": packed[:-9], "packed with a tail": packed + b"x" * 99,
            "packed with a bit": packed[:20] + bytes([packed[20] ^ 16]) + packed[21:], "not packed": good.encode(),
            "packed twice": gzip.compress(packed), "a bomb": _bomb(2**31), "a bomb of blanks": _bomb(2**28, b" "),
        }  # fmt: skip
        for name, content in kinds.items():
            yield _attack(room, name, lines[0], "mine.json.gz", content)


def _attack(room, name, line, file, content):
    words = line.format(file).split()
    return Attack("timings", f"{room}: {name}", words, {file: content}, writes=r"out\.yaml", seconds=60)


def _documents(good, chance, each):
    texts = []
    for _ in range(each):
        document = deepcopy(json.loads(good))
        holder, key = chance.choice(list(_places(document)))
        value = chance.choice(VALUES)
        deed = chance.choice(["replace"] * 4 + ["remove", "nest", "repeat"])
        if deed == "replace":
            holder[key] = value
        elif deed == "nest":
            holder[key] = [holder[key]]
        elif deed == "repeat":
            holder[key] = [holder[key]] * 300
        else:
            holder.pop(key)
        texts.append((f"{deed} {key} {str(value)[:30] if deed == 'replace' else ''}", json.dumps(document)))
    return texts


def _places(node):
    """Where values stand in a document: the list or mapping, and the index or key."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _lines(good, chance, each):
    texts = []
    for _ in range(each):
        lines = [line.replace(",", " , ").split(" ") for line in good.splitlines()]
        row = chance.choice(lines)
        value = str(chance.choice(VALUES))
        deed = chance.choice(["replace", "replace", "remove", "double", "move"])
        if deed == "replace":
            row[chance.randrange(len(row))] = value
        elif deed == "remove":
            lines.remove(row)
        elif deed == "double":
            lines.insert(lines.index(row), row)
        else:
            chance.shuffle(lines)
        text = "\n".join(" ".join(row).replace(" , ", ",") for row in lines)
        texts.append((f"{deed} {value[:30]!r}", text))
    return texts


def _bomb(size, piece=b"\0"):
    """So many bytes, packed a mebibyte at a time: a reader of such files unpacks one member after another."""
    return gzip.compress(piece * 2**20, mtime=0) * (size // 2**20)
