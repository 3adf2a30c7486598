"""Links into the explorer, the book's page that simulates schedules in the browser."""

from numbers import Real
from urllib.parse import quote

import numpy as np
from ruamel.yaml import YAML

from ppmodel.clusters.specs import DATA
from ppmodel.errors import PPModelError
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import as_case
from ppmodel.schedules.options import option_text

PAGE = "explorer.html"
RANKS = tuple(range(2, 17))
"""Numbers of ranks that the explorer has orders for."""

MULTIPLES = 1, 2, 3, 4, 6, 8, 16, 24, 32, 64, 128
"""Microbatches that it has orders for, as multiples of the ranks, up to `MOST_MICROBATCHES` and `MOST_CELLS`."""

MOST_MICROBATCHES, MOST_CELLS = 256, 2048

VARIANTS = YAML(typ="safe").load(DATA / "variants.yaml")
"""Options with which the explorer offers a schedule, beside its defaults; a new schedule comes with its own at once."""


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
        ``forward``, ``input_grad``, ``weight_grad``, ``comm``: times, in any unit; ``output``: that of a pass S or T;
        ``gather``: that of the weights of 1/S of the model; ``reduction``: that of their gradients, if ``allreduce``,
        one of `simulation.APART`, includes it; ``passed`` and ``summed``: collectives of shards; ``overlap``: the time
        of a pair over that of its forward and backward, as in `Change`; ``p2p``: one of `simulation.P2P`; ``slow_rank``
        and ``slow_factor``: a rank whose operations take longer, and how much; ``slow_link`` and ``delay``: a rank
        whose link to the next one has a delay; ``view``: ``timeline`` or ``table``.

    Returns
    -------
    str

    Raises
    ------
    PPModelError
        If the explorer has no orders for a schedule or the size.

    Examples
    --------
    >>> link("zb-v", 8, 16, against=("interleaved-1f1b", {"chunks": 4}), comm=0.1)
    'explorer.html#schedule=zb-v&against=interleaved-1f1b:chunks=4&pp=8&microbatches=16&comm=0.1'
    """
    if pp not in RANKS or microbatches not in sizes(pp):
        raise PPModelError("size", (pp, microbatches), "has no orders in the explorer", "choose one that it lists")
    values = {"schedule": schedule, "against": against, "pp": pp, "microbatches": microbatches} | shown
    values = {key: value for key, value in values.items() if value is not None}
    for key in {"schedule", "against"} & values.keys():
        case = as_case(values[key])
        usual = {(name, option.default) for name, option in case.known_options.items()}
        case = case._replace(options=tuple(option for option in case.options if option not in usual))
        if case not in variants(case.name):
            raise PPModelError("schedule", case.label, "has no orders in the explorer", "choose one that it lists")
        values[key] = written(case)
    texts = {key: f"{value:.12g}" if isinstance(value, Real) else str(value) for key, value in values.items()}
    pairs = [f"{key}={quote(text, safe=':,=')}" for key, text in texts.items()]
    return f"{page}#{'&'.join(pairs)}"


def offer(figure, schedules, pp, microbatches, **shown):
    """Give a figure a link into the explorer, which pages show after its caption.

    There is none where the explorer lacks the point, for example because a notebook's parameters were changed.

    Parameters
    ----------
    figure : matplotlib Figure, or another object
        Its attribute ``explorer`` is set, to an empty text if there is no link.
    schedules : sequence
        One or two, as in `cases.as_case`; the second is compared with the first.
    pp, microbatches, **shown
        As in `link`.
    """
    first, *against = schedules[:2]
    try:
        figure.explorer = link(first, pp, microbatches, *against, page=f"../{PAGE}", **shown)
    except PPModelError:
        figure.explorer = ""


def times_of(costs):
    """The times of even costs in forwards, as `link` takes them.

    Parameters
    ----------
    costs : OpCosts
        Of one stage per rank.

    Returns
    -------
    dict of str to float
        Empty where stages differ: the explorer has no such point.

    Examples
    --------
    >>> import ppmodel as pp
    >>> times_of(pp.simulate("1f1b", 4, 8, forward=2, backward=4, comm=1).costs)
    {'forward': 1.0, 'input_grad': 1.0, 'weight_grad': 1.0, 'comm': 0.5}
    """
    compute, transfer = costs.compute_s, costs.occupancy_s + costs.latency_s
    seconds = {"forward": compute[OpKind.F], "input_grad": compute[OpKind.I], "weight_grad": compute[OpKind.W]}
    seconds["comm"] = transfer[[OpKind.F, OpKind.B, OpKind.I]]
    if any(np.ptp(times) > 1e-9 * times.max() for times in seconds.values()):
        return {}
    return {name: float(times.flat[0] / compute[OpKind.F, 0]) for name, times in seconds.items()}


def written(schedule):
    """A schedule with its options, as the command line and the explorer's links write it.

    >>> written(("stp", {"warm_up": "memory-saving"})), written("1f1b")
    ('stp:warm-up=memory-saving', '1f1b')
    """
    case = as_case(schedule)
    options = ",".join(f"{key.replace('_', '-')}={option_text(value)}" for key, value in case.options)
    return f"{case.name}:{options}" if options else case.name


def variants(name):
    """The cases of a schedule that the explorer offers.

    >>> [case.label for case in variants("hanayo")]
    ['Hanayo', 'Hanayo W = 2', 'Hanayo W = 4']
    """
    return [as_case(name), *(as_case(f"{name}:{options}") for options in VARIANTS.get(name, ()))]


def sizes(pp):
    """The numbers of microbatches for which the explorer has orders.

    >>> sizes(4)
    [4, 8, 12, 16, 24, 32, 64, 96, 128, 256]
    """
    most = min(MOST_MICROBATCHES, MOST_CELLS // pp)
    return [multiple * pp for multiple in MULTIPLES if multiple * pp <= most]
