"""The process apart in which a user's file runs: it loads the file, then answers calls of what the file registers.

`own_files` starts it and talks to it. Requests and the heads of answers are lines of JSON; a table's arrays follow
their head as bytes. Whatever the file prints goes to the process's standard error.
"""

import json
import os
import sys
from fractions import Fraction
from traceback import extract_tb

import numpy as np

from ppmodel.errors import PPModelError, ScheduleError, TableError, cause
from ppmodel.schedules import registry

_MEMORY_SHARE = 2
_COLUMNS = "kind", "stage", "microbatch", "replica", "joined"


def serve(leave=os._exit):
    """Answer requests until the other end closes its pipe."""
    try:
        import resource  # Linux and macOS have it

        requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MEMORY_SHARE
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        _send(answers, {}, b"")
        path, code = json.loads(requests.readline())
        _send(answers, *_outcome(lambda: _loaded(path, code)))
        for line in requests:
            name, function, place, *arguments = json.loads(line)
            _send(answers, *_outcome(lambda: _called(path, name, function, place, *arguments)))  # noqa: B023
    finally:  # the file may have replaced anything that the lines above rely on
        leave(0)


def _send(pipe, head, tail):
    head = json.dumps([head, len(tail)], default=lambda value: callable(value) or str(value))
    data = memoryview(head.encode() + b"\n" + tail)
    while data:
        data = data[os.write(pipe, data) :]


def _outcome(call):
    """The answer to a request: what a call returns, or the parts of what it raises."""
    try:
        return call()
    except PPModelError as error:
        parts = {name: getattr(error, name) for name in ("field", "value", "rule", "remedy", "where", "why", "grid")}
        texts = {name: None if value is None else str(value) for name, value in parts.items()}
        return {"error": type(error).__name__, "parts": texts}, b""


def _loaded(path, code):
    """Run the file; describe what it registers."""
    before = registry.entries()
    try:
        exec(compile(code, path, "exec"), {"__name__": "<run_path>", "__file__": path})
    except PPModelError:
        raise
    except BaseException as error:  # anything that a user's file may raise
        raise ScheduleError(
            "file", path, f"cannot be run ({cause(error)})", "fix it", where=_line(error, path)
        ) from None
    made = [entry for entry in registry.entries() if not any(entry is other for other in before)]
    registry.require(made, "file", path, "registers no schedule", "write @schedule(...) above its generator")
    sent = []  # as `own_files` reads it: a function is true
    for entry in made:
        options = [option._asdict() for option in entry.options]
        sent.append(entry._asdict() | {"options": options, "where": registry.place_of(entry.generate)})
    return {"entries": sent}, b""


def _called(path, name, function, place, arguments, options):
    """Call a function of an entry, or of the option at a place; values are sent as they are, tables as arrays."""
    entry = registry.get(name)
    arguments = [tuple(value) if isinstance(value, list) else value for value in arguments]
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    if function == "generate":
        return _generated(path, entry, *arguments, options)
    try:
        value = getattr(entry if place is None else entry.options[place], function)(*arguments, **options)
    except PPModelError:
        raise
    except BaseException as error:
        if place is not None:  # a text that is no value
            return {"raised": cause(error)}, b""
        rule = f"fails at S = {arguments[0]}, B = {arguments[1]} ({cause(error)})"
        raise ScheduleError("closed form", name, rule, "fix it", where=_line(error, path) or path) from None
    return {"value": str(value) if isinstance(value, Fraction) else value}, b""


def _generated(path, entry, num_ranks, num_microbatches, options):
    """The table of a generator; any failure is reported with the place in the file and the size."""
    size = f"at S = {num_ranks}, B = {num_microbatches}"
    try:
        table = entry.generate(num_ranks, num_microbatches, **options)
        where = registry.place_of(entry.generate) or path
        registry.require_made(entry.name, table, num_ranks, num_microbatches, where)
        columns = np.stack([np.asarray(getattr(table, name), dtype="<i4") for name in _COLUMNS])
    except TableError as error:
        error.where = error.where or _line(error, path)
        error.why = f"{error.why}; {size}" if error.why else size
        raise
    except PPModelError:  # the generator itself refuses a size or an option
        raise
    except BaseException as error:  # anything that a user's generator may raise
        rule, where = f"fails {size} ({cause(error)})", _line(error, path)
        raise ScheduleError("generator", entry.name, rule, "fix the line", where=where) from None
    arrays = columns, np.asarray(table.rank_start, "<i4"), np.asarray(table.placement, "<i4")
    head = {
        "name": str(table.name), "num_microbatches": int(table.num_microbatches),
        "microbatch_parts": int(table.microbatch_parts), "held_for_weight_grad": float(table.held_for_weight_grad),
        "stage_shares": np.asarray(table.stage_shares, float).tolist(), "shapes": [array.shape for array in arrays],
    }  # fmt: skip
    return head, b"".join(array.tobytes() for array in arrays)


def _line(error, path):
    """The last line of a file that an error passed through."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path]
    lines += [error.lineno] if isinstance(error, SyntaxError) and error.lineno else []
    return f"{path}:{lines[-1]}" if lines else None
