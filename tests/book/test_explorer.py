"""The explorer in a real browser: its numbers against Python's, and the page driven as a reader would."""

import io
import json
import random
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from books import HTML

import ppmodel as pp
from ppbook.pages.explorer import MOST_MICROBATCHES, PAGE, RANKS, link, sizes, written
from ppbook.pages.explorer_data import packed, variants
from ppmodel import metrics
from ppmodel.clusters.specs import as_links, load_model, load_system
from ppmodel.errors import PPModelError, SizeError, TableError
from ppmodel.metrics.activations import gathered_peaks
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import as_case, generated
from ppmodel.schedules.ratios import formula_bubble_ratio
from ppmodel.simulation import APART, P2P, compile_graph, run_graph, uniform_costs
from ppmodel.tables import write_table

DATA = HTML / "explorer" / "data"
EVERY = [case for name in pp.names() for case in variants(name)]
POINTS = 500

_EVALUATE = """async points => {
  const E = ppmodelEngine, found = [];
  await ppmodelExplorer.begun;
  for (const one of points) {
    const table = await ppmodelExplorer.table(one.schedule, one.pp, one.microbatches);
    const run = E.simulate(table, one), path = E.criticalPath(run);
    let gap = 0, at = 0;
    for (const node of path) {
      const [begin, end] = E.span(run, node);
      [gap, at] = [Math.max(gap, Math.abs(begin - at)), end];
    }
    found.push({
      makespan: run.makespan, idle: run.idle, span: run.span, slots: E.slots(table).idle, messages: table.messages,
      peaks: [...E.activations(table).peaks], gap: gap / (run.makespan || 1), at, deadlock: run.deadlock,
      gathered: [...E.gathered(table)],
      arrived: run.arrived.reduce((sum, one) => sum + (one || 0), 0),
    });
  }
  return found;
}"""


@pytest.fixture
def explorer(page):
    """The page at its default view, ready."""
    return opened(page)


def opened(page, fragment=""):
    page.goto("about:blank")
    page.goto((HTML / PAGE).as_uri() + fragment)
    page.wait_for_selector("#explorer-page[data-ready]")
    page.wait_for_function("ppmodelExplorer.stage().width > 0")
    return page


def state(page):
    return page.evaluate("ppmodelExplorer.state()")


def window(page):
    return page.evaluate("ppmodelExplorer.stage().range")


def said(page, text):
    """Wait until the headline says something."""
    page.wait_for_function("text => document.getElementById('ex-headline').textContent.includes(text)", arg=text)


def noted(page, text):
    """Wait until the note below the headline says something."""
    page.wait_for_function("text => document.getElementById('ex-note').textContent.includes(text)", arg=text)


def ranked(page):
    """The ranking, once it is that of what is chosen."""
    page.wait_for_function("document.querySelectorAll('#ex-ranking button').length > 5")
    return [button.get_attribute("data-key") for button in page.locator("#ex-ranking button").all()]


# ---- numbers -------------------------------------------------------------------------------------


def points(count):
    """Seeded points: a variant, a size at which it is defined, times, semantics, a slow rank, a delayed link."""
    draw = random.Random(15)
    while count:
        case, ranks = draw.choice(EVERY), draw.choice(RANKS)
        microbatches = draw.choice(sizes(ranks))
        try:
            table = generated(case, ranks, microbatches)
        except SizeError:
            continue
        if table.table_microbatches > MOST_MICROBATCHES:  # halved ones, which the page leaves out
            continue
        seconds = {name: round(draw.uniform(0.1, 3), 3) for name in ("forward", "input_grad", "weight_grad")}
        more = ("output", "gather", "reduction", "passed", "summed")
        seconds |= {name: draw.choice((0, round(draw.uniform(0, 1), 3))) for name in more}
        seconds["comm"] = draw.choice((0, round(draw.uniform(0, 2), 3)))
        seconds["overlap"] = draw.choice((1, round(draw.uniform(0.5, 1.2), 3)))
        slow = {"slow_rank": draw.randrange(-1, ranks), "slow_factor": round(draw.uniform(0.5, 3), 2)}
        size = {"schedule": written(case), "pp": ranks, "microbatches": microbatches, "p2p": draw.choice(P2P)}
        size["allreduce"] = draw.choice(APART)
        slow |= {"slow_link": draw.randrange(-1, ranks), "delay": draw.choice((0, round(draw.uniform(0, 5), 2)))}
        yield table, size | seconds | slow
        count -= 1


