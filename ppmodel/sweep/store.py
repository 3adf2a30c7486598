"""Storage of finished rows: a folder of parts next to the output and, at the end, the output itself.

Every file appears complete, by renaming. So a sweep may be ended at any moment, even by a power failure: existing parts
are valid, and the same command computes the others. A part's name ends in a digest of its number and contents; a part
that was changed, or that takes the place of another, counts as missing.
"""

import errno
import fcntl
import json
import os
import re
from contextlib import contextmanager, suppress
from hashlib import sha256
from operator import itemgetter
from typing import NamedTuple

from ppmodel.errors import SweepError
from ppmodel.files import parse_json
from ppmodel.sweep.rows import columns_of
from ppmodel.sweep.versions import versions

_ROWS_PER_GROUP = 2**16
_RECORD_KEY = b"ppmodel_sweep"
_RECORD, _LOCK = "sweep.json", "lock"
_UNDER_WAY, _PARTS = ".tmp", "part-*.parquet"
_DIGEST = 16
_KEYS = {"cases": "schedules", "noises": "noise", "files": "files of schedules"}
_OURS = re.compile(r"part-\d{6,9}-[0-9a-f]{16}\.(parquet|tmp)|(sweep|output)\.tmp|sweep\.json|lock")


class Refused(NamedTuple):
    """Number of refused rows, and the most common reason.

    Parameters
    ----------
    rows, alike : int
        All refused rows, and those with the most common reason, apart from numbers in it.
    example : str or None
        The reason of the first of the latter.
    """

    rows: int
    alike: int = 0
    example: str | None = None


def record_of(sweep):
    """Write what the rows of a sweep depend on as text, to be stored with the parts and in the output.

    Parameters
    ----------
    sweep : Sweep

    Returns
    -------
    str
        A JSON object: versions, and the specification with the contents of all files it names.
    """
    return json.dumps({"versions": versions(), "sweep": sweep.as_dict()}, indent=1)


class Store:
    """The parts and the output of one sweep; `held` lets only one process write them.

    Parameters
    ----------
    out : Path
        The output.
    sweep : Sweep
    bounds : ndarray of int, shape (num_chunks + 1,)
        From `chunk_bounds`.
    """

    def __init__(self, out, sweep, bounds):
        self.out, self.bounds, self.record, self.columns = out, bounds, record_of(sweep), columns_of(sweep)
        self.folder, self._paths = out.with_name(out.name + ".parts"), {}

    def refused(self):
        """Count the refused rows of the finished output; of equally common reasons, take the first.

        Returns
        -------
        Refused
        """
        import pyarrow.parquet

        kinds = {}
        for batch in pyarrow.parquet.ParquetFile(self.out).iter_batches(columns=["refused"]):
            for entry in batch["refused"].drop_null().value_counts().to_pylist():
                kind = kinds.setdefault(re.sub(r"\d+", "0", entry["values"]), [0, entry["values"]])
                kind[0] += entry["counts"]
        return Refused(sum(rows for rows, _ in kinds.values()), *max(kinds.values(), key=itemgetter(0), default=()))

    def is_finished(self):
        """Whether the output already has exactly these rows; if so, remove any parts of them.

        Returns
        -------
        bool
        """
        finished = self._recorded() == self.record
        if finished and self._begun() == self.record:  # was ended after the last rename
            self.clear()
        return finished

    def difference(self):
        """What the output, which is of another sweep, was computed with."""
        recorded = self._recorded()
        return _difference(recorded, self.record) if recorded else "another program"

    def _recorded(self):
        """The record in the output; empty if it has none."""
        import pyarrow.parquet

        try:
            metadata = pyarrow.parquet.read_schema(self.out).metadata or {}
        except (OSError, pyarrow.ArrowException):
            metadata = {}
        return metadata.get(_RECORD_KEY, b"").decode(errors="replace")

    def begin(self, force=False):
        """Prepare the folder: keep what belongs to this sweep, and its record.

        Parameters
        ----------
        force : bool
            Whether to discard parts of another sweep.

        Raises
        ------
        SweepError
            If there are such parts, or other files.
        """
        with _named(self.folder):
            found = sorted(self.folder.iterdir())
            for path in found:
                if not _OURS.fullmatch(path.name) or path.is_symlink() or not path.is_file():
                    raise _foreign(self.folder, f"contain another file ({path.name})")
            for path in found:
                if path.suffix == _UNDER_WAY:
                    path.unlink()
            there = self._begun()
            if there not in (None, self.record) and not force:
                remedy = "resume that one, choose another --out, or pass --force to start again"
                raise SweepError("parts", self.folder, f"were begun with {_difference(there, self.record)}", remedy)
            if there != self.record:
                for path in self.folder.glob(_PARTS):
                    path.unlink()
                with _whole(self.folder / _RECORD) as file:
                    file.write(self.record.encode())

    def owns_record(self):
        """Whether the folder has the record of this sweep or none."""
        return self._begun() in (None, self.record)

    def _begun(self):
        """The record of the sweep that the folder belongs to."""
        record = self.folder / _RECORD
        return record.read_text(encoding="utf-8", errors="replace") if record.is_file() else None

    def missing(self):
        """List the chunks without an intact part; other files with a part's name are removed.

        Returns
        -------
        list of int
        """
        chunks = range(len(self.bounds) - 1)
        with _named(self.folder):
            for path in self.folder.glob(_PARTS):
                found = re.match(r"part-(\d{6,9})-", path.name)
                chunk = int(found[1]) if found else None
                if chunk in chunks and path == self._part(chunk, path.read_bytes()):
                    self._paths[chunk] = path
                else:
                    path.unlink()
        return [chunk for chunk in chunks if chunk not in self._paths]

    def _part(self, chunk, data):
        """The file for a chunk with these contents."""
        digest = sha256(b"%d %s" % (chunk, data)).hexdigest()[:_DIGEST]
        return self.folder / f"part-{chunk:06d}-{digest}.parquet"

    def put(self, chunk, columns):
        """Store the rows of a chunk.

        Parameters
        ----------
        chunk : int
        columns : dict of list
            From `compute_rows`.
        """
        import pyarrow.parquet

        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.Table.from_pydict(columns, schema=self._schema()), sink)
        data = sink.getvalue().to_pybytes()
        self._paths[chunk] = self._part(chunk, data)
        with _whole(self._paths[chunk]) as file:
            file.write(data)

    def finish(self):
        """Write the output from the parts, in order, and remove them.

        Its row groups do not depend on the chunks.
        """
        import pyarrow
        from pyarrow import parquet

        schema = self._schema().with_metadata({_RECORD_KEY: self.record})
        rest = schema.empty_table()
        whole = _whole(self.out, self.folder / ("output" + _UNDER_WAY))
        with whole as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for chunk in sorted(self._paths):
                rest = pyarrow.concat_tables([rest, self._read(chunk).cast(schema)])
                while rest.num_rows >= _ROWS_PER_GROUP:
                    writer.write_table(rest.slice(0, _ROWS_PER_GROUP).combine_chunks(), _ROWS_PER_GROUP)
                    rest = rest.slice(_ROWS_PER_GROUP)
            if rest.num_rows:
                writer.write_table(rest.combine_chunks(), _ROWS_PER_GROUP)
        self.clear()

    def clear(self):
        """Remove the parts, and nothing else."""
        ours = [name for name in os.listdir(self.folder) if _OURS.fullmatch(name)]
        for name in sorted(ours, key=lambda name: (name == _LOCK, name == _RECORD)):  # the lock last: nobody waits
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def _read(self, chunk):
        """Read the rows of a chunk from its part."""
        import pyarrow.parquet

        path = self._paths[chunk]
        data = path.read_bytes()
        if path != self._part(chunk, data):
            rule = "has been changed since it was written"
            raise SweepError("part", path, rule, "the same command computes it again")
        return pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data)).read()

    def _schema(self):
        import pyarrow

        types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
        return pyarrow.schema([(name, types[kind]) for name, kind in self.columns.items()])


