"""One command for reviewers: run what the cards in ``data/cards.yaml`` name, and hold it against what they expect.

``python -m ppbook.build.review`` runs the short ones, with ``--all`` every card; ``--record`` writes down the commit at
which a card came out as expected.
"""

import json
import subprocess
import sys
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from ruamel.yaml import YAML

from ppbook import ROOT
from ppbook.build.provenance import git
from ppmodel.clusters.specs import DATA

CARDS = DATA / "cards.yaml"
EXECUTE = ROOT / ".venv-execute" / "bin" / "python"
"""Has PyTorch, once `make execute` has run."""


def cards_page(parts):
    """The cards as a table in MyST.

    Parameters
    ----------
    parts : bool
        Those of the paper's parts, or those of the artefact's claims.

    Returns
    -------
    str

    Examples
    --------
    >>> cards_page(parts=False).splitlines()[2].split(" | ")[1]
    '`ppmodel claims --row reversals_by_network`'
    """
    lines = ["| card | command | expected | time | verified at | page | its numbers |", "|---|---|---|---|---|---|---|"]
    for card in YAML(typ="safe").load(CARDS):
        if parts == ("files" in card):
            files = ", ".join(f"`{name}`" for name in card.get("files", ()))
            about = f"| {card['card']} | `ppmodel {card['command']}` | `{card['expected']}` | {card['seconds']} s "
            lines.append(f"{about}| {card['verified']} | {{doc}}`{card['page']}` | {files} |")
    return "\n".join(lines) + "\n"


def review(whole=False, record=False):
    """Run cards and print what is expected beside what is obtained.

    Parameters
    ----------
    whole : bool
        Whether all cards run, or the short ones.
    record : bool
        Whether the current commit is written into the cards that come out as expected.

    Returns
    -------
    bool
        Whether all do.
    """
    yaml, began, passed = YAML(), perf_counter(), []
    yaml.width = 2**20
    cards = yaml.load(CARDS)
    chosen = [card for card in cards if whole or card.get("review")]
    for card in chosen:
        python = sys.executable if not card.get("torch") or find_spec("torch") else EXECUTE
        if not Path(python).is_file():
            print(f"skip ppmodel {card['command']}: PyTorch is missing; make execute installs it")
            continue
        as_expected = _run(card, python)
        passed.append(as_expected)
        if record and as_expected:
            card["verified"] = git(ROOT, "rev-parse", "--short=8", "HEAD")
    if record:
        yaml.dump(cards, CARDS)
    word, seconds = "passed" if all(passed) else "FAILED", perf_counter() - began
    print(f"review {word}: {sum(passed)} of {len(passed)} commands as expected, {seconds:.0f} s")
    return all(passed)


def _run(card, python):
    """Whether the command of a card ends well and prints what is expected."""
    began = perf_counter()
    command = [python, "-m", "ppmodel", *card["command"].split()]
    with TemporaryDirectory() as folder:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    text = _reversal(run.stdout) if card.get("torch") and run.returncode == 0 else run.stdout
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    as_expected = run.returncode == 0 and card["expected"] in " ".join(lines)
    obtained = [line for line in lines if card["expected"] in line] or get_close_matches(card["expected"], lines, 1, 0)
    print(f"{'ok  ' if as_expected else 'FAIL'} ppmodel {card['command']}: {perf_counter() - began:.0f} s")
    print(f"     expected  {card['expected']} (about {card['seconds']} s)")
    print(f"     obtained  {obtained[0] if obtained else run.stderr.strip()}", flush=True)
    if not as_expected:
        print(run.stdout + run.stderr)
    return as_expected


def _reversal(text):
    """How much longer 1F1B takes than GPipe, and whether gradients are equal, in words."""
    gpipe, one = sorted(json.loads(text), key=lambda row: row["schedule"] != "gpipe")
    longer, equal = one["measured_s"] / gpipe["measured_s"] - 1, gpipe["gradients_equal"] and one["gradients_equal"]
    words = f"slower than GPipe by {'over' if longer > 0.2 else 'no more than'} 20 %"
    return f"1F1B {words}, gradients {'equal' if equal else 'differ'} ({longer:.0%})"


if __name__ == "__main__":
    sys.exit(not review("--all" in sys.argv, "--record" in sys.argv))