def simulated(table, point):
    """A point by the library; None where its ranks wait for one another."""
    allreduce = point.get("allreduce", "excluded")
    if allreduce != "excluded":
        table = table.with_step()
    slow = point.get("slow_link", -1)
    links = as_links(f"{slow}-{(slow + 1) % table.num_ranks}:delay={point['delay']}" if slow >= 0 else None)
    names = ("input_grad", "weight_grad", "comm", "gather", "reduction")
    costs = uniform_costs(table, point["forward"], **{name: point.get(name, 0) for name in names}, links=links)
    output, passed, summed = (
        point.get(name, 0) / table.microbatch_parts / table.slices for name in ("output", "passed", "summed")
    )
    compute_s, latency_s = costs.compute_s.copy(), costs.latency_s.copy()
    if table.has_shards:
        compute_s[[OpKind.S, OpKind.T]] = output
        gradient = np.isin(table.kind, (OpKind.B, OpKind.I)) & (table.stage == table.num_stages - 1)
        in_first = table.kind[table.dependencies.source[gradient][0]] == OpKind.S
        latency_s[OpKind.F, ..., -1] = latency_s[OpKind.T] = passed
        latency_s[OpKind.S] = summed + in_first * passed
    else:  # the last stage's forward, and its backward or the two halves of it
        compute_s[: OpKind.S, -1] += np.array([1, 1, 0.5, 0.5]) * output * table.num_ranks
    costs = replace(costs, compute_s=compute_s, latency_s=latency_s, overlap_factor=point.get("overlap", 1))
    factors = np.where(table.rank == point["slow_rank"], point["slow_factor"], 1.0)
    try:
        return run_graph(compile_graph(table, point["p2p"], allreduce), costs, factors)
    except TableError:
        return None


def test_numbers_equal_the_librarys(explorer):
    """Makespan, idle shares, arrivals, slots, messages, peaks at 500 points; each critical path is without a gap."""
    asked = list(points(POINTS))
    found = explorer.evaluate(_EVALUATE, [point for _, point in asked])
    deadlocks = 0
    for (table, point), here in zip(asked, found, strict=True):
        run = simulated(table, point)
        assert (run is None) == bool(here["deadlock"]), point
        deadlocks += run is None
        exact = {"rel": 1e-9, "abs": 1e-9}
        assert here["slots"] == pytest.approx(metrics.table_bubble_ratio(table), **exact), point
        assert here["messages"] == table.dependencies.remote.sum(), point
        assert here["peaks"] == pytest.approx(metrics.peak_activations(table).tolist(), **exact), point
        if table.gathers:
            assert here["gathered"] == pytest.approx(gathered_peaks(table).tolist(), **exact), point
        if run is not None:
            numbers = run.makespan_s, metrics.idle_ratio(run), metrics.bubble_ratios(run).span, run.makespan_s
            assert [here[name] for name in ("makespan", "idle", "span", "at")] == pytest.approx(numbers, **exact), point
            assert here["arrived"] == pytest.approx(np.nansum(run.arrived_s), **exact), point
            assert here["gap"] < 1e-9, point
    assert 0 < deadlocks < POINTS / 4


OWN = [  # the first backward of the last stage decides what S computes; a rank waits for the sum of two
    ["0F0 0F1 0S0 0T0 0S1 0B0 0B1 0T1", "1F0 1F1 1S0 1T0 1S1 1B0 1B1 1T1"],
    ["0F0 0F2 1F1@1 1B1@1 1R@1 0B0 0B2 0R", "0F1@1 1F0 1F2 1B0 1B2 1R 0B1@1 0R@1"],
]


@pytest.mark.parametrize("rows", OWN)
def test_own_tables_between_the_named_ones(explorer, rows):
    """Time and slots as in the library."""
    table = pp.Schedule.from_rows("own", [row.split() for row in rows])
    point = dict.fromkeys(("forward", "input_grad", "weight_grad", "output", "reduction", "passed", "summed"), 1.5)
    point |= {"comm": 0.5, "overlap": 1, "slow_rank": -1, "slow_factor": 1, "p2p": "latency", "allreduce": "blocking"}
    run = """([text, point]) => {
      const E = ppmodelEngine, { table } = E.parse(text);
      return [E.simulate(table, point).makespan, E.slots(table).idle];
    }"""
    found = explorer.evaluate(run, [write_table(table, "csv"), point])
    expected = simulated(table, point).makespan_s, metrics.table_bubble_ratio(table)
    assert found == pytest.approx(expected, rel=1e-9)


# ---- data ----------------------------------------------------------------------------------------


def tables_in(name):
    tables = {}
    for path in (DATA / f"{name}.js", DATA / f"{name}-fsdp.js"):
        text = path.read_text(encoding="utf-8") if path.exists() else 'ppmodelExplorer.orders("", {});\n'
        tables |= json.loads("[" + text.removeprefix("ppmodelExplorer.orders(").removesuffix(");\n") + "]")[1]
    return tables


def test_every_schedule_has_its_orders():
    """A script for each, from 2 to 16 ranks, as the generators write it now; small enough to load at once."""
    for name in pp.names():
        found = tables_in(name)
        assert list(found) == [written(case) for case in variants(name)]
        case, (ranks, own) = as_case(name), max(found[name].items(), key=lambda pair: int(pair[0]))
        microbatches, table = next(iter(own["tables"].items()))
        now = packed(generated(case, int(ranks), int(microbatches)))
        assert {key: table[key] for key in now} == now
        if "formula" in table:
            ratio = formula_bubble_ratio(case, int(ranks), int(microbatches))
            assert table["formula"] == pytest.approx(float(ratio), abs=1e-6)
    assert set(tables_in("1f1b")["1f1b"]) == {str(ranks) for ranks in RANKS}
    whole = sum(path.stat().st_size for path in (HTML / "explorer").rglob("*") if path.is_file())
    assert whole < 15e6


