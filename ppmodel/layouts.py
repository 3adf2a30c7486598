"""Run layouts as users give them: by name, as a file, as a mapping, or as single keywords."""

from dataclasses import replace
from itertools import product

from ppmodel.errors import SpecificationError
from ppmodel.given import listed, plain

LAYOUT_FIELDS = (
    "gpus", "tp", "cp", "ep", "dp", "microbatch_size", "global_batch", "sequence_parallel", "zero",
    "recompute", "precision", "causal", "context_exchange", "overlap_tensor", "overlap_backward",
    "overlap_gradients", "overlap_parameters", "pairing", "hand_on", "offload", "offload_warm_up", "offload_chunks",
    "layers",
)  # fmt: skip
"""The layout values that may be given as keywords; ranks and chunks belong to the schedule."""


LAYOUT_COLUMNS = (
    "layout", "tp", "cp", "ep", "dp", "gpus", "microbatch_size", "global_batch", "sequence_parallel", "zero",
    "recompute", "precision", "offload",
)  # fmt: skip
"""The columns that describe the layout of a row."""


def as_layouts(layout=None, keywords=None, pp=None):
    """List the layouts that the arguments describe.

    Parameters
    ----------
    layout : str, Path, LayoutSpec, dict or list of them, optional
        A name that comes with the package, a YAML file, a specification, or values by name.
    keywords : dict, optional
        Values from `LAYOUT_FIELDS` that override those of each layout. A list gives one layout per value, except that a
        list of whole numbers is a single value of `layers`; None is ignored.
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
    >>> [(one.tp, one.dp) for one in as_layouts({"tp": 2}, {"dp": [1, 2]})]
    [(2, 1), (2, 2)]
    >>> as_layouts()
    [None]
    """
    given = {name: _values(name, value) for name, value in (keywords or {}).items() if value is not None}
    for name in given:
        if name not in LAYOUT_FIELDS:
            raise _unknown(name, keywords[name], LAYOUT_FIELDS)
    layouts = listed(layout)
    if layouts == [None] and not given:
        return [None]
    found = []
    for base in (one if isinstance(one, dict) else as_layout(one) for one in layouts):
        stated = base.get("pp") if isinstance(base, dict) else base.pp
        several = given if None in (pp, stated) else given | {"pp": listed(pp)}
        found += [as_layout(base, dict(zip(several, values, strict=True))) for values in product(*several.values())]
    return found


def as_layout(layout=None, keywords=None):
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

    Examples
    --------
    >>> as_layout({"tp": 4}, {"dp": 2}).tp
    4
    """
    from ppmodel.specs import LayoutSpec, load_layout

    if isinstance(layout, dict):
        fields = ("name", "title", "pp", "chunks", *LAYOUT_FIELDS)
        for name in layout:
            if name not in fields:
                raise _unknown(name, layout[name], fields)
        layout, keywords = LayoutSpec(), {**layout, **(keywords or {})}
    elif layout is None:
        layout = LayoutSpec()
    elif not isinstance(layout, LayoutSpec):
        layout = load_layout(layout)
    keywords = {name: plain(value) for name, value in (keywords or {}).items()}
    changed = {name: value for name, value in keywords.items() if value != getattr(layout, name)}
    if not changed:
        return layout
    if layout.name and "name" not in changed:
        changed |= {"name": "", "title": ""}  # it is a different layout now
    if changed.keys() & {"tp", "cp", "dp", "pp"} and "gpus" not in keywords:
        changed["gpus"] = None  # the stated number no longer holds
    return replace(layout, **changed)


def layout_size(layout, pp=None, microbatches=None):
    """Ranks and microbatches of a table: as given, or the layout's; None if neither says.

    Parameters
    ----------
    layout : LayoutSpec or None
        From `as_layouts`, with the same `pp`.
    pp, microbatches : int or list of int, optional

    Examples
    --------
    >>> from ppmodel.specs import LayoutSpec
    >>> layout_size(LayoutSpec(pp=4, dp=2, global_batch=64)), layout_size(None, 8)
    ((4, 32), (8, None))
    """
    if layout is None:
        return pp, microbatches
    return layout.pp or pp, layout.microbatches if microbatches is None else microbatches


def _values(name, value):
    """The values of a keyword as a list, possibly with a single entry."""
    values, value = listed(value), plain(value)
    if not values:
        raise SpecificationError(name, "[]", "must have an entry", "list at least one value, or leave it out")
    one_cut = name == "layers" and values != [value] and all(isinstance(entry, int) for entry in values)
    return [values] if one_cut else values


def _unknown(name, value, known):
    from ppmodel.specs.meant import meant_key

    remedy = meant_key(name, known) or f"it has {', '.join(known)}"
    return SpecificationError(name, value, "is not a known value of a layout", remedy)


def layout_columns(layout):
    """The values of `LAYOUT_COLUMNS` for a layout; ``recompute`` is None if the model decides.

    Examples
    --------
    >>> from ppmodel.specs import LayoutSpec
    >>> layout_columns(LayoutSpec(tp=8, zero=1))["tp"]
    8
    """
    return {"layout": layout.name} | {name: getattr(layout, name) for name in LAYOUT_COLUMNS[1:]}
