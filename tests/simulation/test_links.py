"""Links that differ from the rest of the network: what they cost, and how they are written."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import model_for, nodes_like
from refusals import refused
from strategies import schedules
from twin import end_times, in_plain_words

import ppmodel as pp
from ppmodel.cli import main
from ppmodel.cli.simulate import simulate_command
from ppmodel.clusters.costs import model_costs
from ppmodel.clusters.costs.runs import Runs
from ppmodel.clusters.specs import DATA, LayoutSpec, Link, as_links, load_model, load_system
from ppmodel.errors import CostError, PPModelError, SpecificationError
from ppmodel.loops.compiled import using
from ppmodel.ops import OpKind
from ppmodel.simulation import compile_graph, makespans, run_events, run_graph, uniform_costs
from ppmodel.studies.analysis import relative_to

SECONDS = {"forward": 1, "backward": 2, "comm": 0.25}
FIFO = "latency", "overlapped", "blocking_send", "blocking_recv", "blocking"


@st.composite
def networks(draw):
    """A schedule, and delays for some directed links, each a multiple of a quarter of a second."""
    table = draw(schedules(max_stages=5, max_microbatches=8))
    ends = st.tuples(st.integers(0, table.num_ranks), st.integers(0, table.num_ranks)).filter(lambda e: e[0] != e[1])
    delays = draw(st.dictionaries(ends, st.integers(0, 12), max_size=6))
    return table, tuple(Link(*ends, both_ways=False, delay_s=quarters / 4) for ends, quarters in delays.items())


def end_s(table, links, p2p="overlapped", run=run_graph):
    return run(compile_graph(table, p2p), uniform_costs(table, **SECONDS, links=links)).end_s


@settings(max_examples=200)
@given(networks(), st.sampled_from(FIFO))
def test_both_engines_their_plain_twins_and_the_independent_one_agree(network, p2p):
    """Every end of every operation, however links differ; the independent simulator looks delays up by ranks."""
    table, links = network
    times = []
    for compiled in (True, False):
        with using(compiled):
            times += [end_s(table, links, p2p, run) for run in (run_graph, run_events)]
    for other in times[1:]:
        np.testing.assert_allclose(other, times[0], rtol=0, atol=1e-9)
    costs, (_, home, _, receiver) = uniform_costs(table, **SECONDS), in_plain_words(table)
    delay = {link.directions[0]: link.delay_s for link in links}
    latency = np.zeros((len(OpKind), table.num_replicas, table.num_stages))
    for op, taker in receiver.items():
        latency[op.kind, op.replica, op.stage] = delay.get((home[op], taker), 0.0)
    if table.num_replicas == 1:
        ends = end_times(table, replace(costs, latency_s=latency[:, 0]), p2p)
        expected = [ends.get(table.op(place), np.nan) for place in range(table.num_operations)]
        np.testing.assert_allclose(times[0], expected, rtol=0, atol=1e-9)


@settings(max_examples=100)
@given(networks(), st.sampled_from(FIFO))
def test_a_longer_delay_is_never_faster_and_none_changes_nothing(network, p2p):
    """The law holds where messages of a link keep their order; nowhere does a link without delay matter."""
    table, links = network
    longer = tuple(link._replace(delay_s=2 * link.delay_s + 0.25) for link in links)
    none = tuple(link._replace(delay_s=0.0) for link in links)
    before, after = (np.nan_to_num(end_s(table, delayed, p2p)) for delayed in (links, longer))
    assert (after >= before - 1e-9).all()
    np.testing.assert_array_equal(end_s(table, none, p2p), end_s(table, (), p2p))


@settings(max_examples=50)
@given(schedules(max_stages=5, max_microbatches=8), st.sampled_from(FIFO))
def test_the_same_delay_everywhere_is_latency(table, p2p):
    """Links that are all alike are the network's own latency."""
    ranks = range(table.num_ranks)
    links = tuple(Link(a, b, both_ways=True, delay_s=0.75) for a in ranks for b in ranks if a < b)
    alike = run_graph(compile_graph(table, p2p), uniform_costs(table, **SECONDS, latency=0.75)).end_s
    np.testing.assert_allclose(end_s(table, links, p2p), alike, rtol=0, atol=1e-9)


