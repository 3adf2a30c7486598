"""The meaning of letters: two conventions are in use, and each file follows one of them.

Both write F for a forward and W for a weight gradient. ``pytorch``, used by `ops.OpKind` and by current PyTorch,
writes B for a full backward and I for its input-gradient half. ``zero-bubble``, used by the Zero Bubble papers and by
older PyTorch, writes B for that half and BW for a full backward.
"""

import re

from ppmodel.errors import TableError
from ppmodel.ops import Op

PYTORCH, ZERO_BUBBLE = "pytorch", "zero-bubble"

MEANINGS = {
    PYTORCH: {"F": "forward", "B": "full backward", "I": "input gradient", "W": "weight gradient"},
    ZERO_BUBBLE: {"F": "forward", "B": "input gradient", "BW": "full backward", "W": "weight gradient"},
}
"""The meaning of each letter in each convention."""
_OURS = {"B": "I", "BW": "B"}
_USED = re.compile(r"(?<=\d)(?:BW|[FBIW])(?=\d)", re.ASCII)
_OPERATION = re.compile(r"(\d{1,9})(BW|[FBIW])(\d.*)", re.ASCII)


def convention(comment, lines):
    """Determine the convention of a file.

    A comment ``# letters: ...`` decides, with a convention's name or with the meaning of each letter. Without one,
    ``BW``, or ``W`` without any ``I``, indicates ``zero-bubble``; all other files follow ``pytorch``.

    Parameters
    ----------
    comment : (int, str) or None
        Line number and text of the comment.
    lines : list of (int, str)
        The rows of the file, with line numbers.

    Returns
    -------
    {"pytorch", "zero-bubble"}

    Raises
    ------
    TableError
        If the comment names neither, or the file mixes both.

    Examples
    --------
    >>> convention(None, [(1, "0F0,0B0,0W0")]), convention(None, [(1, "0F0,0B0")])
    ('zero-bubble', 'pytorch')
    """
    if comment is not None:
        number, value = comment
        pairs = [part.strip().split(maxsplit=1) for part in value.partition(";")[0].split(",")]
        stated = {tuple(pair) for pair in pairs if len(pair) == 2 and pair[0] in ("F", "B", "I", "W", "BW")}
        for name, meanings in MEANINGS.items():
            if value == name or (stated and stated <= meanings.items()):
                return name
        rule = f"must be {PYTORCH} or {ZERO_BUBBLE}, or give the meaning of each letter in one of them"
        remedy = "write, for example, # letters: B input gradient, W weight gradient, BW full backward"
        raise TableError("letters", value, rule, remedy, where=number)
    used = {letter: number for number, line in reversed(lines) for letter in _USED.findall(line)}  # first lines
    if {"I", "BW"} <= used.keys():
        rule = "mix two conventions: with I, B is a full backward; with BW, B is an input gradient"
        remedy = f"use one, and name it in a comment: # letters: {PYTORCH}, or # letters: {ZERO_BUBBLE}"
        raise TableError("letters", "I and BW", rule, remedy, where=max(used["I"], used["BW"]))
    return ZERO_BUBBLE if "BW" in used or ("W" in used and "I" not in used) else PYTORCH


def read_operation(text, letters):
    """Read an operation according to a convention.

    Parameters
    ----------
    text : str
        Such as ``2B5``.
    letters : {"pytorch", "zero-bubble"}

    Returns
    -------
    Op

    Raises
    ------
    TableError
        If `text` is not an operation, or uses a letter of the other convention.

    Examples
    --------
    >>> str(read_operation("2B5", "pytorch")), str(read_operation("2B5", "zero-bubble"))
    ('2B5', '2I5')
    """
    match = _OPERATION.fullmatch(text.strip())
    if match and match[2] not in MEANINGS[letters]:
        meanings = ", ".join(f"{letter} {meaning}" for letter, meaning in MEANINGS[letters].items())
        remedy = "fix the cell, or the comment # letters"
        raise TableError("cell", repr(text.strip()), f"does not use the letters of {letters} ({meanings})", remedy)
    if match and letters == ZERO_BUBBLE:
        text = match[1] + _OURS.get(match[2], match[2]) + match[3]
    return Op.parse(text)
