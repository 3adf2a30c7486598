"""Pictures of the book: their versions travel from kernels to pages."""

from base64 import b64encode
from hashlib import sha256
from io import BytesIO

import nbformat
import pytest
from matplotlib import image
from matplotlib import pyplot as plt

import ppmodel as pp
from ppbook.pages import explorer, pictures
from ppbook.pages.report import record
from ppmodel.plot import plot_table


@pytest.fixture
def figure():
    yield plot_table({"1F1B": pp.build("1f1b", 2, 4)}, "1F1B holds two")
    plt.close("all")


def test_a_figure_has_four_versions(figure, tmp_path):
    """Light and dark alike in size, the narrow ones narrower; a recorded figure has them beside it."""
    found = pictures.versions(figure)
    assert set(found) == {"", *pictures.VERSIONS}
    sizes = {ending: image.imread(BytesIO(png)).shape for ending, png in found.items()}
    assert sizes[""] == sizes[".dark"]
    assert sizes[".narrow"] == sizes[".narrow.dark"]
    assert sizes[".narrow"][1] < sizes[""][1]
    corner = image.imread(BytesIO(found[".dark"]))[0, 0]
    assert corner[3] == 0  # a dark page shows through
    record("fig", tmp_path, figure)
    assert (tmp_path / "fig.png").read_bytes() == found[""]
    assert (tmp_path / "fig.narrow.dark.png").read_bytes() == found[".narrow.dark"]


def test_versions_go_from_a_notebook_to_its_page(figure, tmp_path):
    """The notebook keeps the plain picture, its text begins with the point, and the page chooses without a script."""
    explorer.offer(figure, ["1f1b", "gpipe"], 2, 4, comm=0.5)
    data = pictures.bundle(figure)
    output = nbformat.v4.new_output("display_data", data)
    cell = nbformat.v4.new_code_cell("figure", outputs=[output])
    cell.metadata["mystnb"] = {"image": {"alt": "A table of two ranks."}, "figure": {"caption": "One."}}
    (tmp_path / "nb").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "nb" / "one.ipynb")
    pictures.take_out(tmp_path / "nb", tmp_path / "versions")
    (kept,) = nbformat.read(tmp_path / "nb" / "one.ipynb", as_version=4).cells
    assert kept.outputs[0].data == {"image/png": b64encode(figure.versions[""]).decode()}
    assert kept.metadata["mystnb"]["image"]["alt"] == "1F1B holds two. A table of two ranks."
    there = "../explorer.html#schedule=1f1b&amp;against=gpipe&amp;pp=2&amp;microbatches=4&amp;comm=0.5"
    assert kept.metadata["mystnb"]["figure"]["caption"] == f'One. <a href="{there}">Open in the explorer</a>'

    name = sha256(figure.versions[""]).hexdigest()
    html = tmp_path / "html"
    (html / "_images").mkdir(parents=True)
    (html / "_images" / f"{name}.png").write_bytes(figure.versions[""])
    built = f'<p><img alt="a" src="_images/{name}.png" /><img src="_images/other.png" /></p>'
    files = {path.stem: path for path in (tmp_path / "versions").glob("*.png")}
    page = pictures.choose(built, html / "_images", files)
    assert page.count("<picture") == 2
    assert page.count('alt="a"') == 2
    assert '<img src="_images/other.png" />' in page
    for ending in pictures.VERSIONS:
        assert f"_images/{name}{ending}.png" in page
        assert (html / "_images" / f"{name}{ending}.png").read_bytes() == figure.versions[ending]


def test_a_figure_narrower_than_the_text_is_not_stretched(tmp_path):
    """Its letters stay as large as those of one that fills the text; on a phone both fill it."""
    html, versions = tmp_path / "html", tmp_path / "versions"
    for folder in (html / "_images", versions):
        folder.mkdir(parents=True)
    for name, inches in (("half", 3.9), ("full", 7.8)):
        figure = plt.figure(figsize=(inches, 1))
        figure.savefig(html / "_images" / f"{name}.png", bbox_inches=figure.bbox_inches, dpi=130)
        (versions / f"{name}.dark.png").write_bytes(b"")
    plt.close("all")
    shown = (f'<img alt="a" src="_images/{name}.png" style="width: 100%;" />' for name in ("half", "full"))
    files = {path.stem: path for path in versions.glob("*.png")}
    page = pictures.choose("".join(shown), html / "_images", files)
    assert page.count("width: min(100%, 21.5rem);") == page.count("width: 100%;") == 2
