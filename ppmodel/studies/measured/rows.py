"""Rows of training runs: each CSV row is one run, with its model and its layout."""

import re
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import NamedTuple

from ppmodel import schedules
from ppmodel.clusters import specs
from ppmodel.clusters.specs.document import release_number
from ppmodel.clusters.specs.entries import unchecked
from ppmodel.clusters.specs.files import RENAMED_FRAMEWORKS
from ppmodel.clusters.specs.layers import parse_layers
from ppmodel.errors import PPModelError, shown
from ppmodel.export import text_of_cell
from ppmodel.files import csv_lines, data_rows
from ppmodel.schedules.cases import Case

_LARGEST_BYTES, _LARGEST = 2**25, 10**9
_SMALLEST = 1e-18  # below any measurement, as in `timings`
_ENDS = 2
_ATTENTION = {"unfused": "materialised", "unfused-fused-softmax": "fused-softmax", "flash": "fused"}
_KERNEL = re.compile(r"\bkernel (?P<attention>\S+)(?P<norm> \+ RMS kernel)?")
_FIRST_ATTENTION = ("flash_attention", "flash_attentionv1.0.8")
_NUMBER = re.compile(r"\s*(?:[0-9]+\.?|[0-9]*\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")
_SOURCES = {row["framework"]: re.compile(row["source"]) for row in data_rows("sources.csv")}
"""Frameworks that sources name, by a pattern; the first that fits."""
_TRUNCATED = re.compile(r"_l(?P<layers>\d+)$")
_OF_ALL = re.compile(r"(?P<layers>\d+) of \d+ layers")
_RELEASE = re.compile(r"(?:NeMo|Megatron-Bridge|dgxc-benchmarking|MLPerf Training) v?(\d\d?\.\d\d?(?:\.\d\d?)?)\b")
_GRADIENT_BYTES, _OPTIMIZER_BYTES = 4.0, 12.0
_SWITCH = {"true": True, "false": False}
_OPTIONS = specs.LAYOUT_OPTIONS
_OF_LAYOUT = tuple(name for name, option in _OPTIONS.items() if option.of_runs)
_TEXTS = {"gated_mlp": _SWITCH, "attention": _ATTENTION} | {name: option.texts for name, option in _OPTIONS.items()}
_OF_MODEL = "hidden", "heads", "kv_heads", "mlp_hidden", "gated_mlp", "vocabulary", "sequence", "attention"
COLUMNS = (*_OF_MODEL[:3], "layers", *_OF_MODEL[3:], "schedule", *_OF_LAYOUT)
"""The columns that describe a run: its model, its schedule and its layout.

A file may have others, which are kept as notes if their names are like none that is read.
"""

LEAST_MFU = 10.0
"""Runs that state less utilization, in per cent, were held up by what no model of a healthy cluster has."""

MEASURED = ("iteration_s", "memory_gb")
"""Optional columns with measurements: in each row, a number above 0 or nothing."""

_OPEN = "gpus", *(name for name in specs.DIMENSIONS if name not in _OF_LAYOUT)
_SWITCHED = "dispatcher", "expert_nodes", "overlap_tensor", "cuda_graphs", "offload"
OPTIONAL = "pipeline_runs", "precision", "gradient_bytes", "framework", *_SWITCHED, *_OPEN
"""Optional columns: how many times an iteration runs the whole pipeline (empty means once); the precision of matrix
multiplications, unless a column ``number_format`` has the name of a format, and the bytes that a GPU keeps for the
gradient of a parameter (empty, as the framework says); the framework's name, how tokens reach experts, and what CUDA
graphs capture (empty, as its release says); layers or modules whose activations go to the host; GPUs, which must agree
with the layout; and, beside ``model``, GPUs that share each expert (empty means tp).

``model`` is the name of a packaged model, in rows whose columns of the model are empty; see `model_named`.
"""

NEW_NAMES = {"flushes": "pipeline_runs"}
"""Columns that had other names, which are read as well."""

_RECIPES = data_rows("recipes.csv")
_OF_RECIPE = *_SWITCHED, "recompute", "attention", "attention_factor", "division"
_ALSO_READ = ("model", "number_format", *OPTIONAL, *MEASURED, *NEW_NAMES, "status", "id", "source")
_ALIKE = 0.8
"""How alike a column's name and one of ours are, from 0 to 1, so that one is taken for the other misspelt."""


