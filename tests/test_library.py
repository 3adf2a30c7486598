"""The public library: one simulation, many, files and frames, and help that works."""

import doctest
import json
import pickle
import pydoc
import subprocess
import sys
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from refusals import refused
from strategies import schedules

import ppmodel as pp
from ppmodel.errors import CostError, PPModelError, SizeError, TableError
from ppmodel.studies.points import compared
from ppmodel.studies.points.change import UNCHANGED, WITHOUT_NETWORK, Change
from ppmodel.studies.points.columns import column_names

COLUMNS = column_names("schedule", "system", "result", "remark")
SECONDS = {"forward": 1, "backward": 2, "comm": 0.1}
ON = {"model": "llama3_70b", "system": "dgx_h100_nodes"}
PUBLIC = [name for name in pp.__all__ if name != "__version__"]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


GENERATOR = """
from ppmodel.schedules import build
from ppmodel.schedules.registry import Option, schedule

@schedule("mine", label="mine", title="GPipe", legal="B >= 1", options=[Option.count("depth", 1, "D", "nothing")])
def mine(num_ranks, num_microbatches, depth=1):
    return build("gpipe", num_ranks, num_microbatches)
"""


def zigzag(num_ranks, num_microbatches):
    """A generator function of one's own: GPipe under another name."""
    rows = pp.build("gpipe", num_ranks, num_microbatches).rows()
    return pp.Schedule.from_rows("zigzag", rows)


THREADS = """
import sys, threading
import ppmodel as pp

def first(name):
    start.wait()
    getattr(pp, name)
    frames.append(pp.compare(["1f1b", "chimera"], 4, 8, model="llama3_8b", system="dgx_h100", tp=[1, 2]))

sys.setswitchinterval(1e-6)
frames, start = [], threading.Barrier(len(pp.__all__))
threads = [threading.Thread(target=first, args=(name,)) for name in pp.__all__]
for run in (threading.Thread.start, threading.Thread.join):
    for thread in threads:
        run(thread)
sys.exit(len(frames) != len(threads) or not all(frame.equals(frames[0]) for frame in frames))
"""


# ---- names and help ----------------------------------------------------------------------------------


def test_the_names_are_there_and_few():
    """Sixteen, each of them found, and nothing that is not."""
    assert len(PUBLIC) <= 16
    assert all(getattr(pp, name) for name in PUBLIC)
    assert set(dir(pp)) == set(pp.__all__)


def test_threads_may_load_the_library():
    """Threads that use the names first, each another one, all get the same frame."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        pp.simulat  # noqa: B018


@pytest.mark.parametrize("name", PUBLIC)
def test_help_has_an_example(name):
    """help() of each public name shows a call that can be copied; the doctests run it."""
    assert doctest.DocTestParser().get_examples(pydoc.getdoc(getattr(pp, name)))


def test_importing_costs_little():
    """No frames, pictures, specifications or compiled code before they are asked for."""
    code = (
        "import sys, ppmodel as pp; pp.simulate('1f1b', 4, 8, forward=1, backward=2).makespan_s; "
        "heavy = {'pandas', 'matplotlib', 'seaborn', 'pydantic', 'numba'}; "
        "print(sorted({name.split('.')[0] for name in sys.modules} & heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- one simulation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("costs", [SECONDS, ON], ids=["seconds", "model"])
def test_a_schedule_may_be_given_in_many_ways(costs, tmp_path):
    """A name, with options, a table, a function, a case, a file: the same table, run and row for each."""
    from ppmodel.schedules.cases import as_case

    table, path = pp.build("zb-v", pp=4, microbatches=8), tmp_path / "mine.csv"
    table.to_csv(path)
    (tmp_path / "mine.py").write_text(GENERATOR)
    named = [
        "zb-v",
        ("zb-v", {}),
        as_case("zb-v"),
        zigzag,
        "stp:warm-up=memory-saving",
        ("stp", {"warm_up": "memory-saving"}),
    ]
    ways = [(one, 4, 8) for one in (*named, table, path, tmp_path / "mine.py", f"{tmp_path}/mine.py:depth=2")]
    ways += [(table,), (path,), (str(path), 4)]
    tables = [pp.build(*way) for way in ways]
    assert {(one.num_ranks, one.num_microbatches) for one in tables} == {(4, 8)}
    for way, made in zip(ways, tables, strict=True):
        assert pp.simulate(made, **costs).makespan_s == pp.simulate(*way, **costs).makespan_s
        assert pp.simulate(made, **costs).makespan_s == pp.compare(*way[:1], 4, 8, **costs).makespan_s.item()


def test_a_run_says_what_it_is():
    """Its repr has name, size, time, idle share and peak; a table's has name and size; neither dumps an array."""
    run = pp.simulate(("interleaved-1f1b", {"chunks": 4}), 8, 16, **SECONDS)
    assert repr(run).startswith("<Run interleaved 1F1B V = 4: pp=8, microbatches=16: ")
    assert f"{run.makespan_s:.4g} s" in repr(run)
    assert repr(run.table) == "<Schedule interleaved-1f1b: pp=8, microbatches=16, stages=32, operations=1024>"
    assert repr(pp.build("chimera", 2, 2)).endswith("pp=2, microbatches=2, replicas=2, operations=12>")


