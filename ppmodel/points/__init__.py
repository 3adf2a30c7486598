"""From what a caller gives to numbers: points, grids of points, and their rows."""

from ppmodel.points.change import UNCHANGED, WITHOUT_NETWORK, Change
from ppmodel.points.columns import COLUMNS, HEADINGS, MEMORY_PARTS, NUMBERS, PARTS, SECONDS, Column
from ppmodel.points.compare import columns_of, compare, compared, frame_of, simulate
from ppmodel.points.effect import NoEffectWarning, warn_of_links, warn_without_effect, without_effect
from ppmodel.points.grid import Grid, resolve
from ppmodel.points.point import Point
from ppmodel.points.rows import evaluate, rows_of
from ppmodel.points.run import Run
from ppmodel.points.times import Times, times
