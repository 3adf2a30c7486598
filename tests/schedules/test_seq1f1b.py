"""Seq1F1B: the authors' order, the times of a plain simulator, closed forms, and tables of slices as text."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from refusals import refused

from ppmodel import build, formulas
from ppmodel.errors import SizeError, TableError
from ppmodel.loops.compiled import using
from ppmodel.metrics import peak_activations, table_slots
from ppmodel.metrics.bubbles import operations_s
from ppmodel.ops import OpKind
from ppmodel.simulation import Units, compile_graph, makespans, run_graph, uniform_costs
from ppmodel.simulation.graph import P2P
from ppmodel.tables import Schedule
from ppmodel.tables.text import parse_table
from ppmodel.tables.writing import write_table

PLAIN = [(p, m, k, 1) for p, m, k in product((1, 2, 3, 4, 7, 8), (1, 2, 3, 5, 6, 9), (2, 3, 4, 8))]
LOOPED = [(p, m, k, v) for p, m, k, v in product((2, 4, 6, 8), (2, 3, 4, 6, 8), (2, 3, 4), (2, 3, 4))
          if p % k == 0 and m * k % p == 0]  # fmt: skip
SIZES = PLAIN + LOOPED


def authors_rows(ranks, count, slices, chunks):
    """The rows that the loop of the authors' code runs: a queue of stacks of slices a chunk, emptied from its head."""
    rows, total = [], count * slices * chunks
    for rank in range(ranks):
        if chunks == 1:
            warm_up = ranks - rank + slices - 2
        else:
            warm_up = (chunks - 1) * ranks + 2 * (ranks - rank - 1) + slices - 1
        warm_up, row = min(warm_up, total), []
        made, stacks = [0] * chunks, [[[]] for _ in range(chunks)]

        def chunk_of(step):
            return step % (ranks * chunks) // ranks if chunks > 1 else 0

        def forward(step, rank=rank, row=row, made=made, stacks=stacks):
            chunk = chunk_of(step)
            microbatch, part = divmod(made[chunk], slices)
            stacks[chunk][-1].append((microbatch, part))
            made[chunk] += 1
            if part == slices - 1:
                stacks[chunk].append([])
            row.append(f"{chunk * ranks + rank}F{microbatch}.{part}")

        def backward(step, rank=rank, row=row, stacks=stacks):
            chunk = chunks - 1 - chunk_of(step)
            microbatch, part = stacks[chunk][0].pop()
            if not stacks[chunk][0]:
                stacks[chunk].pop(0)
            row.append(f"{chunk * ranks + rank}B{microbatch}.{part}")

        for step in range(warm_up):
            forward(step)
        for step in range(total - warm_up):
            forward(step + warm_up)
            backward(step)
        for step in range(total - warm_up, total):
            backward(step)
        rows.append(row)
    return rows


def plain_makespan(rows, stages, seconds, comm):
    """The end of the last operation: each begins once its row, its input and its gradient have come."""
    ends, free, places = {}, [0.0] * len(rows), [0] * len(rows)
    where = {name: rank for rank, row in enumerate(rows) for name in row}
    while any(place < len(row) for place, row in zip(places, rows, strict=True)):
        for rank, row in enumerate(rows):
            while places[rank] < len(row):
                name = row[places[rank]]
                kind = "F" if "F" in name else "B"
                stage, unit = name.split(kind)
                before = int(stage) + (-1 if kind == "F" else 1)
                needed = f"{before}{kind}{unit}" if 0 <= before < stages else f"{stage}F{unit}" if kind == "B" else None
                if needed and needed not in ends:
                    break
                arrived = ends[needed] + comm(needed) * (where[needed] != rank) if needed else 0.0
                free[rank] = ends[name] = max(free[rank], arrived) + seconds(name)
                places[rank] += 1
    return max(free)


def names_of(schedule):
    return [[str(op) for (op,) in row] for row in schedule.rows()]


def test_the_order_is_that_of_the_authors_code():
    """At more than 200 sizes, with several chunks as well; and every table is a schedule of slices in order."""
    assert len(SIZES) > 200
    for ranks, count, slices, chunks in SIZES:
        schedule = build("seq1f1b", ranks, count, slices=slices, chunks=chunks)
        schedule.validate()
        assert names_of(schedule) == authors_rows(ranks, count, slices, chunks)


def test_lengths_and_peaks_have_their_closed_forms():
    """As 1F1B with K times as many microbatches, however long a backward is."""
    for ranks, count, slices, chunks in SIZES:
        schedule = build("seq1f1b", ranks, count, slices=slices, chunks=chunks)
        ratio = formulas.bubble_ratio_seq1f1b(ranks, count, slices, chunks)
        assert 1 - 3 * count * slices * chunks / table_slots(schedule) == pytest.approx(float(ratio), abs=1e-12)
        peaks = formulas.peak_activations_seq1f1b(ranks, count, slices, chunks)
        assert peak_activations(schedule) == pytest.approx([float(peak) for peak in peaks], rel=1e-12)


def test_makespans_are_those_of_a_plain_simulator():
    """To 1e-9, with transfers that take time."""
    for place, (ranks, count, slices, chunks) in enumerate(SIZES):
        schedule, comm = build("seq1f1b", ranks, count, slices=slices, chunks=chunks), (0, 0.03, 0.4)[place % 3]
        run = run_graph(compile_graph(schedule, "latency"), uniform_costs(schedule, 1.3, 2.1, comm=comm))
        expected = plain_makespan(
            names_of(schedule), schedule.num_stages,
            lambda name, pieces=slices * chunks: (1.3 if "F" in name else 2.1) / pieces,
            lambda _, sent=comm / slices: sent,
        )  # fmt: skip
        assert run.makespan_s == pytest.approx(expected, rel=1e-9)


