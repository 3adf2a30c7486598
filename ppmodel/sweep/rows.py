"""The rows of a part of a sweep: one compiled graph a case, all its systems, models and runs at once."""

from functools import lru_cache

import numpy as np

from ppmodel import metrics, schedules
from ppmodel.compiled import prepare
from ppmodel.costs import model_costs, stages
from ppmodel.errors import PPModelError, SweepError
from ppmodel.noise import noisy_runs
from ppmodel.schedules.registry import option_text
from ppmodel.simulation import compile_graph, makespans
from ppmodel.specs import nics_of
from ppmodel.sweep.versions import versions

COLUMNS = {
    "schedule": str, "options": str, "stages": int, "microbatches": int, "waves": int, "p2p": str, "allreduce": str,
    "system": str, "model": str, "jitter": float, "straggling": float, "slowdown": float, "seed": int,
    "makespan_s": float, "busy_s": float, "idle_ratio": float, "table_bubble_ratio": float,
    "peak_activations": float, "peak_memory_bytes": float, "memory_capacity_bytes": float, "nics_shared": bool,
    "refused": str,
}  # fmt: skip
"""The columns of a sweep and the types of their values; empty where they do not apply."""

_COORDINATES = (
    "schedule", "options", "stages", "microbatches", "waves", "p2p", "allreduce", "system", "model", "jitter",
    "straggling", "slowdown", "seed",
)  # fmt: skip
_MEASURED = tuple(name for name in COLUMNS if name not in _COORDINATES)


def compute_rows(sweep, first, last, wanted=None):
    """Compute some rows of a sweep.

    Parameters
    ----------
    sweep : Sweep
    first, last : int
        The first row, and the one after the last.
    wanted : str, optional
        The `versions` that must be the ones here; for rows that are computed on another machine.

    Returns
    -------
    dict of list
        A list for each of `COLUMNS`, of one value a row; None where a column does not apply. Of a point that is
        not defined ``refused`` says why, and its numbers are None.

    Raises
    ------
    SweepError
        If the versions differ, or something fails that is no mistake of a point.

    Examples
    --------
    >>> from ppmodel.specs import DATA
    >>> from ppmodel.sweep import load_sweep
    >>> rows = compute_rows(load_sweep(DATA / "templates" / "sweep.yaml"), 0, 2)
    >>> rows["schedule"], rows["system"]
    (['gpipe', 'gpipe'], ['dgx_a100', 'dgx_h100'])
    """
    if wanted not in (None, versions()):
        raise SweepError("worker", versions(), f"differs from {wanted}", "install the same on all machines")
    try:
        with np.errstate(over="ignore"):  # a makespan that overflows refuses its row
            return _rows(sweep, first, last)
    except Exception as error:
        rows, reason = f"{first} to {last - 1}", f"{type(error).__name__}: {error}".rstrip(": ")
        remedy = (
            "choose smaller sizes or fewer workers" if isinstance(error, MemoryError) else "report it, with the file"
        )
        raise SweepError("rows", rows, f"cannot be computed ({reason})", remedy) from error


