"""Layers of each stage as text, in the notation of Megatron-LM's ``--pipeline-model-parallel-layout``."""

import re
from functools import lru_cache
from typing import NamedTuple

from ppmodel.errors import SpecificationError

_MOST_LAYERS = 10**5
_REPEATED = re.compile(r"\(([^()]+)\)\*(\d+)"), re.compile(r"([^()*])\*(\d+)")
_REMEDY = "write, for example, Et*2|(tt|)*6L: E embedding, t transformer layer, m MTP layer, L loss, | between stages"


class StageText(NamedTuple):
    """The layers of one stage, from their letters.

    Parameters
    ----------
    blocks, mtp : int
        Numbers of transformer blocks and of multi-token-prediction layers.
    embedding, head : bool
        Whether the stage begins with the embedding, and whether it ends with the loss head.
    """

    blocks: int
    mtp: int
    embedding: bool
    head: bool


@lru_cache
def parse_layers(text):
    """Parse a layout string into stages.

    Parameters
    ----------
    text : str
        ``E`` is the embedding, ``t`` a transformer layer, ``m`` a multi-token-prediction layer, ``L`` the loss head;
        ``|`` separates stages, in model order. ``x*n`` and ``(...)*n`` repeat; commas are ignored. Stages may be empty.

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
    Notation and rules follow Megatron-LM's documentation, Custom Pipeline Model Parallel Layout.

    Examples
    --------
    >>> stages = parse_layers("Et*3|(tt|)*29,m|L")
    >>> len(stages), sum(stage.blocks for stage in stages), stages[30].mtp, stages[31].head
    (32, 61, 1, True)
    """
    flat = _unrolled(text)
    layers, stages = flat.replace("|", ""), flat.split("|")
    for holds, rule in (
        (not re.search("[^EtmL|]", flat), "has characters that stand for no layer, or brackets not followed by *n"),
        (layers[:1] == "E" and layers.count("E") == 1, "must begin with its only embedding E"),
        (layers[-1:] == "L" and layers.count("L") == 1, "must end with its only loss head L"),
        ("mt" not in layers, "has a transformer layer t after an MTP layer m"),
        (sum("m" in stage for stage in stages) < 2, "has MTP layers m on several stages"),
        ("t" in layers, "has no transformer layer t"),
    ):
        if not holds:
            raise SpecificationError("layers", text, rule, _REMEDY)
    return tuple(StageText(stage.count("t"), stage.count("m"), "E" in stage, "L" in stage) for stage in stages)


def _unrolled(text):
    """The text with commas removed and repetitions expanded, bracketed ones first, innermost first."""
    flat = text.replace(",", "")
    for pattern in _REPEATED:
        while repeated := pattern.search(flat):
            times = int(repeated[2]) if len(repeated[2]) < len(str(_MOST_LAYERS)) else _MOST_LAYERS
            if len(repeated[1]) * times + len(flat) > _MOST_LAYERS:
                raise SpecificationError("layers", text, f"has more than {_MOST_LAYERS} layers", _REMEDY)
            flat = flat[: repeated.start()] + repeated[1] * times + flat[repeated.end() :]
    return flat
