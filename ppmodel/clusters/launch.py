"""The arguments by which a training framework is told the schedule and the layout of a point."""

import json
import re
import shlex
from dataclasses import astuple, fields, replace
from string import Template
from typing import NamedTuple

from ppmodel.clusters.costs.work import recompute_of
from ppmodel.clusters.specs.layout import LAYOUT_OPTIONS, LayoutSpec
from ppmodel.clusters.specs.model import LatentAttentionSpec, ModelSpec
from ppmodel.clusters.specs.recompute import MODULES, again_of
from ppmodel.errors import CostError, SpecificationError
from ppmodel.schedules.interleaved import group_size
from ppmodel.schedules.options import SHARDING

_SHARDING = [option.name for option in SHARDING]
_CALL = re.compile(r'[A-Z]\w*\.\w+=(\w+|"[\w:]*"|[A-Z]\w*\(\w+=\w+(, \w+=\w+)*\))', re.ASCII)


class Launch(NamedTuple):
    """The arguments that run a point.

    Parameters
    ----------
    arguments : list of str
        Such as ``--tensor-model-parallel-size 8``; each word is quoted for a shell, if it has to be.
    without : dict of str to (object, str)
        For each field that the framework has no argument for, its value, and why, if that is known.
    """

    arguments: list[str]
    without: dict[str, tuple[object, str]]


def launch(point, launcher):
    """Write a point's schedule and layout as a framework's arguments.

    Parameters
    ----------
    point : Point
        With a layout.
    launcher : Launcher
        From `specs.load_launcher`.

    Returns
    -------
    Launch

    Raises
    ------
    CostError
        If the point has no layout.
    SpecificationError
        If the launcher's file writes what is no argument.

    Examples
    --------
    >>> from ppmodel.studies.points.grid import resolve_point
    >>> from ppmodel.clusters.specs.launcher import load_launcher
    >>> point = resolve_point("1f1b", 4, 8, model="llama3_70b", system="h100", tp=8, dp=2, zero=3)
    >>> written = launch(point, load_launcher("deepspeed"))
    >>> written.arguments[:2], written.without["zero"][0]
    (['train_batch_size=16', 'train_micro_batch_size_per_gpu=1'], 3)
    """
    if point.layout is None:
        remedy = "give values of one, such as {tp} and {dp}"
        raise CostError("launch", launcher.title, "needs a layout", remedy, names_fields=True)
    values, arguments, without = launch_values(point), [], {}
    nothing = LayoutSpec().under()  # is asked of a framework, so it needs no argument
    usual = {name: getattr(nothing, name) for name in LAYOUT_OPTIONS} | {"p2p": point.usual_p2p}
    for field, rules in launcher.fields.items():
        for name in (field, *(name for rule in rules for name in rule.when)):
            if name not in values:
                raise SpecificationError(f"fields.{field}", name, "is no field", f"choose from {', '.join(values)}")
        rule = next((rule for rule in rules if rule.holds(values)), None)
        if rule is not None and rule.write is not None:
            for text in rule.write:
                try:
                    argument = _argument(text, values, launcher.form)
                except (KeyError, ValueError):  # no field, a lone $, an open quotation mark, no call or no JSON
                    argument = ""
                if not argument:
                    rule = "must be an argument with the values of fields"
                    rule += ", and JSON behind =" * (launcher.form == "json")
                    remedy = "write, for example, --size $tp, or section.size=$tp"
                    raise SpecificationError(f"fields.{field}.write", text, rule, remedy)
                arguments.append(argument)
        else:
            without[field] = values[field], "" if rule is None else rule.lacks
    if "schedule" not in without:  # whose text has its options
        usual |= dict.fromkeys(_SHARDING)
    run = replace(point, layout=point.complete_layout)
    idle = {name for name, option in LAYOUT_OPTIONS.items() if option.needs and not option.needs(run)}
    unlisted = (field for field in usual if field not in {*launcher.fields, *idle} and values[field] != usual[field])
    without |= {field: (values[field], "") for field in unlisted}
    if "schedule" in without and (options := point.coordinates["options"]):
        without["schedule"] = f"{values['schedule']}:{options.replace(' ', ',')}", without["schedule"][1]
    return Launch(arguments, without)


