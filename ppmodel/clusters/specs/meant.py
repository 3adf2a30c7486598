"""What an unknown key of a file was meant to be, and which other file a file looks like."""

from ruamel.yaml import YAML

from ppmodel.errors import did_you_mean
from ppmodel.files import DATA


def meant_key(key, keys, parents=()):
    """What an unknown key was probably meant to be, as a remedy; empty if nothing is near.

    Parameters
    ----------
    key : str
        As written.
    keys : iterable of str
        The keys that its place has.
    parents : sequence of str or int
        The keys of the blocks around it, and places in lists.

    Examples
    --------
    >>> meant_key("num_hidden_layers", ["blocks", "mlp_hidden"])
    'did you mean blocks?'
    >>> meant_key("num_experts", ["blocks", "experts"]), meant_key("num_experts", ["number"], ["experts"])
    ('did you mean experts.number?', 'did you mean number?')
    """
    key, block = str(key).lower().replace("-", "_"), "".join(f"{part}." for part in parents if isinstance(part, str))
    for name, aliases in YAML(typ="safe").load(DATA / "aliases.yaml").items():
        short = name.removeprefix(block)
        if key in aliases.split() and name.startswith(block) and short.partition(".")[0] in keys:
            return f"did you mean {short}?"
    return did_you_mean(key, keys)


def looks_like(keys, file_type):
    """Which other file one with these keys looks like; None if it is nearest to its own form.

    Parameters
    ----------
    keys : iterable of str
        The file's keys.
    file_type : type of pydantic.BaseModel
        The form that it was read against.

    Returns
    -------
    str or None

    Examples
    --------
    >>> from ppmodel.clusters.specs import SystemSpec
    >>> from ppmodel.clusters.specs.entries import file_form
    >>> looks_like(["title", "blocks", "hidden"], file_form(SystemSpec)), looks_like(["tp"], file_form(SystemSpec))
    ('model', None)
    """
    from ppmodel.clusters.specs.entries import file_form
    from ppmodel.clusters.specs.layout import LayoutSpec
    from ppmodel.clusters.specs.model import ModelSpec
    from ppmodel.clusters.specs.system import SystemSpec

    def shared(form):
        return len(form.model_fields.keys() & set(map(str, keys)) - {"title"})

    forms = {"model": file_form(ModelSpec), "system": file_form(SystemSpec), "layout": file_form(LayoutSpec)}
    nearest = max(forms, key=lambda name: shared(forms[name]))
    return nearest if shared(forms[nearest]) > max(1, 2 * shared(file_type)) else None
