"""Sweeps: a grid of schedules, sizes, systems and models, written row by row, on one machine or on many.

`load_sweep` reads the specification, `run_sweep` computes its rows. The room has a file for each thing that can
be understood alone: the specification's form, the grid and its chunks, the rows of a chunk, who computes them,
where they are kept.
"""

from ppmodel.sweep.grid import Sweep, chunk_bounds
from ppmodel.sweep.rows import columns_of, compute_rows
from ppmodel.sweep.run import Summary, SweepStopped, run_sweep
from ppmodel.sweep.specification import load_sweep