def _argument(text, values, form):
    """An argument with the values of fields: of a call in Python, in JSON, or in words that a shell leaves alone."""
    if text[:1].isupper() or form == "json":
        argument = Template(text).substitute(values)
        if not text[:1].isupper():
            json.loads(argument.partition("=")[2])
        elif not _CALL.fullmatch(argument):
            raise ValueError(text)
        return argument
    words = [word for given in shlex.split(text) for word in Template(given).substitute(values).split()]
    return " ".join(
        f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word) for word in words
    )


def launch_values(point):
    """The values that a launcher's rules are about.

    Parameters
    ----------
    point : Point
        With a layout.

    Returns
    -------
    dict
        The values of its complete layout, with ``layers`` as Megatron-LM writes them; ``schedule``, ``p2p``; ``fsdp``
        and ``lookahead`` (None if not given); those of
        its model, with ``experts`` and ``latent``, whether it has experts, and attention through latents, and theirs
        (None without): ``number``, ``experts_per_token``, ``expert_hidden``, ``shared``, ``shared_hidden``, ``every``,
        ``dense_layers`` and ``sparse_layers`` of experts; ``grouped``, whether there are fewer ``kv_heads``;
        ``microbatches`` and ``replica_batch`` (sequences of a replica); ``group``, the microbatches that pass through
        one chunk before the next (None: as many as ranks; 0: there are fewer); ``division`` (even: all stages have as
        many blocks; ends: the first and the last may have fewer; uneven); ``stage_blocks`` (the most); ``first_less``
        and ``last_less`` (how many fewer); ``whole_layers``, whether whole layers are recomputed, all or some;
        ``by_module``, whether single modules are, and these as ``modules`` and ``module_list``; modules that are
        offloaded as ``offloaded`` and ``offloaded_list`` likewise, and layers that are as ``offload_layers`` (0 with
        modules, None with a share).

    Examples
    --------
    >>> from ppmodel.studies.points.grid import resolve_point
    >>> values = launch_values(resolve_point("1f1b", 4, 8, model="llama3_70b", system="h100", tp=8))
    >>> values["layers"], values["division"], values["first_less"], values["global_batch"]
    ('Et*20|(t*20|)*2t*20L', 'even', 0, 8)
    """
    layout, table, case, model = point.complete_layout, point.table, point.case, point.model
    recompute, experts, latent = recompute_of(model, layout), model.experts, model.latent_attention
    number, per_token, shared, hidden, dense, every = astuple(experts) if experts else (None,) * 6
    modules, offloaded, away = str(recompute).split("+"), layout.offloaded, layout.offloads_by_layer
    ranks, group = table.num_ranks, group_size(table.num_ranks, table.num_microbatches)
    stages = point.costs.stages.cut.texts
    blocks = [stage.blocks for stage in stages]
    most = max(blocks)
    usual = stages[0].embedding and not any(stage.losses for stage in stages[:-1])
    ends = "even" if usual and most == min(blocks) else "ends"
    return {field.name: getattr(model, field.name) for field in fields(ModelSpec)} | {
        "head_size": f"{model.head_size:g}", "grouped": model.kv_heads < model.heads,
        "experts": experts is not None, "latent": latent is not None,
        "number": number, "experts_per_token": per_token, "expert_hidden": hidden, "shared": shared,
        "shared_hidden": experts and shared * hidden, "dense_layers": dense, "every": every,
        "sparse_layers": experts and model.blocks - dense,
    } | {field.name: latent and getattr(latent, field.name) for field in fields(LatentAttentionSpec)} | {
        name: getattr(layout, name) for name in LAYOUT_OPTIONS
    } | dict.fromkeys(_SHARDING) | {name: value for name, value in case.options if name in _SHARDING} | {
        "layers": point.costs.stages.text, "division": ends if usual and set(blocks[1:-1]) <= {most} else "uneven",
        "stage_blocks": most, "first_less": most - blocks[0], "last_less": most - blocks[-1],
        "schedule": f"{case.label} of a file" if case.user_defined else case.name, "p2p": point.semantics[0],
        "sequence": model.sequence, "recompute": recompute,
        "whole_layers": not isinstance(recompute, str) or None in again_of(recompute),
        "modules": " ".join(modules), "module_list": ",".join(modules), "by_module": {*modules} <= MODULES.keys(),
        "offloaded": " ".join(offloaded), "offloaded_list": ",".join(offloaded),
        "offload_layers": 0 if offloaded else round(layout.offload) if away else None,
        "microbatches": layout.microbatches, "replica_batch": layout.global_batch // layout.dp,
        "chunks": table.num_stages // ranks, "group": None if group == ranks else group * (group > ranks),
    }  # fmt: skip