@pytest.mark.parametrize(("schedule", "given"), [
    ("1f1b", {"forward": 1, "backward": 2, "comm": 0.1}),
    ("zb-2p", {"model": "llama3_8b", "system": "dgx_h100_nodes", "tp": 2, "p2p": "overlapped_nic"}),
    (pp.build("zb-v", 4, 8), {"forward": 1, "backward": 2}),
])  # fmt: skip
def test_a_run_can_be_pickled(schedule, given):
    """It comes back from another process with the same numbers and times, and so does its timeline."""
    size = () if isinstance(schedule, pp.Schedule) else (4, 8)
    run = pp.simulate(schedule, *size, **given)
    back = pickle.loads(pickle.dumps(run))
    assert back.to_dict() == run.to_dict()
    assert back.to_frame().equals(run.to_frame())
    timeline = pickle.loads(pickle.dumps(run.timeline))
    assert timeline.end_s.tolist() == run.timeline.end_s.tolist()
    np.testing.assert_array_equal(timeline.arrived_s, run.timeline.arrived_s)


def test_ratios_are_of_one_idle_time():
    """Total, ideal and span differ by their denominator alone; memory comes with a model, and only then."""
    run = pp.simulate("zb-h2", 4, 16, **SECONDS)
    idle = 4 * run.makespan_s - 4 * 16 * 3
    assert run.idle_ratio == run.bubble_ratio_total == pytest.approx(idle / (4 * run.makespan_s))
    assert run.bubble_ratio_ideal == pytest.approx(idle / (4 * 16 * 3))
    assert run.bubble_ratio_span <= run.bubble_ratio_total
    assert (run.memory, run.peak_memory_bytes, run.model) == (None, None, None)
    assert pp.simulate("zb-h2", 4, 16, **ON).peak_memory_bytes > 2**30


def test_a_systems_nics_cannot_be_forgotten():
    """The topology comes with the system: a shared NIC costs time, and the row says that it is held."""
    run = pp.simulate("hanayo", 8, 8, model="paper", system="slow_between_nodes")
    assert run.to_dict()["nics_shared"] is True
    assert run.timeline.graph.nics == (0, 0, 0, 0, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("given", "costs", "field", "rule", "remedy"),
    [
        (("1f1b",), SECONDS, "pp", "is missing", ""),
        (("1f1b", 4, 8), {}, "forward", "is missing", ""),
        (("1f1b", 4, 8), {"forward": 1}, "backward", "is missing", ""),
        (("1f1b", 4, 8), SECONDS | {"forwards": 1}, "forwards", "not known here", "forward"),
        (("1f1b", 4, 8), ON | {"tpp": 4}, "tpp", "not known here", "tp"),
        (("interleaved-1f1b:chunks=2", 4, 8), SECONDS | {"chunks": 4}, "chunks", "", '{"chunks": 4}'),
        (("1f1b", 4, 8), SECONDS | ON, "forward", "cannot be combined", ""),
        (("1f1b", 4, 8), {"model": "paper"}, "system", "is missing", ""),
        ((7, 4, 8), SECONDS, "schedule", "is not a schedule's name", ""),
        ((lambda *_: 3, 4, 8), SECONDS, "generator", "returns a value of type int", ""),
        ((pp.build("gpipe", 2, 2), 4, 8), SECONDS, "table", "is a table for pp = 2", ""),
        (("1f1b", 4, 8), SECONDS | {"p2p": "mail"}, "p2p", "must be one of", ""),
        (("chimera", 4, 8), SECONDS | {"reduction": 1}, "reduction", "has no effect", ""),
    ],
)
@pytest.mark.parametrize("call", [pp.simulate, compared], ids=["simulate", "compare"])
def test_mistakes_are_told_in_one_line(call, given, costs, field, rule, remedy):
    """With field, value, rule and remedy; `compare` tells what a table of another size or a function is in its row."""
    if call is compared and ("is a table for" in rule or field == "generator"):
        (row,) = call(*given, **costs)[1]
        assert rule in row["refused"]
        return
    with refused(PPModelError, field, rule, remedy=remedy):
        call(*given, **costs)


