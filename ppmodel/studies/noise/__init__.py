"""Noisy runs, and whether rankings survive them."""

from ppmodel.studies.noise.comparison import Comparison, probability_faster
from ppmodel.studies.noise.draw import MAX_JITTER, MAX_SLOWDOWN, TIE, Noise, noisy_makespans, noisy_runs
from ppmodel.studies.noise.ranking import compare_runs, first_places
