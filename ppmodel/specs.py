"""Models and systems, read from YAML: checked by name, type and unit, and converted to SI here, once."""

import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import PydanticCustomError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ppmodel.errors import SpecificationError

_PACKAGED = Path(__file__).parent / "data"
DATA = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1] / "data"
"""The folder of the specifications that come with the package."""

Kind = Literal["stated", "digest", "inferred", "our choice"]
"""How sure a value is: stated in a primary source; in a machine-made summary of the paper; recomputed
so that published figures come out; chosen by us where nothing is known."""

Recompute = Literal["none", "selective", "full"]
"""Activations computed again in the backward: none, the attention's scores, or all of a block."""

PLACEMENTS = ("blocked", "round-robin", "folded")
"""Words for which devices share a node: neighbours, every n-th of n nodes, or devices d and S-1-d."""

_UNITS = {
    "FLOP/s": 1.0, "TFLOP/s": 1e12, "PFLOP/s": 1e15,
    "B/s": 1.0, "GB/s": 1e9, "TB/s": 1e12, "Gbit/s": 0.125e9,
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9,
    "B": 1.0, "GB": 1e9, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip

_SIZES = ("B", "GB", "GiB", "TiB")
_PAIR = 2

_FORM = "write 'key: {value: ..., unit: ..., kind: ..., source: ...}', as in the files of data"

_REMEDIES = {
    "float_type": "write a number, without quotes",
    "int_type": "write a whole number, without quotes",
    "bool_type": "write true or false",
    "greater_than": "write a number above 0",
    "greater_than_equal": "write {ge:g} or a larger number",
    "less_than_equal": "write {le:g} or a smaller number",
    "finite_number": "write an ordinary number",
    "literal_error": "choose one of them",
    "string_type": "write text; quotes make text of a number",
    "string_too_short": "say where the value comes from",
    "placement": "write for example [0, 0, 1, 1]",
}

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
_Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=True)]
_Count = Annotated[int, Field(ge=1, le=10**9, strict=True)]
_CountOrZero = Annotated[int, Field(ge=0, le=10**9, strict=True)]
_Flag = Annotated[bool, Field(strict=True)]


def _checked_placement(value):
    numbers = value if isinstance(value, list) else []
    if value in PLACEMENTS or (numbers and all(type(node) is int and 0 <= node <= 10**9 for node in numbers)):
        return value
    rule = f"must be {', '.join(PLACEMENTS)} or a list of whole numbers, the node of each device"
    raise PydanticCustomError("placement", rule)


class _Sourced(BaseModel):
    """A value with the kind of its source beside it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Kind
    source: Annotated[str, Field(min_length=1)]


def _entry(value, *units):
    """A file entry of one type, and of a unit out of some where it has a dimension."""
    unit = {"unit": (Literal[units], ...)} if units else {}
    return create_model("Entry", __base__=_Sourced, value=(value, ...), **unit)


_Rate = _entry(_Positive, "FLOP/s", "TFLOP/s", "PFLOP/s")
_Bandwidth = _entry(_Positive, "B/s", "GB/s", "TB/s", "Gbit/s")
_Time = _entry(_NotNegative, "s", "ms", "us", "ns")
_Size = _entry(_Positive, *_SIZES)
_Efficiency = _entry(_Fraction)
_Whole = _entry(_Count)
_WholeOrZero = _entry(_CountOrZero)
_Number = _entry(_Positive)
_Switch = _entry(_Flag)
_NumberOrZero = _entry(_NotNegative)
_Word = _entry(Annotated[str, Field(min_length=1)])
_Placement = _entry(Annotated[Any, AfterValidator(_checked_placement)])


class _NodesFile(BaseModel):
    """Keys of a system file's block of nodes: all of them, or no block."""

    model_config = ConfigDict(extra="forbid", strict=True)
    devices_per_node: _Whole
    node_bandwidth: _Bandwidth
    node_latency: _Time
    shared_card: _Switch
    placement: _Placement


