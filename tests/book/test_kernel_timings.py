"""Constants of systems held against the timings of kernels that they were fitted to."""

import pandas as pd
import pytest

from ppbook.measured.kernel_timings import TIMINGS, attained, product_s, timed, with_timings
from ppmodel.clusters.specs import load_system
from ppmodel.studies.measured.constants import with_values

SYSTEMS = ["a100", "h100", "h200", "b200", "gb200", "gb300"]
THINNED, FARTHEST = 0.01, 0.025  # what leaving out rows changes: rates on average, and the rate of a single timing
BETWEEN = "collectives between nodes"


def apart(kernels, system):
    """How far the rates of a system's file are from those of the fit, timing by timing."""
    shares = attained(kernels, system)
    return (shares.fitted / shares.in_file - 1).abs()


@pytest.mark.parametrize("name", SYSTEMS)
def test_files_have_the_constants_that_their_timings_give(name):
    """Kind by kind, rates by the file and by the fit agree within what the thinning of the timings changes."""
    (system,) = with_timings([name])
    kinds = [kernels for kernels in timed(system) if kernels.kind != BETWEEN]
    assert len(kinds) == (3 if name == "a100" else 4)
    for kernels in kinds:
        assert apart(kernels, system).mean() < THINNED, kernels.kind
        assert apart(kernels, system).max() < FARTHEST, kernels.kind


def test_a_wrong_constant_is_noticed():
    """An efficiency that is 5 % off, or a half-width that is 50 % off, is no longer within what thinning changes."""
    (system,) = with_timings(["h100"])
    kinds = {kernels.kind: kernels for kernels in timed(system)}
    for kind, constant, factor in (
        ("products in bf16", "compute_efficiency", 1.05), ("products in fp8", "kernels.fp8_half_width", 1.5),
        ("attention", "kernels.attention_backward_efficiency", 1.05),
        ("collectives in nodes", "collectives.node_efficiency", 1.05),
    ):  # fmt: skip
        value = system
        for part in constant.split("."):
            value = getattr(value, part)
        assert apart(kinds[kind], with_values(system, {constant: factor * value})).mean() > THINNED, kind


def test_between_nodes_large_collectives_agree():
    """The B200's constant is what its all-reduces from 512 MiB on give; smaller ones wait for more than the links."""
    (system,) = with_timings(["b200"])
    (kernels,) = [kernels for kernels in timed(system) if kernels.kind == BETWEEN]
    assert kernels.fit.values["collectives.network_efficiency"] == pytest.approx(0.74, rel=0.02)
    assert kernels.fit.values["collectives.overlapped_phases"] is True
    off = apart(kernels, system).groupby(kernels.table["size"] >= 2**30).max()
    assert off[True] < 0.1 < off[False]


def test_the_sustained_clock_is_that_of_the_files():
    """Products under load on a B200 give it; fitted to runs on H100s it comes out the same, within its interval."""
    (system,) = with_timings(["b200"])
    rows = pd.read_csv(TIMINGS / "gemm_sustained.csv")
    (fit,) = (kernels.fit for kernels in timed(system) if kernels.kind == "products in bf16")
    single_s = product_s(rows, "bf16", with_values(system, fit.values))
    clock = single_s * 1e12 * rows.tflops / (2 * rows.m * rows.n * rows.k)
    assert clock.mean() == pytest.approx(system.kernels.sustained_clock, rel=0.01)
    assert clock.mean() == pytest.approx(load_system("h100_mlperf").kernels.sustained_clock, rel=0.05)


def test_systems_without_timings_are_left_out():
    """Of a list, those whose GPU was timed remain."""
    assert [system.name for system in with_timings(["mi300x", "a100_vtrain", "dgx_h100"])] == ["a100_vtrain"]
