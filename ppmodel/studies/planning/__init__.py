"""Plans of layout and schedule: candidates, exact lower bounds, a search, and the answer."""

from ppmodel.studies.planning.answer import Plan, planned
from ppmodel.studies.planning.candidate_search import search
from ppmodel.studies.planning.candidates import Candidate
from ppmodel.studies.planning.many import are_many, plan, plans
from ppmodel.studies.planning.money import Training
from ppmodel.studies.planning.pareto import front
from ppmodel.studies.planning.question import Question, asked
