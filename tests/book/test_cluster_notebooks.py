"""The notebooks on measured runs and real clusters: what they record at small sizes follows from single evaluations."""

import re

import pytest
from executed import of

from ppbook.claims import load_claims, rows_of
from ppbook.measured.against import start_of, timed_rows
from ppbook.measured.refits import fitted_values
from ppmodel import build, names, simulate
from ppmodel.clusters.specs import DATA, load_model, load_system
from ppmodel.schedules.cases import legal_cases
from ppmodel.studies import points
from ppmodel.studies.measured.calibrate import Data
from ppmodel.studies.measured.constants import TIME


@of("measured")
def test_measured(recorded):
    """Errors on unseen rows and as fitted are those that the systems' files state; nothing is lost on the way."""
    errors, runs = recorded("measured_errors.csv").set_index("runs"), recorded("measured.csv")
    rows = errors.rows.to_dict()
    off = (runs.predicted_iteration_s / runs.iteration_s - 1).abs()
    assert off.groupby(runs.runs).mean().to_dict() == pytest.approx(errors["mean"].to_dict())
    assert off.groupby(runs.runs).size().to_dict() == rows
    for source, system in errors.system.items():
        fitted, unseen = said_of(system, source)
        timed = timed_rows(system)
        data = Data("time", timed, [row["runs"] for row in timed], start_of(system))
        predicted_s = data.predicted([fitted_values(load_system(system), TIME)])[0]
        kept = abs(predicted_s / data.measured - 1)[data.files == source].mean()
        assert kept == pytest.approx(fitted, abs=1e-6)
        assert errors["mean"][source] == pytest.approx(unseen, abs=2e-4)
    assert (errors["mean"] < errors.constant).all()
    left_out = recorded("measured_left_out.csv")
    assert (left_out.groupby(["runs", "what"]).rows.sum().unstack().nunique(axis=1) == 1).all()  # no run is lost
    assert left_out[left_out.reason == "compared"].query("what == 'time'").set_index("runs").rows.to_dict() == rows
    targets = recorded("measured_targets.csv")
    assert set(targets.source) == {*rows, "zero_bubble"}
    assert ((targets.reached <= targets.target) == (targets.met == "yes")).all()
    assert recorded("measured_worst.csv").error.abs().is_monotonic_decreasing
    models = recorded("measured_models.csv").set_index("runs")
    assert (models.models > 1).all()
    assert (models["mean"] == errors["mean"]).all()
    assert ((models.left_out < 0.08) & (models.left_out <= models.worst_model)).all()
    kinds = recorded("measured_runs.json")
    assert kinds["plain"] + kinds["interleaved"] == recorded("measured.json")["rows"] == sum(rows.values())
    assert sum(kinds[name] for name in ("a100_rows", "b200_rows", "h100_rows")) == sum(rows.values())
    aside, headline = recorded("measured_accuracy.csv"), recorded("measured_accuracy.json")
    assert max(headline["worst"], headline["fitted_worst"]) == aside.unseen.max()
    unfitted, facts = recorded("measured_unfitted.csv"), recorded("measured_unfitted.json")
    assert unfitted.rows.sum() == facts["rows"] > 1900
    listed = unfitted.drop_duplicates("runs", keep=False).set_index("runs")["mean"].filter(list(rows))
    assert errors.unfitted[listed.index].to_dict() == pytest.approx(listed.to_dict())
    assert len(recorded("measured_anchors.csv")) == 85


def said_of(system, source):
    """Mean errors of time, as fitted and on unseen rows, in the file of a packaged system."""
    text = (DATA / "systems" / f"{system}.yaml").read_text()
    said = re.search(rf"{source}\.csv: \d+ rows, as fitted ([\d.]+)%, unseen mean ([\d.]+)%", text)
    return float(said[1]) / 100, float(said[2]) / 100


@of("by-hand")
def test_by_hand(recorded):
    """Each rule is near the simulation, the first is that of the table of networks, and the last needs two nodes."""
    rules = recorded("by_hand.csv").set_index("rule")
    assert rules.apart.abs().max() < 0.5
    near = rules.apart[["bubble, of the time", "activations (GiB)", "exposed all-reduces, of computing"]]
    assert near.abs().max() < 0.15
    networks = recorded("by_hand_networks.csv").set_index("GB/s")["Llama 3 8B"]
    assert networks[50] == pytest.approx(9 * rules.hand["transfer, in forwards"])  # which stays in a node
    assert networks[12.5] == pytest.approx(4 * networks[50])


@of("beside")
def test_beside(recorded):
    """Parts sum to the iteration; a group of one waits for nobody; gains are against 1F1B in the same layout."""
    edges = recorded("beside_layout.csv").set_index(["group", "rank"])
    gpt = load_model("gpt3_175b")
    assert (edges.bytes[["tensor", "pipeline"]] == 2 * gpt.sequence * gpt.hidden).all()
    assert edges.iteration_bytes["pipeline", 0] == 16 / 2 * edges.bytes["pipeline", 0]
    block = recorded("beside_block.csv")
    assert set(block.group) == {"tensor"}
    study = recorded("beside.csv")
    iteration_ms = 1e3 * study.iteration_s * study.gpus / (study.global_batch * load_model("gpt3_175b").sequence)
    assert study[list(points.PARTS)].sum(axis=1).tolist() == pytest.approx(iteration_ms.tolist())
    assert (study.tensor_s[study.tp == 1] == 0).all()
    assert (study.tensor_s[study.tp == 8] > 0).all()
    hidden = recorded("beside_hidden.csv").set_index(["hidden", "dp"])
    assert hidden.saved["overlap_tensor", 4] > 0 == hidden.saved["nothing", 4]
    worth = recorded("beside_worth.csv").set_index(["layout", "global_batch"])
    assert {name for name, _ in worth.index} == {"pp 2, tp 8, dp 1", "pp 4, tp 4, dp 1"}
    one = {"model": "gpt3_175b", "system": "h100", "tp": 4, "sequence_parallel": True, "global_batch": 16}
    times = {name: simulate(name, 4, **one).to_dict()["iteration_s"] for name in ("1f1b", "gpipe", "zb-h1")}
    assert worth.gain["pp 4, tp 4, dp 1", 16] == pytest.approx(1 - min(times.values()) / times["1f1b"])


