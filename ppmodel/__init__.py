"""Pipeline-parallel schedules as tables, and everything that follows from them.

>>> import ppmodel as pp
>>> table = pp.build("1f1b", 4, 8)
>>> pp.simulate(table, forward=1, backward=2, comm=0.1)
<Run 1F1B: pp=4, microbatches=8: 34.6 s, 30.6 % idle, peak 4 microbatches>
"""

from importlib import import_module
from threading import RLock

TYPE_CHECKING = False  # type checkers know this name; importing it from typing takes 8 ms
if TYPE_CHECKING:
    from ppmodel.clusters.specs import load_model, load_system
    from ppmodel.errors import PPModelError
    from ppmodel.execution.comparison import execute
    from ppmodel.ops import Op, OpKind
    from ppmodel.schedules import names
    from ppmodel.schedules.cases import build
    from ppmodel.studies.measured.replay import replay
    from ppmodel.studies.planning import plan
    from ppmodel.studies.points.change import Change
    from ppmodel.studies.points.comparison import compare, simulate
    from ppmodel.studies.points.run import Run
    from ppmodel.tables import Schedule, read_table

__version__ = "0.2.0"
__all__ = [
    "Change", "Op", "OpKind", "PPModelError", "Run", "Schedule", "__version__", "build", "compare", "execute",
    "load_model", "load_system", "names", "plan", "read_table", "replay", "simulate",
]  # fmt: skip

_LATER = {  # loaded on first use, so that the command line can answer Ctrl-C before NumPy is imported
    "Change": "ppmodel.studies.points.change", "Op": "ppmodel.ops", "OpKind": "ppmodel.ops",
    "PPModelError": "ppmodel.errors",
    "Run": "ppmodel.studies.points.run", "Schedule": "ppmodel.tables", "build": "ppmodel.schedules.cases",
    "compare": "ppmodel.studies.points.comparison", "execute": "ppmodel.execution.comparison",
    "load_model": "ppmodel.clusters.specs", "load_system": "ppmodel.clusters.specs", "names": "ppmodel.schedules",
    "plan": "ppmodel.studies.planning", "read_table": "ppmodel.tables", "replay": "ppmodel.studies.measured.replay",
    "simulate": "ppmodel.studies.points.comparison",
}  # fmt: skip

_loading = RLock()


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _loading:  # a package imports its modules, and a module its package: two threads would wait for each other
        value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
