"""Finished parts of a long computation, in a folder from which the same computation goes on."""

import os
from contextlib import contextmanager, suppress

from ppmodel.errors import SweepError
from ppmodel.files import as_path

_ABOUT, _LOCK, _UNDER_WAY, _PARTS = "about", "lock", "under-way", "part-*.parquet"
_ROWS_PER_GROUP = 2**16


@contextmanager
def open_store(folder, about, columns, field, force=None):
    """Open a folder of parts, for one command at a time; a folder that is left without parts is removed.

    Parameters
    ----------
    folder : str or Path
    about : str
        What the parts depend on; a folder that was begun with anything else is refused.
    columns : dict of str to type
        Columns of the parts.
    field : str
        Name of the folder in error messages.
    force : bool, optional
        Whether to replace parts that depend on anything else; None if the command has no such option.

    Yields
    ------
    Store

    Raises
    ------
    SweepError
        If the folder is refused, another command uses it, or it cannot be read or written.
    """
    from filelock import FileLock, Timeout
    from pyarrow import ArrowException

    def require(condition, rule, remedy):
        if not condition:
            raise SweepError(field, folder, rule, remedy)

    folder, another = as_path(folder, field), "choose another name"
    store, record = Store(folder, columns), folder / _ABOUT
    try:
        if folder.exists() and not record.is_file():
            is_empty = folder.is_dir() and {*os.listdir(folder)} <= {_LOCK, _UNDER_WAY}
            require(is_empty, "exists, and is no folder of parts", another)
        folder.mkdir(exist_ok=True)
        with FileLock(folder / _LOCK).acquire(blocking=False):
            if record.is_file() and record.read_text(encoding="utf-8") != about:
                again = f"{'delete it' if force is None else 'pass --force'} to start again"
                require(force, "was begun with another specification or version of ppmodel", f"{again}, or {another}")
                store.discard()
            (folder / _UNDER_WAY).write_text(about, encoding="utf-8")
            os.replace(folder / _UNDER_WAY, record)
            try:
                yield store
            finally:
                if not any(folder.glob(_PARTS)):
                    for name in (_ABOUT, _UNDER_WAY, _LOCK):
                        (folder / name).unlink(missing_ok=True)
                    with suppress(OSError):  # it has files of somebody else's
                        folder.rmdir()
    except Timeout:
        require(False, "is in use by another command", f"wait until it is done, or {another}")
    except (OSError, ArrowException) as error:
        rule = f"cannot be read or written ({getattr(error, 'strerror', None) or error})"
        require(False, rule, "free some space or grant write permission; the same command then goes on")


class Store:
    """Numbered Parquet files of a folder, each written whole or not at all; from `open_store`."""

    def __init__(self, folder, columns):
        from pyarrow import from_numpy_dtype, schema

        self.folder = folder
        self.schema = schema([(name, from_numpy_dtype(kind)) for name, kind in columns.items()])

    def __contains__(self, number):
        return self._path(number).exists()

    def _path(self, number):
        return self.folder / f"part-{number:06d}.parquet"

    def put(self, number, columns):
        """Store a part.

        Parameters
        ----------
        number : int
        columns : dict of list
        """
        from pyarrow import Table
        from pyarrow.parquet import write_table

        write_table(Table.from_pydict(columns, schema=self.schema), self.folder / _UNDER_WAY)
        os.replace(self.folder / _UNDER_WAY, self._path(number))

    def read(self, number):
        """Read a part.

        Returns
        -------
        dict of list
        """
        from pyarrow.parquet import read_table

        return read_table(self._path(number)).to_pydict()

    def join(self, out, metadata):
        """Join all parts into one Parquet file, in order and with row groups of a fixed size.

        Parameters
        ----------
        out : Path
        metadata : dict of bytes to str
        """
        from pyarrow.dataset import ParquetFileFormat, dataset, write_dataset

        write_dataset(
            dataset(sorted(self.folder.glob(_PARTS)), schema=self.schema.with_metadata(metadata)),
            self.folder, basename_template=_UNDER_WAY + "{i}", existing_data_behavior="overwrite_or_ignore",
            file_options=ParquetFileFormat().make_write_options(compression="zstd"), preserve_order=True,
            min_rows_per_group=_ROWS_PER_GROUP, max_rows_per_group=_ROWS_PER_GROUP,
        )  # fmt: skip
        os.replace(self.folder / f"{_UNDER_WAY}0", out)

    def discard(self):
        """Remove the parts."""
        for part in self.folder.glob(_PARTS):
            part.unlink()
