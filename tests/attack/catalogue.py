"""All attacks by category; a later one is a line here."""

from . import answers, cells, code, documents, doors, processes, threads, timings, words
from .rooms import OPERATIONS, PRODUCTS, ROWS


def _legal_parameters():
    from .legal import legal_parameters  # which needs the book

    return legal_parameters()


CATEGORIES = {
    "command line": words.lines,
    "parameters": words.parameters,
    "legal parameters": _legal_parameters,
    "injection": words.injection,
    "YAML": documents.documents,
    "CSV": documents.tables,
    "measured rows": lambda: documents.tables(ROWS),
    "cells": cells.cells,
    "plans": answers.plans,
    "replays": answers.replays,
    "measured operations": lambda: documents.tables(OPERATIONS),
    "measured products": lambda: documents.tables(PRODUCTS),
    "timings": timings.timings,
    "generators": code.generators,
    "notebooks": code.notebooks,
    "kernels": code.hostile_notebooks,
    "paths and disks": processes.paths,
    "streams and limits": processes.streams,
    "schedulers": processes.schedulers,
    "kills": processes.kills,
    "concurrency": processes.concurrency,
    "tampering": processes.tampering,
    "doors": doors.doors,
    "threads": threads.threads,
}
"""Each a function that yields attacks, the same ones every time."""


def attacks(categories=()):
    """The attacks of some categories, or of all."""
    for name in categories or CATEGORIES:
        yield from CATEGORIES[name]()
