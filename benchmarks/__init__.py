"""Speed benchmarks, run on demand: the time of each stage of the work, its growth, and the same work by other tools.

``python -m benchmarks`` from the top of a clone measures everything and writes ``data/reference/benchmarks.json``;
the book shows these results. `make bench`, on a quiet machine, refreshes all of them. `benchmarks.timing`
explains how times are taken, and `benchmarks.limits` measures how far a goal that is missed can be met at all.
"""