# ---- frames ------------------------------------------------------------------------------------------


def test_compare_takes_everything_that_simulate_takes():
    """A row a point, the schedules outermost; each is the run of the same point, under the same names."""
    table = pp.build("zb-v", 4, 8)
    cases = ["1f1b", ("interleaved-1f1b", {"chunks": 2}), table, zigzag]
    frame = pp.compare(cases, 4, 8, p2p=["overlapped", "blocking"], **ON)
    assert list(frame.columns) == list(COLUMNS)
    assert frame.label.tolist()[::2] == ["1F1B", "interleaved 1F1B V = 2", "ZB-V", "zigzag"]
    points = [(case, p2p) for case in cases for p2p in ("overlapped", "blocking")]
    for (case, p2p), row in zip(points, frame.to_dict("records"), strict=True):
        run = pp.simulate(case, 4, 8, p2p=p2p, **ON).to_dict()
        assert run.keys() == set(COLUMNS) - {"refused"}
        assert {name: run[name] for name in COLUMNS[:-2]} == {name: row[name] for name in COLUMNS[:-2]}


@pytest.mark.filterwarnings("ignore::ppmodel.studies.points.NoEffectWarning")
@pytest.mark.parametrize("allreduce", ["excluded", "overlapped", "blocking"])
def test_the_semantics_are_told_as_they_were_asked_for(allreduce):
    """Also of a schedule without replicas, which has no all-reduce: of a run, of a row, and under a picture."""
    run = pp.simulate("1f1b", 4, 8, allreduce=allreduce, **SECONDS)
    _, (row,) = compared("1f1b", 4, 8, allreduce=allreduce, **SECONDS)
    assert run.allreduce == run.to_dict()["allreduce"] == row["allreduce"] == allreduce
    assert run.makespan_s == pp.simulate("1f1b", 4, 8, **SECONDS).makespan_s


class Given:
    """No schedule: a class whose instances take no sizes."""


ON_PAPER = {"model": "paper", "system": "dgx_h100"}


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("schedule", {"schedule": Given, **SECONDS}),
        ("schedule", {"schedule": lambda: None, **SECONDS}),
        ("schedule", {"schedule": "1f\0b", **SECONDS}),
        ("file", {"schedule": "\ud800.py", **SECONDS}),
        ("file", {"schedule": "x" * 300 + ".py", **SECONDS}),
        ("waves", {"schedule": "hanayo:waves=1,waves=2", **SECONDS}),
        ("model", {"model": "a\0.yaml", "system": "h100"}),
        ("layout", {"layout": pd.DataFrame({"tp": [1]}), **ON_PAPER}),
        ("layout", {"layout": "a\0.yaml", **ON_PAPER}),
        ("pp", {"pp": {4}, **SECONDS}),
        ("microbatches", {"microbatches": "\ud800", **SECONDS}),
        ("backward", SECONDS | {"backward": "\ud800"}),
        ("allreduce", SECONDS | {"allreduce": SimpleNamespace(to_numpy=1, tolist=1)}),
        ("pp", {"pp": np.array([[4]]), **SECONDS}),
        ("schedule", {"schedule": type, **SECONDS}),
    ],
)
def test_what_is_no_value_is_refused_at_the_door(field, given):
    """By `simulate` and `compare` alike, in one line that names the argument."""
    schedule, size = given.pop("schedule", "1f1b"), {"pp": 4, "microbatches": 8} | given
    for simulated in (pp.simulate, pp.compare):
        with refused(PPModelError, field):
            simulated(schedule, **size)


