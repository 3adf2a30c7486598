"""Record today's numbers, or say what differs from those recorded.

python -m tests.oracle record [PART ...] [--book FOLDER]
python -m tests.oracle compare [PART ...] [--book FOLDER] [--tolerance 1e-12]

Parts are points, timelines, plans, commands, claims and book: the CSV and JSON files that the book's notebooks record,
from FOLDER (by default ``book/_build/html/results``, if it is there). The exit code is 1 if anything differs.
"""

import argparse
import sys

from .recorded import PARTS, computed, differences, read, write
from .texts import ROOT

SHOWN = 20


def main(arguments=None):
    """Record or compare, and return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.oracle", description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--book", default=ROOT / "book/_build/html/results", help="folder with the book's CSV files")
    parser.add_argument("--tolerance", type=float, default=0.0, help="relative, of numbers; exact by default")
    parser.add_argument("--most", type=int, default=SHOWN, help="differences to print")
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    now = computed(given.parts or PARTS, given.book, backwards=given.action == "compare")
    if given.action == "record":
        write(now)
        return 0
    found, known = differences(read(now), now, given.tolerance)
    for one in found[: given.most]:
        print(one)
    print(f"{len(found)} differences, and {known} that expected_changes.yaml lists, in {', '.join(now)}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
