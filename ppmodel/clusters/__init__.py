"""Costs of operations on real machines: models, systems, frameworks and layouts, seconds and bytes."""