def test_the_first_view_loads_little(page):
    """Scripts, style and the orders of the two schedules in view: under 300 kB, beside the theme of all pages."""
    loaded = []
    page.on("request", lambda request: loaded.append(request.url))
    page.add_init_script("window.requestIdleCallback = undefined")
    opened(page)
    first = [HTML / "explorer" / path for path in ("data/1f1b.js", "data/interleaved-1f1b.js", "data/index.js")]
    first += [path for path in (HTML / "explorer").iterdir() if path.is_file()] + [HTML / PAGE]
    assert {path.as_uri() for path in first[:3]} <= set(loaded)
    assert sum(path.stat().st_size for path in first) < 300e3
    assert page.elsewhere == []


def test_a_model_a_gpu_and_its_network_give_the_transfer_time(explorer):
    """By the first of the five rules by hand; a GPU brings its own network."""
    model, gpu = load_model("llama3_70b"), load_system("h100")
    layer = 12 * model.hidden + model.sequence
    for speed in (gpu.network_bandwidth_bytes_per_s, 1.25e9):
        explorer.locator("#ex-bandwidth").fill(f"{speed / 1e9:g}")
        explorer.locator("#ex-model").select_option(model.title)
        explorer.locator("#ex-bandwidth").dispatch_event("change")
        expected = 0.6 * gpu.peak_compute_flops * 4 / (speed * model.blocks * layer)
        assert state(explorer)["comm"] == pytest.approx(expected, rel=0.005)
    explorer.locator("#ex-gpu").select_option("A100")
    assert explorer.locator("#ex-bandwidth").input_value() == "25"


# ---- links ---------------------------------------------------------------------------------------


def test_a_link_restores_the_view(page):
    """What `link` writes is what the page shows, and what the page writes opens the same again."""
    case = ("interleaved-1f1b", {"chunks": 4})
    given = {"comm": 0.25, "overlap": 0.9, "p2p": "blocking", "slow_rank": 2, "view": "table"}
    opened(page, link("zb-v", 8, 16, against=case, **given)[len(PAGE) :])
    shown = state(page)
    assert (shown["schedule"], shown["against"]) == ("zb-v", "interleaved-1f1b:chunks=4")
    assert shown == shown | {"pp": 8, "microbatches": 16} | given
    assert page.locator("#ex-overlap").input_value() == "0.9"
    assert page.locator("#ex-table").get_attribute("aria-pressed") == "true"
    page.locator("#ex-timeline").click()
    page.locator("#ex-in").click()
    page.wait_for_function("location.hash.includes('window=')")
    there, seen = page.evaluate("location.hash"), window(page)
    opened(page, there)
    assert state(page) | {"window": None} == shown | {"view": "timeline", "window": None}
    assert window(page) == pytest.approx(seen, rel=1e-4)


def test_a_broken_link_is_told(page):
    """Unknown names and sizes are said, and the rest of the link is kept; nothing of it is read as markup."""
    opened(page, "#schedule=%3Cimg%20src=x%3E&pp=7&microbatches=9&comm=-1&against=zb-h1")
    for wrong in ("microbatches = 9", "schedule = <img src=x>", "comm = -1"):
        noted(page, wrong)
    assert page.locator("#explorer-page img").count() == 0
    assert (state(page)["pp"], state(page)["against"]) == (7, "zb-h1")


@pytest.mark.parametrize(
    ("fragment", "wrong"),
    [
        ("forward=&comm=0x10&slow_rank=", ["forward =", "comm = 0x10", "slow_rank ="]),
        ("path=1&all=yes&microbatch=16", ["path = 1", "all = yes", "microbatch = 16"]),
        ("pp=4&slow_rank=4&comm=0.5&comm=0.6", ["slow_rank = 4", "comm = 0.6 (given twice)"]),
    ],
)
def test_nothing_of_a_link_is_dropped_or_guessed_in_silence(page, fragment, wrong):
    """What is no decimal number, no known key, out of range or given twice is named, and takes no part."""
    opened(page, f"#{fragment}")
    for text in wrong:
        noted(page, text)
    assert state(page)["comm"] == (0.5 if "comm=0.5" in fragment else 0.1)
    assert (state(page)["forward"], state(page)["slow_rank"], state(page)["path"]) == (1, -1, True)


@pytest.mark.parametrize("p2p", ["overlapped", "rendezvous", "overlapped_nic"])
def test_no_time_at_all_is_no_share(page, p2p):
    """Where every time is 0 both schedules take 0, and nothing is a share of it."""
    opened(page, f"#schedule=1f1b&against=gpipe&forward=0&input_grad=0&weight_grad=0&comm=0&p2p={p2p}")
    said(page, "take the same time, 0.")
    assert ranked(page)
    assert "NaN" not in page.locator("#explorer-page").inner_html()


def test_the_other_way_round_has_both_ends(page):
    """The headline says between which transfer times the order is reversed, and claims nothing beyond the curve."""
    case, against = "asymmetric-chimera:concat=forward-doubling", "chimera:concat=forward-doubling"
    opened(page, link(case, 8, 8, against=against, comm=0.7, p2p="overlapped_nic")[len(PAGE) :])
    said(page, "Above a transfer time of 0.83, as far as the curve goes, it is the other way round.")
    opened(page, link(case, 8, 8, against=against, comm=5, p2p="overlapped_nic")[len(PAGE) :])
    said(page, "From a transfer time of 1.3 to 3, it is the other way round.")


