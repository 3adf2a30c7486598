"""Pictures of tables, timelines and frames; no other part of the library imports matplotlib and seaborn."""

from ppmodel.plot.bars import plot_bars, plot_parts, plot_times
from ppmodel.plot.heatmap import plot_heatmap
from ppmodel.plot.lines import plot_lines
from ppmodel.plot.palette import style_of
from ppmodel.plot.ranges import plot_ranges
from ppmodel.plot.scatter import plot_scatter
from ppmodel.plot.style import context, redrawable, redrawn, titled, typeset
from ppmodel.plot.themes import dark
from ppmodel.plot.timelines import plot_table, plot_timelines
