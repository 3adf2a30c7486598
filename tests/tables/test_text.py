"""Table files: what is written is read again, what is broken is refused with its place."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytorch_orders import FILES, blocks
from refusals import refused, require_refused
from strategies import schedules, tables

from ppmodel import Op, build
from ppmodel.errors import TableError
from ppmodel.metrics import peak_activations
from ppmodel.tables import parse_table, read_file, read_table, table_html, write_table
from ppmodel.tables import text as table

HERE = Path(__file__).parents[1]
BAD, GOLDEN = HERE / "bad/tables", HERE / "golden/exchange"
EXPECTED = {
    "cell.csv": (3, "slot 1", "is not an operation"),
    "continued.csv": (3, "slot 2", "continues no operation"),
    "deadlock.csv": (None, "rank 0", "waits for 1B0"),
    "deadlock_in_a_cell.csv": (None, "rank 0", "waits for 0F0"),
    "deadlock_of_reductions.csv": (None, "rank 0", "waits for 0R@1"),
    "ranks.csv": (4, "rank", "must number the rows from"),
    "digits.csv": (2, "rank", "must number the rows from"),
    "shares_apart.csv": (None, "stage_shares", "must be numbers above 0"),
    "shares_infinite.csv": (None, "stage_shares", "must be numbers above 0"),
    "doubled.csv": (None, "rank 0", "occurs twice in the table"),
    "early.csv": (None, "rank 1", "starts in slot 0, before"),
    "empty.csv": (None, "table", "must contain operations"),
    "header.csv": (1, "microbatches", "must be a positive number"),
    "huge.csv": (None, "microbatch 2", "has no operation"),
    "latin1.csv": (1, "text", "is not UTF-8"),
    "letters_comment.csv": (1, "letters", "must be pytorch or zero-bubble"),
    "letters_mixed.csv": (2, "letters", "mix two conventions: with I"),
    "letters_other.csv": (2, "column 3", "does not use the letters"),
    "letters_zero_bubble.csv": (None, "rank 0", "is missing from the table"),
    "misplaced.csv": (None, "rank 0", "is misplaced"),
    "missing.csv": (None, "rank 1", "is missing from the table"),
    "overlap_backwards.csv": (1, "column 3", "must be a forward", "0B0&0B1"),
    "overlap_forwards.csv": (1, "column 1", "must be a forward"),
    "overlap_three.csv": (1, "column 3", "must be a forward"),
    "pair.csv": (1, "column 5", "is not an operation"),
    "recv_late.csv": (2, "column 2", "comes after 1F0, which needs"),
    "same_cell.csv": (None, "rank 0", "needs 0F0"),
    "send_early.csv": (1, "column 2", "comes before 0F1, which produces"),
    "short.csv": (None, "microbatch 1", "has no operation"),
    "transfer_doubled.csv": (1, "column 4", "occurs twice in the table"),
    "transfer_local.csv": (1, "column 3", "is not a transfer"),
    "transfer_missing.csv": (None, "rank 0", "is missing: a table has"),
    "transfer_of_replicas.csv": (2, "slot 1", "is ambiguous in a table"),
    "transfer_stage.csv": (1, "column 2", "is not a transfer"),
    "word.csv": (1, "column 1", "is not an operation"),
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
    require_refused(read_table, BAD / name, TableError, EXPECTED[name])


def test_order_alone_counts_without_a_header():
    """Rows without a header are an order; with slot numbers they have to fit."""
    rows = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert parse_table(rows).num_microbatches == 2
    with refused(TableError, "rank 1", "before 0F0 has ended", value="1F0"):
        parse_table("rank,0,1,2,3\n0,0F0,0F1,0B0,0B1\n1,1F0,1B0,1F1,1B1\n")


def test_a_continued_cell_continues_all_of_its_operations():
    """Both operations of a cell end in its last slot, so that what needs either has to wait."""
    text = "rank,0,1,2,3,4,5\n0,0F0&0F1,~,,0B0,,0B1\n1,,{},1B0,1F1,1B1,\n"
    with refused(TableError, "rank 1", "starts in slot 1, before 0F0 has ended", value="1F0"):
        parse_table(text.format("1F0"))
    late = "rank,0,1,2,3,4,5,6\n0,0F0&0F1,~,,,0B0,,0B1\n1,,,1F0,1B0,1F1,1B1,\n"
    assert parse_table(late).num_microbatches == 2


def test_shares_of_stages_are_scaled():
    """Shares in a file are relative: 1 and 3 are a quarter and three quarters."""
    schedule = parse_table("# stage_shares: 1 3\n0F0 0B0\n1F0 1B0")
    assert schedule.stage_shares.tolist() == [0.5, 1.5]


@pytest.mark.parametrize("text", ['0F0,"0B0', "0F0,0B0," + "x" * 140_000])
def test_broken_csv_is_refused(text):
    """A quote that never ends and a cell without end cost one line."""
    with refused(TableError, "row", "is not CSV"):
        parse_table(text)


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        ("# ppmodel table 99\n0F0,0B0", "version", "is not"),
        ("rank,5,3\n0,0F0,0B0", "header", "must number the slots"),
        ("rank,0\n0,0F0,0B0", "row of rank 0", "is longer than the header"),
        ("0,0F0,0B0", "cell", "no header row"),
    ],
)
def test_headers_are_held_to(text, field, rule):
    """A header that does not fit, another version, rank numbers without a header."""
    with refused(TableError, field, rule):
        parse_table(text)


def test_hand_written_tables_may_be_untidy():
    """Spaces, empty lines, idle cells as dots or nothing."""
    text = "\nrank , 0,1,2,3,4,5\n0,0F0,0F1,,0B0, ,0B1\n\n1,., 1F0 ,1B0,1F1,1B1,\n"
    assert parse_table(text).rows() == build("1f1b", 2, 2).rows()


@pytest.mark.parametrize("form", ["text", "csv"])
def test_files_of_older_versions_are_read(form):
    """Their header says device, where it now says rank."""
    text = write_table(build("chimera", 4, 4), form)
    assert re.search("^rank", text, re.MULTILINE)
    older = re.sub("^rank", "device", text, flags=re.MULTILINE)
    assert parse_table(older).rows() == parse_table(text).rows()


def test_what_cannot_be_read_is_no_table(tmp_path, monkeypatch):
    """A folder, a device that never ends, no file, one that is too large: one line each."""
    large = tmp_path / "large.csv"
    large.write_text("0F0,0B0\n")
    monkeypatch.setattr(table, "LARGEST_BYTES", 4)
    rules = {tmp_path: "cannot be read", "/dev/zero": "has more than 4 bytes", tmp_path / "none.csv": "cannot be read",
             large: "has more than 4 bytes"}  # fmt: skip
    for path, rule in rules.items():
        with refused(TableError, "file", rule):
            read_table(path)


# ---- in a notebook -------------------------------------------------------------------------------


def cells(html):
    """Width and text of each cell of each row; idle slots have neither."""
    rows = html.split("<tr>")[1:]
    return [[(int(width or 1), text) for width, text in re.findall(r'<td(?: colspan="(\d+)".*?)?>(.*?)</td>', row)]
            for row in rows]  # fmt: skip


@given(schedule=schedules(max_stages=4, max_microbatches=6))
def test_a_notebook_shows_the_table(schedule):
    """Every operation that begins in the first slots, in its place and as wide as it is long."""
    grid, shown = schedule.table(), 32
    rows = cells(table_html(schedule, slots=shown))
    assert len(rows) == len(grid)
    for row, expected in zip(rows, grid, strict=True):
        texts = [text.replace("&amp;", "&") for width, text in row for text in [text] + ["~"] * (width - 1)]
        assert texts == [{".": ""}.get(cell, cell) for cell in expected[:shown]]


def test_what_a_notebook_shows_is_bounded_and_escaped():
    """Of a large table the first slots and ranks; a name is text, whatever it holds; a broken table says so."""
    html = table_html(build("1f1b", 64, 1024))
    assert len(html) < 100_000
    assert (html.count("<tr>"), "shown: 32 of 3261 slots, 16 of 64 ranks" in html) == (16, True)
    rude = replace(build("gpipe", 1, 1), name="<script>alert(1)</script>")
    assert "<script>" not in rude._repr_html_()
    assert "&lt;script&gt;" in rude._repr_html_()
    stuck = replace(build("gpipe", 2, 1), kind=[1, 0, 0, 1])
    assert "deadlock" in stuck._repr_html_()


@given(st.text(max_size=20), st.sampled_from(["text", "csv"]))
def test_any_name_is_read_as_it_was_written(name, form):
    """Ends of lines, control characters, marks of comments and spaces: the same name, and no other key."""
    table = replace(build("interleaved-1f1b", 2, 2), name=name)
    text = write_table(table, form)
    assert len(text.splitlines()) == len(write_table(build("1f1b", 1, 1), form).splitlines()) + 1
    read = parse_table(text)
    assert (read.name, read.rows(), read.num_microbatches) == (name, table.rows(), 2)


@pytest.mark.parametrize(
    "comment",
    ["stage_share: 1", "Stage_shares: 1", "stage shares: 1", "microbatchs: 1", "microbatches = 1", "letter: B"],
)
def test_a_comment_that_is_nearly_a_key_is_refused(comment):
    """It would have no effect; other comments are the reader's own."""
    with refused(TableError, "comment", "would be ignored", remedy="did you mean"):
        parse_table(f"# {comment}\n0F0 0B0")
    assert parse_table("# mine, of Monday: the first\n0F0 0B0").num_microbatches == 1


