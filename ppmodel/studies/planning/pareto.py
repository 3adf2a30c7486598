"""The Pareto front of a question: the fastest candidate under ever lower limits of memory."""

from contextlib import suppress
from dataclasses import replace

from ppmodel.errors import NothingFitsError
from ppmodel.studies.planning.candidate_search import search

_LESS, _MOST = 0.95, 12


def front(question, workers=None, scheduler=None, resume=None):
    """Find the fastest candidates that the framework runs, each with less memory than the one before.

    Parameters
    ----------
    question : Question
    workers, scheduler, resume : optional
        As in `search`; each search has a folder of its own, numbered behind the name.

    Returns
    -------
    list of Candidate
        At most 12; each holds at least 5 % less than the one before, and is the fastest that does.

    Examples
    --------
    >>> from ppmodel.studies.planning import asked
    >>> fastest = front(asked("llama3_8b", "h100", 8, 16, schedules="1f1b", fix={"tp": 2, "cp": 1}))
    >>> [later.iteration_s >= sooner.iteration_s for sooner, later in zip(fastest, fastest[1:])]  # doctest: +ELLIPSIS
    [True, ...]
    """
    fastest, limit = [], question.system.memory_capacity_bytes
    with suppress(NothingFitsError):
        while len(fastest) < _MOST:
            smaller = replace(question, system=replace(question.system, memory_capacity_bytes=limit), within=0.0)
            candidates = search(smaller, None, workers, scheduler, resume and f"{resume}.{len(fastest) + 1}")
            usual = [candidate for candidate in candidates if candidate.is_run]
            if not usual:
                break
            fastest.append(min(usual, key=lambda candidate: (candidate.iteration_s, candidate.peak_bytes)))
            limit = fastest[-1].peak_bytes * _LESS
    return fastest
