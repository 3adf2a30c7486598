"""``data/available.yaml``: which public code runs which schedule, and what its pairs hide there."""

from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from ppmodel import schedules
from ppmodel.clusters.specs.document import Form, Sourced, read_document
from ppmodel.clusters.specs.layout import ORDERS
from ppmodel.files import DATA

_NOTES = {
    "yes": "", "experts": " (for expert parallelism only)", "order": " (the order only)", "authors": " (research code)",
}  # fmt: skip
NOWHERE = "none known"
"""What is said of a schedule that no framework has."""


class Availability(Sourced):
    """A schedule in a framework: the head of the file explains ``has``."""

    schedule: Literal[tuple(schedules.names())]  # type: ignore[valid-type]  # known once all are registered
    framework: Annotated[str, Field(min_length=1)]
    has: Literal["yes", "experts", "order", "authors"]


class Profile(Sourced):
    """The code that a framework's profile stands for, and the highest ZeRO stage of runs under it, or of pipelines."""

    profile: str
    code: list[str]
    zero: int
    zero_of_pipelines: int = 3


class Share(Sourced):
    """How far off predictions, or answers, were in measured runs."""

    value: float


class _File(Form):
    shares: dict[str, Share] = Field(default_factory=dict)
    profiles: list[Profile] = Field(default_factory=list)
    entries: list[Availability]


@cache
def _file():
    return read_document(DATA / "available.yaml", _File)


def _profile(name):
    """The `Profile` of that name, in any release; None if it is not known which code it stands for."""
    return next((entry for entry in _file().profiles if entry.profile == (name or "").partition("@")[0]), None)


def frameworks_of(name):
    """The names of the frameworks that have a schedule, each with what limits it there.

    Parameters
    ----------
    name : str
        Of a schedule.

    Returns
    -------
    str

    Examples
    --------
    >>> frameworks_of("1f1b")
    'Megatron-LM, PyTorch, nanotron, DeepSpeed, Scaling'
    >>> frameworks_of("combined-1f1b")
    'Megatron-LM (for expert parallelism only)'
    """
    entries = [entry for entry in _file().entries if entry.schedule == name]
    return ", ".join(entry.framework + _NOTES[entry.has] for entry in entries) or NOWHERE


def runs_as_modelled(name, profile=None, experts=False, ranks=2):
    """Return whether a framework runs a schedule as it is modelled here.

    Without a pipeline, every framework accumulates gradients: there, only what pairs hide tells schedules apart.

    Parameters
    ----------
    name : str
        Of a schedule.
    profile : str, optional
        Of a framework, a name in `specs.packaged`. Any framework counts without it, or if it is not known which
        code it stands for.
    experts : bool
        Whether experts alone exchange anything in a pair's operations: ep is above 1, and nothing else shares a stage.
    ranks : int
        Of the pipeline.

    Returns
    -------
    bool

    Examples
    --------
    >>> runs_as_modelled("zb-v"), runs_as_modelled("zb-v", "megatron"), runs_as_modelled("dualpipev")
    (True, False, False)
    >>> runs_as_modelled("combined-1f1b", "megatron", experts=True), runs_as_modelled("zb-v", "megatron", ranks=1)
    (True, True)
    """
    entries, framework = [entry for entry in _file().entries if entry.schedule == name], _profile(profile)
    enough = ("yes", "experts") if experts else ("yes",)
    if ranks == 1 and all(entry.has == "yes" for entry in entries):
        return True
    return any(entry.has in enough and (framework is None or entry.framework in framework.code) for entry in entries)


def error_of_differences():
    """Median error of the predicted ratio of two layouts, as a share of the measured one.

    >>> 0.05 < error_of_differences() < 0.15
    True
    """
    return _file().shares["ties"].value


def regrets():
    """How much longer than the best measured layout our first took, and the best of our first three: means of shares.

    >>> first, three = regrets()
    >>> three < 0.05 < first
    True
    """
    return tuple(_file().shares[f"regret_of_{name}"].value for name in ("first", "three"))


def orders_of(profile):
    """The orders of dimensions over GPUs that a framework has; all if it is not known which code it stands for.

    >>> orders_of("megatron"), orders_of("fsdp")
    (('tp-cp-ep-dp-pp', 'tp-cp-ep-pp-dp'), ('tp-cp-ep-dp-pp',))
    """
    framework = _profile(profile)
    return ORDERS if framework is None or "Megatron-LM" in framework.code else ORDERS[:1]


def highest_zero(profile, ranks=1):
    """The highest ZeRO stage with which runs under a framework's profile were measured; 3 if that is not known.

    >>> highest_zero("megatron"), highest_zero("fsdp", ranks=2), highest_zero("deepspeed", ranks=2)
    (1, 3, 1)
    """
    framework = _profile(profile)
    return 3 if framework is None else min(framework.zero, framework.zero_of_pipelines if ranks > 1 else 3)
