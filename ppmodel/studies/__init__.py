"""The tables behind the book's figures: one function a question, one tidy row a point."""

from ppmodel.studies.cases import FAMILIES, PLACEMENTS, field_cases, label, legal_schedules, placement_text, spread

__all__ = [
    "FAMILIES",
    "PLACEMENTS",
    "field_cases",
    "label",
    "legal_schedules",
    "placement_text",
    "spread",
]
