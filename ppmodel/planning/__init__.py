"""Which layout and which schedule: candidates, exact lower bounds, a search, and the answer."""

from ppmodel.planning.answer import Plan, plan, planned
from ppmodel.planning.available import frameworks_of, runs_as_modelled
from ppmodel.planning.candidates import Candidate
from ppmodel.planning.front import front
from ppmodel.planning.question import Question, asked
from ppmodel.planning.search import search
