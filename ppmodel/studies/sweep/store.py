"""Storage of finished rows: a folder of parts next to the output and, at the end, the output itself.

Every file appears complete, by renaming. So a sweep may be ended at any moment, even by a power failure: existing parts
are valid, and the same command computes the others. A part's name ends in a digest of its number and contents; a part
that was changed, or that takes the place of another, counts as missing.
"""

import json
import os
import re
import stat
from contextlib import contextmanager, suppress
from hashlib import sha256
from operator import itemgetter
from secrets import token_hex

from ppmodel.errors import SweepError
from ppmodel.files import parse_json
from ppmodel.studies.sweep.rows import columns_of
from ppmodel.studies.workers.versions import versions

_ROWS_PER_GROUP = 2**16
_RECORD_KEY = b"ppmodel_sweep"
_RECORD, _LOCK, _PARTS, _UNDER_WAY = "sweep.json", "lock", "part-*.parquet", ".ppmodel-*.tmp"
_PART = re.compile(r"part-(\d{6,9})-[0-9a-f]{16}\.parquet")
_OURS_ALONE = re.compile(r"lock|\.ppmodel-[0-9a-f-]+\.tmp")  # by their names, also without a record
_OURS = re.compile(rf"{_OURS_ALONE.pattern}|{_PART.pattern}|sweep\.json")
_FIELDS = {"cases": "schedules", "noises": "noise", "files": "files of schedules"}


