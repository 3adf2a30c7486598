"""How much of the time of each stage is attention, and so how slices and sequences of unequal length differ."""

import numpy as np

from ppmodel.clusters.costs.work import Kernel
from ppmodel.clusters.specs import LayoutSpec
from ppmodel.clusters.specs.lengths import arranged, lengths_of
from ppmodel.ops import OpKind
from ppmodel.simulation import Units


def units_of(schedule, layout, layers, counts, compute_s):
    """Compute mean durations and `Units` of a table's slices, or of sequences of unequal length.

    Parameters
    ----------
    schedule : Schedule
    layout : LayoutSpec or None
    layers, counts, compute_s
        As in `attention_shares`; for a mean slice.

    Returns
    -------
    (ndarray of float, Units)
        As from `unlike_units`.
    """
    layout, lengths = layout or LayoutSpec(), None
    if layout.lengths != "equal":
        lengths = lengths_of(layout.lengths, schedule.table_microbatches // schedule.slices)
        lengths = arranged(lengths, layout.arrangement)
    shares = attention_shares(layers, counts, compute_s)
    skips = layout.causal and Kernel.ATTENTION in layers.work.kernels.kernel  # attention that is not fused never skips
    return unlike_units(compute_s, shares, schedule.slices, lengths, layout.slicing, skips)


def attention_shares(layers, counts, compute_s):
    """Share of attention in the durations of operations.

    Parameters
    ----------
    layers : LayerCosts
    counts : ndarray of float, shape (num_stages, num_layers)
        How often each layer occurs in each stage.
    compute_s : ndarray of float, shape (10, num_stages)
        From `compute_seconds`.

    Returns
    -------
    ndarray of float, shape (10, num_stages)
        0 for reductions and optimizer steps.

    Examples
    --------
    >>> from ppmodel import build
    >>> from ppmodel.clusters.costs import model_costs
    >>> from ppmodel.clusters.costs.layers import layers_of
    >>> from ppmodel.clusters.specs import LayoutSpec, load_model, load_system
    >>> model, system, layout = load_model("llama3_70b"), load_system("h100"), LayoutSpec().at(4, 8)
    >>> costs = model_costs(build("1f1b", 4, 8), model, system, layout)
    >>> attention_shares(layers_of(model, 1, system, layout), costs.stages.layers, costs.compute_s)[:2, 1].round(2)
    array([0.08, 0.12])
    """
    forward, input_grad, weight_grad = (counts @ layers.attention_s).T
    attention_s = np.zeros_like(compute_s)
    attention_s[: OpKind.S] = forward, input_grad + weight_grad, input_grad, weight_grad
    return np.divide(attention_s, compute_s, out=np.zeros_like(compute_s), where=compute_s > 0)


def unlike_units(compute_s, attention, slices=1, lengths=None, slicing="tokens", causal=True):
    """Compute mean durations of units of work, and the `Units` that say how they differ.

    Attention of a slice takes its queries times the keys up to its end, half of its own without what is masked. So
    that of a sequence of length l takes l^2, and everything else takes l.

    Parameters
    ----------
    compute_s : ndarray of float, shape (10, num_stages)
        Durations of a unit of mean length, with its share of the attention of a sequence of mean length.
    attention : ndarray of float, shape (10, num_stages), or float
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
