"""The answer: candidates as rows, one for each that differs in what matters, and the cost of a step away."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmodel.clusters.specs.available import error_of_differences, frameworks_of
from ppmodel.clusters.specs.layout import DISPATCHERS, LAYER_WORDS, ORDERS, RECOMPUTE, STAGE_GROUPS
from ppmodel.clusters.specs.lengths import SLICINGS
from ppmodel.clusters.specs.recompute import tried_ways
from ppmodel.schedules.cases import as_cases
from ppmodel.studies.planning.candidate_search import Limits, entries_of, point_of, search
from ppmodel.studies.planning.candidates import Candidate, cases_at, orders
from ppmodel.studies.planning.money import UNPRICED, Training
from ppmodel.studies.planning.question import SEARCHED, Question, Sizes, asked
from ppmodel.studies.planning.risk import chances, disturbed_s
from ppmodel.studies.points import Grid, columns_of, frame_of, rows_of, warn_of_links

if TYPE_CHECKING:
    from pathlib import Path

    from pandas import DataFrame

    from ppmodel.studies.points import Point

EQUAL = 0.01
"""Times that differ by less are a tie; of a tie, the simplest comes first."""

_FIRST = 3  # of measured layouts, the best of the first three is near the best: see the book, Is the plan right?

UNEVEN_EXPERTS = 1.25
"""How much busier than the mean a GPU's experts are in a step from an answer."""

_ALIKE_TIME, _ALIKE_BYTES = 0.001, 0.01
_WELL_KNOWN = "1f1b", "interleaved-1f1b"
_RISKED = 10
_SHOWN = *Sizes._fields, *SEARCHED, "chunks"  # in rows anyway
_DOUBLED = "pp", *STAGE_GROUPS, "ep", "microbatch_size"


