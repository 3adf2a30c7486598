"""How kernels are compiled: once, cached on disk, and run without the interpreter's lock."""

from numba import njit

inlined = njit(inline="always")
"""For what a loop calls: it becomes part of the caller, so that no array is handed over."""


def kernel(function):
    """Compile a loop at its first call; if no folder for compiled code is writable, each process compiles it again."""
    try:
        return njit(function, cache=True, nogil=True)
    except RuntimeError:  # the package's folder, the user's and NUMBA_CACHE_DIR are all unwritable
        return njit(function, nogil=True)
