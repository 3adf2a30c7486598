"""The book apart from the library: claims, parameters of notebooks, records, builds and provenance.

The library never imports this; the command line loads it when a command of the book is asked for.
"""
