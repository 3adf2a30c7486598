"""Links between two ranks that differ from the rest of the network.

A link is the way from one rank to another, whatever lies between them: a message from rank 0 to rank 2, of a skipping
or an interleaved schedule, crosses the link 0-2 and neither 0-1 nor 1-2, and one that wraps around from the last rank
to the first crosses theirs. So a slow site or cable is described by naming every pair of ranks that it separates. The
delay of a link comes on top of what its messages take anyway, and its bandwidth replaces the network's or the node's.
"""

from __future__ import annotations  # help() shows a field's type by its name

import re
from functools import partial
from typing import NamedTuple

from ppmodel.clusters.specs.units import parse_quantity
from ppmodel.errors import SpecificationError, shown

_EDGE = re.compile(r"(\d{1,6})([->])(\d{1,6})")
_RULES = {
    "delay": (("s", "ms", "us", "ns", ""), "must be a time of 0 or more, in s, ms, us or ns", "60ms"),
    "bandwidth": (("B/s", "GB/s", "TB/s", "Gbit/s"), "must be above 0, in B/s, GB/s, TB/s or Gbit/s", "25GB/s"),
}
_LARGEST = 1e30
_refused = partial(SpecificationError, "links")


class Link(NamedTuple):
    """A link between two ranks that differs from the rest of the network.

    Parameters
    ----------
    sender, receiver : int
        Its ranks, counted from 0.
    both_ways : bool
        Whether messages in the other direction have the same; the lower rank is then the sender.
    delay_s : float
        Seconds by which messages arrive later.
    bandwidth_bytes_per_s : float, optional
        Instead of the network's, or that within a node.

    Examples
    --------
    >>> print(*as_links("0-1:delay=60ms 2>1:bandwidth=2GB/s"))
    0-1:delay=0.06 2>1:bandwidth=2000000000B/s
    """

    sender: int
    receiver: int
    both_ways: bool
    delay_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None

    def __str__(self):
        delay, bandwidth = (repr(value and float(value)).removesuffix(".0") for value in self[3:])  # shortest digits
        values = [f"delay={delay}"] if self.delay_s or self.bandwidth_bytes_per_s is None else []
        values += [f"bandwidth={bandwidth}B/s"] if self.bandwidth_bytes_per_s is not None else []
        return f"{self.sender}{'-' if self.both_ways else '>'}{self.receiver}:{','.join(values)}"

    @property
    def is_slow(self) -> bool:
        """Whether it has a delay or a bandwidth of its own."""
        return bool(self.delay_s or self.bandwidth_bytes_per_s)

    @property
    def directions(self) -> tuple[tuple[int, int], ...]:
        """Sender and receiver of each direction that it is."""
        return ((self.sender, self.receiver), (self.receiver, self.sender))[: 1 + self.both_ways]


def as_links(given: object) -> tuple[Link, ...]:
    """Read the links of a network as files, callers and the command line write them.

    Parameters
    ----------
    given : dict, str, tuple of Link or None
        ``{"0-1": {"delay": "60 ms", "bandwidth": "10 GB/s"}, "2>1": ...}``, or as text,
        ``0-1:delay=60ms,bandwidth=10GB/s 2>1:...``. A delay without a unit is in seconds. ``0-1`` is both directions,
        ``2>1`` is the one from rank 2 to rank 1.

    Returns
    -------
    tuple of Link
        By rank.

    Raises
    ------
    SpecificationError
        If a rank, a key or a value is none, or a direction is named twice.

    Examples
    --------
    >>> as_links({"1-0": {"delay": 0.06}}) == as_links("0-1:delay=60ms")
    True
    """
    if isinstance(given, str):
        texts = given.split() or [given]
    elif isinstance(given, dict):
        entries = {edge: values.items() if isinstance(values, dict) else () for edge, values in given.items()}
        texts = [
            f"{edge}:{','.join(f'{name}={shown(value)}'.replace(' ', '') for name, value in values)}"
            for edge, values in entries.items()
        ]
    elif isinstance(given, list | tuple | None) and all(isinstance(entry, Link) for entry in given or ()):
        texts = list(map(str, given or ()))
    else:
        raise _refused(given, "must map pairs of ranks to what their link has", "write 0-1:delay=60ms")
    seen: dict[tuple[int, int], Link] = {}
    for link in map(_link, texts):
        for direction in link.directions:
            if direction in seen:
                rule = f"names the link from rank {direction[0]} to rank {direction[1]} again, after {seen[direction]}"
                raise _refused(link, rule, "write one of them, with delay=...,bandwidth=... if it has both")
            seen[direction] = link
    return tuple(sorted({*seen.values()}, key=lambda link: link[:3]))


def _link(text):
    """The `Link` of a pair of ranks, and of what is said about it."""
    edge, _, values = text.partition(":")
    match, pairs = _EDGE.fullmatch(edge), [value.partition("=")[::2] for value in values.split(",")]
    if match is None or int(match[1]) == int(match[3]):
        rule = "must be two different ranks, as in 0-1 for both directions or 0>1 for one"
        raise _refused(text, rule, "write, for example, 0-1:delay=60ms")
    if not len(pairs) == len(dict(pairs)) == len(dict(pairs).keys() & _RULES):
        rule = "must have a delay, a bandwidth or both, and nothing else"
        raise _refused(text, rule, f"write, for example, {edge}:delay=60ms")
    ranks, both_ways = [int(match[1]), int(match[3])], match[2] == "-"
    si = {}
    for name, value in pairs:
        units, rule, example = _RULES[name]
        number = parse_quantity(value, units)
        if number is None or not (0 <= number <= _LARGEST and (number > 0 or name == "delay")):
            raise _refused(f"{edge}:{name}={value}", rule, f"write, for example, {edge}:{name}={example}")
        si[name] = number
    return Link(*(sorted(ranks) if both_ways else ranks), both_ways, si.get("delay", 0.0), si.get("bandwidth"))
