"""The built book as one PDF: printed by Chromium, with page numbers and links, and put next to the pages."""

import re
import shutil
from html import escape
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from time import gmtime, strftime

from bs4 import BeautifulSoup

from ppbook import ROOT
from ppbook.build.browser import chromium
from ppbook.build.folders import MARK, copy_sources, publish, rewrite
from ppbook.build.reproduce import NO_SOURCES, build_pages, commit_time
from ppbook.errors import ReproduceError
from ppbook.pages.pictures import choose
from ppbook.pages.report import TEMPLATES
from ppmodel import __version__
from ppmodel.clusters.specs import DATA

NAME = "pipeline-schedules.pdf"
"""The file name, in the folder of the pages."""

PAPER = {"width": 673, "height": 980}  # px: what the sheet leaves of A4 within its margins
_DROPPED = (
    "script, style:not(.cell_output style), link, button, [hidden], .headerlink, .copybtn, .cell_input, "
    ".cell.tag_parameters, .cell.tag_hide-cell, "
    ".only-dark, source, svg.narrow, .on-screen"  # keeps the light, wide pictures; templates are files of the reader's
)
_BUTTON = re.compile(r"<button [^>]*\bwindow\.print\(\)[^>]*>.*?</button>", re.DOTALL)
_LAST_LIST = re.compile(r"(<nav [^>]*\bbd-docs-nav\b.*?)(</ul>\s*</div>\s*</nav>)", re.DOTALL)


def pdf(out=None):
    """Print a built book as one PDF, and link it from its pages.

    Parameters
    ----------
    out : str or Path, optional
        Folder with the built ``html``, as from `reproduce`; by default, the clone's.

    Returns
    -------
    count : int
        Number of pages.
    path : Path
        Where it is.

    Raises
    ------
    ReproduceError
        If there is no book, or no Chromium.
    """
    out = Path(out or ROOT / "book" / "_build").absolute()
    html = out / "html"
    if not (html / MARK).is_file():
        raise ReproduceError("out", out, "contains no built book", "run make book first")
    with TemporaryDirectory(prefix=".ppmodel-", dir=out, ignore_cleanup_errors=True) as work:
        work = Path(work)
        pages = work / "html"
        shutil.copytree(html, pages)
        count = print_page(single_page(pages, work), pages / NAME)
        rewrite(pages, lambda text, up: linked(text, f"{up}{NAME}"))
        publish(pages, html, (html / MARK).read_text(encoding="utf-8").strip())
    return count, html / NAME


def single_page(html, work):
    """Build the single page of a book again, from the sources that its pages came from.

    Parameters
    ----------
    html : Path
        The built book.
    work : Path
        A temporary folder.

    Returns
    -------
    Path
        The document to print; what it loads is beside it.
    """
    book = work / "book"
    copy_sources(ROOT / "book", book, NO_SOURCES)
    copy_sources(DATA / "templates", book / "templates")
    copy_sources(html / "_sources", book)
    (book / "results").mkdir(exist_ok=True)
    for path in (*(html / "results").iterdir(), *(html / "_images").glob("*.png")):
        (book / "results" / path.name).symlink_to(path)
    page = build_pages(book, work, "singlehtml") / "index.html"
    files = {path.stem: path for path in (html / "_images").glob("*.png")}
    rewrite(page.parent, lambda text, _: choose(text, page.parent / "_images", files))
    page.write_text(document(page), encoding="utf-8")
    return page


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
    single = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    article = single.select_one("article")
    for part in article.select(_DROPPED):
        part.decompose()
    for cell in article.select("div.cell"):
        if not cell.get_text(strip=True) and not cell.select("img, svg, canvas"):
            cell.decompose()
    for heading in article.find_all(re.compile("h[2-6]"), string="Data"):  # sections that only name files
        heading.find_parent("section").decompose()
    for part in article.select("noscript"):
        part.unwrap()
    for link in article.select("a[href]"):
        if not link["href"].startswith(("#", "http://", "https://", "mailto:")):  # a download, or the explorer
            link.unwrap()
    entries = _entries(article, [part.get_text(strip=True) for part in single.select("nav.bd-docs-nav p.caption")])
    return TEMPLATES.get_template("print.html").render(
        title=single.title.string.rpartition("—")[2].strip(), sheets=single.select("link[rel=stylesheet]"),
        style=TEMPLATES.get_template("print.css").render(),
        cover=[picture["src"] for picture in article.select(".race img")], version=__version__,
        day=strftime("%-d %B %Y", gmtime(int(commit_time()))), entries=entries, article=article.decode_contents(),
    )  # fmt: skip


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


def print_page(page, target):
    """Print a document twice: the first time finds the page of each chapter.

    Parameters
    ----------
    page, target : Path
        The document, and the PDF.

    Returns
    -------
    int
        Number of pages.
    """
    from pypdf import PdfReader

    settings = {"prefer_css_page_size": True, "print_background": True, "outline": True, "tagged": True}
    with chromium() as browser:
        tab = browser.new_page(viewport=PAPER)
        tab.emulate_media(media="print", color_scheme="light")
        tab.goto(page.as_uri())
        tab.evaluate("ready()")
        tab.evaluate("fit()")
        tab.pdf(path=str(target), **settings)
        reader = PdfReader(target)
        places = {name.lstrip("/"): place for name, place in reader.named_destinations.items()}
        tab.evaluate("number", {name: reader.get_destination_page_number(place) + 1 for name, place in places.items()})
        tab.pdf(path=str(target), **settings)
        return len(PdfReader(target).pages)


def linked(text, address):
    """Add links to the PDF to a page: in the download menu, and below the table of contents.

    Parameters
    ----------
    text : str
        The page; it may already have the links.
    address : str
        Address of the PDF, relative to the page.

    Returns
    -------
    str

    Examples
    --------
    >>> "print()" in linked('<button onclick="window.print()">.pdf</button>', "book.pdf")
    False
    """
    if f'href="{address}"' in text:
        return text
    title = "The whole book as one PDF"
    menu = f'<a href="{address}" class="btn btn-sm btn-download-pdf-button dropdown-item" title="{title}">book.pdf</a>'
    entry = f'<li class="toctree-l1"><a class="reference external" href="{address}">{title}</a></li>'
    text = _BUTTON.sub(lambda _: menu, text)
    return _LAST_LIST.sub(rf"\1{entry}\2", text, count=1)
