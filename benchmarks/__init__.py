"""Speed, run on demand: what each stage of the work costs, how it grows, and what the same takes elsewhere.

``python -m benchmarks`` from the top of a clone measures everything and writes ``data/reference/benchmarks.json``;
the README and the book show what stands there. See `benchmarks.timing` for how a time is taken.
"""
