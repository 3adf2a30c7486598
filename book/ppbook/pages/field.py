"""The paper's statements about its schedules, asked of all schedules."""

import numpy as np
import pandas as pd

import ppmodel
from ppbook.pages.levels import POINT, advantages, agreement
from ppmodel.clusters.specs import DATA
from ppmodel.ops import OpKind
from ppmodel.schedules.cases import label, legal_cases
from ppmodel.studies.analysis import crossings
from ppmodel.studies.analysis.orders import order_of_amounts
from ppmodel.studies.noise import TIE

PAPERS = ("gpipe", "1f1b", "chimera", "asymmetric-chimera", "hanayo")
"""The schedules that the paper compares."""

FASTEST, WITHIN, LEAST = "fastest", "fastest within the base's memory", "least memory"
"""What `taken_of` takes."""


def gains_over(grid, bases, short):
    """What the best schedule saves on each of some bases.

    Parameters
    ----------
    grid : DataFrame
        From `levels`, with systems.
    bases : sequence of str
        Labels.
    short : float
        Transfers below this share of a forward are short.

    Returns
    -------
    Series
        Share of the base's time, by ``base``, ``transfers`` (short or longer), ``multiple`` (B/S), ``system`` and
        ``pp``.
    """
    over = pd.concat(advantages(grid, base).assign(base=base) for base in bases)
    over["transfers"] = over.comm_over_forward.lt(short).map({True: "short", False: "longer"})
    over["multiple"] = over.microbatches // over.pp
    return -over.groupby(["base", "transfers", "multiple", "system", "pp"]).relative.min()


def smaller_bubbles(grid, base, clear):
    """The schedules with a smaller bubble than a base: whether they pay for it, and where transfers take it away.

    Parameters
    ----------
    grid : DataFrame
        From `levels`, with systems.
    base : str
        Its label.
    clear : float
        The least gain that counts.

    Returns
    -------
    DataFrame
        A row per schedule: ``label``; ``lost_from``, the shortest transfer over a forward at which the network takes
        away a gain, NaN if it never does; and ``costs``, whether it has more messages or memory anywhere.
    """
    promised = advantages(grid, base)
    promised = promised[promised.smaller_bubble]
    lost = promised.by_network & (promised.without_network <= -clear)
    rows = promised[[*POINT, "label"]].merge(grid, on=[*POINT, "label"])
    rows = rows.merge(grid[grid.label == base], on=POINT, suffixes=("", "_base"))
    costs = rows.messages_of_rank > rows.messages_of_rank_base
    costs |= order_of_amounts(rows.peak_memory_bytes, rows.peak_memory_bytes_base) > 0
    by_label = promised.assign(lost_from=promised.comm_over_forward.where(lost)).groupby("label", sort=False)
    return by_label.lost_from.min().to_frame().assign(costs=costs.groupby(rows.label).any()).reset_index()


