"""Growth of the stages with the number of operations."""

from benchmarks.stages import NS, costs_of, fresh, ready
from benchmarks.timing import measure
from ppmodel import build
from ppmodel.simulation import makespans, run_graph


def growth(plan):
    """Time generation, compile, evaluation and many systems over the size of 1F1B, B = 16 S.

    Parameters
    ----------
    plan : Plan

    Yields
    ------
    dict
        One row per size and stage: seconds per call, and nanoseconds per operation (and system). A size that would
        take longer than the plan allows, and all larger ones, are left out.
    """
    spent, before = 0.0, 1
    for num_ranks in plan.growth:
        count = 32 * num_ranks**2
        if spent * count / before > plan.growth_budget_s:
            return
        rows = list(_rows(num_ranks, plan.growth_systems))
        spent, before = sum(row["median_s"] for row in rows), count
        yield from rows


def _rows(num_ranks, num_systems):
    schedule = build("1f1b", num_ranks, 16 * num_ranks)
    graph, costs = ready(schedule), costs_of(schedule)
    many = [costs_of(schedule, 0.2 * n / num_systems) for n in range(num_systems)]
    stages = (
        ("generation", 1, lambda: build("1f1b", num_ranks, 16 * num_ranks), tuple),
        ("compile", 1, ready, lambda: fresh(schedule)),
        ("one evaluation", 1, run_graph, lambda: (graph, costs)),
        ("many systems", num_systems, makespans, lambda: (graph, many)),
    )
    for stage, per, run, prepare in stages:
        seconds, count = measure(run, prepare, budget_s=30.0), schedule.num_operations
        yield {
            "stage": stage, "pp": num_ranks, "microbatches": 16 * num_ranks, "operations": count,
            "systems": per, "runs": seconds.runs, "best_s": seconds.best, "median_s": seconds.median,
            "ns_per_operation": seconds.median / count / per * NS,
        }  # fmt: skip
