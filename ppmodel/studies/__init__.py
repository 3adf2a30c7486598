"""The tables behind the book's figures: one function a question, one tidy row a point."""

from ppmodel.studies.asymmetric import asymmetric_causes, asymmetric_study, best_split_study
from ppmodel.studies.bubble import (
    agreement_study,
    bubble_study,
    concatenation_study,
    level_study,
    published_bubble_ratio,
)
from ppmodel.studies.cases import label, legal_schedules, spread
from ppmodel.studies.hanayo import hanayo_gains, hanayo_study, hanayo_tables
from ppmodel.studies.memory import memory_in_tib, memory_study, unit_peaks
from ppmodel.studies.peaks import certificate_study, even_work_study, lowest_peak_study
from ppmodel.studies.phases import PHASE_SCHEDULES, border_study, phase_study, sensitivity_study, steepest, winners
from ppmodel.studies.placements import frontier_study, gain_study, recheck_study
from ppmodel.studies.provenance import commit_of, digest_table, version_table
from ppmodel.studies.recommend import (
    balance_study,
    batch_sizes,
    candidate_study,
    recommend_study,
    recommendation_table,
    recommendation_text,
)
from ppmodel.studies.reversals import (
    negation_study,
    reversal_counts,
    reversal_counts_by_size,
    reversal_study,
    reversals_of_systems,
    worst_reversals,
)
from ppmodel.studies.runtime import (
    allreduce_study,
    best_study,
    comm_over_forward,
    largest_gain,
    operations_table,
    relative_to,
    runtime_study,
    semantics_study,
    timeline_study,
)
from ppmodel.studies.semantics import (
    closed_form_study,
    eager_study,
    equivalence_study,
    path_transfers,
    round_trip_study,
)
from ppmodel.studies.sources import kinds_table, specification_table, stage_table

__all__ = [
    "PHASE_SCHEDULES",
    "agreement_study",
    "allreduce_study",
    "asymmetric_causes",
    "asymmetric_study",
    "balance_study",
    "batch_sizes",
    "best_split_study",
    "best_study",
    "border_study",
    "bubble_study",
    "candidate_study",
    "certificate_study",
    "closed_form_study",
    "comm_over_forward",
    "commit_of",
    "concatenation_study",
    "digest_table",
    "eager_study",
    "equivalence_study",
    "even_work_study",
    "frontier_study",
    "gain_study",
    "hanayo_gains",
    "hanayo_study",
    "hanayo_tables",
    "kinds_table",
    "label",
    "largest_gain",
    "legal_schedules",
    "level_study",
    "lowest_peak_study",
    "memory_in_tib",
    "memory_study",
    "negation_study",
    "operations_table",
    "path_transfers",
    "phase_study",
    "published_bubble_ratio",
    "recheck_study",
    "recommend_study",
    "recommendation_table",
    "recommendation_text",
    "relative_to",
    "reversal_counts",
    "reversal_counts_by_size",
    "reversal_study",
    "reversals_of_systems",
    "round_trip_study",
    "runtime_study",
    "semantics_study",
    "sensitivity_study",
    "specification_table",
    "spread",
    "stage_table",
    "steepest",
    "timeline_study",
    "unit_peaks",
    "version_table",
    "winners",
    "worst_reversals",
]
