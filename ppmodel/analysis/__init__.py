"""Algorithms on results: orders and reversals, Pareto fronts, placements; and, from `noise`, rankings under noise."""

from ppmodel.analysis.frames import relative_to, reversals, winners
from ppmodel.analysis.orders import beats, every_two, negated, order_of_amounts, order_of_bubbles, pareto_front, places
from ppmodel.analysis.placements import messages_between_nodes, num_placements, search_placements, waits_at_nics
from ppmodel.analysis.roots import crossings, largest_share
from ppmodel.noise import compare_runs, first_places
