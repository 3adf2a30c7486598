"""Words that several studies use."""


def listed(words, most=None):
    """Some words as one would say them.

    Parameters
    ----------
    words : sequence
        At least one.
    most : int, optional
        How many to name at most, what is left counted as one of them; all by default.

    Returns
    -------
    str

    Examples
    --------
    >>> listed("abc"), listed("a"), listed(range(9), most=4)
    ('a, b and c', 'a', '0, 1, 2 and 6 more')
    """
    words = [str(word) for word in words]
    if most and len(words) > most:
        words[most - 1 :] = [f"{len(words) - most + 1} more"]
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last
