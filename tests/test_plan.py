"""Plans: pruned as good as exhaustive, the same every time, and refused where nothing can be planned."""

from itertools import product

import numpy as np
import pytest
from refusals import refused

import ppmodel as pp
from ppmodel.planning import asked, search
from ppmodel.planning.answer import Plan
from ppmodel.planning.candidates import all_sizes, cases_at, ways
from ppmodel.points import resolve, rows_of
from ppmodel.points.grid import resolve_point

SMALL = {"model": "llama3_8b", "system": "h100", "gpus": 8, "global_batch": 16}
SOME = ["1f1b", "interleaved-1f1b:chunks=2", "zb-v", "zb-h1", "chimera", "dualpipev"]


def every_candidate(question):
    """Each candidate of a question that fits: schedule, sizes, ways and seconds, simulated."""
    for sizes in all_sizes(question):
        for case, (zero, layers), recompute in product(
            cases_at(question, sizes.pp), ways(question, sizes), ["none", "selective", "full", 1, 2, 4, 8]
        ):
            layout = {name: value for name, value in sizes._asdict().items() if name != "pp"}
            points = resolve(
                case, sizes.pp, model=question.model, system=question.system, zero=zero, layers=layers,
                recompute=recompute, sequence_parallel=sizes.tp > 1, global_batch=question.global_batch, **layout,
            ).points()  # fmt: skip
            (row,) = rows_of(points)
            if row["refused"] is None and row["fits"]:
                yield case, sizes, zero, layers, recompute, row["iteration_s"]


@pytest.mark.parametrize("limit", [None, "40 GiB"])
def test_pruned_is_as_good_as_exhaustive(limit):
    """No simulated candidate of a small space is faster than the best, and all within the share are there."""
    given = SMALL | {"gpus": 4, "schedules": ["1f1b", "zb-v"], "memory_limit": limit, "fix": {"microbatch_size": 1}}
    question = asked(**given)
    pruned = search(question)
    best_s = min(candidate.iteration_s for candidate in pruned)
    seconds = {
        (candidate.case, candidate.sizes, candidate.zero, candidate.layers, candidate.recompute): candidate.iteration_s
        for candidate in pruned
    }  # fmt: skip
    everything = list(every_candidate(question))
    assert min(entry[5] for entry in everything) >= best_s * (1 - 1e-9)
    for case, sizes, zero, layers, recompute, time_s in everything:
        same = seconds.get((case, sizes, zero, layers, recompute))
        assert same is None or np.isclose(same, time_s, rtol=1e-9)
        if recompute == "none" and time_s <= best_s * (1 + question.within):
            alike = [value for key, value in seconds.items() if key[:3] == (case, sizes, zero) and key[4] == "none"]
            assert np.isclose(alike, time_s, rtol=1e-9).any()


def test_an_answer_is_a_point_that_anybody_can_simulate():
    """The first answer, simulated as a reader would, takes the same time and memory."""
    row = pp.plan(**SMALL, schedules=SOME).iloc[0]
    sizes = {name: int(row[name]) for name in ("tp", "cp", "ep", "dp", "microbatch_size", "zero")}
    point = resolve_point(
        row.schedule + (f":{row.options}" if row.options else ""), int(row.pp), model="llama3_8b", system="h100",
        layers=row["layers"], recompute=row.recompute, sequence_parallel=bool(row.tp > 1), global_batch=16, **sizes,
    )  # fmt: skip
    run = point.run().to_dict()
    assert run["iteration_s"] == pytest.approx(row.iteration_s, rel=1e-9)
    assert run["peak_memory_bytes"] == row.peak_memory_bytes


def test_steps_lead_away_from_the_best_only_where_it_is_no_better_or_does_not_fit():
    """No step that fits, of a schedule that was tried, is faster by more than a tie."""
    question = asked(**SMALL, schedules=["1f1b", "interleaved-1f1b"])
    steps = Plan(question, search(question)).steps()
    fitting = steps[steps.refused.isna() & steps.fits.eq(True) & ~steps.step.isin(["ZB-V", "DualPipeV"])]
    assert len(fitting) > 3
    assert fitting.over.min() >= -0.011


def test_a_limit_below_the_weights_is_refused():
    """Before anything is simulated, with what the weights need."""
    with refused(field="memory_limit", rule="weights"):
        pp.plan("llama3_405b", "h100", 8, 64)
