"""Pipeline-parallel schedules as tables, and everything that follows from them.

>>> import ppmodel as pp
>>> table = pp.build("1f1b", 4, 8)
>>> pp.simulate(table, forward=1, backward=2, comm=0.1)
<Run 1F1B: pp=4, microbatches=8: 34.6 s, 30.6 % idle, peak 4 microbatches>
"""

from importlib import import_module
from threading import RLock

__version__ = "0.2.0"
_LATER = {  # loaded on first use, so that the command line can answer Ctrl-C before NumPy is imported
    "Change": "ppmodel.studies.points.change", "Op": "ppmodel.ops", "OpKind": "ppmodel.ops",
    "PPModelError": "ppmodel.errors",
    "Run": "ppmodel.studies.points.run", "Schedule": "ppmodel.tables", "build": "ppmodel.schedules.cases",
    "compare": "ppmodel.studies.points.comparison", "execute": "ppmodel.execution.comparison",
    "load_model": "ppmodel.clusters.specs", "load_system": "ppmodel.clusters.specs", "names": "ppmodel.schedules",
    "plan": "ppmodel.studies.planning", "read_table": "ppmodel.tables", "replay": "ppmodel.studies.measured.replay",
    "simulate": "ppmodel.studies.points.comparison",
}  # fmt: skip
"""The module of each name; `__init__.pyi` says so to type checkers."""

__all__ = ["__version__", *_LATER]
_loading = RLock()


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _loading:  # a package imports its modules, and a module its package: two threads would wait for each other
        value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