def test_many_networks_in_one_pass_are_those_one_by_one():
    """A compiled graph takes several networks side by side."""
    table = pp.build("interleaved-1f1b", 4, 8)
    costs = [uniform_costs(table, **SECONDS, links=as_links(f"0-3:delay={delay}")) for delay in range(5)]
    graph = compile_graph(table)
    assert makespans(graph, costs).tolist() == [makespans(graph, [entry])[0] for entry in costs]


def test_a_skip_and_a_wrap_cross_the_link_of_their_two_ranks():
    """A message from the last rank to the first one crosses neither of its neighbours' links."""
    table = pp.build("interleaved-1f1b", 4, 4)
    latency = uniform_costs(table, **SECONDS, links=as_links("3>0:delay=1 1-3:delay=2")).latency_s[:, 0]
    assert latency[OpKind.F].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert not latency[OpKind.B].any()


def systems():
    flat = load_system("mid_cp_slow_nw")
    fitted = load_system("h100_playbook")
    fitted = replace(fitted, nodes=replace(fitted.nodes, devices_per_node=2, shared_nic=False))
    return {"flat": flat, "nodes": replace(flat, nodes=nodes_like(flat, 8.0)), "fitted": fitted}


@pytest.mark.parametrize("name", systems())
def test_links_as_the_systems_own_change_nothing(name):
    """A link with the bandwidth that it has anyway; then one that is slower and longer."""
    system, table = systems()[name], pp.build("chimera", 4, 8)
    model = model_for(table)
    rates = [system.network_bandwidth_bytes_per_s]
    rates += [] if system.nodes is None else [system.nodes.node_bandwidth_bytes_per_s]
    for rate, ends in zip(rates, ("1-2", "0-1"), strict=False):
        bare, alike, slow = (
            model_costs(table, model, system.with_links(links))
            for links in (None, f"{ends}:bandwidth={rate}B/s,delay=0", f"{ends}:bandwidth={rate / 1000}B/s,delay=2ms")
        )
        np.testing.assert_array_equal(*(costs.by_class(table.num_replicas) for costs in (bare, alike)))
        crossing = slow.latency_s - alike.latency_s > 1e-9
        assert crossing.any()
        assert (slow.occupancy_s > alike.occupancy_s)[crossing].all()
        assert (slow.latency_s == alike.latency_s)[~crossing].all()
        assert (slow.occupancy_s == alike.occupancy_s)[~crossing].all()


def test_all_reduces_of_replicas_cross_links():
    """The ring of a stage's two replicas waits for the link between their ranks; other rings do not."""
    table, system = pp.build("chimera", 4, 8), load_system("mid_cp_mid_nw")
    before, after = (model_costs(table, model_for(table), system.with_links(link)) for link in (None, "0-3:delay=1"))
    longer = after.compute_s[OpKind.R] - before.compute_s[OpKind.R]
    np.testing.assert_allclose(longer, [2, 0, 0, 2], atol=1e-12)


def test_runs_laid_side_by_side_have_their_links():
    """What fits compute of many runs at once is what a single run has."""
    system = load_system("h100_playbook").with_links("0-1:delay=3ms,bandwidth=1GB/s 2>1:delay=1ms")
    model, tables = load_model("llama3_8b"), [pp.build("1f1b", size, 8) for size in (2, 4)]
    layouts = [
        LayoutSpec(pp=table.num_ranks, tp=2, global_batch=8, microbatch_size=1, recompute="none") for table in tables
    ]
    runs = Runs(tables, [model] * 2, layouts, system)
    _, occupancy, latency = runs.tables(system)
    for table, layout, stages in zip(tables, layouts, runs.stages, strict=True):
        costs = pp.simulate(table, model=model, system=system, layout=layout).costs
        senders = runs.leaves[:, stages]
        np.testing.assert_allclose(occupancy[:, stages][senders], costs.occupancy_s[:, 0][senders], rtol=1e-12)
        np.testing.assert_allclose(latency[:, stages][senders], costs.latency_s[:, 0][senders], rtol=1e-12)


