"""A notebook and a book that are small enough to be run in a test, and pages that note what goes wrong."""

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HTML = Path(__file__).parents[2] / "book" / "_build" / "html"

_CELL = 'results = "results"  # folder: of what is recorded\nsystem = "mid_cp_mid_nw"  # system: shown'


def notebook(tmp_path, *sources, name="small"):
    cells = [new_code_cell(_CELL, metadata={"tags": ["parameters"]})]
    cells += [new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    folder = tmp_path / "notebooks"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata=kernel), path)
    return path


_CONFIG = """
title: tiny
only_build_toc_files: true
execute: {execute_notebooks: "off"}
parse: {myst_enable_extensions: [substitution]}
sphinx: {config: {html_last_updated_fmt: ""}}
"""
_CONTENTS = "{format: jb-book, root: index, chapters: [{file: nb/small}]}"


def tiny_book(folder, value):
    """Sources of a book of two pages and one notebook; the value appears on both pages, on the latter in a table."""
    folder.mkdir()
    record = f"from ppbook.pages.report import record, show\nrecord('small', results, value={value!r})"
    path = notebook(folder, record, f"import pandas as pd\nshow(pd.DataFrame({{{value!r}: [{value!r}]}}))")
    whole = nbformat.read(path, as_version=4)
    whole.cells.insert(0, new_markdown_cell("# Small"))
    nbformat.write(whole, path)
    book = folder / "book"
    book.mkdir()
    for name, text in (("_config.yml", _CONFIG), ("_toc.yml", _CONTENTS), ("index.md", "# Tiny\n\n{{ small.value }}")):
        (book / name).write_text(text)
    return {"notebooks": str(folder / "notebooks"), "book": str(book), "jobs": 1}


def noting(page):
    """A page that notes every error in `thrown`, and every request to elsewhere."""
    page.thrown, page.elsewhere = [], []
    page.on("pageerror", lambda error: page.thrown.append(str(error)))
    page.on("request", lambda request: page.elsewhere.append(request.url) if request.url.startswith("http") else None)
    return page