class _SystemFile(BaseModel):
    """Keys of a system file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    title: str
    peak_compute: _Rate
    compute_efficiency: _Efficiency
    compute_latency: _Time
    memory_bandwidth: _Bandwidth
    memory_efficiency: _Efficiency
    memory_latency: _Time
    memory_capacity: _Size
    network_bandwidth: _Bandwidth
    network_latency: _Time
    nodes: _NodesFile = None


class _ModelFile(BaseModel):
    """Keys of a model file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    title: str
    blocks: _Whole
    hidden: _Whole
    heads: _Whole
    kv_heads: _Whole
    head_size: _Number
    mlp_hidden: _Whole
    gated_mlp: _Switch
    norm: _entry(Literal["layernorm", "rmsnorm"])
    bias: _Switch
    dropout: _Switch
    attention: _entry(Literal["materialised", "fused"])
    recompute: _entry(Recompute)
    sequence: _Whole
    vocabulary: _WholeOrZero
    learned_positions: _Switch
    global_batch: _Whole
    element_bytes: _Whole
    gradient_bytes: _Whole
    optimizer_bytes: _Whole


class _SettingFile(BaseModel):
    """Keys of a setting file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    title: str
    p2p: _Word
    allreduce: _Word
    concat: _Word
    waves: _Whole
    memory_bandwidth: _Bandwidth
    memory_follows: _Switch
    compute_efficiency: _Efficiency
    memory_efficiency: _Efficiency
    backward: _NumberOrZero


class Provenance(NamedTuple):
    """A value as its file gives it, and where it comes from.

    Parameters
    ----------
    field : str
        Key of the file; of a block in it with the block's name and a dot in front.
    value : object
        As written, not converted.
    unit : str
        As written; empty where the value has no dimension.
    kind : str
        How sure the value is, one of `Kind`.
    source : str
        Where it was found, or why it was chosen.
    """

    field: str
    value: object
    unit: str
    kind: str
    source: str


@dataclass(frozen=True)
class NodeSpec:
    """Which devices share a node, and what connects them, in SI units.

    Parameters
    ----------
    devices_per_node : int
        Devices that a node has room for.
    node_bandwidth_bytes_per_s, node_latency_s : float
        Of one directed link between two devices of a node, in bytes per second and seconds.
    shared_card : bool
        Whether all messages that leave a node queue at its one network card, and all that enter it, too;
        otherwise each directed pair of devices has a link of its own.
    placement : str or tuple of int
        ``blocked``: device d lies on node d // devices_per_node; ``round-robin``: on node d modulo the number
        of nodes, which are as few as hold all devices; ``folded``: devices d and S-1-d share a node, with their
        neighbours as far as there is room for whole pairs; or the node of each device.

    Raises
    ------
    SpecificationError
        If the placement is none of these, or puts more devices on a node than it has room for.

    Examples
    --------
    >>> NodeSpec(4, 450e9, 2e-6, shared_card=False, placement="round-robin").of_devices(6)
    array([0, 1, 0, 1, 0, 1])
    >>> NodeSpec(4, 450e9, 2e-6, shared_card=False, placement="folded").of_devices(8)
    array([0, 0, 1, 1, 1, 1, 0, 0])
    """

    devices_per_node: int
    node_bandwidth_bytes_per_s: float
    node_latency_s: float
    shared_card: bool
    placement: str | tuple

    def __post_init__(self):
        if self.placement == "folded" and self.devices_per_node < _PAIR:
            rule = "puts two devices on a node, which has room for devices_per_node = 1"
            raise SpecificationError("nodes.placement", "folded", rule, "write blocked, or give a node more room")
        if self.placement in PLACEMENTS:
            return
        if not isinstance(self.placement, tuple) or not self.placement:
            rule = f"must be {', '.join(PLACEMENTS)} or a tuple of whole numbers, the node of each device"
            raise SpecificationError("nodes.placement", self.placement, rule, "write for example (0, 0, 1, 1)")
        most = int(np.unique(self.placement, return_counts=True)[1].max())
        if most > self.devices_per_node:
            rule = f"puts {most} devices on a node, which has room for devices_per_node = {self.devices_per_node}"
            remedy = "spread them, or give a node more room"
            raise SpecificationError("nodes.placement", list(self.placement), rule, remedy)

    def of_devices(self, num_devices):
        """The node of each device, numbered in the order in which they come.

        Parameters
        ----------
        num_devices : int
            Devices of the pipeline, S.

        Returns
        -------
        ndarray of int, shape (num_devices,)
            From 0 on.

        Raises
        ------
        SpecificationError
            If the placement is a list for another number of devices.
        """
        devices = np.arange(num_devices)
        if self.placement == "blocked":
            return devices // self.devices_per_node
        if self.placement == "round-robin":
            return devices % -(-num_devices // self.devices_per_node)
        if self.placement == "folded":
            return np.minimum(devices, devices[::-1]) // (self.devices_per_node // _PAIR)
        if len(self.placement) != num_devices:
            rule = f"names the nodes of {len(self.placement)} devices, and is used for {num_devices}"
            remedy = f"ask for {len(self.placement)} stages, or write {' or '.join(PLACEMENTS)}"
            raise SpecificationError("nodes.placement", list(self.placement), rule, remedy)
        number = {node: index for index, node in enumerate(dict.fromkeys(self.placement))}
        return np.array([number[node] for node in self.placement])


@dataclass(frozen=True)
class SystemSpec:
    """One device and its network link, in SI units; and the nodes, where devices share them.

    Parameters
    ----------
    name, title : str
        The name is that of the file.
    peak_compute_flops : float
        FLOP/s of the matrix units.
    compute_efficiency, memory_efficiency : float
        Attainable fraction of the peak, e_c and e_m of the roofline.
    compute_latency_s, memory_latency_s : float
        Fixed cost in seconds of each operation on either side of the roofline.
    memory_bandwidth_bytes_per_s, memory_capacity_bytes : float
        Of the memory of one device, in bytes per second and bytes.
    network_bandwidth_bytes_per_s, network_latency_s : float
        Of one directed link between two devices, in bytes per second and seconds; with nodes, between devices of
        two nodes.
    nodes : NodeSpec, optional
        Which devices share a node, and what connects them; without it all links are alike.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str
    title: str
    peak_compute_flops: float
    compute_efficiency: float
    compute_latency_s: float
    memory_bandwidth_bytes_per_s: float
    memory_efficiency: float
    memory_latency_s: float
    memory_capacity_bytes: float
    network_bandwidth_bytes_per_s: float
    network_latency_s: float
    nodes: NodeSpec | None = None
    provenance: tuple = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class ModelSpec:
    """A transformer, its training batch and its precision.

    Parameters
    ----------
    name, title : str
        The name is that of the file.
    blocks, hidden, heads, kv_heads : int
        Transformer blocks l, hidden size h, attention heads a, key-value heads (a without grouping).
    head_size : float
        Width of one head. Need not be whole: the paper's 4096/80 is not.
    mlp_hidden : int
        Width of the MLP between its projections.
    gated_mlp : bool
        Whether the MLP has a gate beside its first projection (SwiGLU).
    norm : {"layernorm", "rmsnorm"}
        The normalisation.
    bias, dropout : bool
        Whether dense layers have a bias, and whether there is dropout.
    attention : {"materialised", "fused"}
        Whether the scores are written to memory, or the attention runs as one kernel.
    recompute : {"none", "selective", "full"}
        Activations computed again in the backward: none, the attention's scores, or all of a block.
    sequence : int
        Tokens of a sequence, s.
    vocabulary : int
        0 where embedding and loss head are not modelled.
    learned_positions : bool
        Whether the embedding has parameters for each position of the sequence.
    global_batch : int
        Sequences of one iteration, divided into microbatches.
    element_bytes, gradient_bytes, optimizer_bytes : int
        Bytes of an activation or weight, and per parameter of its gradient and optimizer state.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str
    title: str
    blocks: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: float
    mlp_hidden: int
    gated_mlp: bool
    norm: str
    bias: bool
    dropout: bool
    attention: str
    recompute: str
    sequence: int
    vocabulary: int
    learned_positions: bool
    global_batch: int
    element_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    provenance: tuple = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class SettingSpec:
    """What a result rests on beside model and system: choices that the paper does not spell out.

    Parameters
    ----------
    name, title : str
        The name is that of the file.
    p2p, allreduce : str
        Communication semantics, as in `graph.compile`.
    concat : str
        How Chimera's units follow one another.
    waves : int
        Hanayo's waves, W.
    memory_bandwidth_bytes_per_s : float
        Of the middle of the paper's nine systems.
    memory_follows : bool
        Whether, among the nine, fast and slow compute have fast and slow memory, too.
    compute_efficiency, memory_efficiency : float
        Attainable fractions of the nine systems' peaks.
    backward : float
        Time of a backward in forwards on the nine systems; 0 for what the model's operations come to.
    provenance : tuple of Provenance
        One entry for each value of the file.
    """

    name: str
    title: str
    p2p: str
    allreduce: str
    concat: str
    waves: int
    memory_bandwidth_bytes_per_s: float
    memory_follows: bool
    compute_efficiency: float
    memory_efficiency: float
    backward: float
    provenance: tuple = field(default=(), compare=False, repr=False)


_SI_SUFFIX = {_Rate: "_flops", _Bandwidth: "_bytes_per_s", _Time: "_s", _Size: "_bytes"}


def load_system(name):
    """Read a system by name, or from a file.

    Parameters
    ----------
    name : str or Path
        One of `system_names`, or a path that ends in ``.yaml`` or ``.yml``.

    Returns
    -------
    SystemSpec
        In SI units.

    Raises
    ------
    SpecificationError
        One line with file, line, field, value, rule and remedy.

    Examples
    --------
    >>> load_system("mid_cp_mid_nw").network_bandwidth_bytes_per_s
    50000000000.0
    """
    return _load(name, "systems", _SystemFile, SystemSpec)


def load_model(name):
    """Read a model by name, or from a file; see `load_system`.

    Parameters
    ----------
    name : str or Path
        One of `model_names`, or a path that ends in ``.yaml`` or ``.yml``.

    Returns
    -------
    ModelSpec
        Checked; its sizes are numbers of elements, its precision is in bytes.

    Raises
    ------
    SpecificationError
        As `load_system`, and if the key-value heads do not divide the heads.

    Examples
    --------
    >>> load_model("paper").blocks
    128
    """
    model = _load(name, "models", _ModelFile, ModelSpec)
    if model.heads % model.kv_heads:
        rule = f"must divide heads ({model.heads})"
        raise SpecificationError(
            "kv_heads", model.kv_heads, rule, "write heads for ungrouped attention", where=str(name)
        )
    return model


def load_setting(name):
    """Read a setting by name, or from a file; see `load_system`.

    Parameters
    ----------
    name : str or Path
        The stem of a file in ``data/settings``, or a path that ends in ``.yaml`` or ``.yml``.

    Returns
    -------
    SettingSpec
        In SI units. That its words are known is checked where they are used.

    Raises
    ------
    SpecificationError
        As `load_system`.

    Examples
    --------
    >>> load_setting("default").p2p
    'overlapped'
    """
    return _load(name, "settings", _SettingFile, SettingSpec)


def parse_size(text):
    """Bytes of a size that is written with its unit.

    Parameters
    ----------
    text : str
        A number above 0 and one of ``B``, ``GB``, ``GiB``, ``TiB``.

    Returns
    -------
    float
        In bytes.

    Raises
    ------
    SpecificationError
        If there is no number, or another unit.

    Examples
    --------
    >>> parse_size("1.5 GiB") / 2**30
    1.5
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z]+)\s*", text)
    size = float(found[1]) * _UNITS[found[2]] if found and found[2] in _SIZES else 0.0
    if not 0 < size < float("inf"):
        rule = f"must be a number above 0 and one of the units {', '.join(_SIZES)}"
        raise SpecificationError("size", text, rule, "write for example 80 GiB")
    return size