def test_fractions_are_numbers():
    """In seconds, in changes and in layouts; a change too large for a float is refused."""
    thirds = pp.simulate("1f1b", 4, 8, forward=Fraction(1, 3), backward=Fraction(2, 3))
    assert thirds.makespan_s == pytest.approx(11)
    assert pp.Change(bandwidth=Fraction(1, 2)) == pp.Change(bandwidth=0.5)
    with refused(PPModelError, "bandwidth", "must be finite"):
        pp.Change(bandwidth=10**400)
    with refused(PPModelError, "forward", "must be a number"):
        pp.simulate("1f1b", 4, 8, forward=True, backward=2)
    with refused(PPModelError, "tp", "must be a whole number"):
        pp.simulate("1f1b", 4, 8, tp=True, **ON_PAPER)


def test_titles_and_names_of_files_may_be_any_text(tmp_path):
    """A title is drawn as it is, formulas and lone surrogates, too; a file's name that cannot be is refused."""
    run = pp.simulate("1f1b", 2, 2, **SECONDS)
    for title in ("$\\frac{1}{2$", "\ud800", 3):
        run.plot(title=title).savefig(tmp_path / "figure.png")
    for name in ("\0", "\ud800"):
        with refused(PPModelError, "trace", "cannot be the name of a file"):
            run.to_trace(f"{tmp_path}/{name}")


def test_compare_says_why_a_point_is_not_defined():
    """The reason stands in its row; a broken name or file is refused as a whole."""
    frame = pp.compare(["gpipe", "chimera"], [4, 5], 8, **SECONDS)
    assert frame.refused.notna().tolist() == [False, False, False, True]
    assert frame.refused[3].startswith("pp = 5: must be even for chimera")
    with refused(PPModelError, "schedule", "is not a known schedule", remedy="did you mean gpipe"):
        pp.compare(["gpip"], 4, 8, **SECONDS)
    with refused(PPModelError, "system", "is not a file"):
        pp.compare(["gpipe"], 4, 8, model="paper", system="nowhere.yaml")


def test_compare_takes_lists_of_seconds():
    """Seconds that vary are columns; a table needs no size."""
    frame = pp.compare(pp.build("1f1b", 2, 4), forward=1, backward=[2, 3], comm=[0, 0.5])
    assert frame[["backward", "comm"]].values.tolist() == [[2, 0], [2, 0.5], [3, 0], [3, 0.5]]
    assert frame.makespan_s.tolist() == [15, 17, 20, 22]


def test_schedules_beside_a_table_take_its_size():
    """In any order, what is asked for first; tables of several sizes have each its own, and leave no size to others."""
    small, large = pp.build("1f1b", 4, 8), pp.build("gpipe", 4, 16)
    for entries, size in product(permutations([small, "zb-h1", "gpipe"]), [(), (4,), (None, 8)]):
        frame = pp.compare(entries, *size, **SECONDS)
        assert frame[["pp", "microbatches"]].values.tolist() == 3 * [[4, 8]]
        assert frame.refused.isna().all()
    for entries, size in product(permutations([small, large]), [(), (4,)]):
        frame = pp.compare(entries, *size, **SECONDS)
        assert frame.microbatches.tolist() == [table.num_microbatches for table in entries]
        assert frame.refused.isna().all()
    for entries in permutations([small, large, "zb-h1"]):
        with refused(PPModelError, "microbatches", "and the tables differ: 8 and 16", remedy="microbatches=8"):
            pp.compare(entries, 4, **SECONDS)