def test_a_change_of_the_network_changes_its_links():
    """Factors on bandwidth and latency are for all links."""
    system = load_system("mid_cp_mid_nw").with_links("0-1:delay=1,bandwidth=1GB/s 1-2:delay=2")
    changed = pp.Change(bandwidth=0.5, latency=3).system(system)
    assert changed.links == as_links("0-1:delay=3,bandwidth=0.5GB/s 1-2:delay=6")


# ---- how they are written ------------------------------------------------------------------------


@given(st.dictionaries(st.tuples(st.integers(0, 3), st.integers(4, 9)), st.floats(0, 1e6) | st.none(), max_size=4))
def test_texts_are_read_as_what_they_were_written_from(delays):
    """As in the column of a frame: the shortest digits that keep the number."""
    links = tuple(
        Link(*ends, sum(ends) % 2 == 0, delay_s=delay or 0.0, bandwidth_bytes_per_s=1e10 / 3 if delay is None else None)
        for ends, delay in sorted(delays.items())
    )
    assert not links or as_links(" ".join(map(str, links))) == links


@pytest.mark.parametrize(
    "number", [".5", "5.", "0.5", "+.5", "5e-1", ".5E+1", "05", "-.5", ".", "5_0", "e5", "0x5", "५"]
)
def test_numbers_of_links_are_those_of_the_command_line(number):
    """What `--comm` takes for a number of seconds, `--link` takes as a delay, and nothing else."""
    comm = next(param for param in simulate_command.params if param.name == "comm")
    try:
        seconds = comm.type.convert(number, comm, None)
    except PPModelError:
        with refused(SpecificationError, "links"):
            as_links(f"0-1:delay={number}")
    else:
        assert as_links(f"0-1:delay={number}")[0].delay_s == as_links(f"0-1:delay={number}s")[0].delay_s == seconds


@pytest.mark.parametrize("text", [
    "", "0-0:delay=1", "0-1", "0-1:", "0-1:dely=1", "0-1:delay=1x", "0-1:delay=-1",
    "0-1:delay=1,delay=2", "a-1:delay=1", "0-1:bandwidth=5", "0-1:bandwidth=0GB/s", "0-1:delay=1 1>0:delay=2",
    "0-1:delay=nan", "0-1:delay=1e99",
])  # fmt: skip
def test_links_that_mean_nothing_are_refused(text, capsys):
    """One line names the option, and nothing is computed."""
    with refused(SpecificationError, "links"):
        pp.simulate("1f1b", 4, 8, **SECONDS, links=text)
    arguments = [f"--{name}={value}" for name, value in SECONDS.items()]
    assert main(["simulate", "1f1b", "--pp=4", "--microbatches=8", *arguments, f"--link={text}"]) == 2
    assert "--link" in capsys.readouterr().err


def test_a_bandwidth_needs_a_system():
    """Seconds do not say how many bytes are sent."""
    with refused(CostError, "links", "bandwidth"):
        pp.simulate("1f1b", 4, 8, **SECONDS, links="0-1:bandwidth=1GB/s")