class MeasuredRun(NamedTuple):
    """The run that a row describes.

    Parameters
    ----------
    case : Case
        The schedule.
    model : ModelSpec
    layout : LayoutSpec
        Complete, including pp and the global batch.
    num_microbatches : int
        Microbatches per replica in one run of the pipeline, B.
    pipeline_runs : int
        Consecutive runs of the pipeline in an iteration before gradients are reduced; the layout's global batch is that
        of one run.
    """

    case: Case
    model: specs.ModelSpec
    layout: specs.LayoutSpec
    num_microbatches: int
    pipeline_runs: int = 1


def read_rows(path):
    """Read the rows of a file of training runs.

    Parameters
    ----------
    path : str or Path
        A CSV file with a header; `COLUMNS` must be among its columns.

    Returns
    -------
    columns : list of str
        In the order of the file.
    rows : list of dict of str to str
        As written.

    Raises
    ------
    PPModelError
        If the file cannot be read, a column is missing, occurs twice or has nearly the name of one that is read, or a
        row has the wrong number of values or a number that is not above 0 in one of `MEASURED`.
    """
    lines = csv_lines(path, _LARGEST_BYTES)
    names, _ = next(lines, ([], ""))
    columns = [*map(text_of_cell, names)]
    for name in columns:
        if columns.count(name) > 1:
            raise PPModelError("column", name, "is given twice", "rename one of the two", where=f"{path}:1")
        near = get_close_matches(name.strip().lower(), (*COLUMNS, *_ALSO_READ), n=1, cutoff=_ALIKE)
        if near and near[0] != name:
            meant = NEW_NAMES.get(near[0], near[0])
            rule, remedy = f"is nearly {meant}, but no column that is read", f"write {meant}, or rename a note"
            raise PPModelError("column", repr(name), rule, remedy, where=f"{path}:1")
    if missing := [name for name in COLUMNS if name not in columns]:
        rule = f"must have the columns {', '.join(COLUMNS)}"
        remedy = "add these to the header; a model's own may be empty where a column model names a packaged one"
        raise PPModelError("columns", f"without {missing[0]}", rule, remedy, where=f"{path}:1")
    rows = []
    for values, where in lines:
        if len(values) != len(columns):
            rule, remedy = f"must be {len(columns)}, as in the header", "complete the row with empty values"
            raise PPModelError("values of the row", len(values), rule, remedy, where=where)
        rows.append(dict(zip(columns, map(text_of_cell, values), strict=True)))
        for name in MEASURED:
            require_measured(name, rows[-1].get(name, ""), where)
    if not rows:
        raise PPModelError("rows", "none", "must be at least one", "write one row for each run", where=str(path))
    return columns, rows


def require_measured(name, text, where):
    """Refuse a measurement that is no number above 0; it may be empty."""
    if text and not (_NUMBER.fullmatch(text) and _SMALLEST < float(text) < 1 / _SMALLEST):
        rule, remedy = "must be a number above 0, or empty if nothing was measured", "write, for example, 0.5"
        raise PPModelError(name, repr(shown(text)), rule, remedy, where=where)


def system_of(row, system, framework=None):
    """The system with the kernels that a row names, under the row's framework.

    Parameters
    ----------
    row : dict of str to str
        Its column ``source`` may name a kernel after the word kernel: ``flash_attention2`` or ``flash_attention2 + RMS
        kernel``; ``flash_attention`` and ``flash_attentionv1.0.8`` are the first version of that kernel. A recipe may
        have older kernels of attention than its release.
    system : SystemSpec
    framework : FrameworkSpec, optional
        Of all rows. Without it, the one in the row's column ``framework``; else the one that the system was fitted
        with; else one that the row's source names; else the default.

    Returns
    -------
    SystemSpec
        Its kernels are unchanged if the row names none, or if the system does not tell kernels apart.

    Examples
    --------
    >>> from ppmodel.clusters.specs import KernelSpec, load_system
    >>> system = replace(load_system("a100"), kernels=KernelSpec(stream_efficiency=0.5, fused_norm_efficiency=0.8))
    >>> row = {"source": "kernel flash_attention2 + RMS kernel", "framework": "plain"}
    >>> system_of(row, system).kernels.stream_efficiency
    0.8
    >>> system_of({"source": "NVIDIA dgxc-benchmarking v24.11.1"}, system).framework.name
    'nemo'
    """
    framework, kernels, memory = framework or framework_named(row, system), system.kernels, system.memory
    if framework and (factor := recipe_of(row).get("attention_factor")):
        framework = replace(specs.load_framework(framework), attention_factor=float(factor))
    first_attention, fused_norms = kernels_named(row) or (False, False)
    if kernels is not None and (first_attention or fused_norms):
        factor = kernels.first_attention_factor if first_attention else 1.0
        stream = (fused_norms and kernels.fused_norm_efficiency) or kernels.stream_efficiency
        if memory is not None and fused_norms:
            memory = unchecked(memory, activation_factor=memory.fused_norm_factor * memory.activation_factor)
        times = kernels.attention_times(factor, system.compute_efficiency)
        system = unchecked(system, kernels=unchecked(kernels, **times, stream_efficiency=stream), memory=memory)
    return specs.with_framework(system, framework)


