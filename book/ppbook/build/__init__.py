"""Runs notebooks, and builds, prints and packs the book."""
