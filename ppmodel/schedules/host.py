"""The process apart in which a user's file runs: it loads the file, then answers calls of what the file registers.

`own_files` starts it and talks to it. Requests and answers are lines of JSON. Whatever the file prints goes to the
process's standard error.
"""

import json
import os
import sys
from base64 import b64encode
from contextlib import contextmanager
from fractions import Fraction
from traceback import extract_tb

import numpy as np

from ppmodel import errors
from ppmodel.errors import PPModelError, ScheduleError, TableError, cause
from ppmodel.schedules import registry

_MEMORY_SHARE = 2
_ARRAYS = "kind", "stage", "microbatch", "replica", "joined", "rank_start", "placement"


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
        _send(answers, {})
        path, code = json.loads(requests.readline())
        _send(answers, _outcome(lambda: _loaded(path, code)))
        for line in requests:
            name, function, place, *arguments = json.loads(line)
            _send(answers, _outcome(lambda: _called(path, name, function, place, *arguments)))  # noqa: B023
    finally:  # the file may have replaced anything that the lines above rely on
        leave(0)


def tupled(value):
    """A value from JSON, in which tuples are lists.

    >>> tupled([1, [2, 3]])
    (1, (2, 3))
    """
    return tuple(map(tupled, value)) if isinstance(value, list) else value


def _send(pipe, answer):
    line = memoryview(json.dumps(answer, default=lambda value: callable(value) or str(value)).encode() + b"\n")
    while line:
        line = line[os.write(pipe, line) :]


def _outcome(call):
    """The answer to a request: what a call returns, or the parts of what it raises."""
    try:
        return call()
    except PPModelError as error:
        parts = {name: None if (value := getattr(error, name)) is None else str(value) for name in errors.PARTS}
        return {"error": type(error).__name__, "parts": parts}


@contextmanager
def _failures_refused(path, field, value, fails, remedy, elsewhere=None):
    """Turn whatever a user's code raises within the context into a refusal with the line of its file."""
    try:
        yield
    except PPModelError:
        raise
    except BaseException as error:
        where = _line(error, path) or elsewhere
        raise ScheduleError(field, value, f"{fails} ({cause(error)})", remedy, where=where) from None


def _loaded(path, code):
    """Run the file; describe what it registers."""
    before = registry.entries()
    with _failures_refused(path, "file", path, "cannot be run", "fix it"):
        exec(compile(code, path, "exec"), {"__name__": "<run_path>", "__file__": path})
    made = [entry for entry in registry.entries() if not any(entry is other for other in before)]
    registry.require(made, "file", path, "registers no schedule", "write @schedule(...) above its generator")
    sent = []  # as `own_files` reads it: a function is true
    for entry in made:
        options = [option._asdict() for option in entry.options]
        sent.append(entry._asdict() | {"options": options, "where": registry.place_of(entry.generate)})
    return {"entries": sent}


def _called(path, name, function, place, arguments, options):
    """Call a function of an entry, or of the option at a place; values are sent as they are, arrays as text."""
    entry = registry.get(name)
    arguments, options = tupled(arguments), {key: tupled(value) for key, value in options.items()}
    if function == "generate":
        return _generated(path, entry, *arguments, options)
    if place is not None:
        try:
            return {"value": getattr(entry.options[place], function)(*arguments)}
        except PPModelError:
            raise
        except BaseException as error:  # a text that is no value
            return {"raised": cause(error)}
    given = dict(zip("SB", arguments, strict=False)) or options
    size = ", ".join(f"{letter} = {value}" for letter, value in given.items())
    with _failures_refused(path, "closed form", name, f"fails at {size}", "fix it", elsewhere=path):
        value = getattr(entry, function)(*arguments, **options)
    return {"value": str(value) if isinstance(value, Fraction) else value}


def _generated(path, entry, num_ranks, num_microbatches, options):
    """The table of a generator; any failure is reported with the place in the file and the size."""
    size = f"at S = {num_ranks}, B = {num_microbatches}"
    try:
        with _failures_refused(path, "generator", entry.name, f"fails {size}", "fix the line"):
            table = entry.generate(num_ranks, num_microbatches, **options)
            where = registry.place_of(entry.generate) or path
            registry.require_made(entry.name, table, num_ranks, num_microbatches, where)
            arrays = {name: b64encode(np.asarray(getattr(table, name), "<i4")).decode() for name in _ARRAYS}
    except TableError as error:
        error.where = error.where or _line(error, path)
        error.why = f"{error.why}; {size}" if error.why else size
        raise
    return {
        "name": str(table.name), "num_microbatches": int(table.num_microbatches), "num_replicas": len(table.placement),
        "microbatch_parts": int(table.microbatch_parts), "held_for_weight_grad": float(table.held_for_weight_grad),
        "stage_shares": np.asarray(table.stage_shares, float).tolist(), "arrays": arrays,
    }  # fmt: skip


def _line(error, path):
    """The last line of a file that an error passed through."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path]
    lines += [error.lineno] if isinstance(error, SyntaxError) and error.lineno else []
    return f"{path}:{lines[-1]}" if lines else None
