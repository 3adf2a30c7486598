"""What to run on one GPU cluster, in two sentences: what a public framework runs, and what would be fastest."""

from functools import cache

from ppbook.against import unfitted_runs
from ppbook.certainty import EQUAL, TIE, WITHIN, in_a_word, kind_of, pairs_of
from ppbook.frameworks import NOWHERE, frameworks_of, runs_as_modelled
from ppmodel import schedules
from ppmodel.measured import fitted_systems

ORDER = ["iteration_s", "peak_memory_bytes", "label"]
"""What a list of layouts and schedules is sorted by: the fastest first, and of two that are as fast the smaller."""

UNKNOWN = "with no measured runs on this kind of GPU to check it"


def layout_in_words(row):
    """The layout of a row in words.

    Parameters
    ----------
    row : Series
        Of a frame from `evaluate.compare`.

    Returns
    -------
    str
    """
    sizes = f"pp {row.pp}, tp {row.tp}" + (f", cp {row.cp}" if row.cp > 1 else "") + f", dp {row.dp}"
    sizes += f", ep {row.ep}" if row.ep > 1 else ""
    sizes += f", {row.microbatch_size} sequences a microbatch" if row.microbatch_size > 1 else ""
    return sizes + ("" if row.recompute == "none" else f", recompute {row.recompute}")


def expert_groups(model, layout):
    """Sizes of expert parallelism to try: the layout's and, if the model has experts, all divisors of their number.

    Parameters
    ----------
    model : ModelSpec
    layout : LayoutSpec

    Returns
    -------
    list of int
        Ascending.

    Examples
    --------
    >>> from ppmodel.specs import LayoutSpec, load_model
    >>> [expert_groups(load_model(name), LayoutSpec()) for name in ("mixtral_8x7b", "llama3_8b")]
    [[1, 2, 4, 8], [1]]
    """
    experts = model.experts.number if model.experts else 1
    return sorted({layout.ep, *(size for size in range(1, experts + 1) if experts % size == 0)})


def certainty_on(system):
    """A function that says how sure a saving is on a system.

    Parameters
    ----------
    system : str
        Its name, which tells the kind of GPU.

    Returns
    -------
    callable
        From the share of time that is saved to a word of `certainty`, or `UNKNOWN`.

    Examples
    --------
    >>> certainty_on("h100")(0.001), certainty_on("mi300x")(0.2)
    ('a tie', 'with no measured runs on this kind of GPU to check it')
    """
    runs = _runs()
    known, pairs = kind_of(system) in set(runs.system.map(kind_of)), pairs_of(runs)

    def word(saved):
        return in_a_word(saved, pairs) if known or saved < EQUAL else UNKNOWN

    return word


def largest_mean_error():
    """How far systems that are not fitted are off on the runs of the source where they are off most.

    Returns
    -------
    float
        The mean of |predicted / measured - 1|.

    Examples
    --------
    >>> f"{largest_mean_error():.0%}"
    '41%'
    """
    runs = _runs()
    return runs.error.abs().groupby(runs.runs).mean().max()


@cache
def _runs():
    return unfitted_runs(fitted_systems())


def advise(fits, usual, sure):
    """What a public framework runs today, and what would be fastest.

    Parameters
    ----------
    fits : DataFrame
        Points that fit, from `evaluate.compare`, with ``room`` (yes or tight).
    usual : list of str
        Labels of the schedules that the others are compared with.
    sure : callable
        From `certainty_on`.

    Returns
    -------
    tuple of str
        Two sentences; one that says so and an empty one if none of the usual schedules fits.
    """
    fits = fits.sort_values(ORDER, kind="stable")
    base = fits[fits.label.isin(usual)]
    if base.empty:
        return "In none of the layouts tried does 1F1B or interleaved 1F1B fit into memory.", ""
    runs = fits[[runs_as_modelled(name) for name in fits.schedule]]
    return _today(base, runs.iloc[0], sure), _fastest(base.iloc[0], fits.iloc[0], sure)


def _today(base, runs, sure):
    there, safe = base.iloc[0], base[base.room == "yes"]
    stay = f"stay with {_named(there)}"
    if there.room == "tight" and len(safe):
        stay += f", or, if that does not fit, {_named(safe.iloc[0])}"
    saved = 1 - runs.iteration_s / there.iteration_s
    if (word := sure(saved)) not in (TIE, WITHIN):
        return f"Try {_named(runs)}, which saves {100 * saved:.1f} % ({word}), or {stay}."
    limit = "the model's error" if word == WITHIN else f"{100 * EQUAL:g} %"
    return f"S{stay[1:]}: no schedule that a public framework runs as modelled is faster by more than {limit}."


def _fastest(there, winner, sure):
    saved = 1 - winner.iteration_s / there.iteration_s
    if not saved:
        return "Nothing that fits is faster in the model."
    said = f"Fastest in the model is {_named(winner)}, which saves {100 * saved:.1f} % ({sure(saved)})"
    found = frameworks_of(winner.schedule)
    if runs_as_modelled(winner.schedule):
        return f"{said}; it exists in {found}."
    needs = "hides the collectives of its pairs" if schedules.small(winner.schedule).joined.any() else "runs it"
    so_far = "is in no framework that we know of" if found == NOWHERE else f"exists in {found}"
    return f"{said} if a framework {needs} as modelled; so far it {so_far}."


def _named(row):
    layout = layout_in_words(row) + ", tight" * (row.room == "tight")
    return f"{row.label} ({layout}; {row.iteration_s:.4g} s)"
