"""Closed forms: bubble ratios, makespans and memory, each with its source and what it assumes.

Nothing here looks at a table; it is what tables and simulations are held against. Rational inputs give
exact results (`fractions.Fraction`). S ranks, B microbatches, F and Bw the times of the forward and of
the whole backward of one stage and one microbatch, I and W those of its halves, c the time of one transfer.
"""

from ppmodel.formulas.chimera import *
from ppmodel.formulas.dualpipe import *
from ppmodel.formulas.hanayo import *
from ppmodel.formulas.interleaved import *
from ppmodel.formulas.linear import *
from ppmodel.formulas.zero_bubble import *
from ppmodel.formulas.zero_bubble_v import *

__all__ = [name for name in dir() if name.startswith(("bubble_ratio_", "makespan_", "peak_activations_", "span_"))]
