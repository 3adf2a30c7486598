"""Files for other programs: rows as CSV, and traces of simulated runs."""

from ppmodel.export.files import csv_cell, text_of_cell, write_rows
from ppmodel.export.trace import trace_events, write_trace
