"""What pages show: tables, pictures, the explorer, and what single chapters compute."""

from ppbook.pages.report import MyST, defined, list_table, literal, record, require_rows, show, titled
