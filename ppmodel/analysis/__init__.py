"""Algorithms on numbers of schedules: orders and reversals, fronts, structure, exact peaks."""

from ppmodel.analysis.choice import recommended
from ppmodel.analysis.frames import relative_to, reversals, winners
from ppmodel.analysis.orders import (
    beats,
    behind,
    every_two,
    kendall_tau,
    negated,
    order_of_amounts,
    order_of_bubbles,
    pareto_front,
    places,
    reversed_pairs,
)
from ppmodel.analysis.ranking import advantages, agreement, fronts, levels
from ppmodel.analysis.roots import crossings, largest_share
from ppmodel.analysis.structure import FAMILIES, LAYOUTS, family, layout
from ppmodel.analysis.uncertainty import compare_runs, first_places

__all__ = [
    "FAMILIES", "LAYOUTS", "advantages", "agreement", "beats", "behind", "compare_runs", "crossings", "every_two",
    "family", "first_places", "fronts", "kendall_tau", "largest_share", "layout", "levels", "negated",
    "order_of_amounts", "order_of_bubbles", "pareto_front", "places", "recommended", "relative_to", "reversals",
    "reversed_pairs", "winners",
]  # fmt: skip
