"""Pictures from the command line: of a table, a run, a comparison and a replay."""

import re

import pytest
from commands import run

SIZE = "--pp 2 --microbatches 2 --forward 1 --backward 2 --comm 0.1"
OPERATIONS = "rank,operation,seconds\n" + "".join(
    f"{rank},{kind}{number},{1 + (kind == 'B')}\n" for rank in (0, 1) for kind in "FB" for number in (0, 1)
)


@pytest.mark.parametrize(
    "line",
    [
        "table zb-h1 --pp 2 --microbatches 2", f"simulate 1f1b {SIZE}", f"compare gpipe zb-h1 hanayo:waves=3 {SIZE}",
        "compare 1f1b zb-v --model llama3_70b --system h100 --layout gpus_64",
        "replay operations.csv --schedule 1f1b --pp 2 --microbatches 2 --comm 0.1 --against zb-h1",
    ],
)  # fmt: skip
def test_a_picture_is_drawn_beside_the_answer(capsys, tmp_path, monkeypatch, line):
    """The same bytes every time, and the same text as without."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "operations.csv").write_text(OPERATIONS)
    assert run(capsys, f"{line} --plot a.svg") == run(capsys, f"{line} --plot b.svg") == run(capsys, line)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()
    assert re.search(rb"</svg>\s*$", drawn)


def test_nothing_is_drawn_of_nothing(capsys, tmp_path):
    """Where every schedule is refused, its reason is the answer."""
    line = f"compare chimera --pp 3 --microbatches 3 --forward 1 --backward 2 --comm 0 --plot {tmp_path / 'a.png'}"
    code, out, _ = run(capsys, line)
    assert (code, "refused" in out, [*tmp_path.iterdir()]) == (1, True, [])
