"""Random schedules and costs for property tests."""

import itertools
from functools import cache

import numpy as np
from hypothesis import strategies as st
from twin import needs

from ppmodel import Op, OpKind, Schedule, build
from ppmodel.errors import ScheduleError, SizeError
from ppmodel.schedules import get
from ppmodel.schedules import names as registered
from ppmodel.simulation import ALLREDUCE, BUFFERED, OpCosts

_WIDEST = 64
"""Devices up to which a schedule must be defined somewhere."""

_SOMETIMES = st.booleans()

p2ps = st.sampled_from(BUFFERED)
"""Semantics under which every table runs, by the longest path or by events; under ``rendezvous``, many deadlock."""

allreduces = st.sampled_from(ALLREDUCE)


@cache
def legal_sizes(name, options, max_stages, max_microbatches):
    """Where a schedule is defined with some options: all S and B up to the largest, or up to the next that has any."""
    sizes = itertools.product(range(1, max_stages + 1), range(1, max_microbatches + 1))
    found = [size for size in sizes if is_legal(name, size, options)]
    assert found or max_stages < _WIDEST, f"{name} is defined nowhere"
    return found or legal_sizes(name, options, 2 * max_stages, 2 * max_microbatches)


def is_legal(name, size, options=()):
    """Whether a schedule is defined at a size."""
    return refusal(name, size, options) is None


def refusal(name, size, options=()):
    """The error of a size at which a schedule is not defined, or None; other errors are raised."""
    try:
        build(name, *size, **dict(options))
    except ScheduleError as error:
        if not isinstance(error, SizeError):
            raise
        return error
    return None


@st.composite
def schedules(draw, max_stages=6, max_microbatches=12, names=None):
    """Any registered schedule, or any of some, at a size where it is legal."""
    name = draw(st.sampled_from(sorted(names or registered())))
    varied = [option for option in get(name).options if option.examples]
    drawn = {option.name: draw(st.sampled_from(option.examples)) for option in varied}
    if drawn.get("delays") is not None:  # an order for them has no limit
        drawn["limit"] = None
    options = tuple(drawn.items())
    return build(
        name, *draw(st.sampled_from(legal_sizes(name, options, max_stages, max_microbatches))), **dict(options)
    )


def ended(schedule, how):
    """A table as it is, or with reductions and steps at its end, or with steps alone."""
    if how == "as it is":
        return schedule
    rows = schedule.with_step().rows()
    if how == "steps":
        rows = [[cell for cell in row if cell[0].kind != OpKind.R] for row in rows]
    sizes = {name: getattr(schedule, name) for name in ("num_microbatches", "microbatch_parts", "stage_shares")}
    return Schedule.from_rows(schedule.name, rows, **sizes)


def gathered(schedule, random):
    """A table as it is, or with gathers and drops of weights."""
    fsdp, lookahead = random.choice(["keep", "drop", ""]), int(random.integers(1, 5))
    return schedule.with_gathers(fsdp, lookahead) if fsdp else schedule


endings = st.sampled_from(["as it is", "reductions and steps", "steps"])


def some_pairs(schedule, random):
    """Factors for some of the pairs of a table, for half of all tables."""
    some = [key for key in schedule.pairs.keys if random.random() < 0.8]
    return {key: float(random.uniform(0.5, 1.0)) for key in some} if random.random() < 0.5 else None


@st.composite
def cases(draw, **sizes):
    """A schedule, also with reductions and steps at its end, with random costs for every kind of operation on every
    stage, zeros among them."""
    schedule = ended(draw(schedules(**sizes)), draw(endings))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    schedule, shape = gathered(schedule, random), (len(OpKind), schedule.num_stages)
    tables = [random.uniform(0, top, shape) * (random.random(shape) < 0.9) for top in (2.0, 2.0, 1.0)]
    return schedule, OpCosts(
        *tables, overlap_factor=float(random.uniform(0.5, 1.0)), pairs=some_pairs(schedule, random)
    )


@st.composite
def tables(draw, max_ranks=4, max_microbatches=5, any_pairs=True, with_shards=_SOMETIMES):
    """Any order at all that can run: chunks anywhere, backwards whole or in halves, cells of two operations, shards.

    Without `any_pairs` these are a forward and a backward.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_ranks, num_microbatches = draw(st.integers(1, max_ranks)), draw(st.integers(1, max_microbatches))
    num_stages = num_ranks * draw(st.integers(1, 2))
    home = np.concatenate((random.permutation(num_ranks), random.integers(0, num_ranks, num_stages - num_ranks)))
    halves = random.random((num_stages, num_microbatches)) < draw(st.sampled_from([0, 0.5, 1]))
    pairs, has_shards = draw(st.sampled_from([0, 0.3])), draw(with_shards)
    shards = range(num_ranks if has_shards else 0)
    rows, done, since = [[] for _ in range(num_ranks)], set(), [set() for _ in range(num_ranks)]
    waiting = {Op(OpKind.F, s, m) for s in range(num_stages) for m in range(num_microbatches)}
    for s, m in np.ndindex(halves.shape):
        kinds = (OpKind.I, OpKind.W) if halves[s, m] else (OpKind.B,)
        waiting |= {Op(kind, int(s), int(m)) for kind in kinds}
    split = {Op(OpKind.B, int(s), int(m)) for s, m in np.argwhere(halves)}
    waiting |= {Op(kind, s, m) for kind in (OpKind.S, OpKind.T) for s in shards for m in range(num_microbatches)}
    beside = next((s for s in shards if home[s] == home[-1]), None)

    def wanted(op):
        """What must be done before an operation; the last backward also needs T if it comes later on its rank."""
        first, second = ([Op(kind, s, op.microbatch) for s in shards] for kind in (OpKind.S, OpKind.T))
        if op.kind in (OpKind.S, OpKind.T):
            return [Op(OpKind.F, num_stages - 1, op.microbatch)] if op.kind == OpKind.S else first
        of_shards = first + second * (bool(shards) and Op(OpKind.T, beside, op.microbatch) in done)
        of_shards *= op.kind in (OpKind.B, OpKind.I) and op.stage == num_stages - 1
        return [*of_shards, *filter(None, [needs(op, num_stages - 1, split)])]

    while waiting:
        ready = sorted(op for op in waiting if done.issuperset(wanted(op)))
        op = ready[random.integers(len(ready))]
        row, fresh = rows[home[op.stage]], since[home[op.stage]]
        alone = row and len(row[-1]) == 1
        fits = alone and (any_pairs or (op.kind == OpKind.F) != (row[-1][0].kind == OpKind.F))
        if fits and not fresh.intersection(wanted(op)) and random.random() < pairs:
            row[-1] += (op,)
        else:
            row.append((op,))
            fresh.clear()
        waiting.remove(op)
        done.add(op)
        for others in since:
            others.add(op)
    return Schedule.from_rows("by chance", rows)


@st.composite
def random_cases(draw):
    """A table by chance with random costs."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    schedule = gathered(ended(draw(tables()), draw(endings)), random)
    seconds = random.uniform(0, 2, (3, len(OpKind), schedule.num_stages))
    factor, pairs = float(random.uniform(0.5, 1.0)), some_pairs(schedule, random)
    return schedule, OpCosts(*seconds, overlap_factor=factor, pairs=pairs)
