"""Tables: the data of a schedule, its dependencies, its idealised slots, and its validation."""

from ppmodel.tables.dependencies import NO_OPERATION, Dependencies, by_keys
from ppmodel.tables.html import table_html
from ppmodel.tables.schedule import Schedule
from ppmodel.tables.slots import brief
from ppmodel.tables.structure import FAMILIES, family
from ppmodel.tables.text import parse_table, read_file, read_table
from ppmodel.tables.writing import write_table
