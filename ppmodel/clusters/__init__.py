"""What operations cost on real machines: models, systems, frameworks and layouts, seconds and bytes."""