@contextmanager
def held(store):
    """Hold a store's folder exclusively; a folder without parts is removed at the end.

    Parameters
    ----------
    store : Store

    Yields
    ------
    Store

    Raises
    ------
    SweepError
        If another process holds the folder, or it cannot be written.
    """
    with _named(store.out):
        lock = _locked(store.folder)
    try:
        yield store
    finally:
        with suppress(OSError):
            if set(os.listdir(store.folder)) <= {_LOCK, _RECORD} and store.owns_record():
                store.clear()
        lock.close()


def _difference(there, here):
    """Describe the difference between two records."""
    try:
        there, here = parse_json(there), parse_json(here)
        if there["sweep"] == here["sweep"]:
            return f"{there['versions']}, and this is {here['versions']}"
        changed = [(key, there["sweep"].get(key), value) for key, value in here["sweep"].items()]
        keys = [_changed(_KEYS.get(key, key), *both) for key, *both in changed if both[0] != both[1]]
        return f"another specification (changed: {', '.join(keys)})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "an unreadable record"


def _changed(key, there, here):
    """A key of a specification, with the names of the systems or models whose files have changed.

    >>> _changed("systems", [{"name": "a", "peak": 1}], [{"name": "a", "peak": 2}]), _changed("pp", [4], [8])
    ('systems (a)', 'pp')
    """
    before = {one["name"]: one for one in there if isinstance(one, dict) and "name" in one}
    now = {one["name"]: one for one in here if isinstance(one, dict) and "name" in one}
    names = [name for name in now if name in before and now[name] != before[name]]
    return f"{key} ({', '.join(names)})" if names else key


def _locked(folder):
    """Lock a folder, creating it if necessary, until the returned file is closed."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            lock = _lock_file(folder)
        except FileNotFoundError:  # another sweep just removed the folder
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            remedy = "wait until it is done, or choose another --out"
            raise SweepError("parts", folder, "are being written by another sweep", remedy) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(folder / _LOCK)):
                return lock
        lock.close()  # another sweep was just ending


def _lock_file(folder):
    """Open a folder's lock file, which is empty; one with contents, or a link, is not ours."""
    if folder.is_symlink():
        raise _foreign(folder, "are a link")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = open(os.open(folder / _LOCK, flags, 0o666), "wb")  # noqa: SIM115  (open as long as the lock is held)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link, a pipe, a folder
            raise
        raise _foreign(folder, f"contain another file ({_LOCK})") from None
    if os.fstat(lock.fileno()).st_size:
        lock.close()
        raise _foreign(folder, f"contain another file ({_LOCK})")
    return lock


def _foreign(folder, rule):
    return SweepError("parts", folder, rule, "move them, or choose another --out")


@contextmanager
def _whole(path, under_way=None):
    """Write a file completely or not at all: its contents reach the disk before its name does."""
    with _named(path if under_way else path.parent):
        under_way = under_way or path.with_suffix(_UNDER_WAY)
        with open(under_way, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(under_way, path)


@contextmanager
def _named(path):
    """Say which path cannot be written, and that stored rows are not lost."""
    try:
        yield
    except OSError as error:
        rule = f"cannot be written ({error.strerror or error})"
        remedy = "free some space or grant write permission; the same command then goes on"
        raise SweepError("--out", path, rule, remedy) from error
