"""The types of the names that `__init__.py` loads on first use."""

from ppmodel.clusters.specs import load_model as load_model
from ppmodel.clusters.specs import load_system as load_system
from ppmodel.errors import PPModelError as PPModelError
from ppmodel.execution.comparison import execute as execute
from ppmodel.ops import Op as Op
from ppmodel.ops import OpKind as OpKind
from ppmodel.schedules.cases import build as build
from ppmodel.schedules.registry import names as names
from ppmodel.studies.measured.replay import replay as replay
from ppmodel.studies.planning.many import plan as plan
from ppmodel.studies.points.change import Change as Change
from ppmodel.studies.points.comparison import compare as compare
from ppmodel.studies.points.comparison import simulate as simulate
from ppmodel.studies.points.run import Run as Run
from ppmodel.tables.schedule import Schedule as Schedule
from ppmodel.tables.text import read_table as read_table

__version__: str
__all__: list[str]
