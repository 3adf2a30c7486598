"""A plan as text, and as JSON."""

from ppmodel.cli import text
from ppmodel.clusters.specs.available import error_of_differences, regrets
from ppmodel.clusters.specs.layout import ORDERS, STAGE_GROUPS
from ppmodel.clusters.specs.lengths import SLICINGS
from ppmodel.studies.planning.answer import EQUAL
from ppmodel.studies.planning.candidates import IN_PAIRS
from ppmodel.studies.planning.risk import JITTER, SLOWDOWN
from ppmodel.studies.points import PARTS

_SIZES = "pp", *STAGE_GROUPS, "ep", "dp"
_USUAL = {"order": ORDERS[0], "slicing": SLICINGS[0]}  # named if an answer differs
_TEXTS = "schedule", "recompute", "layers", *_USUAL, "variant", "fits", "schedule in"
_LEAST, _MUCH_EXCHANGE = 0.005, 0.1
RUN = {
    "days": ("days", "{:.4g}".format), "gpu_hours": ("GPU-hours", text.in_words), "money": ("money", text.in_words),
    "money_per_billion_tokens": ("per billion tokens", "{:.4g}".format),
}  # fmt: skip
"""Columns of a whole run, each with its heading and its format."""


def planned_lines(plan, most_rows, place):
    """Format what ``plan`` prints.

    Parameters
    ----------
    plan : Plan
    most_rows : int
        Answers to list.
    place : int
        The answer to explain.

    Yields
    ------
    str
    """
    frame, question = plan.frame, plan.question
    row, system = frame.iloc[place], question.system
    model, batch = question.model, f"{question.global_batch} sequences of {question.model.sequence} tokens (--sequence)"
    yield f"{model.name} on {question.gpus} GPUs of {system.name}, {batch}; framework: {text.framework_text(system)}"
    yield f"model   {text.size_text(model)}"
    yield f"system  {text.network_text(system)}"
    if system.links:
        yield f"links   {' '.join(map(str, system.links))}; transfers {', '.join(dict.fromkeys(frame.p2p))}"
    if frame.is_run[0]:
        yield from _advice(plan)
    yield f"answer  {answer_text(frame.iloc[0])}"
    if place:
        yield f"row {place + 1}   {answer_text(row)}"
    if whole := run_text(frame.iloc[0]):
        yield f"cost    {whole}"
    yield from failure_lines(frame.iloc[0])
    usual, unusual = frame[frame.is_run], frame[~frame.is_run]
    if len(usual):
        yield from ("", *_table(usual, most_rows, plan))
    if len(unusual):
        name, faster = system.framework.packaged or "the framework", "as fast or faster, but " if len(usual) else ""
        yield from ("", f"{faster}{name} does not run it, or no such run was measured:", *_table(unusual, most_rows))
    if len(usual):
        is_known = usual.fastest_s.notna().iloc[0]
        chance = "that this row is the fastest when run" if is_known else "not known without a range"
        yield f"disturbed: seconds with {JITTER:.0%} jitter and one device {SLOWDOWN - 1:.0%} slower; chance: {chance}"
    yield f"range: {text.range_from(row)}"
    if remark := text.peaks_text(system):
        yield f"peaks: {remark}"
    if not usual.over_best.is_monotonic_increasing:
        slow = ", more of which may slow it down" * bool(system.framework.slow_above_memory_share)
        within = f" in {plan.limits.comfortable_bytes / 2**30:.3g} GiB{slow}"
        comfortable = "" if plan.limits.is_tight(plan.answers[0]) else within
        first = f"row 1 is the simplest within {EQUAL:.0%} of the fastest{comfortable}"
        yield f"order: {first}; the others follow by the same rule"
    if frame.fit.eq("tight").any():
        yield f"tight: {text.margin_text()}"
    yield from ("", *_explained(plan, row, place))


def _advice(plan):
    """Which answers to run first, and why: how many are too close to tell, and what was gained elsewhere."""
    seconds, rows, share = plan.risk.disturbed_s, [place + 1 for place in plan.tried], error_of_differences()
    num_ties = plan.frame.is_tie.sum()
    if num_ties == 1:
        yield f"run     row 1: no other answer is within {share:.0%} of it, by which predicted differences are off"
        return
    numbers, (alone, three) = ", ".join(str(place + 1) for place in plan.proposed), regrets()
    yield (
        f"run     row{'s' * (len(plan.proposed) > 1)} {numbers} first; the steadiest is row {rows[1]} "
        f"({seconds[rows[1] - 1]:.4g} s disturbed), the simplest row {rows[2]}"
    )
    yield (
        f"why     {num_ties} of {plan.frame.is_run.sum()} answers are within {share:.0%} of row 1, by which "
        f"predicted differences are off (median of measured pairs); in cases that nobody here had seen, our first "
        f"layout took {alone:.0%} longer than the best measured one, the best of our first three {three:.0%} (means)"
    )


