"""How good any schedule could be: lower bounds on its time, and the optimum itself from a solver where it is small.

A problem is a placement, sizes, times and a limit of memory; what is free is the order of the operations. Transfers
take time and occupy nothing (``latency``); a reduction of replicas is left out. Times are fractions: bounds are exact.
"""

from ppmodel.optimum.lower_bounds import Bounds, bounds
from ppmodel.optimum.problem import OBJECTIVES, Problem, answers, is_whole, peak_of, problem_of, time_of
from ppmodel.optimum.solver import Optimum, solve
