"""Hostile input by the hundred, each run as a process of its own: `python -m tests.attack` runs all of it."""
