"""The book's workshop: it judges claims, makes what pages show, and builds the book. It comes with a clone alone."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The clone, which has the notebooks and the book's sources next to the library."""