def test_links_are_checked():
    """The helper refuses what the page would not have."""
    for arguments in (("1f1b", 17, 17), ("1f1b", 4, 5), ("1f2b", 4, 4)):
        with pytest.raises(PPModelError):
            link(*arguments)


def test_an_option_with_its_default_is_the_schedule_without():
    """A chart that names both depths of chunks links to both."""
    assert link("interleaved-1f1b:chunks=2", 4, 8) == link("interleaved-1f1b", 4, 8)


# ---- clicking and typing -------------------------------------------------------------------------


def test_the_presets_reverse_the_order(explorer):
    """On a fast network the one is ahead, on a slow one the other; the crossing lies between them."""
    explorer.emulate_media(reduced_motion="reduce")
    explorer.get_by_role("button", name="Fast network").click()
    said(explorer, "Interleaved 1F1B V = 4 takes")
    crossing = float(re.search(r"Above a transfer time of ([\d.]+),", explorer.locator("#ex-headline").inner_text())[1])
    fast = state(explorer)["comm"]
    explorer.get_by_role("button", name="Slow network").click()
    said(explorer, "1F1B takes 1")
    assert fast < crossing < state(explorer)["comm"]
    ends = []
    for case in (("interleaved-1f1b", {"chunks": 4}), "1f1b"):
        run = pp.simulate(case, 4, 8, forward=1, backward=2, comm=state(explorer)["comm"])
        ends.append(f"{run.makespan_s:.4g}")
    assert f"{ends[1]} against {ends[0]}" in explorer.locator("#ex-headline").inner_text()


def test_motion_ends_where_no_motion_would(explorer):
    """A preset slides to its transfer time."""
    explorer.get_by_role("button", name="Slow network").click()
    explorer.wait_for_function("ppmodelExplorer.state().comm === 0.6")
    said(explorer, "Below a transfer time")


def test_typing_changes_the_numbers(explorer):
    """A number typed is simulated; what is none is marked, changes nothing, and is taken back."""
    explorer.locator("#ex-comm-number").fill("0.7")
    said(explorer, "Below a transfer time")
    field = explorer.locator("#ex-forward")
    for text in ("", "-2"):
        field.fill(text)
        assert field.get_attribute("aria-invalid") == "true"
        assert state(explorer)["forward"] == 1
    noted(explorer, "Forward: -2 is not simulated")
    field.blur()
    assert (field.input_value(), field.get_attribute("aria-invalid")) == ("1", None)
    for name, place in (("slow_rank", "3"), ("slow_link", "1")):
        explorer.locator(f"#ex-{name}").select_option(place)
    for name, value in (("slow_factor", "2"), ("delay", "3")):
        explorer.locator(f"#ex-{name}").fill(value)
    slow = pp.build("1f1b", 4, 8)
    explorer.wait_for_function("ppmodelExplorer.state().delay === 3")
    point = state(explorer)
    assert (point["slow_rank"], point["slow_factor"], point["slow_link"]) == (3, 2, 1)
    expected = simulated(slow, point).makespan_s
    row = explorer.locator("#ex-numbers tr", has_text="Makespan").locator("td").last
    explorer.wait_for_function(
        "text => document.querySelector('#ex-numbers tbody td:last-child').textContent === text", arg=f"{expected:.4g}"
    )
    assert row.inner_text() == f"{expected:.4g}"


def test_a_schedule_brings_a_size_at_which_it_is_defined(explorer):
    """Hanayo is defined for B = S: choosing it moves there and says so; a size it lacks is said in words."""
    explorer.locator("#ex-against").select_option("hanayo")
    explorer.wait_for_function("document.getElementById('ex-note').textContent.includes('4 microbatches')")
    assert state(explorer)["microbatches"] == 4
    explorer.locator("#ex-microbatches").select_option("16")
    said(explorer, "Hanayo is not defined at this size")
    assert explorer.thrown == [error for error in explorer.thrown if "THEBE" in error]


def printed(folder, name, ranks, microbatches, form="csv"):
    table = generated(as_case(name), ranks, microbatches)
    path = folder / f"{name.replace(':', '-')}.{form}"
    path.write_text(write_table(table, form))
    return table, str(path)


