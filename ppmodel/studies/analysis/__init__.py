"""Algorithms on results: orders and reversals, Pareto fronts, roots."""

from ppmodel.studies.analysis.frames import relative_to, reversals, winners
from ppmodel.studies.analysis.orders import every_two, negated, order_of_amounts, order_of_bubbles, pareto_front, places
from ppmodel.studies.analysis.roots import crossings, largest_share
