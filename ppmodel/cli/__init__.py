"""The command line: one file per command; what they share, and formatting, in files of their own."""

from ppmodel.cli.process import main, run