def simplicity(candidate: Candidate) -> tuple:
    """A key by which candidates that take as long are sorted, the simplest first.

    Fewer dimensions of parallelism beside the pipeline and the replicas; less recomputation; 1F1B, then interleaved
    1F1B, then other schedules; fewer chunks; even layers; slices of equal tokens; the usual order of dimensions; then
    smaller groups and a lower ZeRO stage.
    """
    sizes, case = candidate.sizes, candidate.case
    ways = candidate.recompute.split("+") if isinstance(candidate.recompute, str) else ["full"]
    dimensions = sum(size > 1 for size in sizes.sizes(("pp", *STAGE_GROUPS, "ep")))
    return (
        dimensions, max(map(RECOMPUTE.index, ways)), (*_WELL_KNOWN, case.name).index(case.name),
        dict(case.options).get("chunks", 1), candidate.layers != "even", SLICINGS.index(candidate.slicing),
        ORDERS.index(candidate.order), sizes.replica_gpus, candidate.zero > 1, case.label, sizes, candidate.zero,
        str(candidate.recompute),
    )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The answer to a question.

    Parameters
    ----------
    question : Question
    candidates : list of Candidate
        All that fit and are within the share asked for of the best; from `search`.
    training : Training
        The whole run, whose cost the rows have.
    """

    question: Question
    candidates: list
    training: Training = UNPRICED

    @cached_property
    def limits(self) -> Limits:
        """The `Limits` of the answers: which are tight, and how much slower a first answer may be that is not."""
        return Limits(self.question)

    @cached_property
    def answers(self) -> list[Candidate]:
        """The candidates that differ in what matters, the best first.

        One stands for all with the same groups of GPUs that are no faster, and for those of the same ``pp``, ``tp`` and
        ``ep`` that take as long and as much memory. The first is not tight, unless that costs more than `within`; of
        those within `EQUAL` of the fastest, the simplest is first. What the framework does not run, or not as measured,
        is apart, after the others, and only if it is faster than the first.
        """
        answers: list[Candidate] = []
        is_tight, first_s = self.limits.is_tight, np.inf
        for is_run in (True, False):
            left = [each for each in self.candidates if each.is_run is is_run and each.iteration_s <= first_s]
            while left:
                wanted = left
                if not answers:
                    comfortable = [candidate for candidate in left if not is_tight(candidate)]
                    if _least_s(comfortable) <= _least_s(left) * (1 + self.question.within):
                        wanted = comfortable
                    first_s = _least_s(wanted)
                most_s = _least_s(wanted) * (1 + EQUAL)
                ties = [candidate for candidate in wanted if candidate.iteration_s <= most_s]
                answers.append(min(ties, key=lambda candidate: (is_tight(candidate), *simplicity(candidate))))
                left = [candidate for candidate in left if not _are_alike(candidate, answers[-1])]
        return answers

    @cached_property
    def tried(self) -> list[int]:
        """Places of the answers to try first: the first, the tie with the least disturbed time, and the simplest tie.

        Of those in `risk`, and no tight one unless the first is tight; without ties, the first alone. The simplest is
        not the first answer: on measured runs, the simplest within `EQUAL` of the fastest is as good a choice as the
        fastest, and the simplest of all ties is a worse one.
        """
        fits = self.frame.is_tie & (self.frame.fit.ne("tight") | (self.frame.fit[0] == "tight"))
        if not fits.any():
            return [0, 0, 0]
        simplest = min(self.frame.index[fits], key=lambda place: simplicity(self.answers[place]))
        return [0, int(self.risk.disturbed_s.where(fits).argmin()), simplest]

    @property
    def proposed(self) -> list[int]:
        """Places of the answers to run: those of `tried` and, with ties, the first three that the framework runs."""
        num_first = min(_FIRST, self.frame.is_run.sum()) if self.frame.is_tie.sum() > 1 else 1
        return sorted({*range(num_first), *self.tried})

    @cached_property
    def frame(self) -> DataFrame:
        """The answers as `rows`, with ``is_run``, ``frameworks``, ``over_best`` and ``is_tie``; see `plan`."""
        rows = self.training.rows(self.rows(self.answers), self.question)
        return rows.assign(
            is_run=[candidate.is_run for candidate in self.answers],
            frameworks=rows.schedule.map(frameworks_of),
            over_best=rows.iteration_s / self.answers[0].iteration_s - 1,
            is_tie=lambda rows: rows.is_run & (rows.over_best <= error_of_differences()),
        )

    def point(self, candidate: Candidate) -> Point:
        """The point of a candidate, for `clusters.launch` and `Point.run`."""
        return point_of(self.question, candidate)

    def rows(self, candidates: list[Candidate]) -> DataFrame:
        """The rows of candidates, as `ppmodel.compare` has them, with ``layers`` and so on."""
        points = [self.point(candidate) for candidate in candidates]
        columns = columns_of(Grid((), systems=(self.question.system,), layouts=(points[0].layout,)))
        ways = {name: [getattr(candidate, name) for candidate in candidates] for name in ("layers", "order", "slicing")}
        variants = [dict(candidate.variant) for candidate in candidates]
        listed = [name for name, _ in candidates[0].variant if name not in _SHOWN]
        if listed:
            ways["variant"] = [" ".join(f"{name}={variant[name]}" for name in listed) for variant in variants]
        values = {name: [variant[name] for variant in variants] for name in listed}
        return frame_of(columns, rows_of(points)).assign(**values, **ways)

    @cached_property
    def risk(self) -> DataFrame:
        """The first ten answers that the framework runs, with jitter and one slow device.

        Returns
        -------
        DataFrame
            A row per answer, none if the framework runs none: ``iteration_s``; ``disturbed_s``, the mean of the
            disturbed runs, in seconds; and ``chance``, from 0 to 1, that it is the fastest of the ten; see
            `planning.risk`.
        """
        from pandas import DataFrame, isna

        answers = [candidate for candidate in self.answers if candidate.is_run][:_RISKED]
        runs = [disturbed_s(self.point(candidate), candidate.iteration_s) for candidate in answers]
        first = self.frame.iloc[0]
        ends = None if isna(first.fastest_s) else (first[["fastest_s", "slowest_s"]] / first.iteration_s).tolist()
        seconds, times = np.stack(runs) if runs else np.empty((0, 1)), [answer.iteration_s for answer in answers]
        return DataFrame({"iteration_s": times, "disturbed_s": seconds.mean(axis=1), "chance": chances(seconds, ends)})

    def steps(self, place: int = 0) -> DataFrame:
        """One step in each dimension from an answer: what it would cost, and whether it fits.

        Returns
        -------
        DataFrame
            As `rows`, with ``step``, what is changed, and ``over``, how much longer it takes, as a share of the
            answer's time. Data parallelism takes up the GPUs that other groups leave or need. Experts also get
            `UNEVEN_EXPERTS` times as many tokens on one GPU, which the router decides, not the layout, and another
            dispatcher.
        """
        answer, question, steps = self.answers[place], self.question, {}
        sizes, case = answer.sizes, answer.case
        for name, factor in product(_DOUBLED, (0.5, 2)):
            value = int(getattr(sizes, name) * factor)
            etp = value if name == "tp" and sizes.etp == sizes.tp else sizes.etp
            other = question.filled(sizes._replace(**{"etp": etp, name: value})) if value else None
            if other and (other.ep == 1 or question.model.experts):
                cases = cases_at(question, other.pp) if 1 in (sizes.pp, other.pp) else []
                alike = [each for each in cases if each.name == case.name]  # pairs have chunks in pipelines alone
                nearest = min(alike, key=case.__ne__, default=case)
                steps[f"{name} {value}"] = answer._replace(sizes=other, case=nearest)
        others = {
            "zero": range(max(answer.zero - 1, 0), min(answer.zero + 1, 3) + 1),
            "recompute": [*tried_ways(question.model)[:-1], "full"], "layers": LAYER_WORDS * (sizes.pp > 1),
            "order": orders(question, sizes, answer.zero), "slicing": SLICINGS * ("slices" in dict(case.options)),
        }  # fmt: skip
        for name, values in others.items():
            changed = (value for value in values if value != getattr(answer, name))
            steps |= {f"{name} {value}": answer._replace(**{name: value}) for value in changed}
        chunks = dict(case.options).get("chunks", 1)
        near = [f"interleaved-1f1b:chunks={count}" for count in (chunks - 1, chunks + 1) if count > 1]
        schedules = as_cases(["1f1b", *near, "zb-v", "dualpipev"]) if sizes.pp > 1 else []
        steps |= {other.label: answer._replace(case=other) for other in schedules if other != case}
        if sizes.ep > 1:
            other = DISPATCHERS[self.point(answer).layout.dispatcher == DISPATCHERS[0]]
            imbalance = UNEVEN_EXPERTS * question.fixed.get("expert_imbalance", 1)
            for word, *change in ((other, "dispatcher", other), (f"{imbalance:g}", "expert_imbalance", imbalance)):
                steps[f"{change[0]} {word}"] = answer._replace(variant=(*answer.variant, change))
        rows = self.rows([answer, *steps.values()])
        rows = rows.assign(step=["", *steps], over=rows.iteration_s / rows.iteration_s[0] - 1)
        return rows[1:].reset_index(drop=True)


def _least_s(candidates):
    return min((candidate.iteration_s for candidate in candidates), default=np.inf)


def _are_alike(candidate, other):
    """Return whether a candidate differs from an answer in nothing that matters, and is no faster."""
    groups, other_groups = (sizes._replace(microbatch_size=1) for sizes in (candidate.sizes, other.sizes))
    are_near = (groups.pp, groups.tp, groups.ep) == (other_groups.pp, other_groups.tp, other_groups.ep)
    is_as_long = abs(candidate.iteration_s / other.iteration_s - 1) < _ALIKE_TIME
    is_as_large = abs(candidate.peak_bytes / other.peak_bytes - 1) < _ALIKE_BYTES
    is_faster = candidate.iteration_s * (1 + EQUAL) < other.iteration_s
    return (groups == other_groups and not is_faster) or (are_near and is_as_long and is_as_large)


def planned(
    *arguments: Any, on_progress: Any = None, workers: int | None = None, scheduler: str | None = None,
    resume: str | Path | None = None, training: Training = UNPRICED, **given: Any,
) -> Plan:  # fmt: skip
    """Find the plan; arguments as in `plan`."""
    question = asked(*arguments, **given)
    training.require_priced([question.system.name])
    if training.mtbf:
        training.failures(question.model, question.gpus)  # refuses what no search can mend
    plan = Plan(question, search(question, on_progress, workers, scheduler, resume), training)
    if given.get("links") is not None:
        searched = {(entry.case, entry.sizes.pp): entry.sizes for entry in entries_of(question)}
        warn_of_links([question.point(case, sizes, layers="even") for (case, _), sizes in searched.items()])
    return plan
