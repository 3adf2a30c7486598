"""Pictures of the book: their versions travel from kernels to pages."""

from base64 import b64encode
from hashlib import sha256
from io import BytesIO

import nbformat
import pytest
from matplotlib import image
from matplotlib import pyplot as plt

import ppmodel as pp
from ppmodel.artefact import pictures
from ppmodel.artefact.report import record
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
    data = pictures.bundle(figure)
    output = nbformat.v4.new_output("display_data", data)
    cell = nbformat.v4.new_code_cell("figure", outputs=[output])
    cell.metadata["mystnb"] = {"image": {"alt": "A table of two ranks."}}
    (tmp_path / "nb").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "nb" / "one.ipynb")
    pictures.take_out(tmp_path / "nb", tmp_path / "versions")
    (kept,) = nbformat.read(tmp_path / "nb" / "one.ipynb", as_version=4).cells
    assert kept.outputs[0].data == {"image/png": b64encode(figure.versions[""]).decode()}
    assert kept.metadata["mystnb"]["image"]["alt"] == "1F1B holds two. A table of two ranks."

    name = sha256(figure.versions[""]).hexdigest()
    html = tmp_path / "html"
    (html / "_images").mkdir(parents=True)
    (html / "_images" / f"{name}.png").write_bytes(figure.versions[""])
    (html / "page.html").write_text(f'<p><img alt="a" src="_images/{name}.png" /><img src="_images/other.png" /></p>')
    pictures.choose(html, tmp_path / "versions")
    page = (html / "page.html").read_text()
    assert page.count("<picture") == 2
    assert page.count('alt="a"') == 2
    assert '<img src="_images/other.png" />' in page
    for ending in pictures.VERSIONS:
        assert f"_images/{name}{ending}.png" in page
        assert (html / "_images" / f"{name}{ending}.png").read_bytes() == figure.versions[ending]
