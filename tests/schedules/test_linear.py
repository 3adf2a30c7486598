"""GPipe, 1F1B and eager 1F1B: orders as published."""

import pytest

from ppmodel import OpKind, build


def letters(schedule, rank):
    first, last = schedule.rank_start[rank : rank + 2]
    return "".join(OpKind(kind).name for kind in schedule.kind[first:last])


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (4, 2), (4, 4), (4, 9)])
def test_orders_are_warm_up_pairs_cool_down(stages, microbatches):
    """Each rank runs its warm-up of forwards, then pairs, then the backwards that are left."""
    ahead = {
        "gpipe": lambda _: microbatches,
        "1f1b": lambda d: stages - 1 - d,
        "eager-1f1b": lambda d: 2 * (stages - 1 - d),
    }
    for name, warm_up_of in ahead.items():
        schedule = build(name, stages, microbatches)
        for rank in range(stages):
            warm_up = min(warm_up_of(rank), microbatches)
            assert letters(schedule, rank) == "F" * warm_up + "FB" * (microbatches - warm_up) + "B" * warm_up
