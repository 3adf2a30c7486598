"""Rankings under noise: noisy runs compared with the noiseless one, and verdicts on the first place."""

from itertools import chain, product

import numpy as np

from ppmodel.clusters.specs import load_model, load_system
from ppmodel.errors import BlocksError, PPModelError
from ppmodel.given import as_list
from ppmodel.schedules.cases import legal_cases
from ppmodel.simulation import makespans
from ppmodel.studies.noise.comparison import Comparison, probability_faster
from ppmodel.studies.noise.draw import TIE, noisy_runs
from ppmodel.studies.points import Point
from ppmodel.studies.points.point import places_of

VERDICTS = ("holds", "open", "tie decided", "reversed")
"""Verdicts on a first place; see `first_places`."""

_NOISE = ("jitter", "straggling", "slowdown")
_POINT = ["system", "pp", "microbatches"]
_QUANTILES = {f"q{100 * share:.0f}_s": share for share in (0.05, 0.25, 0.5, 0.75, 0.95)}
_NOTHING_TO_BEAT = Comparison(*[float("nan")] * 3)
_RISK = 0.05  # probability that at least one interval of a point does not hold


def compare_runs(
    schedules, pp, microbatches, noises, seeds, *, model, system, p2p="overlapped", allreduce="excluded"
):  # fmt: skip
    """Simulate noisy runs, and count how often each schedule beats the one that is first without noise.

    Parameters
    ----------
    schedules, microbatches, model, system, p2p, allreduce
        As in `ppmodel.compare`, with a single model and a single semantics each. Sizes at which a schedule is not
        defined, or has more stages than the model has blocks, are left out.
    pp : int
        Ranks.
    noises : sequence of Noise
        How runs vary.
    seeds : iterable of int
        One run per seed, the same for all schedules, systems and noises; see `ppmodel.studies.noise`.

    Returns
    -------
    DataFrame
        One row per system, size, noise and schedule, in this order; columns ``system, pp, microbatches, jitter,
        straggling, slowdown, label, runs, makespan_s, over_winner, mean_s, standard_error_s, q5_s, q25_s, q50_s, q75_s,
        q95_s, winner, beats_winner, low, high``. ``makespan_s`` is the noiseless time, and ``winner`` the schedule with
        the shortest one, the first if tied. ``over_winner`` is the time over the winner's, minus 1. ``beats_winner`` is
        the fraction of runs in which the schedule is faster, with its interval ``low`` to ``high``; NaN in the winner's
        own rows. The intervals of one point hold together with 95 percent: each of k is taken at 1 - 0.05 / k
        (Bonferroni), because the best of many similar schedules looks better than it is.

    Raises
    ------
    PPModelError
        If a name or a word is unknown, or the global batch does not divide into the microbatches.

    Examples
    --------
    >>> from ppmodel.studies.noise import Noise
    >>> frame = compare_runs(["gpipe", "1f1b"], 4, 8, [Noise(jitter=0.1)], range(50), model="paper", system="dgx_a100")
    >>> frame[["label", "winner", "beats_winner"]].values.tolist()
    [['GPipe', 'GPipe', nan], ['1F1B', 'GPipe', 0.72]]
    """
    import pandas as pd  # sweeps with noise do without

    systems, model, seeds = list(map(load_system, as_list(system))), load_model(model), list(seeds)
    rows = [[] for _ in systems]
    for count, noise in product(as_list(microbatches), as_list(noises)):
        evaluated = _evaluated(schedules, (pp, count), model, systems, p2p, allreduce, noise, seeds)
        for place, spec in enumerate(systems):
            point = {"system": spec.name, "pp": pp, "microbatches": count}
            point |= {name: getattr(noise, name) for name in _NOISE}
            noiseless, runs = ({label: both[kind][place] for label, both in evaluated.items()} for kind in (0, 1))
            fastest_s = min(noiseless.values(), default=0)  # up to rounding; ties go to the first
            winner = next((label for label, seconds in noiseless.items() if seconds <= fastest_s * (1 + TIE)), None)
            confidence = 1 - _RISK / max(1, len(runs) - 1)
            for label, spans in runs.items():
                beats = _NOTHING_TO_BEAT if label == winner else probability_faster(spans, runs[winner], confidence)
                rows[place].append({
                    **point, "label": label, "runs": len(spans), "makespan_s": noiseless[label],
                    "over_winner": noiseless[label] / noiseless[winner] - 1, "mean_s": spans.mean(),
                    "standard_error_s": spans.std(ddof=1) / np.sqrt(len(spans)) if len(spans) > 1 else np.nan,
                    **{name: np.quantile(spans, share) for name, share in _QUANTILES.items()},
                    "winner": winner, "beats_winner": beats.probability, "low": beats.low, "high": beats.high,
                })  # fmt: skip
    return pd.DataFrame(list(chain.from_iterable(rows)))


