"""Which ranks share a node and its NIC, and what connects them."""

from __future__ import annotations  # help() shows a field's type by its name

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from ppmodel.errors import SpecificationError
from ppmodel.specs.entries import Bandwidth, Switch, Time, Whole, entry_type, file_form

PLACEMENTS = ("blocked", "round-robin", "folded")
"""Words for which ranks share a node: neighbours, every n-th of n nodes, or ranks d and S-1-d."""

_PAIR = 2


def _checked_placement(value):
    numbers = value if isinstance(value, list) else []
    if value in PLACEMENTS or (numbers and all(type(node) is int and 0 <= node <= 10**9 for node in numbers)):
        return value
    rule = f"must be {', '.join(PLACEMENTS)} or a list of whole numbers, the node of each rank"
    raise PydanticCustomError("placement", rule)


_Placement = entry_type(str | tuple, Annotated[Any, AfterValidator(_checked_placement)])


@dataclass(frozen=True)
class NodeSpec:
    """Which ranks share a node, and what connects them, in SI units.

    Parameters
    ----------
    devices_per_node : int
        Devices that a node has room for.
    node_bandwidth_bytes_per_s, node_latency_s : float
        Of one directed link between two ranks of a node, in bytes per second and seconds.
    shared_nic : bool
        Whether all messages that leave a node queue at its one NIC, and all that enter it, too;
        otherwise each directed pair of ranks has a link of its own.
    placement : str or tuple of int
        ``blocked``: rank d lies on node d // devices_per_node; ``round-robin``: on node d modulo the number
        of nodes, which are as few as hold all ranks; ``folded``: ranks d and S-1-d share a node, with their
        neighbours as far as there is room for whole pairs; or the node of each rank.

    Raises
    ------
    SpecificationError
        If the placement is none of these, or puts more ranks on a node than it has room for.

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
        if self.placement == "folded" and self.devices_per_node < _PAIR:
            rule = "puts two ranks on a node, which has room for devices_per_node = 1"
            raise SpecificationError("nodes.placement", "folded", rule, "write blocked, or give a node more room")
        if self.placement in PLACEMENTS:
            return
        if not isinstance(self.placement, tuple) or not self.placement:
            rule = f"must be {', '.join(PLACEMENTS)} or a tuple of whole numbers, the node of each rank"
            raise SpecificationError("nodes.placement", self.placement, rule, "write for example (0, 0, 1, 1)")
        most = int(np.unique(self.placement, return_counts=True)[1].max())
        if most > self.devices_per_node:
            rule = f"puts {most} ranks on a node, which has room for devices_per_node = {self.devices_per_node}"
            remedy = "spread them, or give a node more room"
            raise SpecificationError("nodes.placement", list(self.placement), rule, remedy)

    def of_ranks(self, num_ranks):
        """The node of each rank, numbered in the order in which they come.

        Parameters
        ----------
        num_ranks : int
            Devices of the pipeline, S.

        Returns
        -------
        ndarray of int, shape (num_ranks,)
            From 0 on.

        Raises
        ------
        SpecificationError
            If the placement is a list for another number of ranks.
        """
        ranks = np.arange(num_ranks)
        if self.placement == "blocked":
            return ranks // self.devices_per_node
        if self.placement == "round-robin":
            return ranks % -(-num_ranks // self.devices_per_node)
        if self.placement == "folded":
            return np.minimum(ranks, ranks[::-1]) // (self.devices_per_node // _PAIR)
        if len(self.placement) != num_ranks:
            rule = f"names the nodes of {len(self.placement)} ranks, and is used for {num_ranks}"
            remedy = f"ask for {len(self.placement)} stages, or write {' or '.join(PLACEMENTS)}"
            raise SpecificationError("nodes.placement", list(self.placement), rule, remedy)
        number = {node: index for index, node in enumerate(dict.fromkeys(self.placement))}
        return np.array([number[node] for node in self.placement])

    def nics(self, num_ranks):
        """The NIC of each rank, where ranks share one.

        Parameters
        ----------
        num_ranks : int
            Ranks of the pipeline, S.

        Returns
        -------
        tuple of int, length num_ranks, or None
            None where every directed pair of ranks has a link of its own, and where all ranks lie on one node.

        Raises
        ------
        SpecificationError
            If the placement is a list for another number of ranks.

        Examples
        --------
        >>> NodeSpec(4, 450e9, 2e-6, shared_nic=True, placement="blocked").nics(6)
        (0, 0, 0, 0, 1, 1)
        """
        nodes = self.of_ranks(num_ranks)
        return tuple(nodes.tolist()) if self.shared_nic and nodes.any() else None


Nodes = Annotated[NodeSpec | None, file_form(NodeSpec)]
"""The field of a system that holds its nodes: in a file all of their keys, or no block."""


def nodes_of(system, num_ranks):
    """The node of each rank of a pipeline.

    Parameters
    ----------
    system : SystemSpec
        Gives nodes and placement.
    num_ranks : int
        Devices, S.

    Returns
    -------
    ndarray of int, shape (num_ranks,), or None
        None where the system has no nodes.

    Raises
    ------
    SpecificationError
        If the placement is a list for another number of ranks.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> nodes_of(load_system("dgx_h100_nodes"), 10)
    array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
    """
    return None if system.nodes is None else system.nodes.of_ranks(num_ranks)


def one_node_text(system, sizes):
    """Say that a system's network is not used, where all ranks of a pipeline lie on one node.

    Parameters
    ----------
    system : SystemSpec
        With or without nodes.
    sizes : iterable of int
        Numbers of ranks, S.

    Returns
    -------
    str
        A sentence, or nothing where no size is one of a single node.

    Raises
    ------
    SpecificationError
        If the placement is a list for another number of ranks.

    Examples
    --------
    >>> from ppmodel.specs import load_system
    >>> one_node_text(load_system("a2_highgpu_8g"), [4, 8, 16])
    'All S = 4, 8 ranks lie on one node of a2_highgpu_8g: its network between nodes is not used.'
    >>> one_node_text(load_system("dgx_h100"), [8])
    ''
    """
    where = {size: nodes_of(system, size) for size in sizes}
    single = ", ".join(str(size) for size, nodes in where.items() if nodes is not None and not nodes.any())
    said = f"All S = {single} ranks lie on one node of {system.name}: its network between nodes is not used."
    return said if single else ""
