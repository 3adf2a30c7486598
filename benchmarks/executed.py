"""``python -m benchmarks.executed``: schedules run for real on this machine, over one link with a delay.

Stages sleep, so that eight ranks need no more than two cores; messages, gradients and the order of everything are real.
Needs the extra `execute`, and takes about twelve minutes on a quiet machine; raised priority (``nice -n -15``) keeps
other processes out of the numbers.
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

import ppmodel as pp
from benchmarks.machine import machine

FOLDER = Path(__file__).parents[1] / "data" / "reference" / "executed"
SCHEDULES = (
    "gpipe", "1f1b", "eager-1f1b", "interleaved-1f1b", "looped-bfs", "chimera", "hanayo", "zb-h1", "zb-v", "v-half",
    "v-min",
)  # fmt: skip
FORWARD_S = 20e-3
DELAYS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Of the middle link, in forwards of 1/S of the model."""
WAYS = {"latency": (SCHEDULES, (4, 8), DELAYS), "streams": (SCHEDULES[:6], (4,), (0.0, 1.0, 2.0)),
        "rendezvous": (SCHEDULES[:2], (4,), (0.0, 1.0, 2.0))}  # fmt: skip
OTHERS = {p2p: (("chimera", ("hanayo", {"waves": 2}), "asymmetric-chimera"), sizes, (0.0, 1.0, 2.0))
          for p2p, sizes in (("latency", (4, 8)), ("streams", (4,)))}  # fmt: skip
"""What the paper's claims compare beyond these; with four times `FORWARD_S`, as two waves have stages of a quarter."""
SHOWN = ("schedule", "label", "pp", "microbatches", "p2p", "measured_s", "fastest_s", "slowest_s", "simulated_s",
         "replayed_s", "operation_cost_s", "transfer_s", "peak_activations", "table_peak_activations",
         "gradient_error", "weight_error")  # fmt: skip


def record(ways=None, forward_s=FORWARD_S, repetitions=3):
    """Run everything.

    Parameters
    ----------
    ways : dict of str to (schedules, ranks, delays), optional
    forward_s : float
        Of 1/S of the model; a backward takes twice as long.
    repetitions : int

    Returns
    -------
    DataFrame
        A row for each run: `SHOWN` and ``delay``, in forwards, and ``forward_s``.
    """
    frames = []
    for p2p, (schedules, sizes, delays) in (ways or WAYS).items():
        for ranks in sizes:
            for delay in delays:
                middle = ranks // 2
                links = f"{middle - 1}-{middle}:delay={delay * forward_s}" if delay else None
                given = {"forward": forward_s, "backward": 2 * forward_s, "links": links, "p2p": p2p}
                frame = pp.execute(list(schedules), ranks, ranks, repetitions=repetitions, **given)
                frames.append(frame[frame.refused.isna()][list(SHOWN)].assign(delay=delay, forward_s=forward_s))
                print(f"{p2p}, {ranks} ranks, delay {delay:g} F", file=sys.stderr, flush=True)
    return pd.concat(frames, ignore_index=True)


def main():
    """Record, and write what ran where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder to write")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, ways, forward_s in (("runs", WAYS, FORWARD_S), ("others", OTHERS, 4 * FORWARD_S)):
        record(ways, forward_s).to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")
    found = machine()
    about = {name: found[name] for name in ("processor", "cores", "memory_gib", "system", "python", "day")}
    about["torch"] = found["packages"].get("torch")
    (folder / "machine.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
