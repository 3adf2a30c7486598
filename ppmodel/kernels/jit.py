"""How the kernels are compiled: once, kept on disk, and without the interpreter's lock."""

from numba import njit

kernel = njit(cache=True, nogil=True)
inlined = njit(inline="always")
"""For what a loop calls: it becomes part of the caller, so that no array is handed over."""
