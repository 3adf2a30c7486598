"""Models, systems and run layouts, read from YAML: names, types and units checked, converted to SI once.

Names are loaded on first use: the values of a layout are declared without pydantic, which small runs need not load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppmodel.clusters.specs.entries import Provenance
    from ppmodel.clusters.specs.framework import FrameworkSpec, load_framework
    from ppmodel.clusters.specs.kernels import CollectiveSpec, KernelSpec, MemorySpec
    from ppmodel.clusters.specs.layout import LayoutSpec
    from ppmodel.clusters.specs.layouts import load_layout
    from ppmodel.clusters.specs.links import Link, as_links
    from ppmodel.clusters.specs.model import ExpertSpec, LatentAttentionSpec, ModelSpec, load_model
    from ppmodel.clusters.specs.system import ErrorSpec, NodeSpec, SystemSpec, load_system

_MODULES = (
    "files", "units", "layers", "layout", "layouts", "links", "document", "entries", "kernels", "framework", "model",
    "system", "launcher",
)  # fmt: skip
"""Where a name is looked for; the first do without pydantic."""

__all__ = [  # of which type checkers let users import from here
    "CollectiveSpec", "ErrorSpec", "ExpertSpec", "FrameworkSpec", "KernelSpec", "LatentAttentionSpec", "LayoutSpec",
    "Link", "MemorySpec", "ModelSpec", "NodeSpec", "Provenance", "SystemSpec", "as_links", "load_framework",
    "load_layout", "load_model", "load_system",
]  # fmt: skip


def __getattr__(name):
    for module in () if name.startswith("_") or name in _MODULES else _MODULES:
        names = vars(import_module(f"{__name__}.{module}"))
        if name in names:
            return globals().setdefault(name, names[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