def framework_named(row, system):
    """The framework of a row on a system, as in `system_of`; None if nothing names it, or the system has it."""
    release = _RELEASE.search(row.get("source", ""))
    of_release = f"@{release[1]}" if release else ""
    if name := row.get("framework", "").strip():
        name, _, named = RENAMED_FRAMEWORKS.get(name, name).partition("@")
        if name not in specs.packaged("frameworks"):  # a row is data: it names a packaged framework, never a file
            remedy = f"choose one of {', '.join(specs.packaged('frameworks'))}, or leave it empty"
            raise PPModelError("framework", repr(shown(name)), "is not a known framework", remedy)
        if system.framework is not None and name == system.framework.packaged:
            return None
        return f"{name}@{named}" if named else name + of_release * (name == "nemo")
    source = row.get("source", "") if system.framework is None else ""
    name = next((name for name, text in _SOURCES.items() if text.search(source)), None)
    return name and name + of_release * (name == "nemo")


def model_of(row):
    """A key that tells the models of rows apart: a packaged model's name, or the hidden size and the layers.

    >>> model_of({"hidden": "1024", "layers": "8"})
    ('', '1024', '8')
    """
    return tuple(row.get(name, "").strip() for name in ("model", "hidden", "layers"))


def configuration(row):
    """Model, schedule and layout of a row, whatever was measured and whoever reported it.

    >>> row = dict.fromkeys(COLUMNS, "1")
    >>> configuration(row | {"iteration_s": "2"}) == configuration(row | {"iteration_s": "3", "source": "copy"})
    True
    """
    row = renamed(row)
    return (row.get("model", ""), *(row.get(name, "").strip() for name in (*COLUMNS, "pipeline_runs")))


def renamed(row):
    """The row with today's names of columns.

    >>> renamed({"tp": "8", "flushes": "2"})
    {'tp': '8', 'pipeline_runs': '2'}
    """
    return {NEW_NAMES.get(name, name): value for name, value in row.items()}


def is_healthy(row):
    """Return whether a row's ``mfu_percent``, if it states one, is `LEAST_MFU` or more."""
    text = row.get("mfu_percent", "").strip()
    return not (_NUMBER.fullmatch(text) and float(text) < LEAST_MFU)


def kernels_named(row):
    """Return whether a row names a first version of attention, and fused norms; None if it names no kernel."""
    named = _KERNEL.search(row.get("source", ""))
    return named and (named["attention"] in _FIRST_ATTENTION, named["norm"] is not None)


