"""Loops over the operations of a table that run compiled where that pays; see `ppmodel.loops.compiled`.

Integers have 32 bits, and values that are used together are stored together: a loop is as fast as the little it reads
for each operation. Small functions that a loop calls are inlined, since passing arrays costs as much as the work.
Indices are unsigned where it matters, since a negative one might count from the end and has to be checked. A loop whose
plain twin is another algorithm, of NumPy or over another structure, is compiled or not used at all; all others are
their own twins.
"""
