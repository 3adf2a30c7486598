"""Speed benchmarks, run on demand: the time of each stage of the work, its growth, and the same work by other tools.

``python -m benchmarks`` from the top of a clone measures everything and writes ``data/reference/benchmarks.json``;
the README and the book show these results. `benchmarks.timing` explains how times are taken.
"""
