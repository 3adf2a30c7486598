"""Peak activations, persistent state and traffic (Fig. 5)."""

import pandas as pd

from ppmodel.costs import message_bytes, stages
from ppmodel.metrics import memory, messages_sent, peak_activations
from ppmodel.studies.cases import PAPER_SCHEDULES, label, legal_schedules


def memory_study(model, system, stages_list, microbatches, cases=PAPER_SCHEDULES):
    """Peak activations and persistent state of the fullest rank.

    Parameters
    ----------
    model : ModelSpec
        The model.
    system : SystemSpec
        The system; bytes do not depend on it.
    stages_list, microbatches : sequence of int
        Values of S and of B. Sizes at which a schedule is not defined are left out.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.

    Returns
    -------
    DataFrame
        One row an S, B and schedule; columns ``schedule, stages, microbatches, activations_bytes,
        persistent_bytes, total_bytes, messages, sent_bytes``: the maximum over the ranks, and what all ranks
        send together in one iteration.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    CostError
        If the model does not fit a schedule: too few blocks, or a batch that does not divide.
    """
    rows = []
    for num_ranks in stages_list:
        for count in microbatches:
            for name, options, schedule in legal_schedules(cases, num_ranks, count):
                held = memory(schedule, model, stages(schedule, model, system))
                messages = int(messages_sent(schedule).sum())
                rows.append({
                    "schedule": label(name, options), "stages": num_ranks, "microbatches": count,
                    "activations_bytes": held.activations.max(), "persistent_bytes": held.persistent.max(),
                    "total_bytes": held.total.max(), "messages": messages,
                    "sent_bytes": messages * message_bytes(schedule, model),
                })  # fmt: skip
    return pd.DataFrame(rows)


def memory_in_tib(study):
    """A memory study with bytes in TiB, as a page shows it.

    Parameters
    ----------
    study : DataFrame
        From `memory_study`, in bytes.

    Returns
    -------
    DataFrame
        Columns ``schedule, stages, microbatches, activations (TiB), persistent (TiB), messages, sent (TiB)``;
        1 TiB is 2**40 bytes.
    """
    tib = 2**40
    return pd.DataFrame({
        "schedule": study.schedule, "stages": study.stages, "microbatches": study.microbatches,
        "activations (TiB)": study.activations_bytes / tib, "persistent (TiB)": study.persistent_bytes / tib,
        "messages": study.messages, "sent (TiB)": study.sent_bytes / tib,
    })  # fmt: skip


def unit_peaks(cases, num_ranks, num_microbatches):
    """Peak activations rank by rank, in units of one microbatch on 1/S of the model.

    Parameters
    ----------
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    num_ranks, num_microbatches : int
        Devices S and microbatches B.

    Returns
    -------
    DataFrame
        One row a schedule, one column a rank.

    Raises
    ------
    ScheduleError
        If a name is unknown.

    Examples
    --------
    >>> unit_peaks(["1f1b"], 3, 3).values.tolist()
    [['1F1B', 3.0, 2.0, 1.0]]
    """
    rows = []
    for name, options, schedule in legal_schedules(cases, num_ranks, num_microbatches):
        ranks = {f"rank {d}": peak for d, peak in enumerate(peak_activations(schedule).tolist())}
        rows.append({"schedule": label(name, options), **ranks})
    return pd.DataFrame(rows)