def system_names():
    """The systems that come with the package.

    Returns
    -------
    list of str
        Names for `load_system`, sorted.

    Examples
    --------
    >>> "dgx_h100" in system_names()
    True
    """
    return sorted(path.stem for path in (DATA / "systems").glob("*.yaml"))


def setting_names():
    """The settings that come with the package.

    Returns
    -------
    list of str
        Names for `load_setting`, sorted.

    Examples
    --------
    >>> setting_names()
    ['default', 'paper']
    """
    return sorted(path.stem for path in (DATA / "settings").glob("*.yaml"))


def model_names():
    """The models that come with the package.

    Returns
    -------
    list of str
        Names for `load_model`, sorted.

    Examples
    --------
    >>> "paper" in model_names()
    True
    """
    return sorted(path.stem for path in (DATA / "models").glob("*.yaml"))


def specification_path(name, room):
    """The file of a model or system.

    Parameters
    ----------
    name : str or Path
        A name that comes with the package, or a path that ends in ``.yaml`` or ``.yml``.
    room : {"models", "systems", "settings"}
        The folder of the packaged specifications in which a name is looked up.

    Returns
    -------
    Path
        A file that exists.

    Raises
    ------
    SpecificationError
        If there is no such name or file.

    Examples
    --------
    >>> specification_path("paper", "models").name
    'paper.yaml'
    """
    return _path_of(name, (DATA / room).glob("*.yaml"), room[:-1], (".yaml", ".yml"))


