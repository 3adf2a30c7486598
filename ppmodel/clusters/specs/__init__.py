"""Models, systems and run layouts, read from YAML: names, types and units checked, converted to SI once."""

from ppmodel.clusters.specs.entries import Kind, Provenance, to_unit
from ppmodel.clusters.specs.files import packaged, template_path
from ppmodel.clusters.specs.formats import FORMATS
from ppmodel.clusters.specs.framework import FrameworkSpec, load_framework, with_framework
from ppmodel.clusters.specs.kernels import CollectiveSpec, KernelSpec, MemorySpec
from ppmodel.clusters.specs.layers import parse_layers
from ppmodel.clusters.specs.layout import DIMENSIONS, LAYOUT_KEYWORDS, LAYOUT_OPTIONS, ORDERS, LayoutSpec
from ppmodel.clusters.specs.layouts import as_layout, as_layouts, load_layout
from ppmodel.clusters.specs.links import Link, as_links
from ppmodel.clusters.specs.model import ExpertSpec, LatentAttentionSpec, ModelSpec, load_model
from ppmodel.clusters.specs.system import PLACEMENTS, ErrorSpec, NodeSpec, SystemSpec, load_system
from ppmodel.clusters.specs.units import parse_size
from ppmodel.files import DATA

__all__ = [
    "DATA", "DIMENSIONS", "FORMATS", "LAYOUT_KEYWORDS", "LAYOUT_OPTIONS", "ORDERS", "PLACEMENTS", "CollectiveSpec",
    "ErrorSpec", "ExpertSpec", "FrameworkSpec", "KernelSpec", "Kind", "LatentAttentionSpec", "LayoutSpec", "Link",
    "MemorySpec", "ModelSpec", "NodeSpec", "Provenance", "SystemSpec", "as_layout", "as_layouts", "as_links",
    "load_framework", "load_layout", "load_model", "load_system", "packaged", "parse_layers", "parse_size",
    "template_path", "to_unit", "with_framework",
]  # fmt: skip
