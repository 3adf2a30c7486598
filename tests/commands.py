"""A command line, and what it prints."""

from pathlib import Path

from ppmodel.cli import main

ROOT = Path(__file__).parents[1]
SIMULATE = "simulate 1f1b --pp 4 --microbatches 8"
SECONDS = "--forward 1 --backward 2"


def run(capsys, line):
    code = main(line if isinstance(line, list) else line.split())
    captured = capsys.readouterr()
    return code, captured.out, captured.err
