"""Simulated time: a table becomes a graph, and a graph with costs becomes a timeline."""

from ppmodel.simulation.cost_tables import side_by_side, with_pairs
from ppmodel.simulation.costs import OpCosts, Units, are_seconds, comm_over_forward, uniform_costs
from ppmodel.simulation.graph import ALLREDUCE, APART, BUFFERED, P2P, compile_graph, graph_of, require_semantics
from ppmodel.simulation.many import Iterations, iterations, makespans
from ppmodel.simulation.run import run_events, run_graph
from ppmodel.simulation.timeline import Timeline
from ppmodel.simulation.transfers import Links, crossed, link_values, receivers, transfer_costs
