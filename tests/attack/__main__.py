"""Run all attacks, or those of some categories: `python -m tests.attack [CATEGORY ...]` exits with 1 on a fault."""

import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from .attempt import tried
from .catalogue import CATEGORIES, attacks


def main(asked):
    """Run attacks, print each fault and a line for each category."""
    counts, faults, seconds, codes = Counter(), Counter(), Counter(), defaultdict(Counter)
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        for number, attack in enumerate(attacks(asked)):
            began = time.monotonic()
            found, done = tried(attack, Path(folder, str(number)))
            codes[attack.category][done.code] += 1
            counts[attack.category] += 1
            seconds[attack.category] += time.monotonic() - began
            faults[attack.category] += bool(found)
            for fault in found:
                print(
                    f"{attack.category}: {attack.name}\n    {' '.join(attack.words)[:300]!r}\n    {fault}", flush=True
                )
    for category in counts:
        print(_line(category, counts[category], faults[category], seconds[category]), dict(codes[category]))
    print(_line("all", counts.total(), faults.total(), seconds.total()))
    return 1 if faults.total() else 0


def _line(category, inputs, with_faults, seconds):
    return f"{category:<20} {inputs:>5} inputs {with_faults:>4} with faults {seconds:>8.1f} s"


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - CATEGORIES.keys()
    sys.exit(f"no such category: {unknown}; there are {', '.join(CATEGORIES)}" if unknown else main(sys.argv[1:]))
