"""The published bubble ratio, as the studies that are left call it."""

from ppmodel import cases


def published_bubble_ratio(schedule, num_ranks, num_microbatches, options=None):
    """See `cases.published_bubble_ratio`."""
    return cases.published_bubble_ratio((schedule, options or {}), num_ranks, num_microbatches)
