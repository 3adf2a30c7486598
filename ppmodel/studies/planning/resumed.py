"""What is known of a search, kept in a file: the same question goes on where it was ended, however that was."""

import json
from hashlib import sha256

from ppmodel.errors import PPModelError
from ppmodel.files import checked_target, inputs_spared, named, parse_json, read_text, write_whole
from ppmodel.studies.planning.candidates import Candidate
from ppmodel.studies.workers.versions import versions

_FIELD, _LARGEST_BYTES = "--resume", 2**28


class ResumedSearch:
    """The candidates of the chunks that are done, in memory and in a file, which is complete at any moment.

    Parameters
    ----------
    path : str or Path, optional
        A file of the same question, or one to be made; without it, memory alone keeps them.
    question : Question
    entries : list of SearchEntry

    Raises
    ------
    PPModelError
        If it cannot be written, or is of another question, version or program.
    """

    def __init__(self, path, question, entries):
        self.path, self.chunks = None if path is None else named(path, _FIELD), {}
        self.about = {"versions": versions(), "question": _digest(repr(question))}
        self.places = {entry[:2]: place for place, entry in enumerate(entries)}
        if path is None or not checked_target(path, _FIELD).exists():
            return
        remedy = "name another file, or delete it to start again"
        try:
            with inputs_spared():  # until here: it is written again
                document = parse_json(read_text(self.path, _LARGEST_BYTES))
            about, chunks = {name: document[name] for name in self.about}, document["chunks"].items()
            if document["digest"] != _digest(json.dumps(document["chunks"])):
                raise ValueError
            if about == self.about:
                self.chunks = {
                    int(number): [Candidate(*entries[place][:2], *values) for place, *values in rows]
                    for number, rows in chunks
                }
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            raise PPModelError(_FIELD, path, "is no file of a plan", remedy) from None
        if about != self.about:
            what = "question" if about["versions"] == self.about["versions"] else "version of ppmodel"
            raise PPModelError(_FIELD, path, f"was begun with another {what}", remedy)

    def put(self, number, candidates):
        """Keep the candidates of a chunk."""
        self.chunks[number] = candidates
        if self.path is None:
            return
        rows = {
            number: [(self.places[candidate[:2]], *candidate[2:]) for candidate in candidates]
            for number, candidates in self.chunks.items()
        }
        text = json.dumps(rows)
        about = json.dumps(self.about | {"digest": _digest(text)}).removesuffix("}")
        write_whole(self.path, f'{about}, "chunks": {text}}}', _FIELD)


def _digest(text):
    """The digest of a text, by which an edited file, or that of another question, is refused."""
    return sha256(text.encode()).hexdigest()
