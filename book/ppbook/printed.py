"""The book as one document for printing: jupyter-book's single page, without what only a screen can use."""

import re
from html import escape
from itertools import zip_longest
from pathlib import Path
from time import gmtime, strftime

from bs4 import BeautifulSoup
from jinja2 import Environment, FileSystemLoader

from ppbook.build import commit_time
from ppmodel import __version__

_DROPPED = (
    "script, style:not(.cell_output style), link, button, [hidden], .headerlink, .copybtn, .cell_input, "
    ".cell.tag_parameters, .cell.tag_hide-cell, "
    ".only-dark, source, svg.narrow, .on-screen"  # keeps the light, wide pictures; templates are files of the reader's
)
_DOWNLOADS = re.compile("^Data$")  # sections that only name files
_MANY = 60  # rows of a table that is printed small
_SHEETS = re.compile(r'<link [^>]*rel="stylesheet"[^>]*>')
_HERE = Path(__file__).parent


def document(page):
    """The document of a single page: a title, the contents with room for page numbers, and the chapters.

    Parameters
    ----------
    page : Path
        The single page.

    Returns
    -------
    str
        HTML, to be opened from the folder of the page.
    """
    text = page.read_text(encoding="utf-8")
    single = BeautifulSoup(text, "html.parser")
    article = single.select_one("article")
    for part in article.select(_DROPPED):
        part.decompose()
    for cell in article.select("div.cell"):
        if not cell.get_text(strip=True) and not cell.select("img, svg, canvas"):
            cell.decompose()
    for heading in article.find_all(re.compile("h[2-6]"), string=_DOWNLOADS):
        heading.find_parent("section").decompose()
    for part in article.select("noscript"):
        part.unwrap()
    for part in article.select("details"):
        part["open"] = ""
    for table in article.select("table"):
        if len(table.select("tr")) > _MANY:
            table["class"] = [*table.get("class", ()), "print-long"]
    for picture in article.select("img[loading]"):
        del picture["loading"]
    for link in article.select("a[href]"):
        if not link["href"].startswith(("#", "http://", "https://", "mailto:")):  # a download, or the explorer
            link.unwrap()
    entries = _entries(article, [part.get_text(strip=True) for part in single.select("nav.bd-docs-nav p.caption")])
    template = Environment(loader=FileSystemLoader(_HERE), autoescape=True).get_template("print.html")
    return template.render(
        title=single.title.string.rpartition("—")[2].strip(),
        sheets=_SHEETS.findall(text),
        style=(_HERE / "print.css").read_text(encoding="utf-8"),
        cover=[picture["src"] for picture in article.select(".race img")],
        version=__version__,
        day=strftime("%-d %B %Y", gmtime(int(commit_time()))),
        entries=entries,
        article=article.decode_contents(),
    )


def _entries(article, captions):
    """The chapters, the first page first; the caption of each part is set above it, for the single page has none."""
    first = article.select_one("section")
    entries = [(None, first["id"], first.h1.get_text(strip=True))]
    parts = [part for part in article.select(".toctree-wrapper") if not part.find_parent(class_="toctree-wrapper")]
    for part, caption in zip_longest(parts, captions):
        if caption:
            part.insert(0, BeautifulSoup(f'<p class="print-part-title">{escape(caption)}</p>', "html.parser"))
        for chapter in part.select("span[id^='document-']"):
            title = chapter.find_next("section").find(re.compile("h[1-6]"))
            entries.append((caption, chapter["id"], title.get_text(strip=True)))
            title["id"] = chapter.extract()["id"]  # before the section, it may be on the page before
            caption = None
    return entries