def _path_of(name, packaged, field, suffixes):
    """The packaged file of a name, or else the file at a path; a packaged name comes first."""
    paths = {path.stem: path for path in sorted(packaged, key=lambda path: path.stem)}
    if str(name) in paths:
        return paths[str(name)]
    if os.path.isfile(name):
        return Path(name)
    if os.sep in str(name) or str(name).endswith(suffixes):
        raise SpecificationError(field, name, "is not a file", "check the path")
    near = get_close_matches(str(name), paths, n=1, cutoff=0.4)
    remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(paths)}"
    raise SpecificationError(field, name, f"is neither a known name nor a path to a {suffixes[0]} file", remedy)


def template_names(suffix):
    """The files that come with the project for users to copy, without their suffix.

    Parameters
    ----------
    suffix : str
        ``.csv`` for tables, ``.py`` for generators.

    Returns
    -------
    list of str

    Examples
    --------
    >>> template_names(".py")
    ['my_schedule']
    """
    return sorted(path.stem for path in (DATA / "templates").rglob(f"*{suffix}"))


def template_path(name, suffix):
    """The file of a table or a generator.

    Parameters
    ----------
    name : str or Path
        A template that comes with the package, or a path.
    suffix : str
        As in `template_names`.

    Returns
    -------
    Path
        A file that exists.

    Raises
    ------
    SpecificationError
        If there is no such template or file.

    Examples
    --------
    >>> template_path("my_table", ".csv").name
    'my_table.csv'
    """
    return _path_of(name, (DATA / "templates").rglob(f"*{suffix}"), "file", (suffix,))


