"""The orders of all registered schedules as scripts that the explorer loads: on ``file://`` a page cannot fetch data.

Each schedule has a script that registers the tables of its variants, by ranks and microbatches, and another for those
with gathers of weights. An operation is a byte, ``joined * 128 + kind * 8 + home``, rank by rank in program order,
with the kinds of `OpKind` and homes among those of its rank: stages of the first copy, then of the second. Its
microbatch is one more than that of the preceding operation of the same kind and home. If that does not hold throughout
a table, as many bytes follow, each saying how far off its operation is, modulo 256. The bytes are compressed with zlib
and written in base 64.
"""

import json
import zlib
from base64 import b64encode
from math import isnan

import numpy as np

from ppbook.pages.explorer import MOST_MICROBATCHES, RANKS, sizes, variants, written
from ppmodel import schedules
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import SizeError
from ppmodel.plot import palette
from ppmodel.plot.timelines import PATH_COLOUR
from ppmodel.schedules.cases import as_case, generated
from ppmodel.schedules.ratios import formula_bubble_ratio
from ppmodel.simulation import P2P
from ppmodel.tables.kinds import KINDS

_MODELS = "llama3_8b", "qwen3_32b", "llama3_70b", "gpt3_175b", "llama3_405b"
_GPUS = "a100", "h100", "h200", "b200", "mi300x"


def write_explorer(folder):
    """Write what the explorer loads: ``index.js``, and a script for each schedule.

    Parameters
    ----------
    folder : Path
        Created if missing; the same orders give the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for name in schedules.names():
        entry, tables = schedules.get(name), {written(case): tables_of(case) for case in variants(name)}
        for script in (name, f"{name}-fsdp"):
            if own := {key: tables[key] for key in tables if ("fsdp" in key) == (script != name)}:
                _write(folder / f"{script}.js", "orders", script, own)
        shown = []
        for key, by_ranks in tables.items():  # for each number of ranks a bit for each of its sizes, lowest first
            legal = {pp: by_ranks[pp]["tables"] if pp in by_ranks else () for pp in RANKS}
            masks = [sum(1 << bit for bit, size in enumerate(sizes(pp)) if size in legal[pp]) for pp in RANKS]
            own = {} if shown and shown[0]["sizes"] == masks else {"sizes": masks}  # else those of the first
            shown.append({"key": key, "label": as_case(key).label, **own})
        listed.append({"name": name, "legal": entry.legal, "variants": shown})
    _write(folder / "index.js", "index", {
        "schedules": listed, "ranks": RANKS, "microbatches": {pp: sizes(pp) for pp in RANKS}, "semantics": P2P,
        "kinds": {kind.name: look[:2] for kind, look in KINDS.items()},
        "models": {model.title: [model.hidden, model.sequence, model.blocks] for model in map(load_model, _MODELS)},
        "gpus": {
            name.upper(): [gpu.peak_compute_flops, gpu.network_bandwidth_bytes_per_s / 1e9]
            for name, gpu in zip(_GPUS, map(load_system, _GPUS), strict=True)
        },
        "path": PATH_COLOUR, "pair": [palette.BLUE, palette.VERMILION],
    })  # fmt: skip


def tables_of(case):
    """The packed tables of a case, by ranks; ranks for which it is not defined are left out.

    Parameters
    ----------
    case : Case

    Returns
    -------
    dict of int to dict
        For each number of ranks, the placement of the stages, their shares if these differ, and ``tables`` by
        microbatches; see `packed`.
    """
    by_ranks = {}
    for pp in RANKS:
        for microbatches in sizes(pp):
            try:
                table = generated(case, pp, microbatches)
            except SizeError:
                continue
            if table.table_microbatches > MOST_MICROBATCHES:  # one that halves its microbatches
                continue
            shares = {"shares": table.stage_shares.tolist()} if np.ptp(table.stage_shares) else {}
            entry = by_ranks.setdefault(pp, {"placement": table.placement.tolist(), **shares, "tables": {}})
            ratio = round(float(formula_bubble_ratio(case, pp, microbatches)), 6)
            entry["tables"][microbatches] = packed(table) | ({} if isnan(ratio) else {"formula": ratio})
    return by_ranks


def packed(table):
    """A table in the form that the explorer reads.

    Parameters
    ----------
    table : Schedule

    Returns
    -------
    dict
        ``lengths``, the number of operations of each rank; ``codes``, as described at the top of this
        module; ``jumps`` if microbatches do not follow one another; ``parts``, ``slices``, ``held`` if they are not 1.

    Examples
    --------
    >>> import ppmodel as pp
    >>> packed(pp.build("1f1b", 2, 2))
    {'lengths': [4, 4], 'codes': 'eNpjYODgYABCAACAACE='}
    """
    homes = table.placement.ravel()
    place = np.tril(homes[:, None] == homes, -1).sum(axis=1)  # the index of each stage among those of its rank
    kinds = table.kind * 8 + place[table.replica * table.num_stages + table.stage]
    stream = table.rank * 128 + kinds
    order = np.argsort(stream, kind="stable")
    microbatch, first = table.microbatch[order], np.diff(stream[order], prepend=-1) != 0
    jumps = np.empty(len(kinds), dtype=np.uint8)  # from the microbatch expected after the last operation of its kind
    jumps[order] = (microbatch - np.where(first, 0, np.roll(microbatch, 1) + 1)) % MOST_MICROBATCHES
    jumps[table.microbatch < 0] = 0
    codes = (kinds + 128 * table.joined).astype(np.uint8)
    jumping = {"jumps": True} if jumps.any() else {}
    content = np.append(codes, jumps) if jumping else codes
    exceptions = {"parts": table.microbatch_parts * table.slices, "slices": table.slices}
    exceptions["held"] = float(table.held_for_weight_grad)
    return {
        "lengths": np.diff(table.rank_start).tolist(),
        "codes": b64encode(zlib.compress(content.tobytes(), 9)).decode(),
        **jumping,
        **{key: value for key, value in exceptions.items() if value != 1},
    }


def _write(path, function, *arguments):
    """Write a classic script that hands data to the page."""
    data = ",\n".join(json.dumps(argument, separators=(",", ":"), ensure_ascii=False) for argument in arguments)
    path.write_text(f"ppmodelExplorer.{function}({data});\n", encoding="utf-8")
