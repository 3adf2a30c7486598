"""Training runs that others measured: reading their rows and predicting them."""

from ppmodel.studies.measured.predict import PREDICTED, predict_file, predicted
from ppmodel.studies.measured.rows import COLUMNS, MeasuredRun, read_rows, run_of
from ppmodel.studies.points.margin import FITS, fit_word, fitted_systems, memory_errors, memory_margin
