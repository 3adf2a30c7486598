"""The execution of a sweep: missing rows are computed, stored in parts, and joined at the end."""

import json
import re
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from ppmodel.errors import SweepError, counted
from ppmodel.files import checked_target, protect_inputs
from ppmodel.studies.points.effect import warn_without_effect
from ppmodel.studies.sweep.rows import columns_of, compute_rows
from ppmodel.studies.sweep.specification import load_sweep
from ppmodel.studies.workers.progress import passing
from ppmodel.studies.workers.runners import require_installed, require_runner, run_tasks
from ppmodel.studies.workers.store import open_store
from ppmodel.studies.workers.versions import versions

_RECORD = b"ppmodel_sweep"


class Summary(NamedTuple):
    """The outcome of a sweep.

    Parameters
    ----------
    out : Path
        The output.
    rows : int
        Rows in the output.
    computed : int or None
        Rows that this run computed; None if the output was already complete.
    refused, alike : int
        Rows without numbers, and those of them with the most common reason, apart from numbers in it.
    example : str or None
        The reason of the first of the latter.
    """

    out: Path
    rows: int
    computed: int | None
    refused: int
    alike: int
    example: str | None


def run_sweep(specification, out, workers=None, scheduler=None, force=False, schedule_files=(), links=None):
    """Compute a sweep, or the part of it that is missing, and write it.

    Parameters
    ----------
    specification : str or Path
        A YAML file; see `load_sweep`.
    out : str or Path
        The output, a Parquet file. Until it is complete, finished rows are kept in a folder next to it, and the same
        call resumes where it stopped. The output is the same to the byte however often it was interrupted and whoever
        computed the rows.
    workers : int, optional
        Processes on this machine; without `scheduler` and `workers`, this process computes. Scripts that use workers
        must guard their calls with ``if __name__ == "__main__":``.
    scheduler : str, optional
        Address of a Dask scheduler; its workers compute.
    force : bool
        Whether to replace the output, or parts, of another sweep.
    schedule_files : sequence of str or Path
        Your own generators and tables, in addition to the schedules in the specification.
    links : dict or str, optional
        The links of all rows, as in `simulate`, if the specification has none.

    Returns
    -------
    Summary

    Raises
    ------
    PPModelError
        If the specification, the output or the cluster is refused, or rows cannot be computed.
    KeyboardInterrupt
        On Ctrl-C, with the progress so far.
    """
    require_runner(workers, scheduler)
    require_installed(pyarrow="sweep", filelock="sweep")
    from pyarrow.dataset import dataset

    out = Path(out)
    with protect_inputs():
        sweep = load_sweep(specification, schedule_files, links)
        checked_target(out, "--out")
    warn_without_effect(list(sweep.spread_points()) if sweep.asked else [], dict.fromkeys(sweep.asked, True))
    record, computed = json.dumps({"versions": versions(), "sweep": sweep.as_dict()}, indent=1), None
    with open_store(out.with_name(f"{out.name}.parts"), record, columns_of(sweep), "parts", force) as store:
        if not _is_complete(out, record, force):
            tasks = [(chunk, *rows) for chunk, rows in enumerate(sweep.chunks()) if chunk not in store]
            computed = sum(last - first for _, first, last in tasks)
            done = sweep.num_rows - computed
            try:
                parts = run_tasks(compute_rows, sweep, tasks, workers, scheduler if tasks else None)
                with closing(parts), passing("computing rows") as show:
                    for chunk, columns in parts:
                        store.put(chunk, columns)
                        done += len(columns["refused"])
                        show(f"{done} of {counted(sweep.num_rows, 'row')}", 1 - (sweep.num_rows - done) / computed)
            except KeyboardInterrupt:
                how_far = f"{done} of {counted(sweep.num_rows, 'row')} done; the same command goes on"
                raise KeyboardInterrupt(how_far) from None
            store.join(out, {_RECORD: record})
        store.discard()
    kinds = {}  # of refusals: apart from numbers
    for batch in dataset(out).to_batches(columns=["refused"]):
        for entry in batch["refused"].drop_null().value_counts().to_pylist():
            kind = kinds.setdefault(re.sub(r"\d+", "0", entry["values"]), [0, entry["values"]])
            kind[0] += entry["counts"]
    commonest = max(kinds.values(), key=itemgetter(0), default=(0, None))  # of equally common ones, the first
    return Summary(out, sweep.num_rows, computed, sum(rows for rows, _ in kinds.values()), *commonest)


def _is_complete(out, record, force):
    """Return whether the output is there and stays; refuse to replace what something else has written."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    if not out.exists():
        return False
    try:
        written = read_metadata(out).metadata[_RECORD].decode()
    except (ArrowException, LookupError, TypeError):
        rule = "exists already, from another program"
        raise SweepError("--out", out, rule, "choose another name") from None
    if written != record and not force:
        rule = "exists already, from another specification or version of ppmodel"
        raise SweepError("--out", out, rule, "choose another name, or pass --force to replace it")
    return not force
