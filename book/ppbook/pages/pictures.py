"""Pictures of the book: each for light and dark pages, wide and narrow, with a text that says what it shows.

While a book is built, every kernel outputs a figure's other versions along with the picture that a notebook has anyway.
They are then taken out of the notebooks, and the pages choose among them without a script.
"""

import re
from base64 import b64decode, b64encode
from contextlib import contextmanager
from hashlib import sha256
from html import escape
from io import BytesIO

import nbformat
from PIL import Image

MIME = "application/vnd.ppmodel.picture+json"
"""Under this name a notebook's output holds the versions of its picture."""

HAND_OVER = (
    "get_ipython().display_formatter.mimebundle_formatter.for_type_by_name('matplotlib.figure', 'Figure', "
    "lambda figure, **_: __import__('ppbook.pages.pictures', fromlist=['bundle']).bundle(figure))"
)
"""What a kernel runs first, so that its figures come with their versions."""

VERSIONS = (".dark", ".narrow", ".narrow.dark")
"""Endings of a picture's versions, before ``.png``; the plain one is light and wide."""

_DPI, _MARGIN = {"": 130, ".narrow": 150}, 0.1
_STRETCHED = "width: 100%;"  # as notebooks ask for
_TEXT, _NEARLY_FULL = 43.0, 0.95  # the width of the text in rem; shares of it
_PHONE, _NARROW_INCHES = "(max-width: 600px)", 3.7
_IMAGE = re.compile(r'<img ([^>]*?)src="((?:\.\./)*)_images/([^"/]+)\.png"([^>]*?)/?>')


def bundle(figure):
    """A figure in all its versions, with its point and its link into the explorer, for a notebook's output.

    Parameters
    ----------
    figure : matplotlib Figure

    Returns
    -------
    dict of str to object
        The plain version, which Jupyter replaces by its own, three times as large; all versions under `MIME`.
    """
    encoded = {ending: b64encode(picture).decode() for ending, picture in versions(figure).items()}
    texts = {name: getattr(figure, name, "") for name in ("point", "explorer")}
    return {"image/png": encoded[""], MIME: texts | {"versions": encoded}}


def versions(figure):
    """A figure as PNG for light and dark pages, wide and narrow, also stored as ``figure.versions``.

    Parameters
    ----------
    figure : matplotlib Figure
        Must be drawn by `ppmodel.plot` to have narrow versions.

    Returns
    -------
    dict of str to bytes
        By file ending: the plain version has an empty one, the others are those of `VERSIONS` that exist.
    """
    from ppmodel.plot import redrawn

    phone = redrawn(figure, _NARROW_INCHES)
    figure.versions = _in_both_themes(figure, "") | ({} if phone is None else _in_both_themes(phone, ".narrow"))
    return figure.versions


def _in_both_themes(figure, size):
    """A figure as it is and for a dark page; its layout is computed once."""
    from ppmodel.plot import dark

    figure.draw_without_rendering()
    with laid_out(figure):
        box = figure.get_tightbbox().padded(_MARGIN)
        form = {"format": "png", "dpi": _DPI[size], "bbox_inches": box, "metadata": {"Software": None}}
        light, night = BytesIO(), BytesIO()
        figure.savefig(light, **form)
        with dark(figure):
            figure.savefig(night, transparent=True, **form)
    return {size: _palette(light), f"{size}.dark": _palette(night)}


def _palette(picture):
    """The bytes of a PNG with 128 colours, a third of those with all."""
    small, method = BytesIO(), Image.Quantize.FASTOCTREE
    Image.open(picture).quantize(128, method=method, dither=Image.Dither.NONE).save(small, "PNG")
    return small.getvalue()


@contextmanager
def laid_out(figure):
    """Keep a figure's layout fixed: matplotlib would compute it again for each file.

    After each file matplotlib also restores the layout engine, and takes the default if there was none.
    """
    from matplotlib import rc_context

    with rc_context({"figure.constrained_layout.use": False, "figure.autolayout": False}):
        figure.set_layout_engine(None)
        yield


def take_out(notebooks, folder):
    """Take the versions of pictures out of executed notebooks, and complete their alternative texts and captions.

    The text begins with the figure's point, and the caption ends with its link into the explorer.

    Parameters
    ----------
    notebooks : Path
        Folder of the notebooks, which are rewritten.
    folder : Path
        Receives the versions, under the names that the book gives to pictures: the digests of the plain versions.
    """
    folder.mkdir(exist_ok=True)
    for path in sorted(notebooks.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        outputs = [(cell, output) for cell in notebook.cells for output in cell.get("outputs", ())]
        pictures = [(cell, output.data) for cell, output in outputs if MIME in output.get("data", {})]
        for cell, data in pictures:
            picture = data.pop(MIME)
            data["image/png"] = picture["versions"].pop("")
            name = sha256(b64decode(data["image/png"])).hexdigest()
            for ending, encoded in picture["versions"].items():
                (folder / f"{name}{ending}.png").write_bytes(b64decode(encoded))
            shown = cell.metadata.setdefault("mystnb", {})
            if picture["explorer"] and "figure" in shown:
                shown["figure"]["caption"] += f' <a href="{escape(picture["explorer"])}">Open in the explorer</a>'
            image = shown.setdefault("image", {})
            texts = [" ".join(text.split()).rstrip(".") for text in (picture["point"], image.get("alt", "")) if text]
            image["alt"] = ". ".join(texts) + "."
        if pictures:
            nbformat.write(notebook, path)


def choose(text, images, files):
    """A page that shows the version of each picture that fits the reader's screen and theme.

    Parameters
    ----------
    text : str
        The page as it was built.
    images : Path
        Folder of the book's pictures; receives the versions that the page shows.
    files : dict of str to Path
        The versions, by stem.

    Returns
    -------
    str
    """
    return _IMAGE.sub(lambda image: _markup(image, files, images), text)


def _markup(image, files, folder):
    """A picture in its light and dark versions, each with its narrow one for phones."""
    before, up, name, after = image.groups()
    versions = {ending: f"{up}_images/{name}{ending}.png" for ending in VERSIONS if f"{name}{ending}" in files}
    if ".dark" not in versions:
        return image[0]
    for ending in versions:
        (folder / f"{name}{ending}.png").write_bytes(files[f"{name}{ending}"].read_bytes())
    before, after = (part.replace(_STRETCHED, _width(folder / f"{name}.png")) for part in (before, after))
    themes = {"light": (f"{up}_images/{name}.png", ".narrow"), "dark": (versions[".dark"], ".narrow.dark")}
    sources = {ending: f'<source media="{_PHONE}" srcset="{path}">' for ending, path in versions.items()}
    return "".join(
        f'<picture class="only-{theme}">{sources.get(ending, "")}'
        f'<img class="only-{theme}" {before}src="{wide}"{after}/></picture>'
        for theme, (wide, ending) in themes.items()
    )


def _width(picture):
    """The style of a picture's width; a narrow one keeps its own, so that its letters are as large as in the others."""
    from ppmodel.plot.style import page_width

    with picture.open("rb") as file:
        pixels = int.from_bytes(file.read(20)[-4:])  # as every PNG's header has it
    share = pixels / (_DPI[""] * page_width())
    return _STRETCHED if share > _NEARLY_FULL else f"width: min(100%, {_TEXT * share:.3g}rem);"
