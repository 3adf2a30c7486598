"""Layers of each stage as text, in the notation of Megatron-LM's ``--pipeline-model-parallel-layout``."""

import re
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from ppmodel.errors import SpecificationError

_MOST_LAYERS = 10**5
_SHORT = 3
"""Layers of a kind that are written out; more are counted."""

_REPEATED = re.compile(r"\(([^()]+)\)\*(\d+)"), re.compile(r"([^()*])\*(\d+)")
_REMEDY = "write, for example, Et*2|(tt|)*6L: E embedding, t transformer layer, m MTP layer, L loss, | between stages"


class StageText(NamedTuple):
    """The layers of one stage, from their letters.

    Parameters
    ----------
    blocks, mtp, losses : int
        Numbers of transformer blocks, of multi-token-prediction layers, and of losses.
    embedding : bool
        Whether the stage begins with the embedding.
    """

    blocks: int
    mtp: int = 0
    losses: int = 0
    embedding: bool = False

    def __str__(self):
        layers = ("E", self.embedding), ("t", self.blocks), ("m", self.mtp), ("L", self.losses)
        return "".join(f"{letter}*{count}" if count > _SHORT else letter * count for letter, count in layers)


@lru_cache
def parse_layers(text: str) -> tuple[StageText, ...]:
    """Parse a layout string into stages.

    Parameters
    ----------
    text : str
        ``E`` is the embedding, ``t`` a transformer layer, ``m`` a multi-token-prediction layer, ``L`` the loss head;
        ``|`` separates stages, in model order. ``x*n`` and ``(...)*n`` repeat; commas are ignored. Stages may be empty.
        A single ``L`` stands for all losses; or there is one for each MTP layer and one for the model, on any stages.

    Returns
    -------
    tuple of StageText
        In Megatron-LM's schedules, stage s is on rank s mod pp, as its chunk s // pp.

    Raises
    ------
    SpecificationError
        If the text has other letters, or its layers are in an impossible order.

    Notes
    -----
    Notation and rules follow Megatron-LM's documentation, Custom Pipeline Model Parallel Layout, and MTP Loss Split
    Across Pipeline Stages, whose example is ``E|(t|)*10m|m|m|LL|LL``.

    Examples
    --------
    >>> stages = parse_layers("Et*3|(tt|)*29,m|L")
    >>> len(stages), sum(stage.blocks for stage in stages), stages[30].mtp, stages[31].losses
    (32, 61, 1, 2)
    """
    flat = text.replace(",", "")
    for pattern in _REPEATED:  # bracketed ones first, innermost first
        while repeated := pattern.search(flat):
            times = int(repeated[2]) if len(repeated[2]) < len(str(_MOST_LAYERS)) else _MOST_LAYERS
            if len(repeated[1]) * times + len(flat) > _MOST_LAYERS:
                raise SpecificationError("layers", text, f"has more than {_MOST_LAYERS} layers", _REMEDY)
            flat = flat[: repeated.start()] + repeated[1] * times + flat[repeated.end() :]
    layers, stages = flat.replace("|", ""), flat.split("|")
    mtp, losses = layers.count("m"), layers.count("L")
    rules = (
        (not re.search("[^EtmL|]", flat), "has characters that stand for no layer, or brackets not followed by *n"),
        (layers[:1] == "E" and layers.count("E") == 1, "must begin with its only embedding E"),
        (layers[-1:] == "L" and "L" not in layers.rstrip("L"), "must end with the loss head L"),
        ("mt" not in layers, "has a transformer layer t after an MTP layer m"),
        (losses in (1, 1 + mtp), f"has {losses} losses L for {mtp} MTP layers m, and must have one or {1 + mtp}"),
        ("t" in layers, "has no transformer layer t"),
    )
    SpecificationError.require(("layers", text, *rule, _REMEDY) for rule in rules)
    split = 1 if losses == 1 + mtp else 1 + mtp  # losses for each L
    return tuple(StageText(text.count("t"), text.count("m"), split * text.count("L"), "E" in text) for text in stages)


def format_layers(stages):
    """Write stages as a layout string, the inverse of `parse_layers`.

    Parameters
    ----------
    stages : sequence of StageText
        In the order of the model.

    Returns
    -------
    str
        With repeated stages in brackets, for Megatron-LM's ``--pipeline-model-parallel-layout``; a single loss stage
        has one ``L``.

    Examples
    --------
    >>> format_layers(parse_layers("E|(t|)*126L"))
    'E|(t|)*126L'
    """
    if sum(stage.losses > 0 for stage in stages) == 1:
        stages = [stage._replace(losses=min(stage.losses, 1)) for stage in stages]
    *others, last = map(str, stages)
    runs = [(text, len(list(run))) for text, run in groupby(others)]
    return "".join(f"({text}|)*{count}" if count > 1 else f"{text}|" for text, count in runs) + last
