"""Metrics of a table or a timeline: idle time, memory, messages, the critical path."""

from ppmodel.metrics.activations import activations_in_use, offloaded_levels, offloaded_peaks, peak_activations
from ppmodel.metrics.bubbles import bubble_ratios, computing_s, idle_ratio, ratios_of, table_bubble_ratio, table_slots
from ppmodel.metrics.collectives import exposed_passes
from ppmodel.metrics.messages import messages_by_node, messages_sent
from ppmodel.metrics.path import critical_path
