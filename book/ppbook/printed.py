"""All pages of a built book as one document for printing, in book order, with links and pictures rewritten."""

import posixpath
import re
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

_DROPPED = (
    "script, style, link, button, [hidden], .headerlink, .copybtn, .cell_input, .cell.tag_parameters, "
    ".only-dark, source, svg.narrow"  # keeps the light, wide pictures
)
_SHEETS = re.compile(r'<link [^>]*rel="stylesheet"[^>]*>')
_SIGNS = re.compile(r"[^\w-]")


def contents(index):
    """The book's contents, from the sidebar of its first page.

    Parameters
    ----------
    index : BeautifulSoup
        The first page.

    Returns
    -------
    list of (str or None, str, str)
        For each page: the part's caption if the page opens one, its address and its title.
    """
    found, part = [], None
    for one in index.select("nav.bd-docs-nav p.caption, nav.bd-docs-nav li[class*=toctree-l] > a"):
        if one.name == "p":
            part = one.get_text(strip=True)
            continue
        address = "index.html" if one["href"] == "#" else one["href"]
        if address.endswith(".html"):
            found.append((part, address, one.get_text(strip=True)))
            part = None
    return found


def anchor(address, fragment=""):
    """The anchor of a place in the document.

    >>> anchor("nb/table.html"), anchor("nb/table.html", "a-b")
    ('nb-table', 'nb-table--a-b')
    """
    name = _SIGNS.sub("-", address.removesuffix(".html"))
    return f"{name}--{fragment}" if fragment else name


def document(html, colophon):
    """One document with all pages.

    Parameters
    ----------
    html : Path
        The built book.
    colophon : str
        What the title page says below the title.

    Returns
    -------
    text : str
        HTML, to be opened from the folder `html`.
    entries : list of (str or None, str, str)
        Part, anchor and title of each chapter, as in the list of contents.
    """
    first = (html / "index.html").read_text(encoding="utf-8")
    index = BeautifulSoup(first, "html.parser")
    listed = contents(index)
    known = {address for _, address, _ in listed}
    chapters = [_chapter(html, address, known, part) for part, address, _ in listed]
    entries = [(part, anchor(address), title) for part, address, title in listed]
    title = (index.title.string or "").rpartition("—")[2].strip()
    head = "\n".join(_SHEETS.findall(first))
    sheet = Path(__file__).with_name("print.css").read_text(encoding="utf-8")
    text = _DOCUMENT.format(
        title=escape(title),
        head=head,
        sheet=sheet,
        colophon=colophon,
        cover=_cover(index),
        entries=_listed(entries),
        chapters="\n".join(chapters),
    )
    return text, entries


def _cover(index):
    """The light pictures at the top of the first page, without their links."""
    opening = index.select_one("article .race")
    pictures = [one["src"] for one in opening.select("img:not(.only-dark)")] if opening else []
    return "".join(f'<img src="{escape(one)}" alt=""/>' for one in pictures)


def _listed(entries):
    lines = []
    for part, place, title in entries:
        if part:
            lines.append(f'<p class="print-part">{escape(part)}</p>')
        lines.append(
            f'<p class="print-entry"><a href="#{place}"><span>{escape(title)}</span>'
            f'<span class="print-page" data-place="{place}">000</span></a></p>'
        )
    return "\n".join(lines)


def _chapter(html, address, known, part):
    """A page's article, with names and addresses that are valid in the whole document."""
    article = BeautifulSoup((html / address).read_text(encoding="utf-8"), "html.parser").select_one("article")
    for one in article.select(_DROPPED):
        one.decompose()
    for cell in article.select("div.cell"):
        if not cell.get_text(strip=True) and not cell.select("img, svg, canvas"):
            cell.decompose()
    for one in article.select("noscript"):
        one.unwrap()
    for one in article.select("details"):
        one["open"] = ""
    for one in article.select("[id]"):
        one["id"] = anchor(address, one["id"])
    for one in article.select("[src]"):
        one["src"] = _beside(address, one["src"])
        one.attrs.pop("loading", None)
    for link in article.select("a[href]"):
        _relink(link, address, known)
    caption = f'<p class="print-part-title">{escape(part)}</p>' if part else ""
    opening = f'<section class="print-chapter bd-article" id="{anchor(address)}">'
    return f"{opening}{caption}{article.decode_contents()}</section>"


def _beside(address, link):
    return link if urlsplit(link).scheme else posixpath.normpath(posixpath.join(posixpath.dirname(address), link))


def _relink(link, address, known):
    """Point a link at a chapter of the document; a local link to anything else becomes plain text."""
    parts = urlsplit(link["href"])
    if parts.scheme in ("http", "https", "mailto"):
        return
    target = _beside(address, unquote(parts.path)) if parts.path else address
    if target in known:
        fragment = "" if "=" in parts.fragment else unquote(parts.fragment)  # a view of the explorer is not an anchor
        link["href"] = f"#{anchor(target, fragment)}"
    else:
        link.unwrap()


_DOCUMENT = """<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light" data-content_root="./">
<head>
<meta charset="utf-8"/>
<title>{title}</title>
{head}
<style>
{sheet}</style>
<script>
window.MathJax = {{"options": {{"processHtmlClass": "tex2jax_process|mathjax_process|math|output_area"}}}}
</script>
<script defer="defer" src="_static/mathjax/tex-chtml.js"></script>
</head>
<body class="print-book tex2jax_ignore mathjax_ignore">
<section class="print-title"><h1>{title}</h1>
<div class="print-cover">{cover}</div>
{colophon}
</section>
<nav class="print-contents"><h2>Contents</h2>
{entries}
</nav>
{chapters}
</body>
</html>
"""
