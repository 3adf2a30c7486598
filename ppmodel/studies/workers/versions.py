"""The versions that rows are computed with; rows from different versions must not be mixed."""

from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from ppmodel import __version__
from ppmodel.files import DATA


@lru_cache(1)
def versions():
    """List the versions of the package, with a checksum of its code and columns, and of the numerical libraries.

    Returns
    -------
    str
        Equal on two machines that compute the same rows.

    Examples
    --------
    >>> versions().startswith("ppmodel ")
    True
    """
    package, digest = Path(__file__).parents[2], sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    digest.update((DATA / "columns.csv").read_bytes())
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba"))
    return f"ppmodel {__version__} (code {digest.hexdigest()[:12]}), {libraries}"