def test_arrays_are_lists_and_numpys_numbers_are_numbers():
    """Of sizes, options, seconds and layouts, also those of a frame; a float stays refused when its size is known."""
    chunks = [("interleaved-1f1b", {"chunks": 2}), ("interleaved-1f1b", {"chunks": np.int64(2)})]
    plain, arrays = (
        pp.compare([*kind(["1f1b", "gpipe"]), case], kind([4, 8]), kind([8, 16]), forward=kind([1, 2]), backward=2)
        for kind, case in zip((list, pd.Series), chunks, strict=True)
    )
    pd.testing.assert_frame_equal(plain, arrays)
    assert plain.refused.isna().all()
    assert pp.compare("1f1b", 4, 16, tp=np.array([4, 8]), dp=np.int64(2), **ON).tp.tolist() == [4, 8]
    tables = [pp.simulate("1f1b", *size, **SECONDS).table for size in ((np.int64(6), np.int32(12)), (6, 12))]
    assert tables[0] is tables[1]
    for value, shown in ((6.0, "6.0"), (pd.Timestamp(4).as_unit("ns"), ...)):
        with refused(PPModelError, "pp", "must be a whole number", value=shown):
            pp.simulate("1f1b", value, 12, **SECONDS)
    second = np.timedelta64(10**9, "ns")  # NumPy's own number of it is that of nanoseconds
    for value in (second, pd.Timedelta(second), pd.to_timedelta([1], unit="s").as_unit("ns")):
        with refused(PPModelError, "forward"):
            pp.simulate("1f1b", 4, 8, forward=value, backward=2)


def test_a_searched_order_is_searched_for_its_costs():
    """For zb-1p and zb-2p alone, and not where its user has set the times; compare and simulate say for which."""
    found = pp.simulate("zb-2p", 4, 8, **SECONDS)
    assert found.ordered_for == "times=1:1:1:0.1"
    assert found.table.kind.tolist() == pp.build("zb-2p", 4, 8, times=(1, 1, 1, 0.1)).kind.tolist()
    frame = pp.compare(["zb-2p", ("zb-2p", {"times": (1, 1, 1, 0)}), "zb-v"], 4, 8, **SECONDS)
    assert frame.ordered_for.fillna("").tolist() == [found.ordered_for, "", ""]
    assert frame.makespan_s.iloc[0] == found.makespan_s
    with refused(CostError, "times of forward and halves of the backward, and of a transfer"):
        pp.simulate("zb-1p", 4, 8, forward=1, input_grad=1, weight_grad=0)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (Change(bandwidth=0.5), "changes the system's bandwidth"),
        ([None, {"network": False}], "is not a Change"),
        ([], "must have an entry"),
    ],
)
def test_changes_that_mean_nothing_are_refused(changes, rule):
    """Of a system, where costs are in seconds; and what is no change. None is no change either, but says so."""
    with refused(CostError, "changes", "is not known here"):
        pp.simulate("1f1b", 4, 8, changes=changes, **SECONDS)
    with refused(CostError, "changes", rule):
        pp.compare("1f1b", 4, 8, changes=changes, **SECONDS)
    frame = pp.compare("1f1b", 4, 8, changes=[None, Change(backward=np.float64(3))], **SECONDS)
    assert frame.change.tolist() == ["Change()", "Change(backward=3.0)"]
    assert frame.makespan_s.diff()[1] > 0


def test_a_searched_order_is_searched_for_each_system_model_and_change():
    """Each row has the order of its own times and of its model's held share; without a network the order stays."""
    systems, changes = ["fast_cp_slow_nw", "mid_cp_mid_nw"], [UNCHANGED, Change(backward=3.0), WITHOUT_NETWORK]
    frame = pp.compare("zb-2p", 8, 16, model="paper", system=systems, changes=changes)
    assert frame.ordered_for.nunique() == 4
    assert (frame.ordered_for[::3].to_numpy() == frame.ordered_for[2::3].to_numpy()).all()
    for row in frame[frame.change == "Change()"].itertuples():
        times, held = (word.partition("=")[2] for word in row.ordered_for.split())
        own = pp.build("zb-2p", 8, 16, times=tuple(map(float, times.split(":"))), held=float(held))
        assert row.makespan_s == pp.simulate(own, model="paper", system=row.system).makespan_s
        hand_made = pp.simulate("zb-h2", 8, 16, model="paper", system=row.system)
        assert row.makespan_s <= hand_made.makespan_s


