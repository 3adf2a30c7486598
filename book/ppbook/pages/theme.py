"""The pages around their text: buttons that lead to the repository, and parts of the theme that had to be mended."""

import re
import tomllib

from bs4 import BeautifulSoup

from ppbook.pages.report import TEMPLATES

ARCHIVE = "ppmodel.tar.gz"
"""Beside the first page: the commit that the book was built from."""

_REMOVED = (
    r'<script>const THEBE_JS_URL = .*?</script>\s*',  # twice the same constant, for cells that no server runs
    r'<script type="text/x-thebe-config">.*?</script>\s*(<script>kernelName = .*?</script>\s*)?',
    r'<(?:script|link)\b[^>]*sphinx-thebe\.[^>]*>(?:</script>)?\s*',
    r'<link rel="preload" as="font"[^>]*>\s*',  # refused on file://, and the icons are drawn from the script
    r'(?<=<div id="jb-print-docs-body" class="onlyprint">)\s*<h1>.*?</h1>',  # a second title, for print
    r' role="list"(?= class="citation-list")',  # its entries are no items to a screen reader
    r' role="doc-biblioentry"',  # deprecated
)  # fmt: skip
_LAUNCHED = ("?urlpath=lab/tree/book/nb/", "?urlpath=lab/tree/notebooks/")
"""Where Binder finds a page's notebook: the theme takes the built page for it."""

_NAMED = (
    '<summary><span class="toctree-toggle"',
    '<summary aria-label="pages of this part"><span class="toctree-toggle"',
)
"""The arrow that unfolds pages below a page, which the theme leaves without a name."""

_REFERENCE = '<dl class="py '
"""What only a page of the reference of names has."""

_ARTICLE = re.compile(r"<article\b.*</article>", re.DOTALL)
_MENDED = re.compile("|".join(_REMOVED), re.DOTALL)


def repository(project):
    """The address of the project's repository, the one place that names it.

    Parameters
    ----------
    project : Path
        Its `pyproject.toml`.

    Returns
    -------
    str or None
        None where none is configured.
    """
    return tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("urls", {}).get("Repository")


def how_to_get(address, archived=False):
    """The sentence before a command of the project: where to run it, and how to get there.

    Parameters
    ----------
    address : str or None
        Of the repository.
    archived : bool
        Whether `ARCHIVE` lies beside the first page.

    Returns
    -------
    str
        In MyST; the command follows.

    Examples
    --------
    >>> how_to_get(None)
    'In the folder of this project, as you cloned or unpacked it, run'
    >>> how_to_get("https://example.org/ppmodel")
    'Clone the project with `git clone https://example.org/ppmodel ppmodel && cd ppmodel`, and run'
    """
    return TEMPLATES.get_template("get_it.md").render(address=address, archive=ARCHIVE if archived else None)


def add_buttons(config, address):
    """Give every page buttons for the repository, an issue, and Binder.

    Parameters
    ----------
    config : dict
        The book's configuration, changed in place.
    address : str or None
        Of the repository; without one there are no buttons.

    Examples
    --------
    >>> config = {"html": {}}
    >>> add_buttons(config, None)
    >>> config
    {'html': {}}
    """
    if address:
        config["repository"] = {"url": address.rstrip("/"), "branch": "main", "path_to_book": "book"}
        config["launch_buttons"] = {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"}
        config["html"] |= {"use_repository_button": True, "use_issues_button": True}


def mended(text):
    """A page of the theme without what a page, a reader or a browser cannot use.

    Parameters
    ----------
    text : str
        As the theme wrote it.

    Returns
    -------
    str

    Examples
    --------
    >>> mended('<div role="list" class="citation-list"><p>one</p></div>')
    '<div class="citation-list"><p>one</p></div>'
    """
    text = _MENDED.sub("", text).replace(*_LAUNCHED).replace(*_NAMED)
    return folded(text) if _REFERENCE in text else text


def folded(text):
    """A page of the reference whose entries show name, signature and first paragraph, and fold the rest.

    Parameters
    ----------
    text : str
        As Sphinx wrote it.

    Returns
    -------
    str

    Examples
    --------
    >>> entry = "<dt>build()</dt><dd><p>Build.</p><p>How.</p><dl class='py method'><dd><p>One.</p></dd></dl></dd>"
    >>> page = folded(f"<article><dl class='py function'>{entry}</dl></article>")
    >>> page[page.index("<details") : page.index("</details>")]
    '<details class="entry"><summary>More</summary><p>How.</p>'
    """
    return _ARTICLE.sub(_folded, text)


def _folded(article):
    page = BeautifulSoup(article[0], "html.parser")
    for body in page.select("dl.py > dd"):
        rest = [part for part in body.find_all(True, recursive=False)[1:] if "py" not in part.get("class", ())]
        if rest:
            fold, summary = page.new_tag("details", attrs={"class": "entry"}), page.new_tag("summary")
            rest[0].insert_before(fold)
            fold.extend([summary, *(part.extract() for part in rest)])
            names = [name.get_text().rstrip(":").lower() for name in fold.select("dl.field-list > dt, p.rubric")]
            summary.string = ", ".join(names).capitalize() or "More"
    return str(page)
