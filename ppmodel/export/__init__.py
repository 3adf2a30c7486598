"""Files for other programs (tables of operations, traces of simulated runs), and tables in notebooks."""

from ppmodel.export.files import csv_cell, text_of_cell, write_rows
from ppmodel.export.trace import trace_events, write_trace
from ppmodel.files import write_whole
from ppmodel.tables import parse_table, read_file, read_table, write_table
from ppmodel.tables.html import table_html
