"""Predictions beside what others measured: runs, kernels, throughputs and published tables."""
