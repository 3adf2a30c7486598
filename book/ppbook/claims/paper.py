"""The paper's figures under a setting: schedules compared, published numbers beside ours, and what these depend on."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import pandas as pd

from ppbook.claims import NINE, Bench, judge, load_claims, load_figures
from ppbook.claims.bench import change_of
from ppbook.claims.quantities import measure
from ppbook.claims.rows import EXACT
from ppbook.claims.tables import turned_by
from ppbook.claims.verdicts import ANCHORS
from ppbook.measured.stp import as_run
from ppbook.parameters import SettingSpec, load_setting
from ppmodel.clusters.specs import load_model
from ppmodel.errors import CostError, ScheduleError
from ppmodel.plot.style import in_words
from ppmodel.schedules.cases import as_case
from ppmodel.studies.points import resolve
from ppmodel.studies.points.change import UNCHANGED


def under(setting, model, p2p=""):
    """The paper's figures under a setting.

    Parameters
    ----------
    setting, model : str
        Names or files.
    p2p : str
        What a transfer occupies, in place of the setting's; empty for that.

    Returns
    -------
    Paper

    Examples
    --------
    >>> under("paper", "paper").compare(["chimera"], 8, 16, "mid_cp_mid_nw").label.tolist()
    ['Chimera']
    >>> under("paper", "paper", "blocking").words[:43]
    'setting paper, changed: transfers blocking,'
    """
    chosen = load_setting(setting)
    if p2p and p2p != chosen.p2p:
        chosen = replace(chosen, name=f"{chosen.name}, changed", p2p=p2p)
    return Paper(chosen, model)


@dataclass(frozen=True)
class Paper:
    """The paper's figures under a setting, for a model; see `under`.

    Parameters
    ----------
    setting : SettingSpec
        Its hardware and backward affect only the paper's nine systems.
    model : str
        A name or a file.
    """

    setting: SettingSpec
    model: str

    @cached_property
    def bench(self):
        """The nine systems under the setting."""
        return Bench.of(load_model(self.model), self.setting)

    def case(self, schedule):
        """A schedule, with the options that it leaves open set as the setting decides, as a pair for `compare`."""
        case = self.bench.case(schedule)
        return case.name, dict(case.options)

    def change(self, system, network=True):
        """What the setting changes on a system, and whether transfers take time."""
        return replace(change_of(self.setting) if system in NINE else UNCHANGED, network=network)

    def compare(self, schedules, pp, microbatches, system=None, network=True, **given):
        """`ppmodel.compare` under the setting.

        Parameters
        ----------
        schedules, pp, microbatches, system
            As there; a schedule keeps the label that it has without the setting's options. Without a system, costs
            are seconds.
        network : bool
            Whether transfers and all-reduces take time.
        **given
            Other arguments, such as `p2p` and `allreduce` in place of the setting's.

        Returns
        -------
        DataFrame
            Without the column of changes.
        """
        labels = {self.bench.case(schedule).label: as_case(schedule).label for schedule in reversed(schedules)}
        cases = {self.bench.case(schedule): self.case(schedule) for schedule in schedules}.values()
        if system is None:
            return _compared([*cases], pp, microbatches, labels, **given)
        given = {"p2p": self.setting.p2p if network else "latency", "allreduce": self.setting.allreduce} | given
        frames = []
        for _, names in groupby([system] if isinstance(system, str) else system, NINE.__contains__):
            names = [*names]
            change = self.change(names[0], network)
            given["changes"] = None if change == UNCHANGED else change  # without one, there is no column
            frames.append(_compared([*cases], pp, microbatches, labels, model=self.model, system=names, **given))
        return pd.concat(frames, ignore_index=True).drop(columns="change", errors="ignore")

    def simulate(self, schedule, pp, microbatches, system):
        """`ppmodel.simulate` under the setting."""
        given = {"model": self.model, "system": system, "p2p": self.setting.p2p, "allreduce": self.setting.allreduce}
        return resolve([self.case(schedule)], pp, microbatches, changes=self.change(system), **given).points()[0].run()

    @property
    def words(self):
        """The setting in words, for captions."""
        setting, length = self.setting, self.setting.backward
        memory = setting.memory_bandwidth_bytes_per_s * setting.memory_efficiency / 1e12
        return (
            f"setting {setting.name}: transfers {in_words(setting.p2p)}, all-reduce {setting.allreduce}, Chimera's "
            f"units {setting.concat}, a backward {f'of {length:g} forwards' if length else 'as the model has it'}, "
            f"{setting.compute_efficiency:.0%} of peak compute, {memory:g} TB/s of memory"
        )

    # ---- published numbers -----------------------------------------------------------------------

    def judged(self, page, *ids):
        """Judge the paper's rows of the claims that a page holds, and some others by their ids."""
        claims = []
        for claim in load_claims():
            papers = [row.id for row in claim.rows if claim.by_of(row) == "paper" and row.page == page]
            rows = [row for row in claim.rows if row.id in (*papers, *ids)]
            claims.append(claim.model_copy(update={"rows": rows}))
        return judge(claims, self.bench.model, self.setting)

    def published(self, judgements):
        """Published numbers and statements beside ours.

        Parameters
        ----------
        judgements : list of Judgement
            From `judged`.

        Returns
        -------
        DataFrame
            One row each, numbers as they are printed: columns ``id, title, published, kind, ours, difference, met``,
            and ``measured``, our number in full.
        """
        answers = {True: "✓ met", False: "✗ not met"}
        return pd.DataFrame([
            {"id": row.id, "title": row.title, "published": row.reference, "kind": row.kind,
             "ours": row.number(judgement.measured), "difference": _difference(row, judgement.measured),
             "met": "no case" if judgement.reason else answers[judgement.holds_here], "measured": judgement.measured}
            for judgement in judgements for row in [judgement.row]
        ])  # fmt: skip

    def depends(self, judgements):
        """The same under both settings, and the assumption that turns each answer.

        Parameters
        ----------
        judgements : list of Judgement
            From `judged`.

        Returns
        -------
        DataFrame
            Rows whose answer nothing turns are left out; columns ``title, published, paper, default, turned``, the last
            with what turns the answer of this setting, in words: one assumption of each kind.
        """
        benches = {name: Bench.of(self.bench.model, load_setting(name)) for name in ANCHORS}
        return pd.DataFrame([
            {"title": judgement.row.title, "published": judgement.row.reference}
            | {name: _printed(judgement.row, bench) for name, bench in benches.items()}
            | {"turned": turned_by(judgement)}
            for judgement in judgements if judgement.turned
        ], columns=["title", "published", *ANCHORS[::-1], "turned"])  # fmt: skip

    def legend(self, figure, judgements):
        """How the rows of a page and the lines of *The verdicts* hang together, in words.

        Parameters
        ----------
        figure : str
            The paper's figure on the page, as in ``data/claims.yaml``.
        judgements : list of Judgement
            From `judged`.

        Returns
        -------
        str

        Examples
        --------
        >>> paper = under("paper", "paper")
        >>> paper.legend("Fig. 2", paper.judged("nb/timeline", "equivalent"))[:70]
        'The verdicts judge these rows under claim 5, and count 0 of 1 under Fi'
        """
        ids = {judgement.row.id for judgement in judgements}
        of_figure = next(each.rows for each in load_figures() if each.figure == figure)
        claims = [str(claim.number) for claim in load_claims() if ids & {row.id for row in claim.rows}]
        return (
            f"The verdicts judge these rows under claim{'s' * (len(claims) > 1)} {', '.join(claims)}, and count "
            f"{len(ids & {*of_figure})} of {len(ids)} under {figure}. A gain is the share of time saved; below 0, lost."
        )


def _compared(cases, pp, microbatches, labels, **given):
    """`ppmodel.compare` with other labels, and without warnings of what of a setting has no effect."""
    frame = as_run(cases, pp, microbatches=microbatches, **given)
    return frame.assign(label=frame.label.map(labels))


def _difference(row, measured):
    """Our number minus the published one as it is printed; empty where the paper gives none, or we have none."""
    if row.relation != "equals" or measured != measured or row.tolerance <= EXACT:
        return ""
    gap = measured - row.value
    return f"{100 * gap:+.1f} %" if row.unit == "ratio" else f"{gap:+.3g}"


def _printed(row, bench):
    """What a row comes to, as it is printed; empty where it is not defined."""
    try:
        return row.number(float(measure(row, bench)[0]))
    except (ScheduleError, CostError):
        return ""
