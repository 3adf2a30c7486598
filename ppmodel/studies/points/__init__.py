"""From what a caller gives to numbers: points, grids of points, and their rows."""

from ppmodel.studies.points.change import Change
from ppmodel.studies.points.columns import COLUMNS, HEADINGS, MEMORY_PARTS, NUMBERS, PARTS, SECONDS
from ppmodel.studies.points.comparison import columns_of, compare, compared, frame_of, simulate
from ppmodel.studies.points.effect import NoEffectWarning, warn_of_links, without_effect
from ppmodel.studies.points.grid import Grid, resolve
from ppmodel.studies.points.point import Point
from ppmodel.studies.points.rows import evaluate, rows_of
