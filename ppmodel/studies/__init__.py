"""The tables behind the book's figures: one function a question, one tidy row a point."""

from ppmodel.studies.cases import FAMILIES, PLACEMENTS, field_cases, label, legal_schedules, placement_text, spread
from ppmodel.studies.uncertainty import (
    NOISE_SCHEDULES,
    best_place_text,
    lead_text,
    noise_study,
    place_table,
    place_text,
    place_winners,
    price_study,
    price_text,
    slow_rank_study,
    slow_winner_study,
    verdict_counts,
    verdict_study,
    verdict_text,
)

__all__ = [
    "FAMILIES",
    "NOISE_SCHEDULES",
    "PLACEMENTS",
    "best_place_text",
    "field_cases",
    "label",
    "lead_text",
    "legal_schedules",
    "noise_study",
    "place_table",
    "place_text",
    "place_winners",
    "placement_text",
    "price_study",
    "price_text",
    "slow_rank_study",
    "slow_winner_study",
    "spread",
    "verdict_counts",
    "verdict_study",
    "verdict_text",
]
