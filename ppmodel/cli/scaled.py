"""Plans of many questions as a table, and as a picture of strong scaling."""

from ppmodel.cli import text
from ppmodel.cli.planned import RUN, ends_text, failure_lines, layout_text, run_text
from ppmodel.studies.planning.money import DAY_S

_ASKED = {"gpus": "GPUs", "system": "system", "framework": "framework", "global_batch": "batch", "sequence": "sequence"}
_NUMBERS = {
    "iteration_s": ("iteration (s)", "{:.4g}".format), "tokens_per_s": ("tokens/s", text.in_words),
    "model_flops_utilization": ("MFU", "{:.1%}".format), "scaling": ("scaling", "{:.0%}".format),
    "peak_memory_bytes": ("GiB", text.gibibytes), "fit": ("fits", str), "useful_share": ("useful", "{:.1%}".format),
} | RUN  # fmt: skip


def scaled_lines(frame, training):
    """Yield what ``plan`` prints of many questions: the frame of `planning.plans`, and its `Training`."""
    differ = [name for name in _ASKED if name == "gpus" or frame[name].nunique() > 1]
    numbers = {name: column for name, column in _NUMBERS.items() if name in frame}
    rows = [row for _, row in frame[frame.refused.isna()].iterrows()]
    answers = [row for row in rows if row.get("is_answer")]
    layouts = [layout_text(row).split(", ") for row in rows]
    shared = [part for part in layouts[0] if all(part in layout for layout in layouts)] if len(rows) > 1 else []
    heads = [*(_ASKED[name] for name in differ), *(heading for heading, _ in numbers.values()), "nine of ten", "layout"]
    cells = [
        [*(str(row[name]) for name in differ),
         *(write(row[name]) if row[name] == row[name] else "" for name, (_, write) in numbers.items()),  # NaN: no price
         ends_text(row), ", ".join(part for part in layout if part not in shared)]
        for row, layout in zip(rows, layouts, strict=True)
    ]  # fmt: skip
    alike = (f"{_ASKED[name]} {frame[name].dropna().iloc[0]}" for name in _ASKED if name not in differ)
    trained = [f"trained on {text.in_words(training.tokens)} tokens"] if training.tokens else []
    yield ", ".join([f"{frame.model.iloc[0]}: the first answer to each question", *alike, *shared, *trained])
    yield from ("", *text.table([heads, *cells], ("system", "framework", "fits", "layout")))
    yield "scaling: tokens/s of a GPU over those of the first row that differs in GPUs alone"
    yield "layout: the first answer; ask one question for the others"
    for row in answers:
        is_late = training.finish and row.days * DAY_S * row.slowest_s > training.finish * row.iteration_s
        late = "; the predicted time keeps the deadline, the end of its range does not" if is_late else ""
        yield f"answer  {row.gpus} GPUs of {row.system}: {run_text(row)}{late}"
    priced = [row for row in answers or rows if row.get("money_per_billion_tokens", 0) > 0]
    if len(priced) > 1:
        row = min(priced, key=lambda row: row.money_per_billion_tokens)
        named = ", ".join(f"{_ASKED[name]} {row[name]}" for name in differ)
        yield f"cheapest, of those with a price: {named}"
    for row in answers or rows[-1:]:
        yield from failure_lines(row)
    for _, row in frame[frame.refused.notna()].iterrows():
        yield f"none    {', '.join(f'{_ASKED[name]} {row[name]}' for name in differ)}: {row.refused}"


def drawn_scaling(frame):
    """A picture of tokens per second over GPUs."""
    from ppmodel.plot import plot_lines

    differ = [name for name in _ASKED if name != "gpus" and frame[name].nunique() > 1] or ["system"]
    frame = frame.assign(label=[", ".join(map(str, values)) for values in frame[differ].values])
    labels = {"gpus": "GPUs (log scale)", "tokens_per_s": "tokens per second (log scale)"}
    title = f"{frame.model.iloc[0]}: tokens per second over GPUs"
    return plot_lines(frame, "gpus", "tokens_per_s", title, log="xy", labels=labels)
