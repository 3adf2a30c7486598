"""Days, GPU-hours and money of a long run, and the share of its time that failures leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, expm1, inf, sqrt

from ppmodel.clusters.costs import parameters
from ppmodel.clusters.specs.units import parse_quantity
from ppmodel.errors import PPModelError
from ppmodel.given import is_number, to_builtin

BYTES_PER_PARAMETER = 14  # of a checkpoint: weights in 16 bits, the optimizer's copy and its two moments in 32
RESTART_S, DAY_S = 600.0, 86400.0

_COUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_TIMES = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": DAY_S}
_SIZES = {"GB": 1e9, "TB": 1e12, "GiB": 2.0**30, "TiB": 2.0**40}
_RATES = {"GB/s": 1e9, "TB/s": 1e12, "Gbit/s": 0.125e9}
_FORMS = {  # units, an example, and what the value needs
    "tokens": (_COUNTS, "15T", None), "finish": (_TIMES, "30d", "tokens"), "budget": (_COUNTS, "5M", "tokens"),
    "mtbf": (_TIMES, "50000h", "checkpoint_bandwidth"), "checkpoint_bandwidth": (_RATES, "200 GB/s", "mtbf"),
    "checkpoint": (_SIZES, "5 TB", "mtbf"), "restart": (_TIMES, "10min", "mtbf"),
}  # fmt: skip


@dataclass(frozen=True)
class Training:
    """A long run: its tokens, what it may take, and what fails; numbers in SI units, or texts with a unit.

    Parameters
    ----------
    tokens : float or str, optional
        Tokens to train on, such as ``"15T"`` or 15e12.
    price : float, str or dict, optional
        Of a GPU-hour, in any currency; by the names of systems if they differ, as in ``{"h100": 2.5, "b200": 4}`` or
        ``"h100=2.5,b200=4"``. As the system says if not given.
    finish : float or str, optional
        Time in which the run should end, such as ``"30d"``.
    budget : float or str, optional
        What it may cost, in the currency of `price`, such as ``"5M"``.
    mtbf : float or str, optional
        Mean time between failures of one GPU, with all that fails beside it, such as ``"50000h"``.
    checkpoint : float or str, optional
        Size of a checkpoint; `BYTES_PER_PARAMETER` for each parameter if not given.
    checkpoint_bandwidth : float or str, optional
        At which all GPUs together write it, while training waits.
    restart : float or str
        Time from a failure until the run goes on from its last checkpoint.

    Raises
    ------
    PPModelError
        If a value is illegal, or needs another.

    Examples
    --------
    >>> Training(tokens="15T", finish="30d").finish
    2592000.0
    """

    tokens: float | str | None = None
    price: float | str | Mapping[str, float] | None = None
    finish: float | str | None = None
    budget: float | str | None = None
    mtbf: float | str | None = None
    checkpoint: float | str | None = None
    checkpoint_bandwidth: float | str | None = None
    restart: float | str | None = None

    def __post_init__(self):
        self.__dict__["price"] = _prices(self.price)
        for name, (units, example, needed) in _FORMS.items():
            if (value := getattr(self, name)) is not None:
                self.__dict__[name] = _quantity(name, value, units, example)
                if needed and getattr(self, needed) is None:
                    rule, remedy = f"is missing, which {name} needs", f"give {{field}}, such as {_FORMS[needed][1]}"
                    raise PPModelError(needed, None, rule, remedy, names_fields=True)

    def require_priced(self, names):
        """Refuse prices of other systems than those asked for."""
        unknown = ", ".join({*self.price} - {"", *names})
        remedy = f"choose from {', '.join(names)}, or give one for all"
        PPModelError.require([("price", unknown, not unknown, "is of no system asked for", remedy)])

    def price_on(self, system):
        """The price of a GPU-hour on a system; None if nobody gives one."""
        return self.price.get(system.name, self.price.get("", system.gpu_hour_price))

    def allows(self, row):
        """Return whether an answer, if it is one, ends in time and within the budget."""
        in_time = row["refused"] is None and row.get("days", 0) * DAY_S <= (self.finish or inf)
        return in_time and row.get("money", 0) <= (self.budget or inf)

    def failures(self, model, gpus):
        """The losses of a run on some GPUs by failures, as the columns of `rows`; needs `mtbf`.

        Examples
        --------
        >>> from ppmodel.clusters.specs import load_model
        >>> training = Training(mtbf="50000h", checkpoint_bandwidth="2 TB/s")
        >>> round(training.failures(load_model("llama3_405b"), 16384)["useful_share"], 3)
        0.925
        """
        mtbf_s, size = self.mtbf / gpus, self.checkpoint or BYTES_PER_PARAMETER * parameters(model).total
        write_s = size / self.checkpoint_bandwidth
        daly_s, young_s = daly_interval(write_s, mtbf_s), young_interval(write_s, mtbf_s)
        useful = useful_share(daly_s, write_s, mtbf_s, self.restart or RESTART_S)
        rule, remedy = f"leaves less than 1 % of the time of {gpus} GPUs useful", "give that of one GPU, such as 50000h"
        PPModelError.require([("mtbf", f"{self.mtbf:g} s", useful >= 0.01, rule, remedy)])
        every = {"failure_every_s": mtbf_s, "checkpoint_every_s": daly_s, "young_every_s": young_s}
        return {"useful_share": useful, "checkpoint_bytes": size, "checkpoint_s": write_s} | every

    def rows(self, frame, question):
        """The rows of answers to a question with the columns of `plan` about the whole run, failures included."""
        gpus, price = question.gpus, self.price_on(question.system)
        columns = {} if self.mtbf is None else self.failures(question.model, gpus)
        hours = 1 / (3600 * frame.tokens_per_s_per_gpu * columns.get("useful_share", 1.0))  # of a GPU, for a token
        if self.tokens is not None:
            columns |= {"days": self.tokens * hours / (24 * gpus), "gpu_hours": self.tokens * hours}
            columns |= {} if price is None else {"money": self.tokens * hours * price}
        columns |= {} if price is None else {"money_per_billion_tokens": 1e9 * hours * price}
        return frame.assign(**columns)


def young_interval(write_s, mtbf_s):
    """Young's interval between checkpoints, the first-order approximation of the best one.

    J. W. Young, A first order approximation to the optimum checkpoint interval, Communications of the ACM 17(9), 1974.

    Parameters
    ----------
    write_s : float
        Time in which a checkpoint is written, while nothing else is done.
    mtbf_s : float
        Mean time between failures of the whole run.

    Returns
    -------
    float
        Seconds of computing between two checkpoints.

    Examples
    --------
    >>> young_interval(10, 20_000)
    632.4555320336759
    """
    return sqrt(2 * write_s * mtbf_s)


def daly_interval(write_s, mtbf_s):
    """Daly's interval between checkpoints, the higher-order approximation; parameters as in `young_interval`.

    J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer
    Systems 22(3), 2006.

    Examples
    --------
    >>> round(daly_interval(10, 20_000), 1), daly_interval(60, 20)
    (625.8, 20)
    """
    ratio = write_s / (2 * mtbf_s)
    return young_interval(write_s, mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - write_s if ratio < 1 else mtbf_s


def useful_share(interval_s, write_s, mtbf_s, restart_s):
    """The share of a run's time that is not lost to checkpoints, failures and restarts, by Daly's model.

    Failures come at random, also while a checkpoint is written or the run starts again (Daly, 2006).

    Parameters
    ----------
    interval_s : float
        Computing between two checkpoints.
    write_s, mtbf_s
        As in `young_interval`.
    restart_s : float
        Time from a failure until the run goes on.

    Returns
    -------
    float

    Examples
    --------
    >>> round(useful_share(600, 10, 20_000, 600), 3)
    0.94
    """
    period = (interval_s + write_s) / mtbf_s
    return interval_s / mtbf_s * exp(-restart_s / mtbf_s - period) / -expm1(-period)


def _quantity(name, value, units, example):
    """A number above 0, from one in SI units or a text with a unit."""
    value = to_builtin(value)
    number = value if is_number(value) else parse_quantity(value, units)
    names = ", ".join(unit or "none" for unit in units)
    rule = "must be a number above 0" + f" with a unit ({names})" * (len(units) > 1)
    PPModelError.require([(name, value, number and 0 < number < 1e30, rule, f"write, for example, {example}")])
    return float(number)


def _prices(price):
    """Prices by the names of systems; behind an empty name, that of the others."""
    parts = [part.rpartition("=") for part in price.split(",")] if isinstance(price, str) else []
    named = price if isinstance(price, Mapping) else {} if price is None else {"": price}
    named = {name.strip(): value for name, _, value in parts} if parts else named
    is_legal = len(named) >= len(parts) and all(name for name, sign, _ in parts if sign)
    example = "2.5, or h100=2.5,b200=4" if is_legal else "h100=2.5,b200=4"
    PPModelError.require([("price", price, is_legal, "must name each system once", f"write {example}")])
    return {name: _quantity("price", value, {"": 1.0}, example) for name, value in named.items()}


UNPRICED = Training()  # nothing is said of the run