def test_tables_of_a_readers_own(explorer, tmp_path):
    """Files that `ppmodel table` prints are simulated as by the library, at sizes that the page has no orders for."""
    for field, value in (("output", "0.25"), ("gather", "0.5")):
        explorer.locator(f"#ex-{field}").fill(value)
    for name, *size in (
        ("asymmetric-chimera", 6, 12, "csv"), ("zb-v", 5, 23, "csv"), ("chimera", 6, 18, "text"),
        ("dualpipe", 20, 44, "csv"), ("stp", 3, 11, "text"), ("vocab-1f1b:barriers=2", 5, 7, "csv"),
        ("interlaced", 3, 9, "text"), ("interleaved-1f1b:fsdp=drop", 3, 9, "csv"), ("1f1b:fsdp=keep", 3, 5, "text"),
    ):  # fmt: skip
        table, path = printed(tmp_path, name, *size)
        explorer.locator("#ex-file").set_input_files(path)
        point = state(explorer) | {"output": 0.25, "gather": 0.5}
        expected = f"{simulated(table, point).makespan_s:.4g}"
        first = "text => document.querySelector('#ex-numbers tbody td').textContent === text"
        explorer.wait_for_function(first, arg=expected)
        assert (state(explorer)["pp"], state(explorer)["microbatches"]) == tuple(size[:2])
    second = "text => document.getElementById('ex-second').textContent.includes(text)"
    explorer.wait_for_function(second, arg="open its table, too")
    explorer.locator("#ex-file").set_input_files([printed(tmp_path, name, 7, 15)[1] for name in ("1f1b", "zb-h1")])
    said(explorer, "ZB-H1 takes")
    explorer.wait_for_function("document.querySelectorAll('#ex-ranking button').length === 2")
    keys = [button.get_attribute("data-key") for button in explorer.locator("#ex-ranking button").all()]
    assert sorted(keys) == ["file:1f1b.csv", "file:zb-h1.csv"]
    explorer.locator("#ex-pp").select_option("4")
    said(explorer, "is not defined at this size")


NO_TABLES = [
    ("0,0F0,0B0\n1,1F0", "lacks a forward or a backward"),
    ("0,0F0,0F0,0B0", "occurs twice"),
    ("0,0F0,0X0", "line 1, cell 0X0: is no operation"),
    ("0,0F0,0B0,0F1,0B1\n1,1B0,1F0,1F1,1B1", "wait for one another in a circle"),
    ("0F0,0B0", "line 1: must begin with its rank, 0"),
    ("", "has 0 operations"),
    ("0,0F0,0B0\n1,0F1,0B1", "stage 0: is on ranks 0 and 1"),
    ("0,0F0,0B0,1F1,1B1", "lacks operations of some stage and microbatch"),
    ("0,0F0,0B0\n1", "line 2: has no forward or backward"),
    ("# microbatch_parts: -1\n0,0F0,0B0", "microbatch_parts: must be a whole number from 1"),
    ("# microbatch_parts: 2\n0,0F0,0B0", "microbatches: must be a whole number from 1"),
    ("# microbatches: 77\n0,0F0,0B0", "microbatches: must be 1 over the parts of each"),
    ("# held_for_weight_grad: nan\n0,0F0,0I0,0W0", "held_for_weight_grad: must be a number of at least 0"),
    ("# stage_shares: 1 2\n0,0F0,0B0", "stage_shares: must be 1 numbers above 0"),
    ("# stage_share: 3\n0,0F0,0B0", "line 1, stage_share: is not read here"),
    ("# microbatches = 1\n0,0F0,0B0", "line 1, microbatches: is not read here"),
    ("# stage_shares: 1e-12 1\n0,0F0,1F0,1B0,0B0", "stage_shares: must be none 1e+09 times smaller"),
    ("# microbatches: 1\n# microbatches: 2\n0,0F0,0B0", "line 2, microbatches: was given before"),
    ("# letters: zero-bubble\n0,0F0,0B0", "letters: must be those of ppmodel"),
    ("0,0F0,0S0,0B0", "stage 0, microbatch 0: lacks a pass of the output layer, S or T"),
    ("0,0F0,1F0,0S0,1S0,1B0,0B0,0T0,1T0", "stage 1, microbatch 0: is no shard of the output layer"),
    ("0,0F0,1F0,0S0,1S0,0T0,1T0,1B0,0B0\n1,2F0,3F0,3B0,2B0", "the output layer: must have a shard on each rank"),
    ("0,0F0,0T0,0S0,0B0", "wait for one another in a circle"),
    ("0,0G0,0F0,0B0", "line 1, cell 0G0: is no operation"),
    ("0,0G,0F0,0D,0B0", "rank 0, 0B: needs weights that are not gathered"),
    ("0,0G,0F0,0G,0B0", "rank 0, 0G: gathers weights that its rank has"),
    ("0,0G&0F0,0B0", "cell 0G&0F0: must have its gather or drop in a cell of its own"),
]


def test_a_table_that_is_none_says_why(explorer, tmp_path):
    """It is not read, and what is shown stays."""
    before = state(explorer)
    for number, (text, rule) in enumerate(NO_TABLES):
        path = tmp_path / f"bad-{number}.csv"
        path.write_text(text)
        explorer.locator("#ex-file").set_input_files(str(path))
        noted(explorer, path.name)
        noted(explorer, rule)
        assert state(explorer) == before


def test_notices_stand_beside_what_was_touched(explorer):
    """A refused value says why right behind its group of controls; one in a link, behind the examples."""
    for name, group in (("delay", "#ex-more .ex-grid"), ("comm-number", ".ex-curve")):
        explorer.locator("#ex-slow_link").select_option("1")
        explorer.locator(f"#ex-{name}").fill("-1")
        noted(explorer, "must be 0, or a number from")
        assert explorer.evaluate(
            "group => document.querySelector(group).nextElementSibling.id === 'ex-note'", arg=group
        )
        explorer.locator(f"#ex-{name}").fill("1")
    opened(explorer, "#pp=40&microbatches=9&p2p=fast")
    noted(explorer, "pp = 40 (2 to 16, or the ranks of a table of your own)")
    noted(explorer, "microbatches = 9 (with 4 ranks, one of 4, 8")
    noted(explorer, "p2p = fast (one of latency, overlapped")
    assert explorer.evaluate("document.querySelector('.ex-presets').nextElementSibling.id === 'ex-note'")


