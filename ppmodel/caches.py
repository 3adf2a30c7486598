"""Recent results of a function: as many as fit into a number of operations."""

from collections import OrderedDict
from functools import wraps
from threading import Lock

MOST_OPERATIONS, MOST_RESULTS = 2**22, 1024
"""Limits of what is kept of one function. A table takes 21 bytes per operation; with dependencies, graph and
instructions about 150, so that what is kept of large tables stays below a gigabyte."""


def cached(num_operations):
    """Keep recent results of a function, like `functools.lru_cache`, but as many as are worth their memory.

    The most recent result is kept whatever its size.

    Parameters
    ----------
    num_operations : callable
        The operations of a result.

    Examples
    --------
    >>> squares = cached(lambda square: square)(lambda number: number * number)
    >>> squares(2000), squares(3), list(squares.results)
    (4000000, 9, [(2000,), (3,)])
    >>> squares(1000), list(squares.results)
    (1000000, [(3,), (1000,)])
    """

    def decorated(function):
        results, lock, total = OrderedDict(), Lock(), 0

        @wraps(function)
        def with_cache(*key):
            nonlocal total
            with lock:
                if key in results:
                    results.move_to_end(key)
                    return results[key]
            result = function(*key)
            with lock:
                before = num_operations(results[key]) if key in results else 0  # another thread was faster
                total = (total if results else 0) - before + num_operations(result)
                results[key] = result
                while len(results) > 1 and (total > MOST_OPERATIONS or len(results) > MOST_RESULTS):
                    total -= num_operations(results.popitem(last=False)[1])
            return result

        with_cache.results, with_cache.cache_clear = results, results.clear
        return with_cache

    return decorated
