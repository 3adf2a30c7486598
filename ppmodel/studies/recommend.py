"""Which schedule to take on a system, under a limit of memory."""

import math

import pandas as pd

from ppmodel.costs import model_costs, stages
from ppmodel.errors import CostError
from ppmodel.metrics import memory
from ppmodel.studies.cases import TIE, built, family, label, legal_schedules, named
from ppmodel.studies.times import times

_GIB = 2**30
_SMALL = 1e-3
_MISSING = {"schedule": None}
_MEASURES = ["t_sim_s", "tokens_per_s", "activations_bytes", "persistent_bytes", "total_bytes"]


def batch_sizes(model, largest, most=16):
    """Numbers of microbatches that a model's batch can be cut into.

    Parameters
    ----------
    model : ModelSpec
        Gives the global batch.
    largest : int
        No more microbatches than these.
    most : int
        How many sizes; of more the largest are kept, which need least memory.

    Returns
    -------
    list of int
        Divisors of the global batch, in order.

    Examples
    --------
    >>> from ppmodel.specs import load_model
    >>> batch_sizes(load_model("paper"), 64)
    [1, 2, 4, 8, 16, 32, 64]
    """
    batch = model.global_batch
    return [count for count in range(1, min(largest, batch) + 1) if batch % count == 0][-most:]


def candidate_study(model, system, stages_list, microbatches, cases, p2p="overlapped", allreduce="blocking"):
    """Time and memory of every schedule at every size that is asked for.

    Parameters
    ----------
    model : ModelSpec
        The model; its global batch is fixed, so that microbatches shrink as B grows.
    system : SystemSpec
        The system.
    stages_list, microbatches : sequence of int
        Values of S and of B. Sizes at which a schedule is not defined, or that the model does not fit, are left out.
    cases : iterable of str or (str, dict)
        As in `legal_schedules`.
    p2p, allreduce : str
        Communication semantics, as in `graph.compile`.

    Returns
    -------
    DataFrame
        One row an S, B and schedule; columns ``schedule, family, stages, microbatches, t_sim_s, tokens_per_s,
        activations_bytes, persistent_bytes, total_bytes``. Bytes are those of the rank that holds most in all.

    Raises
    ------
    ScheduleError
        If a name is unknown.
    PPModelError
        If a semantics is unknown.
    """
    rows = []
    for num_ranks in stages_list:
        for count in microbatches:
            for name, options, schedule in legal_schedules(cases, num_ranks, count):
                try:
                    held = memory(schedule, model, stages(schedule, model, system))
                except CostError:
                    continue  # too few blocks for its stages, or a batch that does not divide into B
                case = (name, tuple(options.items()))
                seconds = float(times(case, num_ranks, count, model, [system], p2p, allreduce).t_sim_s[0, 0])
                fullest = held.total.argmax()
                tokens = model.global_batch * model.sequence
                held_bytes = (float(part[fullest]) for part in (held.activations, held.persistent, held.total))
                kind = (label(name, options), family(schedule))
                rows.append((*kind, num_ranks, count, seconds, tokens / seconds, *held_bytes))
    return pd.DataFrame(rows, columns=["schedule", "family", "stages", "microbatches", *_MEASURES])


def balance_study(model, system, stages_list, num_microbatches):
    """How even the work of the stages is: a pipeline is no faster than its slowest stage.

    Parameters
    ----------
    model : ModelSpec
        The model; its embedding and loss head weigh on the first and the last stage.
    system : SystemSpec
        The system.
    stages_list : sequence of int
        Values of S. Those that the model has too few blocks for are left out.
    num_microbatches : int
        Microbatches, B.

    Returns
    -------
    DataFrame
        One row an S; columns ``stages, slowest_stage, over_mean``: its forward and backward over the mean stage's,
        less 1, with one stage a rank.

    Raises
    ------
    CostError
        If the batch does not divide into B.
    """
    rows = []
    for num_ranks in stages_list:
        if num_ranks <= model.blocks:
            schedule = built("1f1b", num_ranks, num_microbatches, ())
            work = model_costs(schedule, model, system).compute_s[:2].sum(axis=0)
            rows.append((num_ranks, int(work.argmax()), float(work.max() / work.mean() - 1)))
    return pd.DataFrame(rows, columns=["stages", "slowest_stage", "over_mean"])


def recommend_study(candidates, stages_list, limit_bytes):
    """The fastest schedule that fits a limit of memory, for each number of ranks.

    Of equally fast candidates the one that needs fewer bytes is taken, then the first by name, then the smaller B.

    Parameters
    ----------
    candidates : DataFrame
        From `candidate_study`.
    stages_list : sequence of int
        Values of S.
    limit_bytes : float
        Bytes that the fullest rank may hold.

    Returns
    -------
    DataFrame
        One row an S. The columns of a candidate under four prefixes: ``take_``, the fastest that fits; ``next_``, the
        fastest that fits of another schedule; ``unlimited_``, the fastest of all; ``smallest_``, the one that needs
        the fewest bytes. What there is not is empty.

    Examples
    --------
    >>> table = pd.DataFrame({"schedule": ["GPipe", "1F1B"], "stages": 4, "microbatches": 8, "t_sim_s": [1.0, 2.0]})
    >>> table = table.assign(tokens_per_s=8.0, activations_bytes=[9, 1], persistent_bytes=0, total_bytes=[9, 1])
    >>> recommend_study(table, [4], 8).loc[0, ["take_schedule", "unlimited_schedule"]].tolist()
    ['1F1B', 'GPipe']
    """
    columns = [column for column in candidates if column != "stages"]
    rows = []
    for num_ranks in stages_list:
        here = candidates[candidates.stages == num_ranks]
        fits = here[here.total_bytes <= limit_bytes]
        take = _fastest(fits)
        chosen = {
            "take": take,
            "next": _fastest(fits if take is None else fits[fits.schedule != take.schedule]),
            "unlimited": _fastest(here),
            "smallest": _first(here, ["total_bytes", "t_sim_s", "schedule", "microbatches"]),
        }
        row = {
            f"{prefix}_{column}": _MISSING.get(column, math.nan) if choice is None else getattr(choice, column)
            for prefix, choice in chosen.items()
            for column in columns
        }
        rows.append({"stages": num_ranks, **row})
    return pd.DataFrame(rows)


