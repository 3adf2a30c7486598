"""Algorithms on numbers of schedules: orders and reversals, fronts, structure, exact peaks."""

from ppmodel.analysis.frames import relative_to, reversals, winners
from ppmodel.analysis.orders import (
    beats,
    every_two,
    kendall_tau,
    negated,
    order_of_amounts,
    order_of_bubbles,
    pareto_front,
    reversed_pairs,
)
from ppmodel.analysis.structure import FAMILIES, LAYOUTS, family, layout

__all__ = [
    "FAMILIES", "LAYOUTS", "beats", "every_two", "family", "kendall_tau", "layout", "negated", "order_of_amounts",
    "order_of_bubbles", "pareto_front", "relative_to", "reversals", "reversed_pairs", "winners",
]  # fmt: skip
