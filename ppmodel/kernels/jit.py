"""How the kernels are compiled: once, kept on disk, and without the interpreter's lock."""

from numba import njit

kernel = njit(cache=True, nogil=True)
