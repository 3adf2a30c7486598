"""Layouts as users give them: by name, as a file, or as values by name, of which some may be lists."""

from __future__ import annotations  # help() shows a parameter's type by its name

import os
from dataclasses import replace
from itertools import product
from typing import Any

from ppmodel.clusters.specs.entries import RENAMED, load_specification
from ppmodel.clusters.specs.layout import LAYOUT_KEYWORDS, LAYOUT_OPTIONS, MULTIPLIED, LayoutSpec
from ppmodel.clusters.specs.suggest import suggest_key
from ppmodel.errors import SpecificationError
from ppmodel.given import as_list, to_builtin


def as_layouts(
    layout: object = None, keywords: dict[str, Any] | None = None, pp: int | list[int] | None = None
) -> list[Any]:
    """List the layouts that the arguments describe.

    Parameters
    ----------
    layout : str, Path, LayoutSpec, dict or list of them, optional
        A name that comes with the package, a YAML file, a specification, or values by name.
    keywords : dict, optional
        Values of `LAYOUT_KEYWORDS`, which override those of each layout. A list gives one layout per value, except that
        a list of whole numbers is a single value of `layers`; None is ignored.
    pp : int or list of int, optional
        Ranks of the schedules, which override those that a layout states, and vary fastest; other layouts stay open.

    Returns
    -------
    list of LayoutSpec
        In order of the layouts, with the last keyword varying fastest; ``[None]`` if nothing is given.

    Raises
    ------
    PPModelError
        If a name or a keyword is unknown, or values contradict each other.

    Examples
    --------
    >>> [(layout.tp, layout.dp) for layout in as_layouts({"tp": 2}, {"dp": [1, 2]})]
    [(2, 1), (2, 2)]
    >>> as_layouts()
    [None]
    """
    given = {}
    for name, value in (keywords or {}).items():
        if value is None:
            continue
        given[name] = values_of(name, value)
        if not given[name]:
            raise SpecificationError(name, "[]", "must have an entry", "list at least one value, or leave it out")
        _require_known(name, to_builtin(value), LAYOUT_KEYWORDS)
    if layout is None and not given:
        return [None]
    resolved = []
    for base in (entry if isinstance(entry, dict) else as_layout(entry) for entry in as_list(layout)):
        stated = base.get("pp") if isinstance(base, dict) else base.pp
        several = given if None in (pp, stated) else given | {"pp": as_list(pp)}
        resolved += [as_layout(base, dict(zip(several, values, strict=True))) for values in product(*several.values())]
    return resolved


def values_of(name, given):
    """The values that are given for a name: a list of whole numbers is a single value of `layers`.

    >>> values_of("layers", [8, 9]), values_of("layers", ["even", [8, 9]]), values_of("tp", (1, 2)), values_of("tp", 1)
    ([[8, 9]], ['even', [8, 9]], [1, 2], [1])
    """
    values = as_list(given)
    is_division = name == "layers" and values and all(isinstance(value, int) for value in values)
    return [values] if is_division else values


def as_layout(
    layout: str | os.PathLike[str] | LayoutSpec | dict[str, Any] | None = None, keywords: dict[str, Any] | None = None
) -> LayoutSpec:
    """Replace single values of a layout.

    It loses its name if any value changes, and its number of GPUs, unless given, if tp, cp, dp or pp does.

    Parameters
    ----------
    layout : str, Path, LayoutSpec or dict, optional
        As in `as_layouts`.
    keywords : dict, optional
        A single value for each name.

    Returns
    -------
    LayoutSpec

    Raises
    ------
    SpecificationError
        If a value is unknown or illegal.

    Examples
    --------
    >>> as_layout({"tp": 4}, {"dp": 2}).tp
    4
    """
    keywords = (layout if isinstance(layout, dict) else {}) | (keywords or {})
    layout = LayoutSpec() if isinstance(layout, dict | None) else load_layout(layout)
    keywords = {RENAMED.get(name, name): to_builtin(value) for name, value in keywords.items()}
    for name, value in keywords.items():
        _require_known(name, value, ("name", "title", *LAYOUT_OPTIONS))
    changed = [name for name, value in keywords.items() if value != getattr(layout, name)]
    if layout.name and changed and "name" not in keywords:
        keywords |= {"name": "", "title": ""}  # it is a different layout now
    if {"pp", *MULTIPLIED}.intersection(changed) and "gpus" not in keywords:
        keywords["gpus"] = None  # the stated number no longer holds
    replaced = replace(layout, **keywords)  # refuses also what equals a number and is none, such as True
    return replaced if changed else layout


def _require_known(name, value, names):
    if name not in names:
        remedy = suggest_key(name, names) or f"it has {', '.join(names)}"
        raise SpecificationError(name, value, "is not a known value of a layout", remedy)


def load_layout(name: str | os.PathLike[str] | LayoutSpec) -> LayoutSpec:
    """Read a layout by name or from a file; see `load_system`.

    Parameters
    ----------
    name : str, Path or LayoutSpec
        A name in `packaged`, or the path of a ``.yaml`` or ``.yml`` file; a specification stays as it is.

    Returns
    -------
    LayoutSpec
        Checked for consistency.

    Raises
    ------
    SpecificationError
        As for `load_system` and for `LayoutSpec`.

    Examples
    --------
    >>> load_layout("bloom_176b").gpus
    384
    """
    return load_specification(name, "layouts", LayoutSpec)