@pytest.mark.long
@of("tensor-pipeline")
def test_tensor_pipeline(recorded):
    """Formulas as far as they hold, and one constant within 2.5 points of every run."""
    counted = recorded("stp_formulas.csv")
    assert (counted.exposed_first == 0).all()
    stp = counted[counted.schedule == "stp"]
    assert (stp.peak_most == stp.pp - 1).all()
    bubbles = recorded("stp_bubbles.csv").set_index(["schedule", "times", "pp"])
    assert bubbles.least["stp", "F = I = W = 10, A = 3", 3] == bubbles.published["stp", "F = I = W = 10, A = 3", 3]
    runs = recorded("stp_throughput.csv").query("label == 'one constant'")
    assert len(runs) == 9
    assert runs.off_1f1b_i.abs().max() < 0.025
    assert runs.off_1f1b_i.abs().mean() < 0.01
    assert recorded("stp_unseen.json")["worst"] < 0.025
    assert (recorded("stp_early.csv").saved >= 0).all()
    assert recorded("stp_verdicts.csv").id.tolist() == [row.id for row in rows_of(load_claims(about="stp"))]


@of("pairs")
def test_pairs(recorded):
    """Pairs hide exchanges and compute the same; what fits fits, and the gain is that of single runs."""
    study = recorded("pairs.csv").set_index("schedule")
    alone = simulate("1f1b", model="deepseek_v3", system="h100", layout="deepseek_v3")
    assert study.iteration_s["1f1b"] == pytest.approx(alone.iteration_s)
    assert study.expert_s["dualpipev"] < study.expert_s["1f1b"]
    facts, gains = recorded("pairs.json"), recorded("pairs_gain.csv").set_index("what").saved
    assert facts["saved"] == pytest.approx(1 - study.iteration_s["dualpipev"] / study.iteration_s["1f1b"])
    assert gains["contention"] < facts["saved"]
    profile, table = recorded("pairs_profile.json"), recorded("pairs_profile.csv").set_index("what")
    assert table.trace["the pair"] == profile["took"] == 129.01
    assert abs(profile["walked_off"]) < 0.05
    assert abs(profile["ours_off"]) < 0.11  # kernels of ours have all 132 multiprocessors, theirs 112
    assert max(profile["kernels"], profile["exchanges"]) <= profile["walked"] <= profile["waiting"] < profile["in_turn"]
    assert table.off[:2].between(-0.2, 0.05).all()  # of 132 multiprocessors 112; ours pad copies for 8 bits
    assert table.off[2:4].between(-0.3, -0.2).all()  # beside kernels, with 20 multiprocessors, exchanges take longer
    assert recorded("pairs_traced.json")["hidden"] > facts["hidden"]
    memory = recorded("pairs_memory.csv")
    assert memory.fits.sum() == recorded("pairs_memory.json")["fitting"]


@of("pairs")
def test_fused_pairs(recorded):
    """Without a layout only cells of a forward and a backward fuse, and unfused they are as their own table."""
    pairs = recorded("field_overlap.csv").set_index(["label", "system"])
    both = [*names(), ("stp", {"warm_up": "memory-saving"})]
    paired = {case.label for case, table in legal_cases(both, 4, 8) if table.overlaps.any()}
    assert paired == set(pairs.index.get_level_values(0)) >= {"DualPipe", "combined 1F1B"}
    table, system = build("dualpipe", 4, 8), "slow_cp_fast_nw"
    spans = [simulate(order, model="paper", system=system).makespan_s for order in (table, table.unfused())]
    assert pairs["time unfused"]["DualPipe", system] == pytest.approx(spans[1] / spans[0] - 1)
    assert (pairs["time at 0.5"] < 0).all()
    assert (pairs["place at 0.5"] <= pairs["place at 1"]).all()


@of("nodes")
def test_nodes(recorded):
    """A shared NIC never saves time, blocked sends least, and a fold wins where gradients are summed."""
    study = recorded("nodes.csv").set_index(["label", "placement", "network"]).makespan_s
    assert (study.xs("own links", level="network") <= study.xs("shared NIC", level="network") * (1 + 1e-12)).all()
    assert study["1F1B", "round-robin", "own links"] == study["1F1B", "flat", "flat"]
    crossings = recorded("nodes_crossings.csv")
    assert (crossings.blocked < crossings.folded).all()
    assert (crossings.folded < crossings["round-robin"]).all()
    orders = recorded("nodes_orders.csv").set_index(["placement", "network"]).order
    first = study.xs("flat", level="placement").idxmin()[0]
    assert orders["flat", "flat"].startswith(first)