def _fastest(candidates):
    """The fastest candidate by the written rule, or None."""
    equal = candidates[candidates.t_sim_s <= candidates.t_sim_s.min() * (1 + TIE)]
    return _first(equal, ["total_bytes", "schedule", "microbatches"])


def _first(candidates, order):
    return next(candidates.sort_values(order).itertuples(), None)


def undefined_text(candidates, cases, stages_list):
    """Which schedules were asked and are no candidates, for each number of ranks.

    Parameters
    ----------
    candidates : DataFrame
        From `candidate_study`.
    cases : iterable of str or (str, dict)
        What it was asked of.
    stages_list : sequence of int
        Values of S.

    Returns
    -------
    str
        One sentence an S at which one is left out, or nothing.

    Examples
    --------
    >>> undefined_text(pd.DataFrame({"schedule": ["GPipe"], "stages": 4}), ["gpipe", "zb-v"], [4])
    'Not defined at any of these B, or the model has too few blocks for their stages, at S = 4: ZB-V.'
    """
    asked, said = [label(*named(case)) for case in cases], []
    for num_ranks in stages_list:
        found = set(candidates.schedule[candidates.stages == num_ranks])
        if left := [name for name in asked if name not in found]:
            said.append(f"at S = {num_ranks}: {', '.join(left)}")
    about = "Not defined at any of these B, or the model has too few blocks for their stages"
    return f"{about}, {'; '.join(said)}." if said else ""


def recommendation_table(study):
    """A recommendation as a page shows it.

    Parameters
    ----------
    study : DataFrame
        From `recommend_study`.

    Returns
    -------
    DataFrame
        One row an S: what is taken or, where nothing fits, what needs the fewest bytes. Times are in seconds, bytes in
        GiB of 2**30 bytes.
    """
    fits = study.take_schedule.notna()
    shown = {
        column: study[f"take_{column}"].where(fits, study[f"smallest_{column}"])
        for column in ("schedule", "microbatches", *_MEASURES)
    }
    gib = {f"{part} (GiB)": shown[f"{part}_bytes"] / _GIB for part in ("activations", "persistent", "total")}
    table = {"S": study.stages, "fits": fits.map({True: "yes", False: "no"}), "schedule": shown["schedule"]}
    table |= {"B": shown["microbatches"], "T_sim (s)": shown["t_sim_s"], "tokens / s": shown["tokens_per_s"]}
    return pd.DataFrame(table | gib).astype({"B": "Int64"})


def recommendation_text(study, limit_bytes):
    """A recommendation in words, one sentence or more for each number of ranks.

    Parameters
    ----------
    study : DataFrame
        From `recommend_study`.
    limit_bytes : float
        Bytes that the fullest rank may hold.

    Returns
    -------
    str
        A list in Markdown.
    """
    return "\n".join(f"- **S = {row.stages}:** {_sentence(row, limit_bytes)}" for row in study.itertuples())


def _sentence(row, limit_bytes):
    if pd.isna(row.smallest_schedule):
        return "**none of the schedules** is defined at any of these $B$, or the model does not fit them."
    if pd.isna(row.take_t_sim_s):
        return (
            f"**nothing fits** in {limit_bytes / _GIB:.4g} GiB. The least is {_size(row, 'smallest')}, by "
            f"{_name(row, 'smallest')}. {_fastest_of_all(row)}"
        )
    rest = "No other schedule fits."
    if not pd.isna(row.next_t_sim_s):
        slower = row.next_t_sim_s / row.take_t_sim_s - 1
        by = f"{slower:.1%}" if slower >= _SMALL else "less than 0.1%"
        rest = f"Next is {_name(row, 'next')}, {by} slower, with {_size(row, 'next')}."
    return (
        f"**take {_name(row, 'take')}**: {row.take_t_sim_s:.4g} s, {row.take_tokens_per_s:,.0f} tokens a second, "
        f"{_size(row, 'take')} of {limit_bytes / _GIB:.4g}. {rest} {_fastest_of_all(row)}"
    )


def _fastest_of_all(row):
    if row.unlimited_schedule == row.take_schedule and row.unlimited_microbatches == row.take_microbatches:
        return "The limit costs no time."
    if pd.isna(row.take_t_sim_s):
        return f"The fastest would be {_name(row, 'unlimited')}, which needs {_size(row, 'unlimited')}."
    faster = 1 - row.unlimited_t_sim_s / row.take_t_sim_s
    best = _name(row, "unlimited")
    return f"Without the limit {best} would be {faster:.1%} faster; it needs {_size(row, 'unlimited')}."


def _name(row, prefix):
    return f"{getattr(row, f'{prefix}_schedule')} with B = {getattr(row, f'{prefix}_microbatches'):.0f}"


def _size(row, prefix):
    return f"{getattr(row, f'{prefix}_total_bytes') / _GIB:.4g} GiB"