def test_a_link_that_no_message_crosses_is_named():
    """By its ranks; one that some schedule crosses is used, and so is one whose delay is hidden."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pp.simulate("1f1b", 4, 8, **SECONDS, links="0-2:delay=1 0-1:delay=1")
        pp.compare(["1f1b", "interleaved-1f1b"], 4, 8, **SECONDS, links=["0-3:delay=1", "7-8:delay=1"])
    assert [str(warning.message.value) for warning in caught] == ["0-2:delay=1", "7-8:delay=1"]


def test_a_link_of_ranks_that_a_size_lacks_changes_nothing():
    """Nor does the framework send in another way there; a larger size of the same comparison has it."""
    size = {"microbatches": 8, **SECONDS}
    plain, linked = (pp.compare("1f1b", [4, 8], **size, links=[links]) for links in (None, "3-4:delay=2"))
    assert [*plain.p2p, *linked.p2p] == ["overlapped"] * 3 + ["rendezvous"]
    assert [*(linked.makespan_s == plain.makespan_s)] == [True, False]


def test_sweeps_predictions_and_replays_name_it_too(tmp_path, capsys):
    """Also where links are given beside files."""
    sweep = {"schedules": "1f1b", "pp": 2, "microbatches": 4, "systems": "mid_cp_mid_nw", "models": "paper"}
    (tmp_path / "sweep.yaml").write_text("\n".join(f"{key}: {value}" for key, value in sweep.items()))
    pp.simulate("1f1b", 2, 4, **SECONDS).to_frame().to_csv(tmp_path / "run.csv", index=False)
    rows = (DATA / "reference" / "measured" / "nemo.csv").read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join(rows[:2]))
    for command in (
        f"sweep {tmp_path}/sweep.yaml --out {tmp_path}/out.parquet",
        f"predict {tmp_path}/rows.csv --system h100 --out {tmp_path}/out.csv",
        f"replay {tmp_path}/run.csv --schedule 1f1b --pp 2 --microbatches 4",
    ):
        assert main([*command.split(), "--link=0-99:delay=1ms"]) == 0
        assert "--link = 0-99:delay=0.001" in capsys.readouterr().err


def test_plans_are_for_their_network():
    """With ranks fixed, the best of all layouts is slower behind a slow link, and takes larger microbatches."""
    question = {"gpus": 4, "global_batch": 32, "schedules": "1f1b", "fix": {"pp": 4, "recompute": "none"}}
    best, slow = (pp.plan("llama3_8b", "h100", **question, links=links).iloc[0] for links in (None, "1-2:delay=500ms"))
    assert slow.iteration_s > best.iteration_s
    assert slow.microbatch_size >= best.microbatch_size


SHORT, FULL = "links: {0-1: {delay: 60 ms}}", "links: {value: {0-1: {delay: 60 ms}}, kind: stated, source: a ruler}"


def test_every_way_of_writing_a_link_is_the_same(tmp_path, capsys):
    """A system's file, short or with its source, Python, the command line and a sweep."""
    text = (DATA / "systems" / "mid_cp_mid_nw.yaml").read_text()
    size, answers = {"pp": 4, "microbatches": 8, "model": "paper"}, []
    command = [f"--{name}={value}" for name, value in size.items()] + ["--system=mid_cp_mid_nw", "--json"]
    for name, block in (("short", SHORT), ("full", FULL)):
        (tmp_path / f"{name}.yaml").write_text(f"{text}\n{block}\n")
        answers.append(pp.simulate("1f1b", system=tmp_path / f"{name}.yaml", **size).makespan_s)
        assert load_system(tmp_path / f"{name}.yaml").provenance[-1].kind in ("our choice", "stated")
    for links in ("0-1:delay=60ms", {"1-0": {"delay": 0.06}}, as_links({"0-1": {"delay": "60 ms"}})):
        answers.append(pp.simulate("1f1b", system="mid_cp_mid_nw", links=links, **size).makespan_s)
    for name in ("simulate", "compare"):
        assert main([name, "1f1b", *command, "--link=0-1:delay=60ms"]) == 0
        shown = json.loads(capsys.readouterr().out)
        row = shown[0] if name == "compare" else shown
        answers.append(row["makespan_s"])
        assert row["links"] == "0-1:delay=0.06"
    assert len(set(answers)) == 1
    assert answers[0] > pp.simulate("1f1b", system="mid_cp_mid_nw", **size).makespan_s


def test_several_networks_are_rows_of_one_frame():
    """A list has a row for each, and a column that says which."""
    networks = [None, "0-1:delay=1", {"2-3": {"delay": 2}}]
    frame = pp.compare(["1f1b", "gpipe"], 4, 8, **SECONDS, links=networks)
    assert frame.links.tolist() == ["", "0-1:delay=1", "2-3:delay=2"] * 2
    given = pp.compare("1f1b", 4, 8, model="paper", system="mid_cp_mid_nw", links=networks)
    assert given.links.tolist() == ["", "0-1:delay=1", "2-3:delay=2"]
    assert (frame.makespan_s.diff()[1:3] > 0).all()
    relative = relative_to(frame, "1F1B").set_index("links").relative
    assert relative["2-3:delay=2"] == frame.makespan_s[5] / frame.makespan_s[2] - 1
