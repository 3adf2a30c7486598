"""Sweeps: a grid of schedules, sizes, systems and models, computed row by row on one machine or many.

`load_sweep` reads the specification, `run_sweep` computes its rows. Each module can be understood on its own: the
format of the specification, the grid and its chunks, the rows of a chunk, where they are stored, the execution of all.
"""

from ppmodel.studies.sweep.execution import Summary, run_sweep
from ppmodel.studies.sweep.grid import Sweep
from ppmodel.studies.sweep.rows import columns_of, compute_rows
from ppmodel.studies.sweep.specification import load_sweep