def same_name(path, room):
    """Why a file is refused whose name is that of a packaged specification, and what to do.

    Parameters
    ----------
    path : str or Path
        The file.
    room : {"models", "systems", "settings"}
        As in `specification_path`.

    Returns
    -------
    rule, remedy : str
        The packaged file itself is asked for by its name, another one has to be renamed.

    Examples
    --------
    >>> same_name(DATA / "models" / "paper.yaml", "models")[1], same_name("paper.yaml", "models")[1]
    ('write its name instead: paper', 'rename the file')
    """
    stem = Path(path).stem
    packaged = Path(path).resolve() == (DATA / room / f"{stem}.yaml").resolve()
    remedy = f"write its name instead: {stem}" if packaged else "rename the file"
    return f"has the name of one that comes with the project ({stem})", remedy


def _load(name, room, file_type, spec_type):
    path = specification_path(name, room)
    entries = read_document(path, file_type)
    try:
        values, provenance = _values(entries)
    except SpecificationError as error:
        error.where = str(path)
        raise
    return spec_type(name=path.stem, title=entries.title, **values, provenance=tuple(provenance))


def _values(entries, block=""):
    """What the entries of a file, or of a block in it, come to in SI units, and where they come from."""
    values, provenance = {}, []
    for key, info in type(entries).model_fields.items():
        entry = getattr(entries, key)
        if isinstance(entry, _NodesFile):
            nodes, sources = _values(entry, f"{key}.")
            values[key] = NodeSpec(**nodes)
            provenance += sources
        elif isinstance(entry, _Sourced):
            unit = getattr(entry, "unit", "")
            value = tuple(entry.value) if isinstance(entry.value, list) else entry.value
            values[key + _SI_SUFFIX.get(info.annotation, "")] = value * _UNITS[unit] if unit else value
            provenance.append(Provenance(block + key, entry.value, unit, entry.kind, entry.source))
    return values, provenance


def nodes_of(system, num_devices):
    """The node of each device of a pipeline.

    Parameters
    ----------
    system : SystemSpec
        Gives nodes and placement.
    num_devices : int
        Devices, S.

    Returns
    -------
    ndarray of int, shape (num_devices,), or None
        None where the system has no nodes.

    Raises
    ------
    SpecificationError
        If the placement is a list for another number of devices.

    Examples
    --------
    >>> nodes_of(load_system("dgx_h100_nodes"), 10)
    array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1])
    """
    return None if system.nodes is None else system.nodes.of_devices(num_devices)


