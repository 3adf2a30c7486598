"""Lengths of sequences and of their slices, as layouts name them."""

import numpy as np

SLICINGS = "tokens", "work"
"""How sequences are cut: into slices of equal numbers of tokens, or of equal work."""

ARRANGEMENTS = "given", "longest-first", "paired"
"""Orders of sequences of unequal length."""


def lengths_of(text, count):
    """Read lengths of sequences: numbers, repeated as needed, or a distribution with a seed.

    Parameters
    ----------
    text : str
        Numbers separated by commas or spaces, or ``lognormal:SIGMA:SEED``, of mean 1 in the limit.
    count : int
        How many.

    Returns
    -------
    ndarray of float, shape (count,)

    Examples
    --------
    >>> lengths_of("4096 8192", 3), lengths_of("lognormal:1:0", 2).round(3)
    (array([4096., 8192., 4096.]), array([0.688, 0.531]))
    """
    name, *numbers = text.split(":")
    if name == "lognormal":
        sigma, seed = float(numbers[0]), int(numbers[1])
        return np.random.default_rng(seed).lognormal(-(sigma**2) / 2, sigma, count)
    return np.resize(np.array(text.replace(",", " ").split(), dtype=float), count)


def arranged(lengths, way):
    """Put sequences in an order: as given, the longest first, or long and short ones in turn.

    >>> arranged([1, 4, 2, 3], "longest-first").tolist(), arranged([1, 4, 2, 3], "paired").tolist()
    ([4, 3, 2, 1], [4, 1, 3, 2])
    """
    lengths = np.asarray(lengths)
    if way == "given":
        return lengths
    falling = np.sort(lengths)[::-1]
    return falling if way != "paired" else np.stack([falling, falling[::-1]], axis=1).ravel()[: len(falling)]
