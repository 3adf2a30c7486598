"""Noisy runs, and their effect on rankings."""

from ppmodel.noise.comparison import Comparison, probability_faster
from ppmodel.noise.draw import MAX_JITTER, MAX_SLOWDOWN, TIE, Noise, noisy_makespans, noisy_runs
