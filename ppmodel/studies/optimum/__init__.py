"""Lower bounds on the time of any schedule, and for small problems the optimum from a solver.

A problem is a placement, sizes, times and a memory limit; only the order of the operations is free. Transfers take time
and occupy nothing (``latency``); a reduction of replicas is left out. Times are fractions, so bounds are exact.
"""

from ppmodel.studies.optimum.lower_bounds import Bounds, bounds
from ppmodel.studies.optimum.problem import Problem, answers, is_whole, peak_of, problem_of, time_of
from ppmodel.studies.optimum.solver import Optimum, solve
