"""Slices and sequences of unequal length: their shares of attention, tokens and memory."""

import numpy as np
import pytest
from refusals import refused

import ppmodel as pp
from ppmodel.clusters.costs.attention import unlike_units
from ppmodel.clusters.specs import LayoutSpec
from ppmodel.errors import SpecificationError
from ppmodel.metrics import peak_activations
from ppmodel.ops import OpKind

RUN = {"model": "llama3_8b", "system": "h100", "sequence": 32768}


@pytest.mark.parametrize("slices", [2, 4, 8])
def test_slices_together_take_what_their_microbatch_takes(slices):
    """But for what smaller kernels lose; the later take longer, or are shorter where work is equal."""
    whole = pp.simulate("1f1b", 4, 8, **RUN).costs
    costs = {way: pp.simulate(f"seq1f1b:slices={slices}", 4, 8, slicing=way, **RUN).costs for way in ("tokens", "work")}
    for of in costs.values():
        ratio = of.compute_s[: OpKind.S] * slices / whole.compute_s[: OpKind.S]
        assert ((ratio > 1 - 1e-9) & (ratio < 1.1)).all()
        assert of.stages.activation_bytes * slices == pytest.approx(whole.stages.activation_bytes)
        assert of.occupancy_s[0] * slices == pytest.approx(whole.occupancy_s[0])
    assert (np.diff(costs["tokens"].units.compute[OpKind.F]) > 0).all()
    assert (costs["tokens"].units.tokens == 1).all()
    assert (np.diff(costs["work"].units.tokens) < 0).all()
    assert costs["work"].units.compute[OpKind.F, 1] == pytest.approx(1, abs=0.05)  # of the mean stage


def test_times_follow_tokens_and_pairs_of_tokens():
    """A length of 2 and one of 1, in slices of half a sequence: sums of a linear and a quadratic part."""
    mean_s, (longer, tokens) = unlike_units(np.full((10, 1), 3.0), 1 / 3, slices=2, lengths=[2, 1])
    seconds = (mean_s[..., None] * longer)[OpKind.F, 0]
    parts = np.array([[4 / 3, 16 / 9 / 2], [4 / 3, 3 * 16 / 9 / 2], [2 / 3, 4 / 9 / 2], [2 / 3, 3 * 4 / 9 / 2]])
    assert seconds == pytest.approx(parts @ [2, 1])
    assert tokens == pytest.approx(parts[:, 0])
    assert mean_s[OpKind.R] == 3


@pytest.mark.parametrize("share", [0, 0.4, 1])
@pytest.mark.parametrize("causal", [True, False])
def test_slices_of_equal_work_take_equally_long(causal, share):
    """Also where nothing masked is skipped, or attention is all or nothing."""
    units = unlike_units(np.ones((10, 1)), share, 5, [1, 4], "work", causal)[1]
    longer = units.compute[OpKind.F, 0].reshape(2, 5)
    assert longer == pytest.approx(np.broadcast_to(longer[:, :1], longer.shape))
    assert units.tokens.reshape(2, 5).sum(axis=1) == pytest.approx([2, 8])


@pytest.mark.parametrize(("model", "is_fused"), [("llama3_8b", True), ("bloom_176b", False), ("paper", False)])
def test_slices_save_scores_that_are_masked_unless_attention_is_fused(model, is_fused):
    """A slice computes all scores with the keys up to its end, but fused attention skips the masked half anyway."""
    run = {"model": model, "system": "h100", "tp": 8, "sequence": 32768}
    runs = (pp.simulate(name, 4, 8, **run) for name in ("1f1b", "seq1f1b:slices=4"))
    whole, of_slice = (one.costs.compute_s[OpKind.F, 1] for one in runs)
    assert (4 * of_slice > whole) == is_fused


def test_peaks_count_the_tokens_that_are_held():
    """The first microbatches of 1F1B's warm-up, whatever their order."""
    table, lengths = pp.build("1f1b", 3, 6), np.array([3.0, 1, 1, 1, 1, 5]) / 2
    assert peak_activations(table, unit_weights=lengths).tolist() == [3.5, 3.0, 2.5]
    run = pp.simulate("1f1b", 3, 6, **RUN, lengths="3,1,1,1,1,5")
    even = pp.simulate("1f1b", 3, 6, **RUN)
    assert run.memory_of_ranks.activations / even.memory_of_ranks.activations == pytest.approx(
        [3.5 / 3, 1.5, 2.5], rel=1e-6
    )


def test_unequal_lengths_cost_time_and_their_order_decides_how_much():
    """Attention grows with the squares; long sequences first let the pipeline fill and drain with short ones."""
    times = {
        way: pp.simulate("1f1b", 4, 16, **RUN, lengths="lognormal:0.8:2", arrangement=way).makespan_s
        for way in ("given", "longest-first", "paired")
    }
    assert times["longest-first"] < min(times["given"], times["paired"])
    assert pp.simulate("1f1b", 4, 16, **RUN).makespan_s < times["longest-first"]


@pytest.mark.parametrize("text", ["1,-2", "lognormal", "lognormal:1", "0", "short"])
def test_other_lengths_are_refused(text):
    """With an example."""
    with refused(SpecificationError, "lengths", "lognormal:SIGMA:SEED"):
        LayoutSpec(lengths=text)