def test_the_questions_that_people_ask(page):
    """What the page says of VPP, Zero Bubble and DualPipe is so, and each question is one link."""
    text = (HTML / PAGE).read_text(encoding="utf-8")
    first, second = (
        fragment.replace("&amp;", "&") for fragment in re.findall(r'href="explorer.html(#[^"]+)"', text)[:2]
    )
    opened(page, first)
    said(page, "it is the other way round")
    crossing = float(re.search(r"of ([\d.]+)", page.locator("#ex-headline").inner_text())[1])
    assert 0 < crossing < 0.1
    page.locator("#ex-comm-number").fill("0")
    said(page, "Interleaved 1F1B V = 4 takes")
    opened(page, second)
    said(page, "DualPipe takes")
    page.locator("#ex-overlap").fill("1")
    said(page, "ZB-V takes")


def test_a_deadlock_is_said(page):
    """Under rendezvous some tables never end: the page says which ranks wait for one another."""
    for case in EVERY:
        try:
            table = generated(case, 4, 8)
        except SizeError:
            continue
        point = {"forward": 1, "input_grad": 1, "weight_grad": 1, "comm": 0, "slow_rank": -1, "slow_factor": 1}
        if simulated(table, point | {"p2p": "rendezvous"}) is None:
            break
    opened(page, link("1f1b", 4, 8, against=case, p2p="rendezvous")[len(PAGE) :])
    said(page, "deadlocks")
    assert "deadlock" in page.locator("#ex-canvas").get_attribute("aria-label")


def test_the_ranking_is_compares(explorer):
    """Bars in the order of `compare`; a click sets the schedule beside the first."""
    explorer.locator("#ex-all").check()
    explorer.wait_for_function("document.querySelectorAll('#ex-ranking button').length > 25")
    listed = ranked(explorer)
    tables = {written(case): pp.build(case.name, 4, 8, **dict(case.options)) for case in EVERY if case_at(case, 4, 8)}
    assert set(listed) == set(tables)
    times = [pp.simulate(tables[key], forward=1, backward=2, comm=0.1).makespan_s for key in listed]
    assert all(before <= after + 1e-9 for before, after in pairwise(times))
    explorer.locator("#ex-by-memory").click()
    least = min(tables, key=lambda key: metrics.peak_activations(tables[key]).max())
    explorer.wait_for_function(f"document.querySelector('#ex-ranking button').dataset.key === '{least}'")
    explorer.locator("#ex-ranking button").first.click()
    explorer.wait_for_function(f"ppmodelExplorer.state().against === '{least}'")


def case_at(case, ranks, microbatches):
    try:
        return generated(case, ranks, microbatches)
    except SizeError:
        return None


# ---- dragging, keyboard, touch -------------------------------------------------------------------


def middle(page, selector="#ex-canvas"):
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + 60


def test_dragging(explorer):
    """The transfer time is dragged on its curve; Ctrl and the wheel zoom; what is zoomed is dragged along."""
    x, y = middle(explorer, "#ex-curve")
    explorer.mouse.move(x, y)
    explorer.mouse.down()
    explorer.mouse.move(x + 150, y, steps=4)
    explorer.mouse.up()
    assert state(explorer)["comm"] > 0.5
    x, y = middle(explorer)
    explorer.mouse.move(x, y)
    explorer.mouse.wheel(0, 0)
    explorer.keyboard.down("Control")
    explorer.mouse.wheel(0, -300)
    explorer.keyboard.up("Control")
    explorer.wait_for_function("ppmodelExplorer.stage().window !== null")
    before = window(explorer)
    explorer.mouse.down()
    explorer.mouse.move(x - 120, y, steps=4)
    explorer.mouse.up()
    after = window(explorer)
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])
    explorer.locator("#ex-fit").click()
    assert window(explorer)[0] == 0


def test_hovering_says_what_an_operation_waited_for(explorer):
    """The pointer over an operation: what it is, when it runs, whose result it waited for."""
    place = explorer.evaluate(
        """() => {
          const stage = ppmodelExplorer.stage(), panel = stage.scene.panels[1], { left, plot } = stage.scene.place;
          const box = stage.canvas.getBoundingClientRect(), table = panel.table, cell = table.cell[table.rankStart[3]];
          const middle = (panel.run.start[cell] + panel.run.end[cell]) / 2;
          const x = left + middle / stage.whole * plot;
          window.scrollTo({ top: box.top + panel.rows - 400, behavior: 'instant' });
          return [box.left + x, stage.canvas.getBoundingClientRect().top + panel.rows + 3.5 * panel.row];
        }"""
    )
    explorer.mouse.move(*place)
    tip = explorer.locator("#ex-tip")
    tip.wait_for()
    assert "Forward of microbatch 0, stage 3" in tip.inner_text()
    assert "waited 3.3 for the activations of 2F0 from rank 2, sent at 3.2, there at 3.3" in tip.inner_text()
    explorer.mouse.click(*place)
    assert "1F1B: forward of microbatch 0, stage 3" in explorer.locator("#ex-details").inner_text()