def one_node_text(system, sizes):
    """Say that a system's network is not used, where all devices of a pipeline lie on one node.

    Parameters
    ----------
    system : SystemSpec
        With or without nodes.
    sizes : iterable of int
        Numbers of devices, S.

    Returns
    -------
    str
        A sentence, or nothing where no size is one of a single node.

    Raises
    ------
    SpecificationError
        If the placement is a list for another number of devices.

    Examples
    --------
    >>> one_node_text(load_system("a2_highgpu_8g"), [4, 8, 16])
    'All S = 4, 8 devices lie on one node of a2_highgpu_8g: its network between nodes is not used.'
    >>> one_node_text(load_system("dgx_h100"), [8])
    ''
    """
    where = {size: nodes_of(system, size) for size in sizes}
    single = ", ".join(str(size) for size, nodes in where.items() if nodes is not None and not nodes.any())
    said = f"All S = {single} devices lie on one node of {system.name}: its network between nodes is not used."
    return said if single else ""


def cards_of(system, num_devices, p2p="overlapped"):
    """The network card of each device of a pipeline, where devices share one; for `graph.compile`.

    Parameters
    ----------
    system : SystemSpec
        Gives nodes, placement, and whether the devices of a node share its card.
    num_devices : int
        Devices, S.
    p2p : str
        Communication semantics; a transfer occupies cards, as it does links, under ``overlapped`` alone.

    Returns
    -------
    tuple of int, length num_devices, or None
        None where every directed pair of devices has a link of its own, where all devices lie on one node, and
        under other semantics.

    Raises
    ------
    SpecificationError
        If the placement is a list for another number of devices.

    Examples
    --------
    >>> cards_of(load_system("a2_highgpu_8g"), 10), cards_of(load_system("dgx_h100_nodes"), 10)
    ((0, 0, 0, 0, 0, 0, 0, 0, 1, 1), None)
    """
    nodes = nodes_of(system, num_devices)
    shared = nodes is not None and system.nodes.shared_card and p2p == "overlapped"
    return tuple(nodes.tolist()) if shared and nodes.any() else None


def by_cards(systems, num_devices, p2p="overlapped"):
    """Systems that share network cards in the same way, and so a compiled graph.

    Parameters
    ----------
    systems : sequence of SystemSpec
        Any.
    num_devices, p2p
        As in `cards_of`.

    Returns
    -------
    dict of tuple of int or None to list of int
        From the card of each device, or None where none is shared, to places in `systems`.

    Raises
    ------
    SpecificationError
        As `cards_of`.

    Examples
    --------
    >>> by_cards([load_system(name) for name in ("dgx_h100", "slow_between_nodes", "mi300x")], 6)
    {None: [0, 2], (0, 0, 0, 0, 1, 1): [1]}
    """
    places = {}
    for place, system in enumerate(systems):
        places.setdefault(cards_of(system, num_devices, p2p), []).append(place)
    return places


def read_document(path, file_type, form=_FORM):
    """A YAML file that keeps to a form.

    Parameters
    ----------
    path : Path
        The file.
    file_type : type of pydantic.BaseModel
        Its keys, their types and rules.
    form : str
        How such a file is written: the remedy where it is none at all.

    Returns
    -------
    BaseModel
        An instance of `file_type`.

    Raises
    ------
    SpecificationError
        One line with file, line, field, value, rule and remedy: the first thing wrong.
    """
    document = _read_yaml(path, form)
    try:
        return file_type.model_validate(_plain(document))
    except ValidationError as error:
        raise _first_problem(error, document, path, file_type, form) from None


def place_in(path, *location):
    """Where in a YAML file something stands, for error messages.

    Parameters
    ----------
    path : Path
        The file.
    *location : str or int
        Keys of mappings and places in lists, from the outermost to the innermost; as many count as the file has.

    Returns
    -------
    str
        The file and the line.

    Examples
    --------
    >>> place_in(DATA / "systems" / "dgx_h100.yaml", "title").endswith("dgx_h100.yaml:2")
    True
    """
    return f"{path}:{_line(_read_yaml(path), location)}"


