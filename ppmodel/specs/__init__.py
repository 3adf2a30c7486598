"""Models, systems and run layouts, read from YAML: names, types and units checked, converted to SI once.

Names are loaded on first use: the values of a layout are declared without pydantic, which small runs need not load.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppmodel.specs.entries import Provenance
    from ppmodel.specs.framework import FrameworkSpec, load_framework
    from ppmodel.specs.kernels import CollectiveSpec, KernelSpec, MemorySpec
    from ppmodel.specs.layout import LayoutSpec
    from ppmodel.specs.layouts import load_layout
    from ppmodel.specs.links import Link, as_links
    from ppmodel.specs.model import ExpertSpec, LatentAttentionSpec, ModelSpec, load_model
    from ppmodel.specs.system import ErrorSpec, SystemSpec, load_system
    from ppmodel.specs.topology import NodeSpec

_MODULES = {
    "document": ("read_document",),
    "entries": ("Kind", "Provenance", "to_unit"),
    "files": (
        "DATA", "framework_names", "launcher_names", "layout_names", "model_names", "system_names",
        "template_path",
    ),
    "framework": ("FrameworkSpec", "load_framework", "with_framework"),
    "kernels": ("CollectiveSpec", "KernelSpec", "MemorySpec"),
    "launcher": ("load_launcher",),
    "layers": ("parse_layers",),
    "layout": ("ORDERS", "LayoutSpec", "layout_keywords", "layout_options"),
    "layouts": ("as_layout", "as_layouts", "load_layout"),
    "links": ("Link", "as_links"),
    "model": ("ExpertSpec", "LatentAttentionSpec", "ModelSpec", "load_model"),
    "system": ("ErrorSpec", "SystemSpec", "load_system"),
    "units": ("parse_size",),
    "topology": ("PLACEMENTS", "NodeSpec"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [  # of which type checkers let users import from here
    "CollectiveSpec", "ErrorSpec", "ExpertSpec", "FrameworkSpec", "KernelSpec", "LatentAttentionSpec", "LayoutSpec",
    "Link", "MemorySpec", "ModelSpec", "NodeSpec", "Provenance", "SystemSpec", "as_links", "load_framework",
    "load_layout", "load_model", "load_system",
]  # fmt: skip


def __getattr__(name):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value
