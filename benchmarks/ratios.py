"""Comparison with peers: each peer and ours take turns on the same table, and the ratio of each pair counts."""

import gc
from statistics import median

from benchmarks.peers import PEERS, case_of, plain_sweep, unit_steps
from benchmarks.stages import costs_of, ready
from benchmarks.timing import measure, timed
from ppmodel import build
from ppmodel.simulation import compile_graph, makespans, run_graph

AGREE = 1e-9
SYSTEMS = 256

LEAST_S = 0.01
"""Shorter calls are repeated to fill this many seconds, because a single one is too short to time."""

LEAST = {(4, 32): 3.0, (8, 64): 10.0, (16, 64): 15.0}
"""The least ratio of the plain Python sweep to ours, by S and B."""


def ratios(plan):
    """Measure the times of every peer over ours, at every size of the plan.

    Parameters
    ----------
    plan : Plan

    Yields
    ------
    dict
        One row per size and peer. ``ratio``: from a schedule's name to its makespan, including table and costs, with
        nothing cached; the median of the pairs' ratios, with the lowest and the highest. ``ratio_again``: for each
        further system, the peer's run over ours with 256 systems in one call. ``goal``: the least that `ratio` may be.

    Raises
    ------
    ValueError
        If a peer's makespan differs from ours, in which case its time is meaningless.
    """
    for (num_ranks, num_microbatches), pairs in plan.pairs:
        schedule = build("1f1b", num_ranks, num_microbatches)
        graph = ready(schedule)
        many = [costs_of(schedule, 0.2 * n / SYSTEMS) for n in range(SYSTEMS)]
        ours_again = measure(makespans, lambda graph=graph, many=many: (graph, many)).median / SYSTEMS
        case = case_of(schedule, costs_of(schedule))
        for peer in PEERS:
            row = {
                "peer": peer.name, "pp": num_ranks, "microbatches": num_microbatches,
                "operations": schedule.num_operations, "installed": peer.installed,
                "goal": LEAST.get((num_ranks, num_microbatches)) if peer.run is plain_sweep else None,
            }  # fmt: skip
            yield row | (_pairs(peer, case, pairs, ours_again) if peer.installed else {})


def _pairs(peer, case, pairs, ours_again):
    """The pairs of one peer at one size; who goes first alternates."""
    small = build("1f1b", 2, 2)
    _theirs(peer, case_of(small, costs_of(small)))  # packages imported
    _ours(case)  # kernels compiled
    theirs, runs, ours = [], [], []
    steps = None if peer.in_seconds else unit_steps(peer.prepare(case))
    for number in range(pairs):
        gc.collect()
        if number % 2:
            ours.append(_ours(case))
        prepare_s, run_s, result = _theirs(peer, case)
        if not number % 2:
            ours.append(_ours(case))
        theirs.append(prepare_s + run_s)
        runs.append(run_s)
        _refuse_disagreement(peer, result, ours[-1][1] if peer.in_seconds else steps)
    ratio = [one / other for one, (other, _) in zip(theirs, ours, strict=True)]
    again = median(runs) if peer.again else None
    return {
        "pairs": pairs, "peer_s": median(theirs), "ours_s": median(seconds for seconds, _ in ours),
        "ratio": median(ratio), "ratio_low": min(ratio), "ratio_high": max(ratio),
        "peer_again_s": again, "ours_again_s": ours_again if again else None,
        "ratio_again": again / ours_again if again else None, "result": result, "in_seconds": peer.in_seconds,
    }  # fmt: skip


def _ours(case):
    """Seconds from a schedule's name to its makespan, and the makespan."""
    name, num_ranks, num_microbatches = case.schedule.name, case.schedule.num_ranks, case.schedule.num_microbatches

    def cold():
        schedule = build(name, num_ranks, num_microbatches)
        return run_graph(compile_graph(schedule), costs_of(schedule)).makespan_s

    return _per_call(cold)


def _theirs(peer, case):
    prepare_s, prepared = _per_call(peer.prepare, case)
    run_s, result = _per_call(peer.run, prepared)
    return prepare_s, run_s, result


def _per_call(run, *arguments):
    """Seconds per call, and the result of the last call."""
    seconds, result = timed(run, *arguments)
    if seconds >= LEAST_S:
        return seconds, result
    times = int(LEAST_S / seconds) + 1

    def calls():
        for _ in range(times - 1):
            run(*arguments)
        return run(*arguments)

    seconds, result = timed(calls)
    return seconds / times, result


def _refuse_disagreement(peer, result, expected):
    """A peer that counts seconds must give our makespan; one that counts steps, the result of its own recurrence."""
    if abs(result - expected) > AGREE * expected:
        raise ValueError(f"{peer.name} gives {result}, but {expected} is expected")