def test_the_held_share_is_the_models():
    """32 of 34 + 5as/h bytes where attention is kept (Qi et al.), in the search and in the peaks; without a model 1."""
    run = pp.simulate("zb-1p", 8, 24, model="zero_bubble_1_5b", system="dgx_a100")
    share = 32 / (34 + 5 * 24 * 1024 / 2304)
    assert float(run.ordered_for.partition("held=")[2]) == pytest.approx(share, rel=0.02)  # its head keeps more
    assert run.table.held_for_weight_grad == pytest.approx(share, rel=0.02)
    assert run.peak_activations <= 8
    assert pp.simulate("zb-1p", 8, 24, **SECONDS).table.held_for_weight_grad == 1


def test_frames_of_a_run_and_a_table_hold_every_operation():
    """Row for row the arrays of timeline and table; NaN where a result stays on its rank."""
    run = pp.simulate("dualpipev", 4, 8, **SECONDS)
    frame, slots = run.to_frame(), run.table.to_frame()
    assert frame.operation.tolist() == slots.operation.tolist()
    assert [pp.Op.parse(text) for text in frame.operation] == [run.table.op(n) for n in range(len(frame))]
    assert np.array_equal(frame.start_s, run.timeline.start_s)
    assert frame.sent_s.isna().equals(frame.arrived_s.isna())
    assert (frame.arrived_s.notna().sum(), frame.end_s.max()) == (run.messages, run.makespan_s)
    assert slots.end.max() == run.table.slots()[1].max()


# ---- files and pictures ------------------------------------------------------------------------------


@given(schedule=schedules(max_stages=4, max_microbatches=6), form=st.sampled_from(["csv", "pytorch"]))
def test_tables_go_to_files_and_back(schedule, form, tmp_path_factory):
    """What is written is read again, or refused before anything is written."""
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    write = {"csv": schedule.to_csv, "pytorch": schedule.to_pytorch}[form]
    if form == "pytorch" and (schedule.num_replicas * schedule.slices > 1 or schedule.has_shards):
        rules = "has stage 0 on ranks", "splits microbatches", "has passes of a divided output layer"
        rule = rules[0 if schedule.num_replicas > 1 else 2 - (schedule.slices > 1)]
        with refused(TableError, "schedule", rule, remedy="use our own format"):
            write(path)
        assert not path.exists()
        return
    write(path)
    assert pp.read_table(path).rows() == schedule.rows()


def test_a_table_that_cannot_be_written_leaves_what_was_there(tmp_path):
    """PyTorch's form holds no replicas: the file stays; a folder that is not there costs one line."""
    path = tmp_path / "table.csv"
    pp.build("gpipe", 4, 4).to_pytorch(path)
    before = path.read_text()
    with refused(TableError, "schedule", "has stage 0 on ranks"):
        pp.build("chimera", 4, 4).to_pytorch(path)
    assert path.read_text() == before
    with refused(PPModelError, "table", "no folder"):
        pp.build("gpipe", 4, 4).to_csv(tmp_path / "nowhere" / "table.csv")


@pytest.mark.parametrize(("costs", "units"), [(SECONDS, {"microbatches"}), (ON, {"microbatches", "GiB"})])
def test_a_run_writes_its_trace(tmp_path, costs, units):
    """As many events as it says; bytes and names where there is a model."""
    path = tmp_path / "run.json"
    count = pp.simulate("1f1b", 4, 8, **costs).to_trace(path)
    written = json.loads(Path(path).read_text())
    assert len(written["traceEvents"]) == count
    assert {unit for event in written["traceEvents"] if event["ph"] == "C" for unit in event["args"]} == units
    assert written["otherData"].get("model") == costs.get("model")


def test_runs_and_tables_draw_themselves():
    """A figure with a row a rank and a title; the critical path on request."""
    run = pp.simulate("1f1b", 4, 8, **ON)
    for figure in (
        run.plot(),
        run.plot("a title", critical_path=True),
        run.table.plot(),
        run.table.plot("a title", backward=3),
    ):
        assert any(axes.patches or axes.collections for axes in figure.axes)
    texts = [text.get_text() for text in run.plot("the point").findobj(plt.Text)]
    assert any("the point" in text for text in texts)


def test_a_table_of_another_size_is_a_size_error():
    """Callers tell it from other mistakes by its type, not by its words."""
    with pytest.raises(SizeError):
        pp.simulate(pp.build("gpipe", 2, 2), 4, 8, **SECONDS)