def run_of(row, framework=None):
    """The run that a row describes.

    Parameters
    ----------
    row : dict of str to str
        With `COLUMNS`, and optionally ``model`` and those of `OPTIONAL`.
    framework : FrameworkSpec, optional
        What the framework does that no column states, such as the bytes of a gradient.

    Returns
    -------
    MeasuredRun

    Raises
    ------
    PPModelError
        If a value is illegal, or the global batch does not divide.

    Examples
    --------
    >>> row = dict.fromkeys(COLUMNS, "1") | {"gated_mlp": "false", "attention": "flash", "schedule": "1f1b"}
    >>> row |= {"sequence_parallel": "false", "recompute": "none", "hidden": "1024", "heads": "16", "kv_heads": "16"}
    >>> run = run_of(row | {"layers": "4", "pp": "2", "global_batch": "8"})
    >>> run.case.name, run.model.blocks, run.num_microbatches
    ('1f1b', 4, 8)
    """
    row = renamed(row)
    recipe = recipe_of(row)
    row = row | {name: value for name, value in recipe.items() if name != "division"}
    texts = {name: row.get(name, "").strip() for name in (*COLUMNS, *OPTIONAL) if name != "framework"}
    formats = [row.get(name, "").strip().lower() for name in ("number_format", "precision")]
    texts["precision"] = next((name for name in formats if name in specs.FORMATS), formats[1])
    named = None if any(texts[name] for name in _OF_MODEL[:-2]) else model_named(row)
    case = Case(schedules.get(texts.pop("schedule")).name)  # as in `case_of_data`, with options in other columns
    needed = () if named else COLUMNS
    values = {name: stated_value(name, text) for name, text in texts.items() if text or name in needed}
    batch, runs, chunks = values.get("global_batch"), values.get("pipeline_runs", 1), values.get("chunks", 1)
    if batch is None:
        raise PPModelError("global_batch", None, "must be given", "write, for example, 1024")
    if batch % runs:
        raise PPModelError("pipeline_runs", runs, f"must divide global_batch ({batch})", "write 1, or leave it empty")
    if "chunks" in case.known_options and "chunks" in values:
        case = case.with_options({"chunks": str(chunks)})
    elif chunks != 1:
        raise PPModelError("chunks", chunks, f"is not an option of {case.name}", "write 1, or interleaved-1f1b")
    values["global_batch"] = batch // runs
    of_framework = {name: values[name] for name in ("precision", "gradient_bytes") if name in values}
    framework = replace(framework or specs.FrameworkSpec(), **of_framework)
    of_layout = {name: values[name] for name in (*_OF_LAYOUT, *_SWITCHED, *_OPEN) if name in values}
    of_layout["sequence_parallel"] = of_layout.get("sequence_parallel", False) and of_layout.get("tp", 1) > 1
    if named:
        of_layout = {"pp": 1, "sequence": values.get("sequence")} | of_layout
        stages = of_layout["pp"] * chunks
        cut = even_layers(named.blocks, stages) if row.get("source") else ""  # a run of one's own, as in a simulation
        if cut and (cut != "even" or named.blocks % stages == 0):
            of_layout["layers"] = cut
        model = framework.model(named)
        model = replace(model, **{name: values.get(name, getattr(model, name)) for name in _OF_MODEL[-2:]})
        if "division" in recipe:  # with a layer of multi-token prediction, m, if the model has one
            stages = recipe["division"].replace("m", "m" * model.mtp_layers)
            counts = [stage.blocks for stage in parse_layers(stages)]
            if (len(counts), sum(counts)) == (of_layout["pp"] * chunks, model.blocks):
                of_layout["layers"] = stages
    else:
        of_layout["layers"] = even_layers(values["layers"], values["pp"] * values["chunks"])
        gated = values["gated_mlp"]  # what has no column follows from the family: Llama with a gated MLP, GPT without
        model = specs.ModelSpec(
            name="row", title="", **{name: values[name] for name in _OF_MODEL}, blocks=values["layers"],
            head_size=values["hidden"] / values["heads"], norm="rmsnorm" if gated else "layernorm", bias=not gated,
            dropout=framework.dropout and not gated, recompute="none", learned_positions=not gated,
            global_batch=values["global_batch"], element_bytes=2,
            gradient_bytes=framework.gradient_bytes or _GRADIENT_BYTES,
            optimizer_bytes=framework.optimizer_bytes or _OPTIMIZER_BYTES,
            tied_embeddings=framework.tied_embeddings or not gated,
        )  # fmt: skip
    layout = specs.LayoutSpec(**of_layout).under(framework)
    layout.require_shares()
    return MeasuredRun(case, model, layout, layout.microbatches, runs)


