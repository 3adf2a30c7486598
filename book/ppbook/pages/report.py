"""What a notebook leaves behind: numbers as CSV beside their figure, and tables fit for a page."""

import json
import re
from collections import Counter
from contextlib import nullcontext
from functools import cache, partial
from hashlib import sha256
from html import escape, unescape
from pathlib import Path

import pandas as pd
from IPython.display import display_markdown
from jinja2 import Environment, FileSystemLoader, select_autoescape
from matplotlib import pyplot, rc_context
from pandas.io.formats.style import Styler
from ruamel.yaml import YAML

from ppbook.pages import pictures
from ppbook.parameters import shown
from ppmodel.cli.text import aligned
from ppmodel.clusters.specs import DATA
from ppmodel.errors import PPModelError
from ppmodel.export import csv_cell
from ppmodel.plot import typeset
from ppmodel.plot.style import in_words
from ppmodel.studies.points import COLUMNS

_LONG_TEXT = {"10em": 20, "14em": 40}  # letters from which a column, or the first, has this width
_PLAIN, _TYPED = re.compile(r"[\w./-]+"), re.compile(r"[\w./-]*[a-z0-9]_[a-z0-9][\w./-]*\b")
_ANSWERS = {True: "yes", False: "no"}
_NUMBER = "{:.6g}"
_ROUNDING = 1e-12
_BETWEEN = "\x1f"  # of cells: a sign that no cell has
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_TITLED = ("source", "runs", "group", "where")  # columns that name runs of others
_UNITS = {"s": " (s)", "bytes": " (bytes)"}
_HEADINGS = {column.name: column.heading + _UNITS.get(column.name.rpartition("_")[2], "") for column in COLUMNS}
_HEADINGS |= {  # of `analysis.reversals` and `paper.Paper`
    "smaller_bubble": "smaller bubble", "bubble_smaller": "bubble", "makespan_smaller_s": "time (s)",
    "bubble_faster": "its bubble", "makespan_faster_s": "its time (s)", "by_network": "by the network",
    "difference": "ours minus published", "title": "number or statement", "turned": "turned by",
    "paper": "setting paper", "default": "setting default",
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
        Single numbers and words that pages quote, written as ``.json``; NaN as null.

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
        made = getattr(figure, "versions", {})  # while a book is built
        with pictures.laid_out(figure) if made else nullcontext(), rc_context({"svg.fonttype": "none"}):
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
        for ending, picture in made.items():
            (folder / f"{name}{ending}.png").write_bytes(picture)
        if not made:
            figure.savefig(folder / f"{name}.png", metadata={"Software": None}, bbox_inches="tight")
        pyplot.close(figure)  # a notebook shows it where it names it, and not a second time
    if table is not None:
        table = table.map(lambda value: csv_cell(value) if isinstance(value, str) else value)
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    if page is not None:
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
    if facts:
        facts = {key: None if value != value else value for key, value in facts.items()}  # JSON has no NaN
        (folder / f"{name}.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def titled(text):
    """A text in which files and groups of measured runs have titles for names.

    Examples
    --------
    >>> titled("vtrain_multi, A100")
    'vTrain, several nodes, A100'
    """
    titles, names = _titles()
    return names.sub(lambda name: titles[name[0]], str(text))


@cache
def _titles():
    """Titles of files and groups of measured runs by name, and the pattern of the names."""
    titles = YAML(typ="safe").load(DATA / "reference" / "titles.yaml")
    return titles, re.compile(rf"\b({'|'.join(map(re.escape, sorted(titles, key=len, reverse=True)))})\b")


def show(table, words=None, /, numbers=None, caption=None, **formats):
    """A table as a page shows it: no index, headings in words, numbers in a given form, the same bytes every time.

    Parameters
    ----------
    table : DataFrame
        Its numbers are set to the right, its words to the left; missing values stay empty. Text comes out as text,
        whatever signs are in it, but systems, models, semantics, measured runs and rows of claims have words for
        names, and other names that people type, such as those of fields, are set as code.
    words : dict of str to str, optional
        What the page calls columns, by name. Other columns have the headings of `points.COLUMNS`, or their names.
    numbers : str, optional
        Format of all columns of numbers that have none of their own, but not of whole numbers in percent; by default
        fractions have up to six digits. What is true or false is shown as yes or no.
    caption : str, optional
        Plain text that stands with the table.
    **formats : str
        Format of a column's numbers by its name, for example ``idle_ratio="{:.1%}"``.

    Returns
    -------
    pandas Styler
        Its identifier follows from the content and the formats.

    Examples
    --------
    >>> table = show(pd.DataFrame({"pp": [4], "least": [0.25]}), {"least": "least c / F"}, least="{:.1f}")
    >>> list(table.columns)
    ['S', 'least c / F']
    """
    table = table.assign(**{name: table[name].map(_ANSWERS) for name in table.select_dtypes("bool")})
    table = table.map(in_words)
    named = [name for name in _TITLED if name in table and not pd.api.types.is_numeric_dtype(table[name])]
    table = table.assign(**{name: table[name].map(titled, na_action="ignore") for name in named})
    decimals = table.select_dtypes("float" if numbers and "%" in numbers else "number") if numbers else ()
    formats = dict.fromkeys(decimals, numbers) | formats
    headings = {name: (words or {}).get(name) or in_words(_HEADINGS.get(name, name)) for name in table}
    counts = Counter(headings.values())
    headings = {name: name if counts[heading] > 1 else heading for name, heading in headings.items()}  # label, schedule
    table = table.rename(columns=headings).reset_index(drop=True)
    formats = {headings[name]: form for name, form in formats.items() if name in headings}
    forms = {heading: partial(_cell, code=_PLAIN if _is_names(table[heading]) else _TYPED) for heading in table}
    forms |= {heading: partial(_number, form) for heading, form in formats.items()}
    styler = Table(table).format(forms, na_rep="").format_index(_cell, axis="columns")
    styler = styler.hide(axis="index").set_table_attributes('class="dataframe"')
    numbers = [column for column in table if pd.api.types.is_numeric_dtype(table[column])]
    words = [column for column in table if column not in numbers]
    styler = styler.set_properties(subset=numbers, **{"text-align": "right"})
    styler = styler.set_properties(subset=words, **{"text-align": "left"})
    styler = styler.set_table_styles({name: [{"selector": "th", "props": "text-align: left"}] for name in words})
    letters = {column: table[column].astype(str).str.len().max() for column in words}
    for width, names in (("10em", words[:1]), ("14em", words)):
        long = [column for column in names if letters[column] > _LONG_TEXT[width]]
        styler = styler.set_properties(subset=long, **{"min-width": width})
    if caption:
        styler = styler.set_caption(escape(caption))
    content = table.to_csv() + repr(sorted(formats.items(), key=str))
    return styler.set_uuid(sha256(content.encode()).hexdigest()[:12])


def _number(form, value):
    """A number in a format, typeset; what rounding leaves of a zero is one."""
    return escape(typeset(form.format(0.0 if isinstance(value, float) and abs(value) < _ROUNDING else value)))


def _is_names(column):
    """Whether a column has nothing but names that people type."""
    texts = column.dropna().astype(str)
    return texts.str.fullmatch(_PLAIN.pattern).all() and texts.str.fullmatch(_TYPED.pattern).any()


def _cell(value, code=_TYPED):
    """A cell without a format: a fraction in six digits, and in a text names that people type as code."""
    if isinstance(value, float):
        return _number(_NUMBER, value)
    return code.sub(r"<code>\g<0></code>", escape(value)) if isinstance(value, str) else value


def defined(frame):
    """Leave out what is not defined at a page's parameters, and say so in one line.

    Parameters
    ----------
    frame : DataFrame
        From `ppmodel.compare`.

    Returns
    -------
    DataFrame
        The rows that are not refused.

    Raises
    ------
    PPModelError
        If nothing is left; `ppmodel run` then ends the page with that line.

    Examples
    --------
    >>> import ppmodel
    >>> defined(ppmodel.compare(["gpipe", "1f1b"], 4, 8, forward=1, backward=2)).label.tolist()
    ['GPipe', '1F1B']
    """
    refused = frame[frame.refused.notna()]
    labels = ", ".join(refused.label.unique())
    if len(refused) == len(frame):
        reason = refused.refused.iloc[0] if len(refused) else "there are none"
        raise PPModelError("schedules", labels, f"are not defined here: {reason}", "or choose other schedules")
    if len(refused):
        text = f"*Not defined, and left out: {len(refused)} of {len(frame)} points ({labels}), the first since {{}}.*"
        display_markdown(text.format(literal(refused.refused.iloc[0])), raw=True)
    rows = frame.drop(index=refused.index)
    floats = rows.select_dtypes("float").dropna(axis="columns")  # counts, too, where rows that are left out had none
    return rows.astype({column.name: int for column in COLUMNS if column.type is int and column.name in floats})


def require_rows(rows, **parameter):
    """Refuse a frame without rows, of which a page has nothing to show.

    Parameters
    ----------
    rows : DataFrame
    **parameter
        That of the page which decides what rows there are, by its name.

    Returns
    -------
    DataFrame
        The same.

    Raises
    ------
    PPModelError
        If there are none; `ppmodel run` then ends the page with that line.

    Examples
    --------
    >>> require_rows(pd.DataFrame(), pp=4)
    Traceback (most recent call last):
    ppmodel.errors.PPModelError: pp = 4: leaves nothing to show here; choose another value
    """
    if rows.empty:
        ((name, value),) = parameter.items()
        raise PPModelError(name, shown(value), "leaves nothing to show here", "choose another value")
    return rows


class Table(Styler):
    """A styled table that is also readable where no HTML is shown: in a terminal, in a notebook's plain text."""

    def __repr__(self):
        text = unescape(re.sub("</?code>", "", self.to_string(delimiter=_BETWEEN)))
        head, *rows = [line.split(_BETWEEN) for line in text.splitlines()]
        numbers = [place for place, name in enumerate(self.data) if pd.api.types.is_numeric_dtype(self.data[name])]
        return "\n".join(aligned([head, *rows], right=numbers))


class MyST(str):
    """A part of a page that is written in MyST, and not plain text: `list_table` sets it as it is."""


def literal(text):
    """Plain text in MyST: every sign comes out as itself.

    Parameters
    ----------
    text : str
        Of a file, or of a user.

    Returns
    -------
    MyST
        One line.

    Examples
    --------
    >>> print(literal("{{ a }} <b>"))
    \\{\\{ a \\}\\} \\<b\\>
    """
    return MyST(_PUNCTUATION.sub(r"\\\1", " ".join(str(text).split())))


def list_table(rows, header, widths):
    """A table in MyST.

    Parameters
    ----------
    rows : iterable of sequence of str
        Cells: plain text, or `MyST` where they hold links and formulas.
    header : sequence of str
        Of the columns.
    widths : sequence of int
        Shares of the page.

    Returns
    -------
    MyST

    Examples
    --------
    >>> print(list_table([["a*", MyST("*b*")]], ["one", "two"], [30, 70]))
    :::{list-table}
    :header-rows: 1
    :widths: 30 70
    <BLANKLINE>
    * - one
      - two
    * - a\\*
      - *b*
    :::
    <BLANKLINE>
    """
    lines = [":::{list-table}", ":header-rows: 1", f":widths: {' '.join(map(str, widths))}", ""]
    for cells in [header, *rows]:
        texts = [cell if isinstance(cell, MyST) else literal(cell) for cell in cells]
        lines += [f"{'  - ' if number else '* - '}{text}" for number, text in enumerate(texts)]
    return MyST("\n".join([*lines, ":::", ""]))


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")), trim_blocks=True, autoescape=select_autoescape()
)
"""The templates of what is generated: pages in MyST, and parts of pages in HTML, where values are text."""

TEMPLATES.filters |= {
    "literal": literal, "in_words": in_words, "escape": escape, "short": "{:.3g}".format, "percent": "{:.1%}".format,
}  # fmt: skip