def test_comments_that_contradict_each_other_are_refused():
    """Twice the same is once."""
    with refused(TableError, "microbatches", "contradicts line 1", where="2"):
        parse_table("# microbatches: 2\n# microbatches: 1\n0F0 0B0")
    assert parse_table("# microbatches: 1\n# microbatches: 1\n0F0 0B0").num_microbatches == 1


@pytest.mark.parametrize("number", ["1_0", "１", "9" * 400, "9" * 5000, "-1", "1.5", ""])
def test_a_size_in_a_comment_is_written_in_digits(number):
    """A few ASCII digits, and nothing else that Python takes for a number."""
    with refused(TableError, "microbatches", "must be a positive number"):
        parse_table(f"# microbatches: {number}\n0F0 0B0")


@pytest.mark.parametrize("held", [0, 0.5, 2])
def test_a_table_keeps_what_its_search_held(held):
    """Between the halves of a backward: its peaks of activations are the same when it is read again."""
    schedule = build("zb-1p", 4, 8, held=held)
    again = parse_table(write_table(schedule, "csv"))
    assert again.held_for_weight_grad == held
    assert peak_activations(again).tolist() == peak_activations(schedule).tolist()
    for wrong in ("-1", "nan", "1 2", "x", ""):
        with refused(TableError, "held_for_weight_grad", "of at least 0"):
            parse_table(f"# held_for_weight_grad: {wrong}\n0F0 0B0")
    for number in (-1.0, float("nan"), float("inf")):
        with refused(TableError, "held_for_weight_grad", "of at least 0"):
            replace(schedule, held_for_weight_grad=number)


