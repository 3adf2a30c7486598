"""Orders found by search (zb-1p, zb-2p), for the times and the held fraction of the requested point."""

from dataclasses import replace

from ppmodel.cases import built
from ppmodel.compiled import prepare
from ppmodel.costs import stages
from ppmodel.errors import CostError, PPModelError
from ppmodel.metrics import activation_bytes
from ppmodel.ops import OpKind
from ppmodel.schedules.options import option_text

OPEN = ("times", "held")
"""The options of a searched schedule that the point determines unless the user sets them."""

_FARTHEST = 1e12
_SEARCH = 720
"""Two searches for an order take about as long as this many passes over each rank's microbatches."""


def left_open(case):
    """List the options in `OPEN` that a case has but does not set.

    Parameters
    ----------
    case : Case

    Returns
    -------
    list of str

    Examples
    --------
    >>> from ppmodel.cases import as_case
    >>> left_open(as_case("zb-1p:held=0.5")), left_open(as_case("1f1b"))
    (['times'], [])
    """
    known, given = case.known_options, dict(case.options)
    return [name for name in OPEN if name in known and name not in given]


def ordered_case(case, num_ranks, num_microbatches, price, allreduce="excluded"):
    """Set the open options of a case so that its order is searched for a given point.

    Parameters
    ----------
    case : Case
    num_ranks, num_microbatches : int
        Ranks S and microbatches B.
    price : Price
        Its change applies, except that a network switched off by the change is kept: orders are searched for their
        network.
    allreduce : str

    Returns
    -------
    Case
        With the options ``times``, of the mean stage and of a transfer, in forwards, and ``held``, the fraction of all
        stages' activations that weight gradients need, which requires a model; both to four digits. Other schedules,
        and options that are set, are unchanged.

    Raises
    ------
    PPModelError
        If the schedule is not defined at the size, it has no costs, or an operation takes no time or far less than
        another, so that there is no order to search for.

    Examples
    --------
    >>> from ppmodel.cases import as_case
    >>> from ppmodel.prices import Price
    >>> ordered_case(as_case("zb-1p"), 4, 8, Price({}, {"forward": 2, "backward": 3, "comm": 0.1})).options
    (('times', (1, 0.75, 0.75, 0.05)),)
    """
    missing = left_open(case)
    if not missing:
        return case
    table, texts = built(case, num_ranks, num_microbatches), {}
    if "times" in missing:
        texts["times"] = _times(case, table, _with_network(price).costs(table, allreduce))
    if "held" in missing and price.model is not None:
        texts["held"] = _held(stages(table, price.model, price.system, layout=price.layout_of(table)))
    return case.with_options(texts)


def ordered_cases(case, size, prices, allreduce="excluded"):
    """The `ordered_case` for each price, or the error that prevents it.

    Parameters
    ----------
    case : Case
    size : (int, int)
        Ranks and microbatches.
    prices : sequence of Price
    allreduce : str

    Returns
    -------
    list of Case or PPModelError
    """
    if not left_open(case):
        return [case] * len(prices)
    if all(isinstance(count, int) for count in size):
        prepare(_SEARCH * size[0] * size[1] * len(prices))
    found = []
    for price in prices:
        try:
            found.append(ordered_case(case, *size, price, allreduce))
        except (PPModelError, MemoryError) as error:
            found.append(error)
    return found


def _with_network(price):
    return price if price.change.network else price._replace(change=replace(price.change, network=True))


def _times(case, table, costs):
    """Forward, halves of the backward and transfer, as ``F:I:W:C``."""
    seconds = costs.compute_s.mean(axis=1)[[OpKind.F, OpKind.I, OpKind.W]]
    transfer = (costs.occupancy_s + costs.latency_s)[OpKind.F].mean() * table.pieces_per_unit
    if not (seconds.all() and max(*seconds, transfer) < _FARTHEST * seconds.min()):
        rule = f"leave nothing to search an order of {case.name} for, if one is 0 or far above the others"
        said = ", ".join(f"{one:.4g}" for one in (*seconds, transfer))
        field = "times of forward and halves of the backward, and of a transfer"
        raise CostError(field, said, rule, "set the option times")
    return ":".join(f"{one / seconds[0]:.4g}" for one in (*seconds, transfer))


def _held(of_stages):
    """The fraction of all stages' activations that weight gradients need, as text."""
    kept, share = activation_bytes(of_stages)
    total = kept.sum()
    return f"{(kept * share).sum() / total:.4g}" if total else "1"


def ordered_for(asked, own):
    """What an order was searched for, as text: ``times=1:1.16:0.72:0.05 held=0.62``; None if nothing was open.

    Parameters
    ----------
    asked, own : Case
        The case as its user names it, and its `ordered_case`.

    Returns
    -------
    str or None
    """
    found = {name: value for name, value in own.options if name in left_open(asked)}
    return " ".join(f"{name}={option_text(found[name])}" for name in OPEN if name in found) or None
