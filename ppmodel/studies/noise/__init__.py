"""Noisy runs: jitter of operations, and slow ranks."""

from ppmodel.studies.noise.draw import MAX_JITTER, MAX_SLOWDOWN, TIE, Noise, noisy_makespans, noisy_runs