def verdicts(grid, front, last, base, *, clear, close, short):
    """Whether the paper's statements carry over to all schedules, or in part: in which share of the places they hold.

    Parameters
    ----------
    grid : DataFrame
        From `levels`, with systems.
    front : DataFrame
        Its `fronts`.
    last : DataFrame
        As `grid`, with many microbatches.
    base : str
        Label of what gains are measured against.
    clear, close, short : float
        As in `agreement`; the share over the fastest that is close; as in `gains_over`.

    Returns
    -------
    DataFrame
        Columns ``statement, verdict, found, counted``.
    """
    papers = {label(name) for name in PAPERS} | set(grid.label[grid.schedule.isin(PAPERS)])
    ranks, bubbles = agreement(grid, clear), smaller_bubbles(grid, base, clear)
    gains = gains_over(grid, [name for name in dict.fromkeys(["GPipe", base]) if name in set(grid.label)], short)
    by_size = gains[base].groupby(["transfers", "multiple"]).median().unstack(0)
    overall = gains.groupby(["base", "transfers"]).median().unstack()
    of_field = grid[grid.published_bubble_ratio.notna() & ~grid.label.isin(papers)]
    under = (of_field.table_bubble_ratio - of_field.published_bubble_ratio).groupby(of_field.label).max() > 1e-3
    tau = min(ranks.formula_table.median(), ranks.table_without_network.median())
    falling = [by_size[kind].is_monotonic_decreasing for kind in by_size]
    faster = overall.short > overall.longer if {"short", "longer"} <= set(overall) else []
    fastest = last.groupby("system").makespan_s.transform("min")
    near = order_of_amounts(last.makespan_s, (1 + close) * fastest) <= 0
    converged = last.assign(near=near).groupby("system").near.all()
    worth = (front.front & front.label.isin(papers)).groupby([front.system, front.pp]).any()
    statements = pd.read_csv(DATA / "statements.csv")
    met = {
        "formula": (sum(under), len(under)), "levels": (tau, 1), "reversed": (sum(ranks.clear > 0), len(ranks)),
        "network": (ranks.by_network.sum(), ranks.reversed.sum()),
        "negated": (bubbles.lost_from.count(), len(bubbles)), "falling": (sum(falling), len(falling)),
        "faster": (sum(faster), len(faster)), "converged": (sum(converged), len(converged)),
        "costs": (bubbles.costs.sum(), len(bubbles)), "worth": (sum(worth), len(worth)),
    }  # fmt: skip
    counts = pd.DataFrame([met[name] for name in statements.name], columns=["met", "of"], dtype=object)
    share = counts.met.astype(float) / counts.of.where(counts.of > 0)
    carried, in_part = share >= statements.carries_over, share >= statements.in_part
    verdict = np.select(
        [share.isna(), carried, in_part & (share > 0)], ["not asked", "carries over", "in part"], "does not"
    )
    texts = [f"{row.met:.2f}" if row.met is tau else f"{row.met} of {row.of}" for row in counts.itertuples()]
    return statements[["statement"]].assign(verdict=verdict, found=texts, counted=statements.counted)


def taken_of(rows, limit_bytes):
    """Take the fastest schedule, the fastest within a limit of memory, and the one that holds least.

    Parameters
    ----------
    rows : DataFrame
        From `ppmodel.compare` with a model, at one size on one system.
    limit_bytes : float
        For the most loaded rank.

    Returns
    -------
    DataFrame
        The rows, with ``asked``, which of the three each is. Ties go to less memory, then to the first by label.

    Examples
    --------
    >>> frame = ppmodel.compare(["gpipe", "1f1b"], 32, 256, model="llama3_70b", system="dgx_h100")
    >>> taken_of(frame, 1e12)[["asked", "label"]].values.tolist()
    [["fastest within the base's memory", '1F1B'], ['fastest', '1F1B'], ['least memory', '1F1B']]
    """

    def fastest(rows):
        equal = rows[rows.makespan_s <= rows.makespan_s.min() * (1 + TIE)]
        return equal.sort_values(["peak_memory_bytes", "label"])[:1]

    fitting = rows[rows.peak_memory_bytes <= limit_bytes]
    least = rows.sort_values(["peak_memory_bytes", "makespan_s", "label"])[:1]
    answers = {WITHIN: fastest(fitting), FASTEST: fastest(rows), LEAST: least}
    choices = [answer.assign(asked=asked) for asked, answer in answers.items() if len(answer)]
    return pd.concat(choices, ignore_index=True)


