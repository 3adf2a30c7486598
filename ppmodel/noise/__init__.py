"""Runs that are not alike, and what they leave of a ranking."""

from ppmodel.noise.distribution import QUANTILES, Comparison, Distribution, distribution, probability_faster
from ppmodel.noise.draw import (
    MAX_JITTER,
    MAX_SLOWDOWN,
    TIE,
    Noise,
    Runs,
    all_seeds,
    noisy_makespans,
    noisy_makespans_on,
    noisy_runs,
    operation_factors,
    slow_ranks,
)

__all__ = [
    "MAX_JITTER", "MAX_SLOWDOWN", "QUANTILES", "TIE", "Comparison", "Distribution", "Noise", "Runs", "all_seeds",
    "distribution", "noisy_makespans", "noisy_makespans_on", "noisy_runs", "operation_factors", "probability_faster",
    "slow_ranks",
]  # fmt: skip