def ends_text(row):
    """Between which days, or seconds of an iteration, nine of ten measured runs of a row's kind were."""
    low, high = (row.get("days", row.iteration_s) / row.iteration_s * row[name] for name in ("fastest_s", "slowest_s"))
    return f"{low:.4g} to {high:.4g}" if low == low else ""


def run_text(row):
    """What a whole run takes, as far as it is known."""
    ends = f" (nine of ten: {ends})" if (ends := ends_text(row)) else ""
    parts = {name: f"{heading} {write(row[name])}" for name, (heading, write) in RUN.items() if name in row}
    return ", ".join(part + ends * (name == "days") for name, part in parts.items())


def failure_lines(row):
    """How often a run fails, when it should write checkpoints, and what remains of its time; nothing if not asked."""
    if "failure_every_s" in row:
        daly_min, young_min = row.checkpoint_every_s / 60, row.young_every_s / 60
        size = f"{row.checkpoint_bytes / 1e12:.3g} TB in {row.checkpoint_s:.3g} s"
        lost = {name: RUN[name][1](row[name] * (1 - row.useful_share)) for name in ("days", "money") if name in row}
        yield (
            f"fails   one of {row.gpus} GPUs every {row.failure_every_s / 3600:.3g} h; a checkpoint ({size}) is best "
            f"every {daly_min:.3g} min (Daly; Young: {young_min:.3g}); {row.useful_share:.1%} of the time is useful"
            + "".join(f", {name} {value} lost" for name, value in lost.items())
        )


def answer_text(row):
    """An answer in one line: the layout and schedule, its time with the range, and whether it fits."""
    return (
        f"{layout_text(row)}: {row.iteration_s:.4g} s{text.range_text(row)}, {text.mfu_text(row)}, "
        f"{text.gibibytes(row.peak_memory_bytes)} GiB of {text.gibibytes(row.memory_capacity_bytes)}: {row.fit}"
    )


def layout_text(row):
    """The schedule and the layout of an answer."""
    sizes = [f"{name} {size}" for name, size in _sizes(row).items() if size != "1" or name == "dp"]
    ways = [f"{name} {word}" for name, word in _ways(row).items() if word not in ("", _USUAL.get(name))]
    whole = f"microbatches of {row.microbatch_size:.0f}", f"zero {row.zero:.0f}", f"recompute {row.recompute}"
    return ", ".join(filter(None, (schedule_text(row), *sizes, *whole, *ways, row.get("variant"))))


def _ways(row):
    """The words for layers, order and slicing; empty where an answer has no pipeline, or no slices."""
    has = {"layers": row.pp > 1, "order": row.pp > 1, "slicing": "slices=" in row.options}
    return {name: str(row[name]) if has_any else "" for name, has_any in has.items()}


def _sizes(row):
    """The sizes of an answer, as texts: ep is followed by etp if that is not the tp of the rest of the model."""
    etp = f" x {row.etp:.0f}" if row.etp and row.etp == row.etp else ""
    return {name: f"{row[name]:.0f}" for name in _SIZES} | {"ep": f"{row.ep}{etp}"}


def schedule_text(row):
    """An answer's schedule, if it has a pipeline, and whether pairs hide what experts exchange."""
    alone = "no pipeline, in pairs" if row.schedule == IN_PAIRS else "no pipeline"
    return text.plain(row.label) if row.pp > 1 else alone


