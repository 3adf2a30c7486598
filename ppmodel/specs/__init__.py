"""Models, systems, settings and run layouts, read from YAML: names, types and units checked, converted to SI once."""

from ppmodel.specs.document import list_text, place_in, read_document
from ppmodel.specs.entries import Kind, Provenance, parse_size, to_unit
from ppmodel.specs.files import (
    DATA,
    layout_names,
    model_names,
    setting_names,
    system_names,
    template_names,
    template_path,
)
from ppmodel.specs.framework import FrameworkSpec
from ppmodel.specs.kernels import CollectiveSpec, KernelSpec, MemorySpec
from ppmodel.specs.layers import parse_layers
from ppmodel.specs.layout import LAYER_WORDS, LayoutSpec, load_layout
from ppmodel.specs.model import ExpertSpec, LatentAttentionSpec, ModelSpec, Recompute, load_model
from ppmodel.specs.setting import SettingSpec, load_setting
from ppmodel.specs.system import ErrorSpec, SystemSpec, load_system
from ppmodel.specs.topology import PLACEMENTS, NodeSpec, nodes_of, one_node_text

__all__ = [  # of which type checkers let users import from here
    "CollectiveSpec", "ErrorSpec", "ExpertSpec", "FrameworkSpec", "KernelSpec", "LatentAttentionSpec", "LayoutSpec",
    "MemorySpec", "ModelSpec", "NodeSpec", "Provenance", "SettingSpec", "SystemSpec", "load_layout", "load_model",
    "load_setting", "load_system",
]  # fmt: skip
