"""Closed forms: bubble ratios, makespans and memory, each with its source and what it assumes.

Nothing here reads a table: tables and simulations are tested against these formulas. Rational inputs give exact results
(`fractions.Fraction`). All formulas take the number of ranks S as `num_ranks`, and most take the number of microbatches
of one iteration B as `num_microbatches`. F and Bw are the times of the forward and of the whole backward of one
microbatch on one stage, I and W those of the two halves of the backward, and c is the time of one transfer.
"""

from ppmodel.formulas.chimera import *
from ppmodel.formulas.combined import *
from ppmodel.formulas.dualpipe import *
from ppmodel.formulas.grouped import *
from ppmodel.formulas.hanayo import *
from ppmodel.formulas.interleaved import *
from ppmodel.formulas.linear import *
from ppmodel.formulas.one_f_one_b_v import *
from ppmodel.formulas.seq1f1b import *
from ppmodel.formulas.stp import *
from ppmodel.formulas.zero_bubble import *
from ppmodel.formulas.zero_bubble_v import *

_KINDS = ("bubble_ratio_", "makespan_", "peak_activations_", "pipeline_bubble_", "span_", "tensor_bubble_")
__all__ = [name for name in dir() if name.startswith(_KINDS)]
