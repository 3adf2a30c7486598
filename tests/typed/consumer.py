"""What a user may write: a type checker, in strict mode, knows the type of every expression below."""

from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import ppmodel as pp
from ppmodel.clusters.specs import LayoutSpec, ModelSpec, SystemSpec


def tables(path: Path) -> pp.Schedule:
    """A table, its columns and slots, written and read."""
    table = pp.Schedule.from_rows("one rank", [["0F0", "0F1", pp.Op(pp.OpKind.B, 0, 0), "0B1"]])
    assert_type(table.rank, NDArray[np.int32])
    assert_type(table.slots(backward=2), tuple[NDArray[np.int64], NDArray[np.int64]])
    assert_type(table.table(), list[list[str]])
    assert_type(table.op(0).kind, pp.OpKind)
    assert_type(table.with_step().unfused().num_ranks, int)
    table.validate()
    table.to_csv(path / "table.csv")
    return pp.read_table(path / "table.csv")


def runs(path: Path) -> list[float]:
    """Simulations by seconds and by names, of a table, a name, options and a generator, and a comparison."""
    run = pp.simulate(pp.build("hanayo", 4, 4, waves=2), forward=1, backward=2, comm=0.1)
    assert_type(run.makespan_s, float)
    assert_type(run.peak_memory_bytes, float | None)
    assert_type(run.critical_path(), list[int])
    run.to_trace(path / "trace.json")
    layout = LayoutSpec(tp=8, dp=2)
    spread = pp.simulate("1f1b", 8, 64, model="llama3_70b", system="dgx_h100_nodes", layout=layout)
    assert_type(spread.iteration_s, float | None)
    changes = [None, pp.Change(bandwidth=0.5)]
    pp.compare(["1f1b", ("hanayo", {"waves": 2}), gpipe], 4, [4], forward=1, backward=2)
    pp.compare("1f1b", [4, 8], 8, model="paper", system="dgx_h100", changes=changes)
    return [run.idle_ratio, spread.idle_ratio]


def gpipe(num_ranks: int, num_microbatches: int) -> pp.Schedule:
    """A generator."""
    return pp.build("gpipe", num_ranks, num_microbatches)


def specifications() -> tuple[ModelSpec, SystemSpec]:
    """A model and a system, by name; optional entries may be missing."""
    system = pp.load_system("dgx_h100_nodes")
    assert_type(system.fp8_peak_compute_flops, float | None)
    assert_type(system.nodes.devices_per_node if system.nodes else 1, int)
    return pp.load_model("paper"), system


def refused(name: str) -> str | None:
    """The rule that a name breaks."""
    try:
        pp.load_model(name)
    except pp.PPModelError as error:
        return error.rule
    assert_type(pp.names(), list[str])
    return None