# ---- PyTorch's form ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "csv", "pytorch"])
@given(data=st.data())
def test_any_table_goes_through_every_form(form, data):
    """Chunks anywhere, backwards whole and in halves, and pairs: each form gives back what it was given."""
    schedule = data.draw(tables(any_pairs=False, with_shards=st.just(False)) if form == "pytorch" else tables())
    assert parse_table(write_table(schedule, form)).rows() == schedule.rows()


def test_a_table_as_pytorch_writes_it():
    """The very text, and what it says: no comments, no slots, pairs in PyTorch's word."""
    schedule = read_table(GOLDEN / "overlapped.csv")
    assert write_table(schedule, "pytorch") == (GOLDEN / "overlapped.csv").read_text()
    assert schedule.placement.tolist() == [[0, 1, 1, 0]]
    pair = (Op.parse("0F3"), Op.parse("3B1"))
    assert schedule.rows()[0][7] == pair


def test_actions_for_sharded_weights_are_those_of_pytorch():
    """A file that PyTorch lowered has the operations of the one that it came from, with gathers, drops and sums."""
    table = read_table(GOLDEN / "overlapped.csv").with_gathers()
    assert read_table(GOLDEN / "lowered.csv").rows() == table.rows()
    assert parse_table(write_table(table, "pytorch")).rows() == table.rows()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0F0,0B0,0W0", "format: PyTorch's CSV; letters: zero-bubble (B is input gradient)"),
        ("0F0,0B0", "format: PyTorch's CSV; letters: pytorch (B is full backward)"),
        ("# mine\n0F0,0B0", "format: table; letters: pytorch (B is full backward)"),
        ((GOLDEN / "lowered.csv").read_text(),
         "format: PyTorch's CSV; letters: pytorch (B is full backward); 32 transfers checked"),
    ],
)  # fmt: skip
def test_what_a_file_was_taken_for(tmp_path, text, said):
    """The form, the letters, and how many of PyTorch's words agree; a file with comments is one of ours."""
    path = tmp_path / "any.csv"
    path.write_text(text)
    reading = read_file(path)
    assert str(reading) == said
    assert reading.pytorch == ("CSV" in said)


