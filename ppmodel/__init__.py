"""Pipeline-parallel schedules as tables, and everything that is read off them."""

from ppmodel.errors import PPModelError
from ppmodel.ops import Op, OpKind
from ppmodel.schedule import Schedule
from ppmodel.schedules import build, names

__version__ = "0.1.0"
__all__ = ["Op", "OpKind", "PPModelError", "Schedule", "__version__", "build", "names"]
