"""Suggestions for unknown keys of a file, and for files of another kind."""

from ppmodel.clusters.specs.entries import Checked, file_keys
from ppmodel.errors import did_you_mean
from ppmodel.files import DATA


def suggest_key(key, keys, parents=()):
    """Suggest the known key that an unknown one was probably meant to be.

    Parameters
    ----------
    key : str
        As written.
    keys : iterable of str
        The keys that its place has.
    parents : sequence of str or int
        The keys of the blocks around it, and places in lists.

    Returns
    -------
    str
        A remedy; empty if nothing is near.

    Examples
    --------
    >>> suggest_key("num_hidden_layers", ["blocks", "mlp_hidden"])
    'did you mean blocks?'
    >>> suggest_key("num_experts", ["blocks", "experts"]), suggest_key("num_experts", ["number"], ["experts"])
    ('did you mean experts.number?', 'did you mean number?')
    """
    key, block = str(key).lower().replace("-", "_"), "".join(f"{part}." for part in parents if isinstance(part, str))
    for line in (DATA / "aliases.yaml").read_text(encoding="utf-8").splitlines():
        name, _, aliases = line.partition(": ")
        short = name.removeprefix(block)
        if key in aliases.split() and name.startswith(block) and short.partition(".")[0] in keys:
            return f"did you mean {short}?"
    return did_you_mean(key, keys)


def guess_file_type(keys, known):
    """Guess which specification a file is, if it is hardly the one that it was read as.

    Parameters
    ----------
    keys : iterable of str
        The file's keys.
    known : iterable of str
        The keys of the form that it was read against.

    Returns
    -------
    str or None
        None if no other form is much nearer.

    Examples
    --------
    >>> guess_file_type(["title", "blocks", "hidden"], ["title", "peak_compute"]), guess_file_type(["tp"], ["title"])
    ('model', None)
    """

    def shared(form):
        return len(set(form) & set(keys) - {"title"})

    whole = (spec for spec in Checked.__subclasses__() if "title" in spec.__dataclass_fields__)
    forms = {spec.__name__.removesuffix("Spec").lower(): file_keys(spec) for spec in whole}
    nearest = max(forms, key=lambda name: shared(forms[name]))
    return nearest if shared(forms[nearest]) > max(1, 2 * shared(known)) else None
