"""``python -m benchmarks``: measure, print and write the results."""

import os

from benchmarks.timing import ONE_THREAD

os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # before importing the libraries that read it

import argparse
import sys

from benchmarks.results import RESULTS, collect, write


def main(arguments=None):
    """Run the benchmarks as the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute; writes only with --out")
    parser.add_argument(
        "--out", metavar="FILE", help=f"where to write results (default {RESULTS.name} in data/reference)"
    )
    chosen = parser.parse_args(arguments)
    results = collect(chosen.quick, lambda text: print(text, file=sys.stderr, flush=True))
    if chosen.out or not chosen.quick:
        write(results, chosen.out or RESULTS)
    from benchmarks.tables import speed_text

    print(speed_text(results))


if __name__ == "__main__":
    main()
