"""What is mended in the built pages: parts of the theme that a page, a reader or a browser cannot use."""

import re

_REMOVED = (
    r'<script>const THEBE_JS_URL = .*?</script>\s*',  # twice the same constant, for cells that no server runs
    r'<script type="text/x-thebe-config">.*?</script>\s*(<script>kernelName = .*?</script>\s*)?',
    r'<(?:script|link)\b[^>]*sphinx-thebe\.[^>]*>(?:</script>)?\s*',
    r'<link rel="preload" as="font"[^>]*>\s*',  # refused on file://, and the icons are drawn from the script
    r'(?<=<div id="jb-print-docs-body" class="onlyprint">)\s*<h1>.*?</h1>',  # a second title, for print
    r' role="list"(?= class="citation-list")',  # its entries are no items to a screen reader
    r' role="doc-biblioentry"',  # deprecated
)  # fmt: skip
_SCROLLS = ('class="pst-scrollable-table-container"', 'class="pst-scrollable-table-container" tabindex="0"')
"""What scrolls must be reached by the keyboard; the theme sees to the other things that do."""

_MENDED = re.compile("|".join(_REMOVED), re.DOTALL)


def mend(folder):
    """Mend all pages of a built book.

    Parameters
    ----------
    folder : Path
        The pages, with `index.html`.
    """
    for page in sorted(folder.rglob("*.html")):
        if "_static" not in page.parts:
            page.write_text(mended(page.read_text(encoding="utf-8")), encoding="utf-8")


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
    return _MENDED.sub("", text).replace(*_SCROLLS)
