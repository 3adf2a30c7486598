"""Plans of many questions as a table, and as a picture of strong scaling."""

from ppmodel.cli import text
from ppmodel.cli.planned import RUN, ends_text, failure_lines, layout_text, run_text

_ASKED = {"gpus": "GPUs", "system": "system", "framework": "framework", "global_batch": "batch", "sequence": "sequence"}
_NUMBERS = {
    "iteration_s": ("iteration (s)", "{:.4g}".format), "tokens_per_s": ("tokens/s", text.in_words),
    "model_flops_utilization": ("MFU", "{:.1%}".format), "scaling": ("scaling", "{:.0%}".format),
    "peak_memory_bytes": ("GiB", text.gibibytes), "fit": ("fits", str), "useful_share": ("useful", "{:.1%}".format),
} | RUN  # fmt: skip


def scaled_lines(frame, tokens):
    """Yield what ``plan`` prints of many questions: the frame of `planning.plans`, and the tokens of the run."""
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
    alike = (f"{_ASKED[name]} {frame[name].iloc[0]}" for name in _ASKED if name not in differ)
    trained = [f"trained on {text.in_words(tokens)} tokens"] if tokens else []
    yield ", ".join([f"{frame.model.iloc[0]}: the first answer to each question", *alike, *shared, *trained])
    yield from ("", *text.table([heads, *cells], ("system", "framework", "fits", "layout")))
    yield "scaling: tokens/s of a GPU over those of the first row; ask with one number of GPUs for other layouts"
    for row in answers:
        yield f"answer  {row.gpus} GPUs of {row.system}: {run_text(row)}"
    for row in answers or rows[-1:]:
        yield from failure_lines(row)
    for _, row in frame[frame.refused.notna()].iterrows():
        yield f"none    {', '.join(f'{_ASKED[name]} {row[name]}' for name in differ)}: {row.refused}"


def drawn_scaling(frame):
    """A picture of tokens per second over GPUs."""
    from ppmodel.plot import plot_lines

    differ = [name for name in _ASKED if name != "gpus" and frame[name].nunique() > 1] or ["system"]
    frame = frame.assign(label=[", ".join(map(str, values)) for values in frame[differ].values])
    labels = {"gpus": "GPUs", "tokens_per_s": "tokens per second"}
    return plot_lines(frame, "gpus", "tokens_per_s", f"{frame.model.iloc[0]} on more GPUs", log="xy", labels=labels)
