"""The check of a notebook's parameters, as an extension of IPython: ``%reload_ext ppbook.check`` behind them.

It runs again with its cell, and what it refuses is the cell's error. Behind it, numbers that a
cell ends with have four digits.
"""

import pandas as pd

from ppbook.parameters import check_cell
from ppbook.parameters.published import define_magic


def load_ipython_extension(shell):
    """Refuse parameters of the wrong kind, and define the cell magic of `published`.

    Parameters
    ----------
    shell : InteractiveShell
        The kernel's.
    """
    pd.options.display.float_format = "{:.4g}".format
    shell.run_line_magic("precision", "%.4g")
    define_magic(shell, check_cell(shell.user_ns["In"], shell.user_ns), shell.user_ns)
