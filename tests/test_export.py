"""Table files: what is written is read again, what is broken is refused with its place."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import schedules

from ppmodel import build
from ppmodel.errors import TableError
from ppmodel.export import parse_table, read_table, write_table

BAD = Path(__file__).parent / "bad" / "tables"
EXPECTED = {
    "cell.csv": ":3: slot 1 = '0G1': is not an operation",
    "continued.csv": ":3: slot 2 = ~: continues no operation",
    "deadlock.csv": "0B0: waits for 1B0.*deadlock",
    "deadlock_in_a_cell.csv": "device 0 = 0B0: waits for 0F0.*deadlock",
    "deadlock_of_reductions.csv": "device 0 = 0R: waits for 0R@1.*deadlock",
    "devices.csv": ":4: device = 0: must number the rows 0 to 1, each once",
    "doubled.csv": "device 0 = 0B1: stands twice",
    "early.csv": "device 1 = 1F0: begins in slot 0, before 0F0 has ended",
    "empty.csv": "table = empty: must hold operations",
    "header.csv": ":1: microbatches = many: must be a positive number",
    "huge.csv": "microbatch 2 = missing: has no operation",
    "latin1.csv": "byte 8: is not UTF-8",
    "misplaced.csv": "device 0 = 1F1: is misplaced: stage 1 of replica 0 lives on device 1",
    "missing.csv": "device 1 = 1B1: is missing from the table",
    "same_cell.csv": "device 0 = 0B0: needs 0F0, which stands in the same cell",
    "short.csv": "microbatch 1 = missing: has no operation",
}


@pytest.mark.parametrize("form", ["text", "csv"])
@given(schedule=schedules(max_stages=4, max_microbatches=6), backward=st.integers(1, 3))
def test_files_round_trip(form, schedule, backward):
    """Reading a written table gives the same table, in both forms and for any length of a backward."""
    text = write_table(schedule, form, backward=backward)
    again = parse_table(text)
    assert again.rows() == schedule.rows()
    assert again.name == schedule.name
    assert (again.num_microbatches, again.microbatch_parts) == (schedule.num_microbatches, schedule.microbatch_parts)
    assert again.stage_shares.tolist() == schedule.stage_shares.tolist()
    assert write_table(again, form, backward=backward) == text


def test_every_bad_file_has_its_message():
    """The folder of bad tables and the messages here name the same files."""
    assert {path.name for path in BAD.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_bad_files_are_refused(name):
    """Each broken table is refused with its file, the cell or line, and the rule."""
    with pytest.raises(TableError, match=EXPECTED[name]) as caught:
        read_table(BAD / name)
    assert str(BAD / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_order_alone_counts_without_a_header():
    """Rows without a header are an order; with slot numbers they have to fit."""
    rows = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert parse_table(rows).num_microbatches == 2
    with pytest.raises(TableError, match="before 0F0 has ended"):
        parse_table("device,0,1,2,3\n0,0F0,0F1,0B0,0B1\n1,1F0,1B0,1F1,1B1\n")


def test_a_continued_cell_continues_all_of_its_operations():
    """Both operations of a cell end in its last slot, so that what needs either has to wait."""
    text = "device,0,1,2,3,4,5\n0,0F0&0F1,~,,0B0,,0B1\n1,,{},1B0,1F1,1B1,\n"
    with pytest.raises(TableError, match="1F0: begins in slot 1, before 0F0 has ended"):
        parse_table(text.format("1F0"))
    late = "device,0,1,2,3,4,5,6\n0,0F0&0F1,~,,,0B0,,0B1\n1,,,1F0,1B0,1F1,1B1,\n"
    assert parse_table(late).num_microbatches == 2


def test_shares_of_stages_are_scaled():
    """Shares in a file are relative: 1 and 3 are a quarter and three quarters."""
    schedule = parse_table("# stage_shares: 1 3\n0F0 0B0\n1F0 1B0")
    assert schedule.stage_shares.tolist() == [0.5, 1.5]


@pytest.mark.parametrize("text", ['0F0,"0B0', "0F0,0B0," + "x" * 140_000])
def test_broken_csv_is_refused(text):
    """A quote that never ends and a cell without end cost one line."""
    with pytest.raises(TableError, match="is not CSV"):
        parse_table(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# ppmodel table 99\n0F0,0B0", "version = ppmodel table 99: is not"),
        ("device,5,3\n0,0F0,0B0", "must number the slots"),
        ("device,0\n0,0F0,0B0", "is longer than the header"),
        ("0,0F0,0B0", "the file has no header row"),
    ],
)
def test_headers_are_held_to(text, said):
    """A header that does not fit, another version, device numbers without a header."""
    with pytest.raises(TableError, match=said):
        parse_table(text)


def test_hand_written_tables_may_be_untidy():
    """Spaces, empty lines, rows in any order, idle cells as dots or nothing."""
    text = "\ndevice , 0,1,2,3,4,5\n1,., 1F0 ,1B0,1F1,1B1,\n\n0,0F0,0F1,,0B0, ,0B1\n"
    assert parse_table(text).rows() == build("1f1b", 2, 2).rows()


def test_a_folder_is_no_table(tmp_path):
    """What cannot be opened is refused in one line."""
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(TableError, match="cannot be read"):
            read_table(path)