def _rows(sweep, first, last):
    columns = {name: [] for name in COLUMNS}
    build = lru_cache(1)(_built)  # cases that differ in their semantics alone follow one another
    operations = 0
    for number in range(first // sweep.rows_per_case, -(-last // sweep.rows_per_case)):
        start = number * sweep.rows_per_case
        case = sweep.case(number)
        part = _Part(sweep, max(first - start, 0), min(last - start, sweep.rows_per_case))
        operations += 2 * case.stages * case.microbatches * part.size
        prepare(operations * sweep.num_rows // (last - first))  # as if all rows were like those so far
        for name, values in (_coordinates(case, part) | _measured(case, part, build)).items():
            columns[name].extend(values)
    return columns


class _Part:
    """Rows of one case: their places on its axes, and the pairs of system and model among them."""

    def __init__(self, sweep, first, last):
        self.sweep, self.size = sweep, last - first
        self.places = np.unravel_index(np.arange(first, last), sweep.inner_shape)
        self.system, self.model, self.noise, self.run = self.places

    def pairs(self):
        """Each system and model, and its rows as a slice: they follow one another."""
        return self._groups(self.system * len(self.sweep.models) + self.model)

    def noises(self, rows):
        """The noises among the rows of a pair."""
        return self._groups(self.noise[rows], rows.start)

    @staticmethod
    def _groups(key, offset=0):
        bounds = np.flatnonzero(np.diff(key, prepend=-1, append=-1)) + offset
        return [slice(*pair) for pair in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]

    def seeds(self, rows):
        return self.sweep.seeds_between(int(self.run[rows.start]), int(self.run[rows.stop - 1]) + 1)


# ---- what was asked ------------------------------------------------------------------------------


def _coordinates(case, part):
    """The columns that say which point a row is."""
    sweep = part.sweep
    fixed = {
        "schedule": case.schedule,
        "options": " ".join(f"{name}={option_text(value)}" for name, value in case.options),
        "stages": case.stages, "microbatches": case.microbatches, "waves": case.waves,
        "p2p": case.p2p, "allreduce": case.allreduce,
    }  # fmt: skip
    columns = {name: [value] * part.size for name, value in fixed.items()}
    columns["system"] = [sweep.systems[n].name for n in part.system]
    columns["model"] = [sweep.models[n].name for n in part.model]
    for name in ("jitter", "straggling", "slowdown"):
        columns[name] = [getattr(sweep.noises[n], name) if sweep.noises else None for n in part.noise]
    columns["seed"] = [None] * part.size
    if sweep.noises:
        for pair in part.pairs():
            for rows in part.noises(pair):
                columns["seed"][rows] = part.seeds(rows)
    return columns


# ---- what came out -------------------------------------------------------------------------------


def _measured(case, part, build):
    """The columns of numbers, or of why there are none."""
    columns = {name: [None] * part.size for name in _MEASURED}
    try:
        schedule, of_table = build(case.schedule, case.options, case.stages, case.microbatches, case.waves)
        graph = compile_graph(schedule, case.p2p, case.allreduce)
    except PPModelError as error:
        columns["refused"] = [str(error)] * part.size
        return columns
    held = lru_cache(lambda model: _peak_memory_bytes(schedule, sweep.models[model], sweep.systems[0]))
    sweep = part.sweep
    for rows, spans, busy, nics in _times(graph, part):
        if isinstance(spans, PPModelError):
            columns["refused"][rows] = [str(spans)] * (rows.stop - rows.start)
            continue
        columns["makespan_s"][rows], columns["busy_s"][rows] = spans, busy
        columns["idle_ratio"][rows] = (1.0 - np.array(busy) / (schedule.num_ranks * np.array(spans))).tolist()
        once = {
            "peak_memory_bytes": held(int(part.model[rows.start])),
            "memory_capacity_bytes": sweep.systems[part.system[rows.start]].memory_capacity_bytes,
            "nics_shared": nics is not None,
        }
        for name, value in (of_table | once).items():
            columns[name][rows] = [value] * (rows.stop - rows.start)
    return columns


def _built(name, options, stages, microbatches, waves):
    """A schedule, and the columns that follow from its table alone."""
    given = dict(options) | ({} if waves is None else {"waves": waves})
    schedule = schedules.build(name, stages, microbatches, **given)
    return schedule, {
        "table_bubble_ratio": metrics.table_bubble_ratio(schedule),
        "peak_activations": float(metrics.peak_activations(schedule).max()),
    }


def _peak_memory_bytes(schedule, model, system):
    """Of the fullest rank; any system will do, its speed takes no memory."""
    return float(metrics.memory(schedule, model, stages(schedule, model, system)).total.max())


def _times(graph, part):
    """Rows as slices, with makespans, computing times and nics, or with the error that refuses them."""
    schedule, sweep, accepted = graph.schedule, part.sweep, {}
    for rows in part.pairs():
        system, model = sweep.systems[part.system[rows.start]], sweep.models[part.model[rows.start]]
        try:
            nics, costs = nics_of(system, schedule.num_ranks, graph.p2p), model_costs(schedule, model, system)
        except PPModelError as error:
            yield rows, error, None, None
        else:
            accepted.setdefault(nics, []).append((rows, costs))
    for nics, pairs in accepted.items():
        shared = graph if nics is None else compile_graph(schedule, graph.p2p, graph.allreduce, nics)
        yield from ((*times, nics) for times in _times_on(shared, pairs, part))


def _times_on(graph, accepted, part):
    """As `_times`, of systems that share their NICs in one way, which is known."""
    schedule, sweep = graph.schedule, part.sweep
    if not sweep.noises:
        many = [costs for _, costs in accepted]
        busy = metrics.computing_s(schedule, many)
        for (rows, _), span, computing in zip(accepted, _makespans(graph, many), busy, strict=True):
            yield (rows, span, None) if isinstance(span, PPModelError) else (rows, [span], [float(computing)])
        return
    for pair, costs in accepted:
        for rows in part.noises(pair):
            yield rows, *_noisy(graph, costs, sweep.noises[part.noise[rows.start]], part.seeds(rows))


def _makespans(graph, many):
    """Makespans of all at once; where one of them has none, one by one, so that the others keep theirs."""
    if not many:
        return []
    try:
        return makespans(graph, many).tolist()
    except PPModelError as error:
        return [error] if len(many) == 1 else [span for costs in many for span in _makespans(graph, [costs])]


def _noisy(graph, costs, noise, seeds):
    """Makespans and computing times of one pair under one noise, or the error that refuses them."""
    try:
        return tuple(times.tolist() for times in noisy_runs(graph, costs, noise, seeds))
    except PPModelError as error:
        return error, None