def test_what_queued_at_a_nic_says_so(page):
    """With one NIC for each rank: how long a message waited, and at which of its two NICs."""
    case, size, seconds = ("interleaved-1f1b", {"chunks": 4}), (4, 8), {"comm": 0.8, "p2p": "overlapped_nic"}
    run = pp.simulate(case, *size, forward=1, backward=2, **seconds).to_frame().set_index("operation")
    opened(page, link(case, *size, **seconds)[len(PAGE) :])
    page.locator("#ex-text summary").click()
    page.locator("#ex-text-rank").select_option("1")
    sides = set()
    for told in page.locator("#ex-operations tbody td:last-child").all_inner_texts():
        queued = {int(rank): float(time) for time, rank in re.findall(r"([\d.]+) at the NIC of rank (\d)", told)}
        if not queued:
            continue
        message = run.loc[re.search(r"of (\w+) from", told)[1]]
        at_sender, at_receiver = queued.get(message["rank"], 0), queued.get(1, 0)
        assert message.sent_s - message.end_s == pytest.approx(at_sender, abs=1e-3), told
        assert message.arrived_s - message.sent_s - 0.8 == pytest.approx(at_receiver, abs=1e-3), told
        sides |= set(queued)
    assert sides > {1}


def test_the_keyboard_reaches_everything(explorer):
    """Tab order follows the page; arrows pan, + and - zoom, Enter picks and follows what was waited for."""
    order = explorer.evaluate(
        """() => [...document.querySelectorAll('#explorer-page :is(button, select, input, canvas, summary)')]
          .filter(one => one.tabIndex >= 0 && one.offsetParent).map(one => one.id || one.textContent.trim())"""
    )
    wanted = ["Fast network", "ex-schedule", "ex-against", "ex-pp", "ex-forward", "ex-comm", "ex-timeline", "ex-canvas"]
    assert [one for one in order if one in wanted] == wanted
    canvas = explorer.locator("#ex-canvas")
    canvas.focus()
    for _ in range(3):
        explorer.keyboard.press("+")
    zoomed = window(explorer)
    explorer.keyboard.press("ArrowRight")
    assert window(explorer)[0] > zoomed[0]
    explorer.keyboard.press("ArrowLeft")
    assert window(explorer) == pytest.approx(zoomed)
    explorer.keyboard.press("-")
    assert window(explorer)[0] < zoomed[0]
    explorer.keyboard.press("0")
    assert window(explorer)[0] == 0
    details = explorer.locator("#ex-details")
    explorer.keyboard.press("Enter")
    first = details.inner_text()
    assert "stage" in first
    explorer.keyboard.press("ArrowDown")
    explorer.keyboard.press("ArrowRight")
    picked = explorer.evaluate("ppmodelExplorer.stage().picked")
    explorer.keyboard.press("Enter")
    came = explorer.evaluate("ppmodelExplorer.stage().picked")
    assert explorer.evaluate(
        "([from, to]) => ppmodelEngine.waited(ppmodelExplorer.stage().scene.panels[0].run, from.cell).cell === to.cell",
        [picked, came],
    )
    explorer.keyboard.press("Escape")
    assert details.inner_text() == ""
    explorer.locator("#ex-comm").focus()
    before = state(explorer)["comm"]
    explorer.keyboard.press("ArrowRight")
    assert state(explorer)["comm"] > before