def recipe_of(row):
    """The columns that a row leaves empty, as NVIDIA's published recipe has them; ``data/recipes.csv`` lists recipes.

    The newest one up to the release in the row's source counts, for its device, number format and model; a row that
    names no model is matched by its sizes. If the recipe overlaps the exchange of experts, so does a run of interleaved
    1F1B, or one without a pipeline; layers are offloaded only without a pipeline, as in Megatron-LM.

    >>> row = {"source": "Megatron-Bridge 26.06", "model": "kimi_k2", "device": "GB300-284GB", "number_format": "bf16"}
    >>> recipe_of(row)["dispatcher"], recipe_of({"source": "mine"})
    ('hybridep', {})
    """
    release, name = _RELEASE.search(row.get("source", "")), row.get("model", "")
    sizes = [row.get(size, "") for size in ("hidden", "layers", "mlp_hidden", "vocabulary")]
    known = release and [
        recipe for recipe in _RECIPES if recipe["device"] == row.get("device")
        and recipe["number_format"] in ("", row.get("number_format") or row.get("precision"))
        and release_number(recipe["release"]) <= release_number(release[1])
        and (recipe["model"] == name if name else _sizes(recipe["model"]) == sizes)
    ]  # fmt: skip
    if not known:
        return {}
    recipe = known[-1]
    filled = {name: recipe[name] for name in _OF_RECIPE if recipe[name] and not row.get(name, "").strip()}
    pp, chunks = (row.get(name, "").strip() or "1" for name in ("pp", "chunks"))
    if pp != "1":
        filled.pop("offload", None)
    if recipe["schedule"] and (chunks != "1" or pp == "1"):
        filled |= {"schedule": recipe["schedule"], "chunks": "2" if chunks == "1" else chunks}
    return filled


@cache
def _sizes(model):
    """The sizes of a packaged model by which rows without its name are known, as text."""
    model = specs.load_model(model)
    return [str(size) for size in (model.hidden, model.blocks, model.mlp_hidden, model.vocabulary)]


def model_named(row):
    """The packaged model of a row's column ``model``, as its run has it; None if it is empty.

    The first layers alone, if the column ``layers`` gives a number, the name ends with one, or the notes begin "2 of 64
    layers": with the part of its dense layers, at least one if it has any, with the usual optimizer, and without
    multi-token prediction, which also a source or notes with "w/o MTP" leaves out.

    >>> model = model_named({"model": "deepseek_v3_l4"})
    >>> model.blocks, model.dense_blocks, model.mtp_layers
    (4, 1, 0)
    """
    name, notes = row.get("model", ""), row.get("notes", "")
    if not isinstance(name, str):  # that of a file
        return name
    if not (name := name.strip()):
        return None
    cut = name not in specs.packaged("models") and _TRUNCATED.search(name)
    name, cut = name[: cut.start()] if cut else name, cut or _OF_ALL.match(notes)
    if name not in specs.packaged("models"):
        remedy = f"choose one of {', '.join(specs.packaged('models'))}, or leave it empty"  # a row never names a file
        raise PPModelError("model", repr(shown(name)), "is not a known model", remedy)
    model, layers = specs.load_model(name), row.get("layers", "").strip() or (cut["layers"] if cut else "")
    if layers and (blocks := stated_value("layers", layers)) < model.blocks:
        dense = model.experts and model.experts.dense_layers
        experts = dense and replace(model.experts, dense_layers=max(1, dense * blocks // model.blocks))
        usual = {"mtp_layers": 0, "optimizer_bytes": _OPTIMIZER_BYTES}
        model = replace(model, blocks=blocks, experts=experts or model.experts, **usual)
    return replace(model, mtp_layers=0) if "w/o MTP" in row.get("source", "") + notes else model


def stated_value(name, text):
    """The value of a column from its text; raises PPModelError for a text that is none."""
    option, counts = _OPTIONS.get(name), name in ("recompute", "offload") and text.isdecimal()  # layers
    if (texts := _TEXTS.get(name)) and not counts:
        if (value := text.lower() if texts == _SWITCH else text) in texts:
            return texts[value]
        if option and option.entry.joined and {*text.split("+")} <= texts.keys():
            return text
        raise PPModelError(name, repr(shown(text)), f"must be one of {', '.join(texts)}", "choose one of them")
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else 0
    if not 1 <= number <= _LARGEST:
        rule = f"must be a whole number from 1 to {_LARGEST}"
        raise PPModelError(name, repr(shown(text)), rule, "write, for example, 8")
    return number


def even_layers(layers, stages):
    """Even shares of layers, as Megatron-LM requires; embedding and loss count as layers where that makes them even.

    Examples
    --------
    >>> even_layers(32, 4), even_layers(30, 4)
    ('even', (7, 8, 8, 7))
    """
    share = (layers + _ENDS) // stages
    if layers % stages == 0 or (layers + _ENDS) % stages or stages < _ENDS:
        return "even"
    return (share - 1, *[share] * (stages - _ENDS), share - 1)
