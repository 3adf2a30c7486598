"""Which ranks share a node and its NIC, and what connects them."""

from __future__ import annotations  # help() shows a field's type by its name

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ppmodel.errors import SpecificationError
from ppmodel.specs.entries import Bandwidth, Checked, Switch, Time, Whole, entry
from ppmodel.specs.layout import LARGEST

PLACEMENTS = ("blocked", "round-robin", "folded")
"""Which ranks share a node: neighbours; every n-th rank, on n nodes; or ranks d and S-1-d."""

_PAIR = 2
_Placement = Annotated[str | tuple, entry(Any)]  # checked below, for files and callers alike


@dataclass(frozen=True)
class NodeSpec(Checked):
    """Which ranks share a node, and what connects them, in SI units.

    Parameters
    ----------
    devices_per_node : int
        Number of devices in a node.
    node_bandwidth_bytes_per_s, node_latency_s : float
        One directed link between two ranks on the same node, in bytes per second and seconds.
    shared_nic : bool
        Whether all messages leaving a node queue at its one NIC, as do all messages entering it;
        otherwise each directed pair of ranks has its own link.
    placement : str or tuple of int
        ``blocked``: rank d is on node d // devices_per_node; ``round-robin``: on node d modulo the number
        of nodes, with as few nodes as possible; ``folded``: ranks d and S-1-d share a node, together with
        neighbouring pairs as long as whole pairs fit; or a tuple: the node of each rank.

    Raises
    ------
    SpecificationError
        If the placement is none of these, or puts more ranks on a node than it has devices.

    Examples
    --------
    >>> NodeSpec(4, 450e9, 2e-6, shared_nic=False, placement="round-robin").of_ranks(6)
    array([0, 1, 0, 1, 0, 1])
    >>> NodeSpec(4, 450e9, 2e-6, shared_nic=False, placement="folded").of_ranks(8)
    array([0, 0, 1, 1, 1, 1, 0, 0])
    """

    devices_per_node: Whole
    node_bandwidth_bytes_per_s: Bandwidth
    node_latency_s: Time
    shared_nic: Switch
    placement: _Placement

    def __post_init__(self):
        super().__post_init__()
        nodes = self.placement
        if nodes in PLACEMENTS:
            most = _PAIR if nodes == "folded" else 1
        elif nodes and type(nodes) is tuple and all(type(node) is int and 0 <= node <= LARGEST for node in nodes):
            most = max(Counter(nodes).values())
        else:
            rule = f"must be {', '.join(PLACEMENTS)} or a list of whole numbers: the node of each rank"
            raise SpecificationError("nodes.placement", nodes, rule, "write, for example, [0, 0, 1, 1]")
        if most > self.devices_per_node:
            rule = f"puts {most} ranks on a node, but devices_per_node = {self.devices_per_node}"
            remedy = "spread them, or increase devices_per_node"
            raise SpecificationError("nodes.placement", nodes, rule, remedy)

    def of_ranks(self, num_ranks: int) -> NDArray[np.int64]:
        """The node of each rank; nodes are numbered in order of first use.

        Parameters
        ----------
        num_ranks : int
            Ranks of the pipeline, S.

        Returns
        -------
        ndarray of int, shape (num_ranks,)
            Counted from 0.

        Raises
        ------
        SpecificationError
            If the placement is a list for a different number of ranks.
        """
        ranks = np.arange(num_ranks)
        if self.placement == "blocked":
            return ranks // self.devices_per_node
        if self.placement == "round-robin":
            return ranks % -(-num_ranks // self.devices_per_node)
        if self.placement == "folded":
            return np.minimum(ranks, ranks[::-1]) // (self.devices_per_node // _PAIR)
        if len(self.placement) != num_ranks:
            rule = f"gives the nodes of {len(self.placement)} ranks, but the pipeline has {num_ranks}"
            remedy = f"use {len(self.placement)} ranks, or write {' or '.join(PLACEMENTS)}"
            raise SpecificationError("nodes.placement", list(self.placement), rule, remedy)
        number = {node: index for index, node in enumerate(dict.fromkeys(self.placement))}
        return np.array([number[node] for node in self.placement])