def test_touch(browser):
    """On a phone: nothing is wider than the screen, two fingers zoom, one drags."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    opened(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    x, y = middle(page)
    page.touchscreen.tap(x, y)
    tip = page.locator("#ex-tip")
    tip.wait_for()
    box = tip.bounding_box()
    assert 0 <= box["y"] < box["y"] + box["height"] <= 844
    cdp = context.new_cdp_session(page)

    def touch(kind, *xs):
        cdp.send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [{"x": at, "y": y, "id": place} for place, at in enumerate(xs)]},
        )

    touch("touchStart", x - 30, x + 30)
    for spread in (50, 80, 110):
        touch("touchMove", x - spread, x + spread)
    touch("touchEnd")
    zoomed = window(page)
    assert zoomed[1] - zoomed[0] < 0.6 * page.evaluate("ppmodelExplorer.stage().whole")
    touch("touchStart", x)
    for moved in (20, 40, 60):
        touch("touchMove", x - moved)
    touch("touchEnd")
    assert window(page)[0] > zoomed[0]
    context.close()


# ---- looks, words, files -------------------------------------------------------------------------


def test_dark_mode_is_followed(explorer):
    """The drawing changes its ground and its letters as soon as the theme does."""
    colour = "() => ppmodelExplorer.stage().scene.theme.text"
    light = explorer.evaluate(colour)
    explorer.evaluate("document.documentElement.dataset.theme = 'dark'")
    explorer.wait_for_function("light => ppmodelExplorer.stage().scene.theme.text !== light", arg=light)


def test_words_for_those_who_do_not_see_the_drawing(explorer):
    """Controls have names, the drawing a description, the result is announced, the timeline is a table, too."""
    unnamed = explorer.evaluate(
        """() => [...document.querySelectorAll('#explorer-page :is(button, select, input)')].filter(one =>
          !(one.labels && one.labels.length && one.labels[0].textContent.trim()) && !one.getAttribute('aria-label')
          && !one.textContent.trim()).map(one => one.id)"""
    )
    assert unnamed == []
    assert "1F1B: 34.6" in explorer.locator("#ex-canvas").get_attribute("aria-label")
    assert explorer.locator("#ex-headline").get_attribute("aria-live") == "polite"
    explorer.locator("#ex-text summary").click()
    explorer.locator("#ex-text-which").select_option("1")
    explorer.locator("#ex-text-rank").select_option("3")
    rows = explorer.locator("#ex-operations tbody tr")
    assert rows.count() == 16
    assert rows.first.inner_text().split("\t")[:3] == ["3F0", "3.3", "4.3"]
    assert "from rank 2" in rows.first.inner_text()


@pytest.mark.parametrize(
    ("keys", "allreduce"),
    [
        (("interleaved-1f1b:chunks=4", "chimera"), "excluded"),
        (("vocab-1f1b", "interleaved-1f1b:fsdp=drop,lookahead=1"), "overlapped"),
    ],
)
def test_csv_is_the_librarys_frame(page, keys, allreduce):
    """The table that is saved has the columns and times of `Run.to_frame`, gathers, drops and reductions among them."""
    reduction = {"reduction": 0.5, "allreduce": allreduce}
    opened(page, link(keys[0], 4, 8, against=keys[1], gather=0.3, **reduction)[len(PAGE) :])
    with page.expect_download() as saved:
        page.locator("#ex-csv").click()
    text = saved.value.path().read_text()
    frame = pd.read_csv(io.StringIO(text))
    for key, own in frame.groupby("schedule", sort=False):
        table = generated(as_case(key), 4, 8)
        seconds = {"gather": 0.3} if table.gathers else {}
        if allreduce != "excluded":
            table, seconds = table.with_step(), seconds | reduction
        expected = pp.simulate(table, forward=1, backward=2, comm=0.1, **seconds).to_frame()
        expected = expected[expected.kind != "O"].reset_index(drop=True)
        pd.testing.assert_frame_equal(own.drop(columns="schedule").reset_index(drop=True), expected, check_dtype=False)
    assert tuple(frame.schedule.unique()) == keys


def test_what_is_waited_for_at_barriers_and_gathers_is_said(page):
    """Operations that wait for passes of the output layer on other ranks, or for their weights, say so."""
    times = {"gather": 0.3, "output": 0.4, "passed": 0.2}
    opened(page, link("vocab-1f1b", 4, 8, against="1f1b:fsdp=drop", **times)[len(PAGE) :])
    assert page.locator("#ex-legend").inner_text().split("\n")[:5] == [
        "forward", "backward", "output layer", "its gradients", "gather of weights"
    ]  # fmt: skip
    page.locator("#ex-text summary").click()
    page.locator("#ex-text-rank").select_option("1")
    what = r"\dS\d on rank \d, passed on by [\d.]+", "the weights of stage 1"
    for place, words in enumerate(rf"waited [\d.]+ for {one}" for one in what):
        page.locator("#ex-text-which").select_option(str(place))
        assert re.search(words, page.locator("#ex-operations").inner_text())


def test_picture_and_trace_are_sound(explorer):
    """The SVG is one, with a box for each operation; the trace has a slice for each cell, and none overlap."""
    sound(explorer, 4 * 8 * 2 * 5)


@pytest.mark.parametrize("allreduce", APART)
def test_gathers_and_reductions_are_in_the_picture_and_in_the_trace(page, allreduce):
    """A bar and a slice for each, on tracks of their own."""
    beside = (OpKind.G,) if allreduce == "excluded" else (OpKind.G, OpKind.R)
    tables = [generated(as_case(key), 4, 8).with_step() for key in ("chimera", "1f1b:fsdp=drop")]
    count = sum(int((table.computes | np.isin(table.kind, beside)).sum()) for table in tables)
    fragment = link("chimera", 4, 8, against="1f1b:fsdp=drop", gather=0.3, allreduce=allreduce)[len(PAGE) :]
    sound(opened(page, fragment), count)
    assert ("gradient all-reduce" in page.locator("#ex-legend").inner_text()) == (allreduce != "excluded")
    assert ("Reductions at the end" in page.locator("#ex-numbers").inner_text()) == (allreduce != "excluded")


def sound(explorer, count):
    """Check a picture and a trace of so many operations."""
    with explorer.expect_download() as saved:
        explorer.locator("#ex-svg").click()
    root = ElementTree.fromstring(saved.value.path().read_text())
    assert len([one for one in root.iter() if one.tag.endswith("rect")]) > count
    with explorer.expect_download() as saved:
        explorer.locator("#ex-trace").click()
    events = json.loads(saved.value.path().read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == count
    ends = {}
    for event in slices:
        track = event["pid"], event["tid"]
        assert event["ts"] >= ends.get(track, 0) - 1e-3
        ends[track] = event["ts"] + event["dur"]
