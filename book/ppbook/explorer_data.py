"""The orders of all registered schedules as scripts that the explorer loads: on ``file://`` a page cannot fetch data.

Each schedule has a script that registers its tables: those of each variant by ranks and microbatches. An operation is a
byte, ``joined * 64 + kind * 16 + replica * 8 + chunk``, rank by rank in program order; its stage follows from the
placement. Its microbatch is one more than that of the preceding operation of the same kind, copy and chunk. If that
does not hold throughout a table, as many bytes follow, each saying how far off its operation is, modulo 256. The bytes
are compressed with zlib and written in base 64. Reductions are left out.
"""

import json
import zlib
from base64 import b64encode
from math import isnan
from pathlib import Path

import numpy as np

from ppbook.explorer import RANKS, sizes, variants, written
from ppmodel import schedules
from ppmodel.errors import ReproduceError, SizeError
from ppmodel.ops import OpKind
from ppmodel.plot import palette
from ppmodel.plot.timelines import KIND_COLOURS, PATH_COLOUR
from ppmodel.schedules.cases import as_case, formula_bubble_ratio, generated
from ppmodel.simulation import P2P

_MOST_CHUNKS, _MOST_REPLICAS, _MOST_MICROBATCHES = 8, 2, 256
_LEVEL = 9


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
        tables = {written(case): tables_of(case) for case in variants(name)}
        _write(folder / f"{name}.js", "orders", name, tables)
        listed.append(_about(name, tables))
    _write(folder / "index.js", "index", {
        "schedules": listed, "ranks": RANKS, "microbatches": {pp: sizes(pp) for pp in RANKS}, "semantics": P2P,
        "colours": {kind.name: KIND_COLOURS[kind] for kind in OpKind if kind < OpKind.R},
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

    Raises
    ------
    ReproduceError
        If a table has more chunks, replicas or microbatches than a byte can hold.
    """
    return {pp: found for pp in RANKS if (found := _of_ranks(case, pp))}


def _of_ranks(case, pp):
    found = {}
    for microbatches in sizes(pp):
        try:
            table = generated(case, pp, microbatches)
        except SizeError:
            continue
        if table.table_microbatches > _MOST_MICROBATCHES:  # one that halves its microbatches
            continue
        found.setdefault("placement", table.placement.tolist())
        if len(set(table.stage_shares.tolist())) > 1:
            found.setdefault("shares", table.stage_shares.tolist())
        found.setdefault("tables", {})[microbatches] = packed(table) | _formula(case, pp, microbatches)
    return found


def packed(table):
    """A table in the form that the explorer reads.

    Parameters
    ----------
    table : Schedule

    Returns
    -------
    dict
        ``microbatches``; ``lengths``, the number of operations of each rank; ``codes``, as described at the top of this
        module; ``jumps`` if microbatches do not follow one another; ``parts`` and ``held`` if they are not 1.

    Examples
    --------
    >>> import ppmodel as pp
    >>> packed(pp.build("1f1b", 2, 2))
    {'microbatches': 2, 'lengths': [4, 4], 'codes': 'eNpjYBAQYABCAAD4AEE='}
    """
    kept = np.flatnonzero(table.kind < OpKind.R)
    _require_fit(table, kept)
    own = table.kind[kept] * 16 + table.replica[kept] * 8 + _chunks(table)[table.replica[kept], table.stage[kept]]
    jumps = _jumps(table.rank[kept] * 64 + own, table.microbatch[kept])
    codes = (own + 64 * table.joined[kept]).astype(np.uint8)
    whole = np.append(codes, jumps) if jumps.any() else codes
    found = {
        "microbatches": table.num_microbatches,
        "lengths": np.bincount(table.rank[kept], minlength=table.num_ranks).tolist(),
        "codes": b64encode(zlib.compress(whole.tobytes(), _LEVEL)).decode(),
    }
    if jumps.any():
        found["jumps"] = True
    more = {"parts": table.microbatch_parts, "held": float(table.held_for_weight_grad)}
    return found | {key: value for key, value in more.items() if value != 1}


def _require_fit(table, kept):
    fits = (
        _chunks(table).max() < _MOST_CHUNKS
        and table.num_replicas <= _MOST_REPLICAS
        and table.table_microbatches <= _MOST_MICROBATCHES
        and (table.rank[kept] == table.placement[table.replica[kept], table.stage[kept]]).all()
    )
    if not fits:
        rule = f"has more than {_MOST_CHUNKS} chunks, {_MOST_REPLICAS} replicas or {_MOST_MICROBATCHES} microbatches"
        raise ReproduceError("explorer", table.name, rule, "leave its size out of the explorer")


def _chunks(table):
    """The index of each stage among those of its rank and replica, shape (num_replicas, num_stages)."""
    chunk = np.zeros_like(table.placement)
    for replica, homes in enumerate(table.placement):
        for rank in range(table.num_ranks):
            own = homes == rank
            chunk[replica, own] = np.arange(own.sum())
    return chunk


def _jumps(of, microbatch):
    """How far each microbatch is from the one expected after the last operation of its kind, modulo 256."""
    order = np.argsort(of, kind="stable")
    first = np.diff(of[order], prepend=-1) != 0
    expected = np.where(first, 0, np.roll(microbatch[order], 1) + 1)
    jumps = np.empty(len(of), dtype=np.uint8)
    jumps[order] = (microbatch[order] - expected) % _MOST_MICROBATCHES
    return jumps


def _formula(case, pp, microbatches):
    ratio = float(formula_bubble_ratio(case, pp, microbatches))
    return {} if isnan(ratio) else {"formula": ratio}


def _about(name, tables):
    """What the page says about a schedule before its orders are loaded."""
    entry = schedules.get(name)
    return {
        "name": name, "title": entry.title, "legal": entry.legal,
        "variants": [{
            "key": key, "label": as_case(key).label, "sizes": [_mask(found, pp) for pp in RANKS],
        } for key, found in tables.items()],
    }  # fmt: skip


def _mask(found, pp):
    """A bit for each of `sizes`, lowest first: whether there is a table for it."""
    return sum(1 << bit for bit, size in enumerate(sizes(pp)) if size in found.get(pp, {}).get("tables", ()))


def _write(path, function, *arguments):
    """Write a classic script that hands data to the page."""
    written_out = ",\n".join(json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in arguments)
    text = f"ppmodelExplorer.{function}({written_out});\n"
    Path(path).write_text(text, encoding="utf-8")
