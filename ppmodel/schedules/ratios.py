"""Bubble ratios of schedules in closed form, as users name the schedules."""

from ppmodel.schedules.cases import as_case


def formula_bubble_ratio(case, num_ranks, num_microbatches):
    """Bubble ratio of a schedule in closed form, published or derived here, over the total time.

    Parameters
    ----------
    case : Case or what `as_case` takes
        The schedule; tables and functions have no closed form.
    num_ranks, num_microbatches : int
        Ranks S and microbatches B.

    Returns
    -------
    Fraction or float
        Idle time over total time, without communication; NaN if there is no closed form.

    Examples
    --------
    >>> formula_bubble_ratio("zb-h2", 8, 16), published_bubble_ratio("zb-h2", 8, 16)
    (Fraction(7, 55), Fraction(0, 1))
    """
    return _ratio(as_case(case), "bubble_ratio", num_ranks, num_microbatches)


def published_bubble_ratio(case, num_ranks, num_microbatches):
    """Bubble ratio as published by a schedule's own authors.

    It is over the total time, except for ZB-H2 and ZB-V, where the authors divide by the longest span of a rank.

    Parameters
    ----------
    case, num_ranks, num_microbatches
        As in `formula_bubble_ratio`.

    Returns
    -------
    Fraction or float
        Idle time over the denominator they use; NaN if they publish none.

    Examples
    --------
    >>> published_bubble_ratio("chimera", 8, 16), published_bubble_ratio(("hanayo", {"waves": 2}), 8, 8)
    (Fraction(3, 19), Fraction(14, 55))
    """
    return _ratio(as_case(case), "published", num_ranks, num_microbatches)


def _ratio(case, which, num_ranks, num_microbatches):
    formula = None if case.source is not None else getattr(case.entry, which)
    ratio = formula and formula(num_ranks, num_microbatches, **case.own_options)
    return float("nan") if ratio is None else ratio
