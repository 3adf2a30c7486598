"""What a schedule loses, and to what: bars that end at its time."""

import numpy as np
from matplotlib import pyplot as plt

from ppmodel.plot.style import BLUE, ORANGE, VERMILION, titled

_COLOURS = (VERMILION, ORANGE, BLUE)


def plot_losses(study, losses, title, context):
    """Time of schedules, cut at the best that each freedom would allow; one panel for each time of a transfer.

    Parameters
    ----------
    study : DataFrame
        From `studies.distance_study`, of one S and B, with the solver's answers.
    losses : dict of str to (str, str)
        Three causes, and the columns between which the time lies that is lost to each; see `studies.optimum.LOSSES`.
    title, context : str
        The point of the figure, and what it shows; see `context`.

    Returns
    -------
    matplotlib Figure
        A star behind a bar: not all of its cuts are proven to be optima; each is the best that was found.
    """
    comms = list(dict.fromkeys(study.comm_over_forward))
    names = list(dict.fromkeys(study.schedule))
    parts = _parts(losses)
    height = 0.27 * len(names) + 1.3
    figure, axes = plt.subplots(1, len(comms), figsize=(8.6, height), sharex=True, sharey=True, squeeze=False)
    for axis, comm in zip(axes[0], comms, strict=True):
        here = study[study.comm_over_forward == comm].set_index("schedule").reindex(names)
        _bars(axis, here, parts)
        axis.set(title=f"c = {comm:g} F", xlabel="time (forwards of 1/S of the model)")
        axis.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].invert_yaxis()
    axes[0, 0].set_xlim(0, 1.17 * study.time.max())
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(parts))
    return titled(figure, title, context)


def _parts(losses):
    """Name, column and colour of each step from one time to the next, from the best possible on."""
    *_, (_, best) = losses.values()
    steps = [(what, longer, colour) for (what, (longer, _)), colour in zip(losses.items(), _COLOURS, strict=True)]
    return [("no order on these ranks is faster", best, "#d9d9d9"), *reversed(steps)]


def _bars(axis, here, parts):
    places, left = np.arange(len(here)), np.zeros(len(here))
    for text, column, colour in parts:
        right = here[column].to_numpy()
        axis.barh(places, right - left, left=left, height=0.72, color=colour, label=text)
        left = right
    proven = here[["order_proven", "halves_proven", "free_proven"]].eq(True).all(axis=1)
    losses = here.time / here.free_time - 1
    for place, time, loss, sure in zip(places, here.time, losses, proven, strict=True):
        if np.isfinite(time):
            axis.text(time, place, f" +{loss:.0%}" + "*" * (not sure), va="center", fontsize=8)
