"""What the book's commands refuse."""

from ppmodel.errors import PPModelError


class ReproduceError(PPModelError):
    """A run of the notebooks, or a build of the book, that could not be completed."""
