"""Algorithms on results: orders and reversals, Pareto fronts, and where curves cross."""

from ppmodel.analysis.frames import relative_to, reversals, winners
from ppmodel.analysis.orders import beats, every_two, negated, order_of_amounts, order_of_bubbles, pareto_front, places
from ppmodel.analysis.roots import crossings, largest_share
