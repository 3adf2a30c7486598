"""Compiled loops over the operations of a table, each with a plain twin whose results it must match to the last bit.

Integers have 32 bits, and values that are used together are stored together: a loop is as fast as the little it reads
for each operation. Small functions that a loop calls are inlined, since passing arrays costs as much as the work.
Indices are unsigned where it matters, since a negative one might count from the end and has to be checked.
"""

from ppmodel.kernels.automatic import zero_bubble_order, zero_bubble_span
from ppmodel.kernels.building_block import squeeze
from ppmodel.kernels.events import events
from ppmodel.kernels.paths import by_class, instructions, longest_path, many_longest_paths
from ppmodel.kernels.rendezvous import rendezvous, rendezvous_events
from ppmodel.kernels.rounds import loops, rounds
from ppmodel.kernels.sweep import sweep
from ppmodel.kernels.tables import class_counts, dependencies, overlaps, peaks, renumbered, slots
from ppmodel.kernels.units import unit_order

__all__ = [
    "by_class",
    "class_counts",
    "dependencies",
    "events",
    "instructions",
    "longest_path",
    "loops",
    "many_longest_paths",
    "overlaps",
    "peaks",
    "rendezvous",
    "rendezvous_events",
    "renumbered",
    "rounds",
    "slots",
    "squeeze",
    "sweep",
    "unit_order",
    "zero_bubble_order",
    "zero_bubble_span",
]
