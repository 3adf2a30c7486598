"""What a notebook leaves behind: numbers as CSV beside their figure, and tables fit for a page."""

import json
from hashlib import sha256
from pathlib import Path

import pandas as pd
from matplotlib import pyplot

_LONG_TEXT = 40
_WORDS = {  # of columns whose name means the same on every page
    "allreduce": "all-reduce", "at_most_free": "at most, any memory", "bubble_faster": "its bubble",
    "bubble_smaller": "bubble", "by_network": "by the network", "comm_over_forward": "c / F",
    "forward_times": "length (F)", "idle_ratio": "idle share", "input_grad": "input gradient / F",
    "longest_wait": "longest wait", "mean_wait": "mean wait", "microbatches": "B", "not_faster": "not faster",
    "on_front": "on the front", "over_base": "messages over base", "over_free": "over best, any memory",
    "over_halves": "over best, split backward", "over_mean": "over the mean stage", "over_order": "over best order",
    "p2p": "transfers", "peak_activations": "peak activations", "reversed_by_network": "by the network",
    "slowest_stage": "slowest stage", "smaller_bubble": "smaller bubble", "stages": "S", "t_faster_s": "its T_sim (s)",
    "t_sim_events_s": "T_sim by events (s)", "t_sim_s": "T_sim (s)", "t_smaller_s": "T_sim (s)",
    "t_without_network_s": "without network (s)", "table_time": "tau, table and time", "time_lost": "time lost",
    "weight_grad": "weight gradient / F", "worth_until": "faster up to c / F",
}  # fmt: skip


def record(name, folder, figure=None, table=None, page=None, **facts):
    """Write a figure and the numbers in it side by side.

    Parameters
    ----------
    name : str
        Stem of the files.
    folder : str or Path
        Made where it is missing.
    figure : matplotlib Figure, optional
        Written as ``.svg`` and ``.png``, without a date, and closed.
    table : DataFrame, optional
        Written as ``.csv``, numbers in full.
    page : str, optional
        A part of a page in MyST, written as ``.md``; other pages include it.
    **facts
        Single numbers and words that pages quote, written as ``.json``.

    Returns
    -------
    None
        What is not given is not written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     record("bubble", folder, ratio=0.25)
    ...     [path.name for path in Path(folder).iterdir()]
    ['bubble.json']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if figure is not None:
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
        figure.savefig(folder / f"{name}.png", metadata={"Software": None}, bbox_inches="tight")
        pyplot.close(figure)  # a notebook shows it where it names it, and not a second time
    if table is not None:
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    if page is not None:
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
    if facts:
        (folder / f"{name}.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def show(table, words=None, /, numbers=None, **formats):
    """A table as a page shows it: no index, headings in words, numbers in a given form, the same bytes every time.

    Parameters
    ----------
    table : DataFrame
        Its numbers are set to the right, its words to the left; missing values stay empty.
    words : dict of str to str, optional
        What columns of this table are called, by name. Else those that mean the same on every page have fixed words,
        and others their names.
    numbers : str, optional
        Format of all columns of numbers that have none of their own.
    **formats : str
        Format of a column's numbers by its name, for example ``table="{:.1%}"``.

    Returns
    -------
    pandas Styler
        Its identifier follows from the content and the formats.

    Examples
    --------
    >>> table = show(pd.DataFrame({"stages": [4], "least": [0.25]}), {"least": "least c / F"}, least="{:.1f}")
    >>> list(table.columns)
    ['S', 'least c / F']
    """
    if numbers:
        formats = dict.fromkeys(table.select_dtypes("number"), numbers) | formats
    called = {name: (words or {}).get(name) or _WORDS.get(name, name) for name in table}
    table = table.rename(columns=called)
    formats = {called[name]: form for name, form in formats.items() if name in called}
    styler = table.style.format(formats, na_rep="").hide(axis="index").set_table_attributes('class="dataframe"')
    numbers = [column for column in table if pd.api.types.is_numeric_dtype(table[column])]
    words = [column for column in table if column not in numbers]
    styler = styler.set_properties(subset=numbers, **{"text-align": "right"})
    styler = styler.set_properties(subset=words, **{"text-align": "left"})
    long = [column for column in words if table[column].astype(str).str.len().max() > _LONG_TEXT]
    styler = styler.set_properties(subset=long, **{"min-width": "14em"})
    content = table.to_csv() + repr(sorted(formats.items(), key=str))
    return styler.set_uuid(sha256(content.encode()).hexdigest()[:12])


def list_table(rows, header, widths):
    """A table in MyST, whose cells may hold links and formulas.

    Parameters
    ----------
    rows : iterable of sequence of str
        Cells in MyST.
    header : sequence of str
        Of the columns.
    widths : sequence of int
        Shares of the page.

    Returns
    -------
    str

    Examples
    --------
    >>> print(list_table([["a", "b"]], ["one", "two"], [30, 70]))
    :::{list-table}
    :header-rows: 1
    :widths: 30 70
    <BLANKLINE>
    * - one
      - two
    * - a
      - b
    :::
    <BLANKLINE>
    """
    lines = [":::{list-table}", ":header-rows: 1", f":widths: {' '.join(map(str, widths))}", ""]
    for cells in [header, *rows]:
        lines += [f"{'  - ' if number else '* - '}{cell}" for number, cell in enumerate(cells)]
    return "\n".join([*lines, ":::", ""])
