"""Files that other programs read: tables of operations, and traces of a simulated run."""

from ppmodel.export.table import parse_table, read_file, read_table, write_table
from ppmodel.export.trace import trace_events, write_trace

__all__ = ["parse_table", "read_file", "read_table", "trace_events", "write_table", "write_trace"]
