"""1F1B-V: its authors' order, its closed form, and two thirds of 1F1B's activations."""

from itertools import product

from authors_orders import digest, sizes
from refusals import refused

from ppmodel import build, formulas
from ppmodel.errors import SizeError
from ppmodel.loops.compiled import using
from ppmodel.metrics import peak_activations, table_bubble_ratio, table_slots
from ppmodel.schedules import one_f_one_b_v


def test_the_order_is_its_authors():
    """Every operation of every rank, at 209 sizes, fewer microbatches than ranks among them."""
    known = list(sizes("1f1b-v"))
    assert len(known) >= 200
    for ranks, count, _, _, expected in known:
        assert digest(build("1f1b-v", ranks, count)) == expected, (ranks, count)


def test_long_tables_repeat_their_steady_state(monkeypatch):
    """A table in which a period is repeated is the one that is packed as a whole."""
    for ranks in (*range(1, 25), 36, 48, 72):
        repeated = build("1f1b-v", ranks, 4 * ranks + 20)
        with monkeypatch.context() as patched:
            patched.setattr(one_f_one_b_v, "steady_from", lambda _: 10**6)
            assert digest(build("1f1b-v", ranks, 4 * ranks + 20)) == digest(repeated)


def test_bubbles_at_a_backward_of_two_forwards():
    """Exact where S mod 3 is 1 or 2; everywhere at most 5(S-1) chunks' forwards."""
    for ranks, extra in product(range(1, 32), (0, 1, 2, 5, 40)):
        table = build("1f1b-v", ranks, ranks + extra)
        ratio = formulas.bubble_ratio_1f1b_v(ranks, ranks + extra)
        assert (ratio is None) == (ranks % 3 == 0 or ranks == 2)
        assert ratio is None or abs(table_bubble_ratio(table, backward=2) - ratio) < 1e-12
        assert table_slots(table, forward=1, backward=2) - 6 * (ranks + extra) <= 5 * (ranks - 1)


def test_peaks_are_two_thirds_of_1f1bs():
    """No rank holds more than 2S/3 + 1 microbatches, and some rank does."""
    for ranks in range(1, 25):
        peaks = peak_activations(build("1f1b-v", ranks, 3 * ranks))
        assert peaks.max() == formulas.peak_activations_1f1b_v(ranks)[0]


def test_compiled_and_plain_are_the_same():
    """The order does not depend on what packs it."""
    for size in ((4, 9), (9, 5)):
        with using(True):
            compiled = digest(build("1f1b-v", *size))
        with using(False):
            assert digest(build("1f1b-v", *size)) == compiled


def test_large_pipelines_are_refused():
    """Packing would take minutes."""
    with refused(SizeError, "pp", "at most 512"):
        build("1f1b-v", 513, 4)