class Store:
    """The parts and the output of one sweep.

    Parameters
    ----------
    out : Path
        The output.
    sweep : Sweep
    bounds : ndarray of int, shape (num_chunks + 1,)
        From `chunk_bounds`.
    """

    def __init__(self, out, sweep, bounds):
        from pyarrow import from_numpy_dtype, schema

        self.schema = schema([(name, from_numpy_dtype(kind)) for name, kind in columns_of(sweep).items()])
        # what the rows depend on, stored with the parts and in the output
        self.record = json.dumps({"versions": versions(), "sweep": sweep.as_dict()}, indent=1)
        self.out, self.bounds = out, bounds
        self.folder, self._paths = out.with_name(out.name + ".parts"), {}

    @contextmanager
    def locked(self):
        """Let only this process write; at the end, unfinished files, and a folder without parts, are removed.

        Raises
        ------
        SweepError
            If another process has the lock, the folder has files that are no part of a sweep, or it cannot be written.
        """
        from filelock import FileLock, Timeout

        remedy = "move them, or choose another --out"
        with _disk_errors(self.out):
            if self.folder.is_symlink():
                raise SweepError("parts", self.folder, "are a link", remedy)
            self.folder.mkdir(exist_ok=True)
            names = _OURS_ALONE if self._begun() is None else _OURS  # without a record, parts may be somebody else's
            for path in sorted(self.folder.iterdir()):
                ours = names.fullmatch(path.name) and not path.is_symlink() and path.is_file()
                if not ours or (path.name == _LOCK and path.stat().st_size):  # a lock is empty
                    raise SweepError("parts", self.folder, f"contain another file ({path.name})", remedy)
            lock = FileLock(self.folder / _LOCK)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                remedy = "wait until it is done, or choose another --out"
                raise SweepError("parts", self.folder, "are being written by another sweep", remedy) from None
        try:
            yield
        finally:
            with suppress(OSError):
                for path in self.folder.glob(_UNDER_WAY):
                    path.unlink()
                if not any(self.folder.glob(_PARTS)) and self._begun() in (None, self.record):
                    self.clear()
            lock.release()

    def refused(self):
        """Count the refused rows of the finished output; of equally common reasons, take the first.

        Returns
        -------
        (int, int, str or None)
            As in `execution.Summary`.
        """
        from pyarrow.dataset import dataset

        kinds = {}
        for batch in dataset(self.out).to_batches(columns=["refused"]):
            for entry in batch["refused"].drop_null().value_counts().to_pylist():
                kind = kinds.setdefault(re.sub(r"\d+", "0", entry["values"]), [0, entry["values"]])
                kind[0] += entry["counts"]
        return sum(rows for rows, _ in kinds.values()), *max(kinds.values(), key=itemgetter(0), default=(0, None))

    def require_ours(self, force):
        """Check that an existing output has exactly these rows, and remove any parts of them.

        Parameters
        ----------
        force : bool
            Whether it may be of another sweep, to be replaced. What another program wrote never is.

        Raises
        ------
        SweepError
        """
        import pyarrow.parquet

        try:
            about = pyarrow.parquet.read_metadata(self.out)
            record = (about.metadata or {})[_RECORD_KEY].decode(errors="replace")
        except (OSError, pyarrow.ArrowException, KeyError):
            rule = "exists already, from another program"
            raise SweepError("--out", self.out, rule, "choose another name") from None
        if record != self.record and not force:
            rule = f"exists already, from {_difference(record, self.record)}"
            raise SweepError("--out", self.out, rule, "choose another name, or pass --force to replace it")
        if about.num_rows != self.bounds[-1] and not force:
            rule = f"has {about.num_rows} of the sweep's {self.bounds[-1]} rows"
            raise SweepError("--out", self.out, rule, "choose another name, or pass --force to compute it again")
        if self._begun() == self.record and not force:  # was ended after the last rename
            self.clear()

    def begin(self, force=False):
        """Prepare the folder: keep what belongs to this sweep, and its record.

        Parameters
        ----------
        force : bool
            Whether to discard parts of another sweep.

        Raises
        ------
        SweepError
            If there are such parts.
        """
        with _disk_errors(self.folder):
            for path in self.folder.glob(_UNDER_WAY):
                path.unlink()
            begun = self._begun()
            if begun not in (None, self.record) and not force:
                remedy = "resume that one, choose another --out, or pass --force to start again"
                raise SweepError("parts", self.folder, f"were begun with {_difference(begun, self.record)}", remedy)
            if begun != self.record:
                for path in self.folder.glob(_PARTS):
                    path.unlink()
                self._publish(_RECORD, self.record.encode())

    def _begun(self):
        """The record of the sweep that the folder belongs to; None if there is none, or a file that is no record."""
        path = self.folder / _RECORD
        try:
            text = path.read_text(encoding="utf-8") if path.is_file() and not path.is_symlink() else ""
            return text if parse_json(text).keys() == {"versions", "sweep"} else None
        except (ValueError, AttributeError):
            return None

    def missing(self):
        """List the chunks without an intact part; other files with a part's name are removed.

        Returns
        -------
        list of int
        """
        chunks = range(len(self.bounds) - 1)
        with _disk_errors(self.folder):
            for path in self.folder.glob(_PARTS):
                chunk = int(_PART.fullmatch(path.name)[1])
                if chunk in chunks and path == self._part(chunk, path.read_bytes()):
                    self._paths[chunk] = path
                else:
                    path.unlink()
        return [chunk for chunk in chunks if chunk not in self._paths]

    def _part(self, chunk, data):
        """The file for a chunk with these contents."""
        digest = sha256(b"%d %s" % (chunk, data)).hexdigest()[:16]
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
        pyarrow.parquet.write_table(pyarrow.Table.from_pydict(columns, schema=self.schema), sink)
        data = sink.getvalue().to_pybytes()
        self._paths[chunk] = self._part(chunk, data)
        with _disk_errors(self.folder):
            self._publish(self._paths[chunk].name, data)

    def finish(self):
        """Write the output from the parts, in order, and remove them.

        Its row groups do not depend on the chunks.

        Raises
        ------
        SweepError
            If a part was changed meanwhile, or the output cannot be written.
        """
        from pyarrow.dataset import ParquetFileFormat, dataset, write_dataset

        paths = [self._paths[chunk] for chunk in sorted(self._paths)]
        with _disk_errors(self.out):
            for chunk, path in self._paths.items():
                if path != self._part(chunk, path.read_bytes()):
                    rule = "has been changed since it was written"
                    raise SweepError("part", path, rule, "the same command computes it again")
            write_dataset(
                dataset(paths, schema=self.schema.with_metadata({_RECORD_KEY: self.record})),
                self.folder, basename_template=".ppmodel-{i}.tmp", existing_data_behavior="overwrite_or_ignore",
                file_options=ParquetFileFormat().make_write_options(compression="zstd"), preserve_order=True,
                min_rows_per_group=_ROWS_PER_GROUP, max_rows_per_group=_ROWS_PER_GROUP,
            )  # fmt: skip
            _rename(self.folder / ".ppmodel-0.tmp", self.out)
        self.clear()

    def _publish(self, name, data):
        """Write a file of the folder; it has its name once its contents have reached the disk."""
        under_way = self.folder / f".ppmodel-{token_hex(8)}.tmp"
        under_way.write_bytes(data)
        _rename(under_way, self.folder / name)

    def clear(self):
        """Remove the parts, and nothing else."""
        ours = _OURS_ALONE if self._begun() is None else _OURS
        names = [name for name in os.listdir(self.folder) if ours.fullmatch(name)]
        for name in sorted(names, key=lambda name: (name == _LOCK, name == _RECORD)):  # the lock last: nobody waits
            (self.folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


def _difference(before, now):
    """Describe the difference between two records."""
    try:
        before, now = parse_json(before), parse_json(now)
        if before["sweep"] == now["sweep"]:
            return f"{before['versions']}, and this is {now['versions']}"
        changes = []
        for key in [key for key, value in now["sweep"].items() if before["sweep"].get(key) != value]:
            added = [entry for entry in now["sweep"][key] if entry not in before["sweep"].get(key)]
            names = [entry["name"] for entry in added if isinstance(entry, dict) and "name" in entry]
            changes.append(_FIELDS.get(key, key) + (f" ({', '.join(names)})" if names else ""))
        return f"another specification (changed: {', '.join(changes)})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "an unreadable record"


def _rename(under_way, path):
    """Give a file its name once its contents have reached the disk; the mode of one that it replaces is kept."""
    with suppress(FileNotFoundError):
        under_way.chmod(stat.S_IMODE(path.stat().st_mode))
    with open(under_way, "rb") as file:
        os.fsync(file.fileno())
    os.replace(under_way, path)


@contextmanager
def _disk_errors(path):
    """Say which path cannot be written, and that stored rows are not lost."""
    try:
        yield
    except OSError as error:
        rule = f"cannot be written ({error.strerror or error})"
        remedy = "free some space or grant write permission; the same command then goes on"
        raise SweepError("--out", path, rule, remedy) from error
