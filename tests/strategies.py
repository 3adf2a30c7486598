"""Random schedules and costs for property tests."""

import numpy as np
from hypothesis import strategies as st

from ppmodel import build
from ppmodel.costs import OpCosts
from ppmodel.graph import ALLREDUCE, P2P
from ppmodel.schedules.chimera import CONCATENATIONS

ANY_SIZE = ("gpipe", "1f1b", "eager-1f1b")

p2ps = st.sampled_from(P2P)
allreduces = st.sampled_from(ALLREDUCE)


@st.composite
def schedules(draw, max_stages=6, max_microbatches=12):
    """Any registered schedule at a size where it is legal."""
    family = draw(st.sampled_from(["linear", "chimera", "asymmetric", "hanayo"]))
    if family == "linear":
        name = draw(st.sampled_from(ANY_SIZE))
        return build(name, draw(st.integers(1, max_stages)), draw(st.integers(1, max_microbatches)))
    if family == "hanayo":
        size = draw(st.integers(1, max_stages))
        return build("hanayo", size, size, waves=draw(st.integers(1, 3)))
    concat = draw(st.sampled_from(CONCATENATIONS))
    num_stages = 2 * draw(st.integers(1, max_stages // 2))
    units = draw(st.integers(1, 3))
    step = 2 if concat == "forward-doubling" and units > 1 else 1
    count = num_stages * units * step
    if family == "chimera":
        return build("chimera", num_stages, count, concat=concat)
    split = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return build("asymmetric-chimera", num_stages, count, split=split, concat=concat)


@st.composite
def cases(draw, **sizes):
    """A schedule with random costs for every kind of operation on every stage, zeros among them."""
    schedule = draw(schedules(**sizes))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (5, schedule.num_stages)
    tables = [random.uniform(0, top, shape) * (random.random(shape) < 0.9) for top in (2.0, 2.0, 1.0)]
    return schedule, OpCosts(*tables, overlap_factor=float(random.uniform(0.5, 1.0)))
