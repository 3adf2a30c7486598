"""How the kernels are compiled: once, kept on disk, and without the interpreter's lock."""

from numba import njit

inlined = njit(inline="always")
"""For what a loop calls: it becomes part of the caller, so that no array is handed over."""


def kernel(function):
    """Compile a loop at its first call; where no folder for compiled code can be written, each process does it anew."""
    try:
        return njit(function, cache=True, nogil=True)
    except RuntimeError:  # neither the package's folder, nor the user's, nor NUMBA_CACHE_DIR
        return njit(function, nogil=True)