def test_units_of_unlike_length_take_their_own_times():
    """In computing and transfers, slices or not; in computing alone as by factors, under any semantics."""
    random = np.random.default_rng(3)
    for name, options in (("seq1f1b", {"slices": 2}), ("1f1b", {}), ("combined-1f1b", {}), ("gpipe", {})):
        schedule = build(name, 3, 5, **options)
        count = schedule.table_microbatches
        units = Units(random.uniform(0.5, 2, (10, schedule.num_stages, count)), random.uniform(0.5, 2, count))
        costs = replace(uniform_costs(schedule, 1.3, 2.1, comm=0.2), units=units)
        same = replace(costs, units=units._replace(tokens=np.ones(count)))
        for p2p in set(P2P) - ({"rendezvous"} if schedule.joined.any() else set()):  # where such cells deadlock
            graph, factors = compile_graph(schedule, p2p), same.unit_factors(schedule)[0]
            by_factors = run_graph(graph, replace(costs, units=None), factors)
            assert run_graph(graph, same).makespan_s == pytest.approx(by_factors.makespan_s, rel=1e-12)
            assert list(makespans(graph, [costs, same])) == [run_graph(graph, of).makespan_s for of in (costs, same)]
        if schedule.joined.any():
            continue
        place = {str(schedule.op(index)): index for index in range(schedule.num_operations)}
        longer, larger = costs.unit_factors(schedule)
        seconds = costs.compute_s[schedule.kind, schedule.stage] * longer
        sent = costs.occupancy_s[schedule.kind, schedule.stage] * larger
        expected = plain_makespan(names_of(schedule), 3, lambda op: seconds[place[op]], lambda op: sent[place[op]])  # noqa: B023
        run = run_graph(compile_graph(schedule, "latency"), costs)
        assert run.makespan_s == pytest.approx(expected, rel=1e-9)
        assert operations_s(schedule, costs).sum() == pytest.approx(seconds.sum(), rel=1e-12)


def test_systems_with_unlike_slices_are_simulated_side_by_side():
    """With the same times as one by one, also beside systems whose slices are alike."""
    random, schedule = np.random.default_rng(4), build("seq1f1b", 3, 5, slices=2).with_step()
    factors = random.uniform(0.5, 2, (3, 10, schedule.num_stages, 2))
    factors[:, OpKind.R :] = 1.0
    alike = uniform_costs(schedule, 1.3, 2.1, comm=0.2, latency=0.1, reduction=0.3, optimizer=0.4)
    unlike = [replace(alike, units=Units(compute, random.uniform(0.5, 2, 2))) for compute in factors]
    for p2p, allreduce in product(P2P, ("excluded", "blocking", "overlapped")):
        graph = compile_graph(schedule, p2p, allreduce)
        one_by_one = [run_graph(graph, costs).makespan_s for costs in (alike, *unlike)]
        with using(True):
            assert makespans(graph, [alike, *unlike]).tolist() == one_by_one


@pytest.mark.parametrize("form", ["text", "csv"])
def test_tables_of_slices_are_written_and_read(form):
    """Cells such as 0F1.2, frames and pictures name slices; PyTorch's format has none."""
    schedule = build("seq1f1b", 4, 3, slices=3)
    again = parse_table(write_table(schedule, form))
    assert (again.slices, again.num_microbatches) == (3, 3)
    assert names_of(again) == names_of(schedule)
    assert (again.microbatch == schedule.microbatch).all()
    frame = schedule.to_frame()
    assert (sorted(set(frame.microbatch)), frame.operation[1]) == ([0, 1, 2], "0F0.1")
    with refused(TableError, "schedule", "into 3 parts"):
        write_table(schedule, "pytorch")


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ("0F0.1 0F0.0 0B0.1 0B0.0", "does not come after 0F0.0"),
        ("0F0.0 0F0.1 0B0.0 0B0.1", "does not come after 0B0.1"),
        ("0F0.0 0F0.1 0B0.1&0B0.0", "does not come after 0B0.1"),
        ("0F0.0 0F0.1 0I0.0 0I0.1 0W0.0 0W0.1", "does not come after 0I0.1"),
        ("0F0.0 0F0.2 0B0.2 0B0.0", "has no operation in the table"),
        ("0F0.0 0F0.1 0F1 0B0.1 0B0.0 0B1", "is a whole microbatch in a table of slices"),
    ],
)
def test_slices_out_of_order_are_refused(row, rule):
    """Their keys and values, or gradients of these, would not exist yet."""
    with pytest.raises(TableError, match=rule):
        Schedule.from_rows("mine", [row.split()])


def test_halves_of_slices_may_wait():
    """Weight gradients come in any order."""
    row = ["0F0.0", "0F0.1", "0I0.1", "0I0.0", "0W0.0", "0W0.1"]
    assert np.array_equal(Schedule.from_rows("mine", [row]).microbatch, [0, 1, 1, 0, 0, 1])


def test_chunks_need_groups_of_whole_microbatches():
    """The authors' code takes no others, either."""
    with refused(SizeError, "chunks", "must be 1"):
        build("seq1f1b", 4, 4, slices=3, chunks=2)
