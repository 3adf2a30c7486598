"""The built book as one PDF: printed by Chromium, with page numbers and links, and put next to the pages."""

import re
import shutil
from html import escape
from pathlib import Path
from time import gmtime, strftime

from ppbook.browser import chromium
from ppbook.build import commit_time
from ppbook.folders import publish, require_ours, workspace
from ppbook.run import ROOT
from ppmodel import __version__
from ppmodel.errors import ReproduceError

NAME = "pipeline-schedules.pdf"
"""The file name, in the folder of the pages."""

PAPER = {"width": 673, "height": 980}  # px: what the sheet leaves of A4 within its margins
READY = """async () => {
    if (document.querySelector('.math')) await MathJax.startup.promise;
    await Promise.all([...document.images].map(image => image.decode().catch(() => null)));
    await document.fonts.ready;
}"""
# What is still wider than the paper becomes smaller as a whole.
FIT = """() => {
    const paper = document.body.clientWidth;
    for (const wide of document.querySelectorAll('.print-chapter table, .print-chapter pre, mjx-container[display]')) {
        if (wide.parentElement.closest('table, pre')) continue;
        const room = Math.min(paper, wide.parentElement.getBoundingClientRect().width || paper);
        if (wide.scrollWidth > room + 1) wide.style.zoom = Math.max(0.4, room / (wide.scrollWidth + 1));
    }
}"""
_NUMBER = """pages => {
    for (const one of document.querySelectorAll('.print-page')) one.textContent = pages[one.dataset.place] ?? '';
}"""
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
    if not (html / "index.html").is_file():
        raise ReproduceError("out", out, "contains no built book", "run make book first")
    require_ours(html)
    with workspace(out) as work:
        pages = work / "html"
        shutil.copytree(html, pages)
        (pages / NAME).unlink(missing_ok=True)
        count = _print(pages, pages / NAME)
        link(pages)
        publish(pages, html)
    return f"{count} pages; the PDF is {html / NAME}"


def _print(html, target):
    """Print twice: the first time finds the page of each chapter."""
    from pypdf import PdfReader

    from ppbook.printed import document

    text, entries = document(html, _colophon())
    whole = html / "print.html"
    whole.write_text(text, encoding="utf-8")
    with chromium() as browser:
        page = browser.new_page(viewport=PAPER)
        page.emulate_media(media="print", color_scheme="light")
        page.goto(whole.as_uri())
        page.evaluate(READY)
        page.evaluate(FIT)
        reader = PdfReader(_written(page, target))
        page.evaluate(_NUMBER, _numbers(reader, entries))
        count = len(PdfReader(_written(page, target)).pages)
    whole.unlink()
    return count


def _written(page, target):
    page.pdf(path=str(target), prefer_css_page_size=True, print_background=True, outline=True, tagged=True)
    return target


def _numbers(reader, entries):
    """The page on which each chapter starts."""
    places = reader.named_destinations
    return {
        place: str(reader.get_destination_page_number(places[name]) + 1)
        for _, place, _ in entries
        for name in (place, f"/{place}")
        if name in places
    }


def _colophon():
    """What the title page says: version, date, licence, and what is left out on paper."""
    day = strftime("%-d %B %Y", gmtime(int(commit_time())))
    lines = [
        f"ppmodel {__version__}, {day}",
        "Every figure and every number was computed when this book was built. On paper the code is left out; it stands "
        "on the book's pages and in its notebooks.",
        "Code: MIT. Text and figures: CC BY 4.0.",
    ]
    return "\n".join(f"<p>{escape(line)}</p>" for line in lines)


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
    said = "The whole book as one PDF"
    menu = f'<a href="{address}" class="btn btn-sm btn-download-pdf-button dropdown-item" title="{said}">book.pdf</a>'
    entry = f'<li class="toctree-l1"><a class="reference external" href="{address}">{said}</a></li>'
    text = _BUTTON.sub(lambda _: menu, text)
    return _LAST_LIST.sub(lambda found: f"{found[1]}{entry}{found[2]}", text, count=1)