def _table(frame, most_rows, plan=None):
    """Answers as lines, at most so many and those to run; with their risk, or the code that has their schedules."""
    shown = sorted({*range(min(most_rows, len(frame))), *(plan.proposed if plan else ())})
    rows, missing, ends = frame.iloc[shown], len(frame) - len(shown), {"schedule in": frame.frameworks.map(text.plain)}
    if plan is not None:
        risk = plan.risk.reindex(frame.index)
        ends = {"disturbed": risk.disturbed_s.map("{:.4g}".format), "chance": risk.chance.map("{:.0%}".format)}
        ends = {head: texts.replace(["nan", "nan%"], "") for head, texts in ends.items()}
    each = [_ways(row) for _, row in rows.iterrows()]
    ways = [name for name in each[0] if {words[name] for words in each} - {"", _USUAL.get(name)}]
    more, variant = ["microbatch_size", "zero", "recompute"], ["variant"] * ("variant" in rows)
    cells = [["", "seconds", "over", "schedule", *_SIZES, "b", *more[1:], *ways, *variant, "GiB", "fits", *ends]]
    for (place, row), words in zip(rows.iterrows(), each, strict=True):
        cells.append([
            str(place + 1), f"{row.iteration_s:.4g}", f"{row.over_best:+z.1%}", schedule_text(row),
            *_sizes(row).values(), *(str(row[name]) for name in more), *map(words.get, ways), *row[variant],
            text.gibibytes(row.peak_memory_bytes), row.fit, *(texts[place] for texts in ends.values()),
        ])  # fmt: skip
    return text.table(cells, _TEXTS) + [f"not listed: {missing} more; see --rows"] * (missing > 0)


def _explained(plan, row, place):
    """What bounds an answer, and what a step away from it costs."""
    shares = (row[[*PARTS]] / row.iteration_s).sort_values(ascending=False, kind="stable")
    parts = (f"{PARTS[name]} {share:.1%}" for name, share in shares.items() if share >= _LEAST)
    yield f"row {place + 1}, where the time goes: {', '.join(parts)}"
    cells, steps = [["one step away", "time", "GiB", "fits"]], plan.steps(place)
    if row.expert_s > _MUCH_EXCHANGE * row.iteration_s:
        near = steps[steps.step.str.match("ep |dispatcher |pp |interleaved|combined") & steps.fits.eq(True)]
        best = near.nsmallest(1, "over").itertuples()
        domain = plan.question.system.nodes.devices_per_node if plan.question.system.nodes else 1
        where = "inside" if row.ep * (row.etp if row.etp > 0 else row.tp) <= domain else "beyond"
        change = "".join(f"; the best step, {step.step}, changes the time by {step.over:+z.1%}" for step in best)
        yield f"experts are limited by their exchange, {where} an NVLink domain of {domain}{change}"
    for _, step in steps.iterrows():
        effect = [f"{step.over:+z.1%}", text.gibibytes(step.peak_memory_bytes), step.fit]
        cells.append([step.step, *(effect if step.over == step.over else ["", "", "not defined"])])
    yield from ("", *text.aligned(cells, right=(1, 2)))


def plan_dict(plan, place):
    """A plan as plain values: the answers, their risk, and the steps from one of them."""
    answers, risk, steps = (frame.to_dict("records") for frame in (plan.frame, plan.risk, plan.steps(place)))
    return {"answers": answers, "risk": risk, "explained": place + 1, "steps": steps}


def drawn_front(plan, workers, scheduler, resume):
    """The fastest answers under ever lower limits of memory as rows, and their picture."""
    from ppmodel.plot import plot_scatter
    from ppmodel.studies.planning import front

    question = plan.question
    rows, names = plan.rows(front(question, workers, scheduler, resume)), []
    for _, row in rows.iterrows():
        parts = [f"{name} {row[name]}" for name in (*_SIZES, "microbatch_size") if row[name] > 1]
        parts += [f"recompute {row.recompute}"] * (row.recompute != "none") + [*row[["variant"] * ("variant" in row)]]
        names.append(f"{schedule_text(row)}: {', '.join(parts)}")
    rows = rows.assign(gib=rows.peak_memory_bytes / 2**30, name=names)
    title = f"{question.model.name} on {question.gpus} GPUs of {question.system.name}"
    labels = {"gib": "memory (GiB)", "iteration_s": "iteration (s)"}
    points = rows.assign(front=True)
    figure = plot_scatter(points, "gib", "iteration_s", title, name="name", front="front", log=(), labels=labels)
    return rows.to_dict("records"), figure


def front_lines(rows):
    """The rows of a front as lines."""
    cells = [["fastest with less memory", "GiB", "iteration (s)"]]
    cells += [[row["name"], f"{row['gib']:.4g}", f"{row['iteration_s']:.4g}"] for row in rows]
    return text.aligned(cells, right=(1, 2))
