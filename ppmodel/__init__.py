"""Pipeline-parallel schedules as tables, and everything that is read off them.

>>> import ppmodel as pp
>>> table = pp.build("1f1b", 4, 8)
>>> pp.simulate(table, forward=1, backward=2, comm=0.1)
<Run 1f1b: pp=4, microbatches=8: 34.6 s, 30.6 % idle, peak 4 microbatches>
"""

from importlib import import_module

from ppmodel.errors import PPModelError
from ppmodel.ops import Op, OpKind
from ppmodel.schedules import build, names
from ppmodel.tables import Schedule

__version__ = "0.1.0"
__all__ = [
    "Change", "Op", "OpKind", "PPModelError", "Run", "Schedule", "__version__", "build", "compare", "load_model",
    "load_system", "names", "read_table", "simulate",
]  # fmt: skip

_LATER = {  # loaded when it is first asked for, so that importing the package stays quick
    "Change": "ppmodel.change", "Run": "ppmodel.run", "compare": "ppmodel.evaluate", "load_model": "ppmodel.specs",
    "load_system": "ppmodel.specs", "read_table": "ppmodel.export", "simulate": "ppmodel.evaluate",
}  # fmt: skip


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
