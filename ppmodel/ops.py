"""The contents of a table's cell: one operation, or several that run as one."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from ppmodel.errors import TableError


class OpKind(IntEnum):
    """The phases of one microbatch on one stage, and what belongs to none: a reduction, a step, and gathers of weights.

    The letters are PyTorch's: ``B`` is the full backward; ``I`` and ``W`` are its two halves, the gradients of the
    stage's input and of its weights. The Zero Bubble papers write B for I. ``S`` and ``T`` are passes of an output
    layer whose vocabulary is divided among the ranks: ``2S5`` and ``2T5`` are those of the shard on the rank of stage 2
    (Yeung et al., 2024).

    Examples
    --------
    >>> OpKind.I.name, OpKind["W"]
    ('I', <OpKind.W: 3>)
    """

    F = 0  #: forward
    B = 1  #: full backward
    I = 2  #: input-gradient backward  # noqa: E741 - the field's letter
    W = 3  #: weight-gradient backward
    S = 4  #: forward of a shard of the output layer, with softmax
    T = 5  #: backward of a shard of the output layer, or the part of it that `S` has not done
    R = 6  #: reduction (sum) of a stage's gradients over its replicas, inside and outside the table
    O = 7  #: optimizer step of a stage  # noqa: E741 - the paper's letter
    G = 8  #: gather of a stage's sharded weights, beside computing; PyTorch's UNSHARD
    D = 9  #: drop of gathered weights; PyTorch's RESHARD


NO_MICROBATCH = -1
"""The microbatch of an operation that belongs to none: a reduction, an optimizer step, a gather or a drop."""

WHOLE = -1
"""The slice of an operation that handles all tokens of its microbatch."""

_KINDS, _ONCE = dict(OpKind.__members__), "ROGD"
_OP = re.compile(r"(\d{1,9})([FBIWSTROGD])(\d{0,9})(?:\.(\d{1,4}))?(?:@(\d{1,4}))?", re.ASCII)


class Op(NamedTuple):
    """One operation of a schedule.

    Attributes
    ----------
    kind : OpKind
    stage : int
        Stage of the model; 0 is at the input.
    microbatch : int
        Microbatch, or ``NO_MICROBATCH`` for a reduction, an optimizer step, a gather or a drop.
    replica : int
        Copy of the pipeline (always 0 except in bidirectional schedules).
    slice : int
        Which piece of the microbatch's tokens, or ``WHOLE`` for all of them.

    Examples
    --------
    >>> str(Op(OpKind.F, stage=2, microbatch=5)), str(Op(OpKind.R, stage=0, replica=1)), str(Op(OpKind.O, stage=2))
    ('2F5', '0R@1', '2O')
    >>> Op.parse("3B7@1")
    Op(kind=<OpKind.B: 1>, stage=3, microbatch=7, replica=1, slice=-1)
    >>> str(Op.parse("3B7.2"))
    '3B7.2'
    """

    kind: OpKind
    stage: int
    microbatch: int = NO_MICROBATCH
    replica: int = 0
    slice: int = WHOLE

    def __str__(self) -> str:
        replica = f"@{self.replica}" if self.replica else ""
        return f"{self.stage}{OpKind(self.kind).name}{self.unit}{replica}"

    @property
    def unit(self) -> str:
        """The microbatch with its slice, as in the text; empty if it has none."""
        microbatch = "" if self.microbatch == NO_MICROBATCH else str(self.microbatch)
        return microbatch if self.slice == WHOLE else f"{microbatch}.{self.slice}"

    @classmethod
    def parse(cls, text: str) -> Op:
        """Read an operation from its short text; the inverse of ``str``.

        Raises
        ------
        TableError
            If `text` is not an operation.
        """
        match = _OP.fullmatch(text.strip())
        stage, kind, microbatch, part, replica = match.groups() if match else ("", "R", "0", None, None)
        if (kind in _ONCE) != (microbatch == "") or (part and not microbatch):
            once = f"<stage><{'|'.join(_ONCE)}>[@<replica>]"
            rule = f"is not an operation <stage><F|B|I|W|S|T><microbatch>[.<slice>][@<replica>] or {once}"
            raise TableError("cell", repr(text), rule, "write, for example, 2F5, 2F5.1, 2B5@1 or 2R@1")
        numbers = int(microbatch or NO_MICROBATCH), int(replica or 0), int(part or WHOLE)
        return cls(_KINDS[kind], int(stage), *numbers)


def parse_cell(text: str) -> tuple[Op, ...]:
    """Read a cell: one operation, or several that run as one, joined by ``&``.

    Examples
    --------
    >>> [str(op) for op in parse_cell("0F4&0B2@1")]
    ['0F4', '0B2@1']
    """
    return tuple(Op.parse(part) for part in text.split("&"))
