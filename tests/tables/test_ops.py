"""Operations and cells as short text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from ppmodel.errors import TableError
from ppmodel.ops import NO_MICROBATCH, WHOLE, Op, OpKind, parse_cell

_small = st.integers(0, 10**9 - 1)
_kinds, _few = st.sampled_from([k for k in OpKind if k < OpKind.R]), st.integers(0, 9999)
_whole = st.just(WHOLE)
_compute = st.builds(Op, _kinds, _small, _small, _few, st.one_of(_whole, _few))
_once = st.builds(Op, st.sampled_from([OpKind.R, OpKind.O]), _small, st.just(NO_MICROBATCH), _few, _whole)


@given(st.one_of(_compute, _once))
def test_text_round_trips(op):
    """Reading the text of an operation gives the operation."""
    assert Op.parse(str(op)) == op


@given(st.lists(_compute, min_size=1, max_size=3))
def test_cells_round_trip(ops):
    """A cell of several operations reads back as these."""
    assert parse_cell("&".join(map(str, ops))) == tuple(ops)


@pytest.mark.parametrize(
    "text",
    ["", "F1", "2X1", "2F", "2R1", "2O1", "-1F0", "2F1@", "2F1 3", "2F1&", "٢F1", "1F9999999999", "2F1.", "2R.1"],
)
def test_other_text_is_refused(text):
    """What is not an operation is refused with the form that one has."""
    with refused(TableError, "cell", "is not an operation"):
        parse_cell(text)
