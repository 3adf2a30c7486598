"""Where claims are measured: a model, a setting, systems, and the changes applied to them."""

from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ppbook.parameters import SettingSpec
from ppmodel.clusters.specs import ModelSpec, load_system
from ppmodel.schedules import get
from ppmodel.schedules.cases import as_case, built
from ppmodel.studies.points.change import UNCHANGED, WITHOUT_NETWORK, Change
from ppmodel.studies.points.point import Point, places_of
from ppmodel.studies.points.rows import evaluate

_SPEEDS = ("slow", "mid", "fast")
NINE = tuple(f"{compute}_cp_{network}_nw" for compute in _SPEEDS for network in _SPEEDS)
"""Names of the paper's nine systems."""

GROUPS = {
    "all": NINE,
    **{f"{speed}_nw": tuple(name for name in NINE if name.endswith(f"{speed}_nw")) for speed in _SPEEDS},
    "near": tuple(name for name in NINE if not name.endswith("slow_nw")),
}
"""Names for several of the nine; `near` are those with a fast or middle network."""


@cache
def change_of(setting):
    """What a setting changes in the paper's nine systems as they are specified.

    Parameters
    ----------
    setting : SettingSpec
        Its memory bandwidth and efficiencies replace those of the middle of the nine; and its backward.

    Returns
    -------
    Change
        Factors, and whether memory follows compute.

    Examples
    --------
    >>> from ppbook.parameters import load_setting
    >>> change_of(load_setting("default"))
    Change()
    """
    middle = load_system("mid_cp_mid_nw")
    memory = setting.memory_bandwidth_bytes_per_s / middle.memory_bandwidth_bytes_per_s
    return Change(
        memory=memory * setting.memory_efficiency / middle.memory_efficiency, memory_follows=setting.memory_follows,
        efficiency=setting.compute_efficiency / middle.compute_efficiency, backward=setting.backward or None,
    )  # fmt: skip


@lru_cache(256)
def _combined(bases, changes):
    """Each change on top of each base, cached so that every bench that asks gets the same objects."""
    return tuple(replace(base, **change.given()) for base in bases for change in changes)


class Times(NamedTuple):
    """Simulated time and idle ratio, each with one entry per change and system.

    Parameters
    ----------
    makespan_s : ndarray of float, shape (num_changes, num_systems)
        From the start of the first operation to the end of the last, in seconds.
    idle_ratio : ndarray of float, shape (num_changes, num_systems)
        Fraction of all ranks' time in which they do not compute.
    """

    makespan_s: np.ndarray
    idle_ratio: np.ndarray


@cache
def _times(case, size, semantics, model, systems, changes):
    """The times of a schedule on some systems under some changes; the same question is answered once."""
    points = [
        Point(case, size, semantics, model=model, system=system, change=change)
        for change, system in product(changes, systems)
    ]
    times = np.empty((len(points), len(Times._fields)))
    for places in places_of(point.graph_key for point in points).values():
        rows = evaluate(points[places[0]].graph, [points[place].costs for place in places])
        times[places] = [[row[name] for name in Times._fields] for row in rows]
    return Times(*times.T.reshape(-1, len(changes), len(systems)))


@dataclass(frozen=True)
class Bench:
    """A model on systems under a setting and changes of it; quantities are measured on a bench.

    Parameters
    ----------
    model : ModelSpec
        The model.
    setting : SettingSpec
        Semantics, concatenation and waves; its hardware and backward affect only the paper's nine systems.
    systems : tuple of SystemSpec
        The paper's nine in the order of `NINE`, or a single other system, which stands in for every group of them.
    changes : tuple of Change
        Applied to the systems one at a time, on top of the setting; results have an axis for the changes.

    Examples
    --------
    >>> from ppbook.parameters import load_setting
    >>> from ppmodel.clusters.specs import load_model
    >>> bench = Bench.of(load_model("paper"), load_setting("default"))
    >>> bench.times("1f1b", 4, 8).makespan_s.shape
    (1, 9)
    """

    model: ModelSpec
    setting: SettingSpec
    systems: tuple
    changes: tuple = (UNCHANGED,)

    @classmethod
    def of(cls, model, setting, system=None):
        """A bench of the paper's nine systems, or of one other system.

        Parameters
        ----------
        model : ModelSpec
            The model.
        setting : SettingSpec
            The setting.
        system : SystemSpec, optional
            Used instead of the nine.

        Returns
        -------
        Bench
            Without changes.
        """
        return cls(model, setting, tuple(load_system(name) for name in NINE) if system is None else (system,))

    @property
    def is_nine(self):
        """Whether the bench holds the paper's nine systems."""
        return len(self.systems) == len(NINE)

    @cached_property
    def applied(self):
        """The changes with the setting's hardware included; a change's own values override the setting's."""
        return _combined((change_of(self.setting) if self.is_nine else UNCHANGED,), self.changes)

    def columns(self, group):
        """Indices of the systems that a group or name stands for.

        Parameters
        ----------
        group : str
            One of `GROUPS`, or the name of one of the nine.

        Returns
        -------
        list of int
            All systems of the bench if a system was given.
        """
        return [NINE.index(name) for name in GROUPS.get(group, (group,))] if self.is_nine else [0]

    def case(self, schedule):
        """A schedule, with the options that it leaves open set as the setting decides.

        Parameters
        ----------
        schedule : str or list
            A name, or a name and a dict of options.

        Returns
        -------
        Case
        """
        case = as_case(schedule)
        options = {
            option.name: getattr(self.setting, option.name)
            for option in get(case.name).options
            if option.name in ("concat", "waves") and getattr(self.setting, option.name) != option.default
        }
        return case._replace(options=tuple((options | dict(case.options)).items()))

    def table(self, schedule, num_ranks, num_microbatches):
        """The table of a schedule at a size.

        Parameters
        ----------
        schedule : str or list
            As in `case`.
        num_ranks, num_microbatches : int
            Ranks S and microbatches B.

        Returns
        -------
        Schedule
        """
        return built(self.case(schedule), num_ranks, num_microbatches)

    def times(self, schedule, num_ranks, num_microbatches, network=True):
        """Simulated time and idle share on every system under every change.

        Parameters
        ----------
        schedule : str or list
            As in `case`.
        num_ranks, num_microbatches : int
            Ranks S and microbatches B.
        network : bool
            Whether transfers and all-reduces take time.

        Returns
        -------
        Times
            Arrays of shape (num_changes, num_systems).
        """
        semantics, changes = (self.setting.p2p, self.setting.allreduce), self.applied
        if not network:
            semantics, changes = ("latency", "excluded"), _combined(self.applied, (WITHOUT_NETWORK,))
        size = num_ranks, num_microbatches
        return _times(self.case(schedule), size, semantics, self.model, self.systems, changes)
