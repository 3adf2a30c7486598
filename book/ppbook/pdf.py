"""The built book as one PDF: printed by Chromium, with page numbers and links, and put next to the pages."""

import re
import shutil
from pathlib import Path

from ppbook.browser import chromium
from ppbook.build import NO_SOURCES, build_pages
from ppbook.folders import copy_sources, publish, require_ours, workspace
from ppbook.pictures import choose
from ppbook.printed import document
from ppbook.run import ROOT
from ppmodel.errors import ReproduceError
from ppmodel.specs import DATA

NAME = "pipeline-schedules.pdf"
"""The file name, in the folder of the pages."""

PAPER = {"width": 673, "height": 980}  # px: what the sheet leaves of A4 within its margins
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
    str
        Where it is.

    Raises
    ------
    ReproduceError
        If there is no book, or no Chromium.
    """
    out = Path(out or ROOT / "book" / "_build").absolute()
    html = out / "html"
    if not (html / "_sources" / "_toc.yml").is_file():
        raise ReproduceError("out", out, "contains no built book", "run make book first")
    before = require_ours(html)
    with workspace(out) as work:
        pages = work / "html"
        shutil.copytree(html, pages)
        count = print_page(single_page(pages, work), pages / NAME)
        link(pages)
        publish(pages, html, before)
    return f"{count} pages; the PDF is {html / NAME}"


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
    (book / "results").symlink_to(html / "results")
    page = build_pages(book, work, "singlehtml") / "index.html"
    choose(page.parent, html / "_images")
    page.write_text(document(page), encoding="utf-8")
    return page


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


def link(html):
    """Link the PDF from all pages: in the download menu, and below the table of contents.

    Parameters
    ----------
    html : Path
        The pages; they may already have the link.
    """
    for page in sorted(html.rglob("*.html")):
        if "_static" not in page.parts:
            root = "../" * len(page.relative_to(html).parts[:-1])
            page.write_text(linked(page.read_text(encoding="utf-8"), f"{root}{NAME}"), encoding="utf-8")


def linked(text, address):
    """Add links to the PDF to a page.

    Parameters
    ----------
    text : str
        The page.
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