def _evaluated(schedules, size, model, systems, p2p, allreduce, noise, seeds):
    """Noiseless makespans, one per system, and noisy ones, one row per system, of each schedule that fits."""
    evaluated = {}
    for case, _ in legal_cases(schedules, *size):
        points = [Point(case, size, (p2p, allreduce), model=model, system=system) for system in systems]
        noiseless, noisy = np.empty(len(points)), np.empty((len(points), len(seeds)))
        try:
            for places in places_of(point.graph_key for point in points).values():
                graph, costs = points[places[0]].graph, [points[place].costs for place in places]
                noiseless[places] = makespans(graph, costs)
                noisy[places] = noisy_runs(graph, costs, noise, seeds)[0].makespan_s
        except BlocksError:
            continue
        evaluated[case.label] = noiseless.tolist(), noisy
    return evaluated


def first_places(frame):
    """Judge whether the noiseless winner is still the best choice.

    Parameters
    ----------
    frame : DataFrame
        From `compare_runs`, with intervals wide enough for the best of all challengers. Points with a single schedule
        are left out.

    Returns
    -------
    DataFrame
        One row per system, size and noise; columns ``system, pp, microbatches, jitter, straggling, slowdown, winner,
        challenger, over_winner, beats_winner, low, high, verdict``. The challenger is the schedule that beats the
        winner most often; ``over_winner`` is its noiseless time over the winner's, minus 1. The first place *holds* if
        the interval of that fraction is below one half, and is *open* if it contains one half. If it is above, the
        place is *reversed* or, if the two take the same time without noise, a *tie decided*.

    Raises
    ------
    PPModelError
        If no point has two schedules to compare.

    Examples
    --------
    >>> from ppmodel.studies.noise import Noise
    >>> frame = compare_runs(["gpipe", "1f1b"], 4, 8, [Noise(jitter=0.1)], range(50), model="paper", system="dgx_a100")
    >>> first_places(frame)[["winner", "challenger", "verdict"]].values.tolist()
    [['GPipe', '1F1B', 'reversed']]
    """
    names = [*_POINT, *_NOISE, "winner", "challenger", "over_winner", "beats_winner", "low", "high"]
    if frame.empty:  # no schedule is defined at any point
        return frame.reindex(columns=[*names, "verdict"])
    challengers = frame[frame.label != frame.winner]
    if challengers.empty:
        named = ", ".join(frame.label.unique())
        rule, remedy = "meet no other schedule at any point", "name two that are legal at one size"
        raise PPModelError("schedules", named, rule, remedy)
    best = challengers.loc[challengers.groupby([*_POINT, *_NOISE], sort=False).beats_winner.idxmax()]
    ahead = best.over_winner.le(TIE).map({True: "tie decided", False: "reversed"})
    verdicts = ahead.where(best.low > 0.5, best.high.lt(0.5).map({True: "holds", False: "open"}))
    return best.rename(columns={"label": "challenger"})[names].assign(verdict=verdicts).reset_index(drop=True)
