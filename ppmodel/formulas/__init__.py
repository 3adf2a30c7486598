"""Closed forms: bubble ratios, makespans and memory, each with its source and what it assumes.

Nothing here looks at a table; it is what tables and simulations are held against. Rational inputs give
exact results (`fractions.Fraction`). S ranks, B microbatches, F and Bw the times of the forward and of
the whole backward of one stage and one microbatch, I and W those of its halves, c the time of one transfer.
"""

from ppmodel.formulas.chimera import (
    bubble_ratio_chimera,
    bubble_ratio_chimera_doubling,
    bubble_ratio_chimera_equal,
    makespan_chimera,
    makespan_chimera_doubling,
    makespan_chimera_halving,
    peak_activations_chimera,
)
from ppmodel.formulas.dualpipe import (
    bubble_ratio_dualpipe,
    bubble_ratio_dualpipev,
    makespan_dualpipe,
    makespan_dualpipev,
    peak_activations_dualpipe,
    peak_activations_dualpipev,
)
from ppmodel.formulas.hanayo import (
    bubble_ratio_hanayo,
)
from ppmodel.formulas.interleaved import (
    bubble_ratio_interleaved,
    makespan_interleaved,
    makespan_looped_bfs,
    peak_activations_interleaved,
)
from ppmodel.formulas.linear import (
    bubble_ratio_1f1b,
    bubble_ratio_gpipe,
    bubble_ratio_ideal,
    makespan_1f1b,
    makespan_eager_1f1b,
    makespan_gpipe,
    peak_activations_1f1b,
    peak_activations_eager_1f1b,
    peak_activations_gpipe,
)
from ppmodel.formulas.zero_bubble import (
    bubble_ratio_span_zb_h2,
    bubble_ratio_zb_h1,
    bubble_ratio_zb_h2,
    makespan_interleaved_zb,
    makespan_zb_h1,
    makespan_zb_h2,
    peak_activations_interleaved_zb,
    peak_activations_zb_h1,
    peak_activations_zb_h2,
    span_zb_h1,
    span_zb_h2,
)
from ppmodel.formulas.zero_bubble_v import (
    bubble_ratio_span_zb_v,
    bubble_ratio_v_half,
    bubble_ratio_v_min,
    bubble_ratio_zb_v,
    makespan_v_half,
    makespan_v_min,
    makespan_zb_v,
    peak_activations_v_half,
    peak_activations_v_min,
    peak_activations_zb_v,
)

__all__ = [
    "bubble_ratio_1f1b",
    "bubble_ratio_chimera",
    "bubble_ratio_chimera_doubling",
    "bubble_ratio_chimera_equal",
    "bubble_ratio_dualpipe",
    "bubble_ratio_dualpipev",
    "bubble_ratio_gpipe",
    "bubble_ratio_hanayo",
    "bubble_ratio_ideal",
    "bubble_ratio_interleaved",
    "bubble_ratio_span_zb_h2",
    "bubble_ratio_span_zb_v",
    "bubble_ratio_v_half",
    "bubble_ratio_v_min",
    "bubble_ratio_zb_h1",
    "bubble_ratio_zb_h2",
    "bubble_ratio_zb_v",
    "makespan_1f1b",
    "makespan_chimera",
    "makespan_chimera_doubling",
    "makespan_chimera_halving",
    "makespan_dualpipe",
    "makespan_dualpipev",
    "makespan_eager_1f1b",
    "makespan_gpipe",
    "makespan_interleaved",
    "makespan_interleaved_zb",
    "makespan_looped_bfs",
    "makespan_v_half",
    "makespan_v_min",
    "makespan_zb_h1",
    "makespan_zb_h2",
    "makespan_zb_v",
    "peak_activations_1f1b",
    "peak_activations_chimera",
    "peak_activations_dualpipe",
    "peak_activations_dualpipev",
    "peak_activations_eager_1f1b",
    "peak_activations_gpipe",
    "peak_activations_interleaved",
    "peak_activations_interleaved_zb",
    "peak_activations_v_half",
    "peak_activations_v_min",
    "peak_activations_zb_h1",
    "peak_activations_zb_h2",
    "peak_activations_zb_v",
    "span_zb_h1",
    "span_zb_h2",
]
