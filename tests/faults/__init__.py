"""Faults on purpose: each turns the two-minute tier red, or the tier does not see it."""
