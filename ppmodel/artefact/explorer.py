"""Links into the explorer, the book's page that simulates schedules in the browser."""

from numbers import Real
from urllib.parse import quote

from ppmodel.cases import as_case
from ppmodel.errors import PPModelError
from ppmodel.schedules.registry import option_text

PAGE = "explorer.html"
RANKS = tuple(range(2, 17))
"""Numbers of ranks that the explorer has orders for."""

MULTIPLES = 1, 2, 3, 4, 6, 8, 16
"""Microbatches that it has orders for, as multiples of the ranks, up to `MOST_MICROBATCHES`."""

MOST_MICROBATCHES = 128

SEMANTICS = "latency", "overlapped", "blocking_send", "blocking_recv", "blocking", "rendezvous"
"""Communication semantics that it simulates."""

_SECONDS = "forward", "input_grad", "weight_grad", "comm"
_KEYS = (*_SECONDS, "p2p", "slow_rank", "slow_factor", "view")


def link(schedule, pp, microbatches, against=None, page=PAGE, **shown):
    """A link that opens the explorer at a given point.

    Its form is ``explorer.html#schedule=zb-v&against=1f1b&pp=8&microbatches=16&comm=0.1``: a schedule with its options
    as on the command line; anything left out takes the explorer's default.

    Parameters
    ----------
    schedule : str, (str, dict) or Case
        As in `cases.as_case`.
    pp, microbatches : int
        Ranks, one of `RANKS`, and microbatches, one of `sizes`.
    against : str, (str, dict) or Case, optional
        A second schedule to compare with.
    page : str
        Path to the explorer from the page with the link; ``../explorer.html`` from a notebook's page.
    **shown
        ``forward``, ``input_grad``, ``weight_grad``, ``comm``: times, in any unit; ``p2p``: one of `SEMANTICS`;
        ``slow_rank`` and ``slow_factor``: a rank whose operations take longer, and how much; ``view``: ``timeline`` or
        ``table``.

    Returns
    -------
    str

    Raises
    ------
    PPModelError
        If the explorer has no orders for the size, or an argument is unknown.

    Examples
    --------
    >>> link("zb-v", 8, 16, against=("interleaved-1f1b", {"chunks": 4}), comm=0.1)
    'explorer.html#schedule=zb-v&against=interleaved-1f1b:chunks=4&pp=8&microbatches=16&comm=0.1'
    """
    _require_sizes(pp, microbatches)
    for key in shown:
        if key not in _KEYS:
            raise PPModelError(key, shown[key], "is not known to the explorer", f"give {', '.join(_KEYS)}")
    cases = {"schedule": written(schedule), "against": None if against is None else written(against)}
    values = cases | {"pp": pp, "microbatches": microbatches} | shown
    pairs = (f"{key}={quote(_text(value), safe=':,=')}" for key, value in values.items() if value is not None)
    return f"{page}#{'&'.join(pairs)}"


def written(schedule):
    """A schedule with its options, as the command line and the explorer's links write it.

    >>> written(("stp", {"warm_up": "memory-saving"})), written("1f1b")
    ('stp:warm-up=memory-saving', '1f1b')
    """
    case = as_case(schedule)
    options = ",".join(f"{key.replace('_', '-')}={option_text(value)}" for key, value in case.options)
    return f"{case.name}:{options}" if options else case.name


def sizes(pp):
    """The numbers of microbatches for which the explorer has orders.

    >>> sizes(4)
    [4, 8, 12, 16, 24, 32, 64]
    """
    return [multiple * pp for multiple in MULTIPLES if multiple * pp <= MOST_MICROBATCHES]


def _require_sizes(pp, microbatches):
    if pp not in RANKS:
        raise PPModelError("pp", pp, f"must be from {RANKS[0]} to {RANKS[-1]} in the explorer", "choose one of them")
    if microbatches not in sizes(pp):
        listed = ", ".join(map(str, sizes(pp)))
        raise PPModelError("microbatches", microbatches, f"must be one of {listed} for pp = {pp}", "choose one of them")


def _text(value):
    return f"{value:.12g}" if isinstance(value, Real) else str(value)
