"""Folders that replace earlier ones, completely or not at all."""

import re
import shutil

from ppbook.errors import ReproduceError

MARK = ".ppmodel"
"""The file in a finished folder that says what made it."""


def require_ours(folder, made):
    """Refuse to replace a folder unless it is empty, or an earlier run of the same made it.

    Parameters
    ----------
    folder : Path
        It may be missing.
    made : str
        What is about to be made, as in `publish`.

    Raises
    ------
    ReproduceError
        Names a file of the folder.
    """
    rule, mark = None, folder / MARK
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        rule = "is a file or a link"
    elif mark.is_file():
        if (before := mark.read_text(encoding="utf-8").strip()) != made:
            rule = f"was made by {before}, not by {made}"
    elif names := sorted(path.name for path in folder.glob("*")):
        rule = f"contains {names[0]} but no mark of an earlier run"
    if rule:
        raise ReproduceError("out", folder, rule, "move it away, or choose a new folder")


def publish(new, target, made):
    """Put a folder in the place of another by two renames, so that no reader sees a mixture.

    Parameters
    ----------
    new : Path
        It takes the place of the target, which is afterwards beside it, under the name ``replaced``.
    target : Path
        On the same file system.
    made : str
        What made it, such as ``ppmodel run table``.
    """
    (new / MARK).write_text(f"{made}\n", encoding="utf-8")
    if target.exists():
        target.rename(new.with_name("replaced"))
    new.rename(target)


def copy_sources(source, target, left_out=()):
    """Copy a folder of sources, which may be read-only, to one that can be written.

    Parameters
    ----------
    source, target : Path
        The target may be there.
    left_out : sequence of str
        Names that are not copied.
    """
    ignore = shutil.ignore_patterns(*left_out)
    shutil.copytree(source, target, ignore=ignore, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for folder in (target, *target.rglob("*/")):
        folder.chmod(0o755)


_DOWNLOAD = re.compile(r'(?<=href=")[^"]*_downloads/\w+/')
_UNUSED = re.compile(r"_downloads/|_static/locales/|\.(map|ttf)$|mathjax/(?!tex-chtml\.js|.*woff-v2/)")


def slim(html):
    """Drop from a built book what no page shows or loads, such as copies of the files in its ``results``."""
    rewrite(html, lambda text, up: _DOWNLOAD.sub(f"{up}results/", text))
    for path in sorted(html.rglob("*"), reverse=True):  # a folder after what is in it
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and _UNUSED.search(path.relative_to(html).as_posix()):
            path.unlink()


def rewrite(html, change):
    """Change all pages of a built book.

    Parameters
    ----------
    html : Path
        The pages, with `index.html`.
    change : callable
        Takes the text of a page and the way from there to `html`, such as ``../``; returns the text to write.
    """
    for page in sorted(html.rglob("*.html")):
        if "_static" not in page.parts:
            up = "../" * len(page.relative_to(html).parts[:-1])
            page.write_text(change(page.read_text(encoding="utf-8"), up), encoding="utf-8")