def _read_yaml(path, form=_FORM):
    """The document with its line numbers, or one line about why it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        shown = f"byte 0x{error.object[error.start]:02x}"
        raise SpecificationError(
            "text", shown, "is not UTF-8", "save the file as UTF-8", where=f"{path}:{line}"
        ) from None
    except OSError as error:
        raise SpecificationError("file", path, f"cannot be read ({error.strerror})", "check the path") from None
    try:
        document = YAML().load(text)
    except MarkedYAMLError as error:
        raise _malformed(error, text, path, form) from None
    except RecursionError:
        rule = "is nested too deeply"
        raise SpecificationError("text", "brackets", rule, form, where=str(path)) from None
    except (YAMLError, ValueError) as error:
        rule = f"is not YAML ({error})"
        raise SpecificationError("text", "unreadable", rule, form, where=str(path)) from None
    if not isinstance(document, dict):
        rule = "must be a mapping of keys to values"
        shown = "a list" if isinstance(document, list) else repr(document)
        raise SpecificationError("document", shown, rule, form, where=str(path))
    return document


def _malformed(error, text, path, form):
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    lines = text.splitlines() or [""]
    shown = lines[min(line, len(lines) - 1)].strip() or "end of file"
    where = f"{path}:{line + 1}"
    if isinstance(error, DuplicateKeyError):
        key = re.search(r'found duplicate key "(.*?)"', error.problem or f'found duplicate key "{shown}"')[1]
        return SpecificationError(key, shown, "is given twice", "keep one of the two lines", where=where)
    if "\t" in lines[min(line, len(lines) - 1)]:
        rule = "has a tab where YAML allows spaces only"
        return SpecificationError("indentation", repr(shown), rule, "replace the tab by spaces", where=where)
    rule = f"is not YAML ({error.problem or error.context})"
    return SpecificationError("text", shown, rule, form, where=where)


def _plain(node):
    """The document without the YAML library's types, which a strict check would refuse."""
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return [_plain(entry) for entry in node] if isinstance(node, list) else node


def _first_problem(error, document, path, file_type, form):
    """The first thing wrong with a document as one error: by line, and what is missing last.

    A misspelt key is missing under its right name, too; the misspelling is what its writer can see.
    """

    def place(problem):
        return problem["type"] == "missing", _line(document, problem["loc"]), problem["loc"]

    problem = min(error.errors(), key=place)
    *parents, last = problem["loc"]
    name = _written_name(document, problem["loc"])
    where = f"{path}:{_line(document, problem['loc'])}"
    if problem["type"] == "extra_forbidden":
        allowed = list(_form_at(file_type, parents).model_fields)
        near = get_close_matches(str(last), allowed, n=1, cutoff=0.4)
        remedy = f"did you mean {near[0]}?" if near else f"delete it; the keys are {', '.join(allowed)}"
        return SpecificationError(name, problem["input"], "is not a known key", remedy, where=where)
    if problem["type"] == "missing":
        return SpecificationError(name, "nothing", "is missing", f"add the key {last}", where=where)
    not_a_mapping = problem["type"] == "model_type"
    if not_a_mapping and _form_at(file_type, problem["loc"]) is _NodesFile:
        remedy = f"write {', '.join(_NodesFile.model_fields)} below it, or delete it"
        return SpecificationError(name, _shown(problem["input"]), "must be a block of entries", remedy, where=where)
    rule = problem["msg"].replace("Input should be", "must be")
    remedy = form
    if parents and not not_a_mapping:
        remedy = _REMEDIES.get(problem["type"], "mend the value").format(**problem.get("ctx", {}))
    return SpecificationError(name, _shown(problem["input"]), rule, remedy, where=where)


def _written_name(document, location):
    """A location under the keys that its file has: a single value may stand where a list or mapping is meant."""
    name, node = [], document
    for key in location:
        if isinstance(node, list if isinstance(key, int) else dict):
            name.append(str(key))
            node = node[key] if isinstance(key, int) else node.get(key)
    return ".".join(name)


def _form_at(file_type, parents):
    """The form of the mapping at a place in a document."""
    for key in parents:
        if isinstance(key, str):
            annotation = file_type.model_fields[key].annotation
            file_type = (*get_args(annotation), annotation)[0]  # a list's entries have one form
    return file_type


def _shown(value):
    """A value as its file would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str | dict | list) else value


def _line(document, location):
    """The line of the deepest key of a location that the document has, counted from 1."""
    line, node = 1, document
    for key in location:
        if isinstance(node, list):
            line = node.lc.item(key)[0] + 1
        elif isinstance(node, dict) and key in (node.lc.data or ()):  # a merged key has no line of its own
            line = node.lc.key(key)[0] + 1
        else:
            break
        node = node[key]
    return line
