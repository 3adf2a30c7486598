"""A setting: what a result depends on besides model and system."""

from __future__ import annotations  # help() shows a field's type by its name

import os
from dataclasses import dataclass, field
from typing import Annotated

from ppmodel.clusters.specs import entries
from ppmodel.clusters.specs.entries import Checked, Entry, Provenance, load_specification
from ppmodel.schedules.chimera import CONCATENATIONS


@dataclass(frozen=True)
class SettingSpec(Checked):
    """What a result depends on besides model and system: choices that the paper does not spell out.

    Parameters
    ----------
    name, title : str
        The name is the file's.
    p2p, allreduce : str
        Communication semantics, as in `simulation.compile_graph`.
    concat : str
        How Chimera's units are concatenated.
    waves : int
        Hanayo's waves, W.
    memory_bandwidth_bytes_per_s : float
        Memory bandwidth of the middle one of the paper's nine systems.
    memory_follows : bool
        Whether systems with fast or slow compute also have fast or slow memory, among the nine.
    compute_efficiency, memory_efficiency : float
        Attainable fractions of the nine systems' peaks.
    backward : float
        Time of a backward over that of a forward on the nine systems; 0 to compute both from the model's operations.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str
    title: str
    p2p: entries.Transfers
    allreduce: Annotated[str, Entry(str, words=("excluded", "overlapped", "blocking", "overlapped_links"))]
    concat: Annotated[str, Entry(str, words=CONCATENATIONS)]
    waves: entries.Whole
    memory_bandwidth_bytes_per_s: entries.Bandwidth
    memory_follows: entries.Switch
    compute_efficiency: entries.Attained
    memory_efficiency: entries.Attained
    backward: entries.NumberOrZero
    provenance: tuple[Provenance, ...] = field(default=(), compare=False, repr=False)


def load_setting(name: str | os.PathLike[str]) -> SettingSpec:
    """Read a setting by name or from a file; see `ppmodel.clusters.specs.load_system`.

    Parameters
    ----------
    name : str or Path
        The stem of a file in ``data/settings``, or the path of a ``.yaml`` or ``.yml`` file.

    Returns
    -------
    SettingSpec
        In SI units.

    Raises
    ------
    SpecificationError
        As for `load_system`.

    Examples
    --------
    >>> load_setting("default").p2p
    'overlapped'
    """
    return load_specification(name, "settings", SettingSpec)