def advice_on(rows, base, short):
    """Count what to take on each system: the fastest, the fastest within the base's memory, and what holds least.

    Parameters
    ----------
    rows : DataFrame
        From `levels`, at one size, with systems.
    base : str
        Label of what times and memory are compared with.
    short : float
        As in `gains_over`.

    Returns
    -------
    DataFrame
        A row per kind of system, question and schedule that answers it: ``kind, asked, label``, on how many systems it
        does (``best_on``), ``of`` how many, and the range of time and memory over the base's, minus 1.
    """
    of_base = rows[rows.label == base].set_index("system")
    systems, limit = rows.groupby("system", sort=False), of_base.peak_memory_bytes * (1 + 1e-9)
    choices = pd.concat(taken_of(group, limit[system]) for system, group in systems)
    is_short = choices.system.map(systems.comm_over_forward.median()) < short
    kind = np.where(is_short, "short transfers", "longer transfers")
    choices["kind"] = np.where(choices.asked == LEAST, "any", kind)
    for name, column in (("time", "makespan_s"), ("memory", "peak_memory_bytes")):
        choices[name] = choices[column] / choices.system.map(of_base[column]) - 1
    advice = choices.groupby(["kind", "asked", "label"], sort=False).agg(
        best_on=("label", "size"), time_low=("time", "min"), time_high=("time", "max"),
        memory_low=("memory", "min"), memory_high=("memory", "max"),
    ).reset_index()  # fmt: skip
    advice.insert(4, "of", advice.groupby(["kind", "asked"]).best_on.transform("sum"))
    order = {"by": ["kind", "asked", "best_on"], "ascending": [False, True, False]}
    return advice.sort_values(**order, kind="stable", ignore_index=True)


def worth_until(rows, base):
    """Find how long a transfer may take before a schedule is no longer faster than a base.

    Parameters
    ----------
    rows : DataFrame
        From `levels`, at one size, over ``comm``.
    base : str
        Its label.

    Returns
    -------
    DataFrame
        A row per schedule but the base: ``label, bubble, messages``, the most of a rank; ``over_base``, these over the
        base's; and ``worth_until``, in the unit of ``comm``: infinite if the schedule stays faster, NaN if it never is.
    """
    times = rows.pivot(index="comm", columns="label", values="makespan_s")
    apart = np.log(times.div(times[base], axis=0).drop(columns=base))
    until = apart.apply(
        lambda log: np.nan if log.iloc[0] >= -1e-9 else min(crossings(log.index, log), default=np.inf)
    ).rename("worth_until")
    worth = rows.groupby("label").agg(bubble=("table_bubble_ratio", "first"), messages=("messages_of_rank", "first"))
    worth["over_base"] = worth.messages / worth.messages[base]
    worth = worth.join(until, how="inner").reset_index()
    return worth.sort_values(["bubble", "over_base", "label"], ignore_index=True)


def halves_of_backwards(schedules, sizes, model, system):
    """Compare idle time with equal halves of a backward and with a model's own, without a network.

    Parameters
    ----------
    schedules : list
        As in `ppmodel.compare`; those that do not split their backwards are left out.
    sizes : iterable of (int, int)
        Ranks and microbatches.
    model, system : str
        Whose halves.

    Returns
    -------
    DataFrame
        Columns ``label, microbatches``; ``input_grad, weight_grad``, in forwards; and the idle ratios by ``table``,
        with ``equal`` halves and with the model's ``own``, in the same order.
    """
    frames, silent = [], {"p2p": "latency", "forward": 1}
    for size in sizes:
        split = {case.label: table for case, table in legal_cases(schedules, *size) if (table.kind == OpKind.I).any()}
        seconds = ppmodel.simulate("1f1b", *size, model=model, system=system).costs.compute_s.mean(axis=1)
        input_grad, weight_grad = seconds[[OpKind.I, OpKind.W]] / seconds[OpKind.F]
        halves = {"input_grad": input_grad, "weight_grad": weight_grad}
        equal = ppmodel.compare(list(split.values()), input_grad=1, weight_grad=1, **silent).idle_ratio
        rows = ppmodel.compare(list(split.values()), **halves, **silent).assign(label=list(split), equal=equal)
        frames.append(rows.rename(columns={"table_bubble_ratio": "table", "idle_ratio": "own"}))
    columns = ["label", "microbatches", "input_grad", "weight_grad", "table", "equal", "own"]
    return pd.concat(frames, ignore_index=True)[columns]
