"""The command line: one command per file, what they share beside them, formatting apart."""

from ppmodel.cli.process import main, run