@pytest.mark.parametrize("text", ["0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n", " 0F0 ,0F1,None,0B0,0B1\n1F0,1B0,1F1, 1B1"])
def test_idle_steps_may_be_there_or_not(text):
    """Empty cells, spaces and PyTorch's None say nothing without a header row."""
    assert parse_table(text).rows() == build("1f1b", 2, 2).rows()


OLD = "0F0,0F1,0B0,0W0,0BW1\n1F0,1BW0,1F1,1B1,1W1\n"
NEW = "0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1I1,1W1\n"


@pytest.mark.parametrize("comment", ["", "# letters: zero-bubble\n", "# letters: B input gradient, BW full backward\n"])
def test_both_conventions_of_letters_are_read(comment):
    """B beside W alone is an input gradient, BW a whole backward; a comment may say so, by name or by letter."""
    assert parse_table(comment + OLD).rows() == parse_table(NEW).rows()
    assert parse_table("# letters: pytorch\n" + NEW).rows() == parse_table(NEW).rows()


def test_the_comment_on_letters_decides():
    """B without I and W is a whole backward, unless the file says that it is half of one."""
    assert parse_table("0F0,0B0").op(1) == Op.parse("0B0")
    with refused(TableError, "rank 0", "in our letters", value="0W0"):
        parse_table("# letters: zero-bubble\n0F0,0B0")


@pytest.mark.parametrize(
    ("schedule", "rule"),
    [
        (build("chimera", 4, 4), "has stage 0 on ranks 0 and 3"),
        (parse_table("# microbatch_parts: 2\n0F0,0F1,0B0,0B1"), "splits microbatches into 2 parts"),
        (parse_table("# stage_shares: 1 3\n0F0,0B0\n1F0,1B0"), "stages of different sizes"),
        (parse_table("0F0&0F1,0B0,0B1"), "several operations other than a forward and a backward"),
        (parse_table("0F0,0F1,0F2&0B0&0B1,0B2"), "several operations other than a forward and a backward"),
    ],
)
def test_what_pytorchs_form_cannot_hold_is_refused(schedule, rule):
    """Nothing is left out in silence; our own form holds it."""
    with refused(TableError, "schedule", rule, remedy="our own format"):
        write_table(schedule, "pytorch")


@pytest.mark.parametrize("file", FILES)
def test_pytorchs_own_orders_are_read(file):
    """Every order of PyTorch is read and written back, but for its plan of 1F1B: the last rank counts from 1."""
    for block in blocks(file):
        if file == "1f1b":
            with refused(TableError) as caught:
                parse_table(block.source)
            assert re.search("is missing|is the only operation", caught.value.rule)
            continue
        assert write_table(parse_table(block.source), "pytorch") == block.text


def loaded(path, schedule):
    """PyTorch's schedule after `_load_csv`, with transfers; no process group is needed for it."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="torch is not installed")
    runtime = object.__new__(schedules._PipelineScheduleRuntime)
    runtime.pipeline_order, runtime._stages, runtime._defer_pp_recv = {}, [], False
    runtime.pp_group_size, runtime._num_stages = schedule.num_ranks, schedule.num_stages
    runtime._n_microbatches = schedule.num_microbatches
    runtime._load_csv(path, format="compute_only")
    return runtime


def flat(order):
    """PyTorch's operations of each rank, pairs apart, as text."""
    return [[str(one) for action in order[rank] for one in action.sub_actions or (action,)] for rank in sorted(order)]


@given(schedule=tables(any_pairs=False))
def test_pytorch_loads_what_we_write(schedule, tmp_path_factory):
    """`_load_csv` accepts it, finds every operation in its order, and adds transfers that we read again."""
    folder = tmp_path_factory.mktemp("torch")
    path, lowered = folder / "ours.csv", folder / "lowered.csv"
    path.write_text(write_table(schedule, "pytorch"))
    runtime = loaded(path, schedule)
    rows = [[str(schedule.op(index)) for index in range(*span)] for span in pairwise(schedule.rank_start)]
    assert flat(runtime.pipeline_order) == rows
    runtime._dump_csv(lowered, format="compute_comms")
    assert read_table(lowered).rows() == schedule.rows()
