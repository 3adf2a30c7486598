"""Units of work that differ: slices of a sequence under causal attention, and sequences of unequal length."""

import numpy as np

from ppmodel.ops import OpKind
from ppmodel.simulation.costs import Units

SLICINGS = "tokens", "work"
"""How sequences are cut: into slices of equal numbers of tokens, or of equal work."""


def unlike_units(compute_s, attention, slices=1, lengths=None, slicing="tokens", causal=True):
    """Compute mean durations of units of work, and the `Units` that say how they differ.

    Attention of a slice takes its queries times the keys up to its end, half of its own without what is masked. So
    that of a sequence of length l takes l^2, and everything else takes l.

    Parameters
    ----------
    compute_s : ndarray of float, shape (6, num_stages)
        Durations of a unit of mean length, with its share of the attention of a sequence of mean length.
    attention : ndarray of float, shape (6, num_stages), or float
        The share of attention in them.
    slices : int
        Slices of each sequence.
    lengths : sequence of float, optional
        Lengths of sequences, in any unit; without them, all are equal.
    slicing : {"tokens", "work"}
        Whether the slices of a sequence have equal numbers of tokens or take equally long.
    causal : bool
        Whether attention skips the masked half of a slice's own scores.

    Returns
    -------
    (ndarray of float, Units)
        Durations as `compute_s`, and factors for each slice of each sequence.

    Examples
    --------
    >>> mean_s, units = unlike_units(np.ones((10, 1)), 0.5, slices=2)
    >>> mean_s[0], units.compute[0, 0], units.tokens
    (array([1.]), array([0.75, 1.25]), array([1., 1.]))
    >>> unlike_units(np.ones((10, 1)), 0.5, slices=2, slicing="work")[1].tokens.round(3)
    array([1.236, 0.764])
    """
    compute_s = np.asarray(compute_s, dtype=float)
    attention = np.broadcast_to(attention, compute_s.shape)
    long = np.ones(1) if lengths is None else np.asarray(lengths, dtype=float) / np.mean(lengths)
    ends = np.arange(slices + 1) / slices * np.ones((len(long), 1))
    if slicing == "work":
        share = float((compute_s * attention)[OpKind.F].sum() / compute_s[OpKind.F].sum())
        ends[:, 1:] = (_ends_of_work if causal else _ends_of_whole_scores)(1 - share, share * long[:, None], slices)
    tokens = np.diff(ends) * long[:, None] * slices
    keys = (ends[:, 1:] + ends[:, :-1] if causal else ends[:, 1:]) * long[:, None]
    tokens, scores = tokens.ravel(), (tokens * keys).ravel()
    longer = (1 - attention)[..., None] * tokens + attention[..., None] * scores
    grown = longer.mean(axis=-1)
    grown[OpKind.R :] = 1.0
    factors = longer / grown[..., None]
    factors[OpKind.R :] = 1.0
    return compute_s * grown, Units(factors, tokens)


def _ends_of_work(linear, quadratic, slices):
    """Where (1 - a) x + a l x^2 has grown by equal steps: the ends of slices that skip what is masked."""
    done = np.arange(1, slices + 1) / slices * (linear + quadratic)
    return 2 * done / (linear + np.sqrt(linear**2 + 4 * quadratic * done))


def _ends_of_whole_scores(linear, quadratic, slices):
    """The ends of slices that equally long compute all scores with the keys up to their ends, found by bisection."""
    below, above = np.zeros_like(quadratic), linear + quadratic
    for _ in range(60):
        work, ends = (below + above) / 2, [0.0 * quadratic]
        for _ in range(slices):
            slope, rest = linear - quadratic * ends[-1], linear * ends[-1] + work
            root = np.sqrt(slope**2 + 4 * quadratic * rest)
            ends.append(2 * rest / (root + slope) if slope.min() > 0 else (root - slope) / (2 * quadratic))
        below, above = np.where(ends[-1] < 1, work, below), np.where(ends[-1] < 1, above, work)
    return np.hstack(ends[1:]) / ends[-1]


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


ARRANGEMENTS = "given", "longest-first", "paired"
"""Orders of sequences of unequal length."""


def arranged(lengths, way):
    """Put sequences in an order: as given, the longest first, or long and short ones in turn.

    >>> arranged([1, 4, 2, 3], "longest-first").tolist(), arranged([1, 4, 2, 3], "paired").tolist()
    ([4, 3, 2, 1], [4, 1, 3, 2])
    """
    lengths = np.asarray(lengths)
    if way == "given":
        return lengths
    falling = np.sort(lengths)[::-1]
    if way == "paired":
        falling = np.stack([falling, falling[::-1]], axis=1).ravel()[: len(falling)]
    return falling
