"""What is read off a table or a timeline."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from strategies import cases, p2ps, schedules

from ppmodel import OpKind, build
from ppmodel.clusters.costs import stages
from ppmodel.clusters.memory import memory
from ppmodel.clusters.specs import load_model, load_system
from ppmodel.metrics import bubble_ratios, computing_s, idle_ratio, messages_sent, peak_activations, table_bubble_ratio
from ppmodel.metrics.bubbles import busy_s, operations_s
from ppmodel.simulation import OpCosts, compile_graph, run_graph, uniform_costs
from ppmodel.tables import parse_table


def peaks_one_by_one(schedule, weights):
    """The obvious twin of `peak_activations`: walk every row, cell by cell."""
    between = schedule.held_for_weight_grad
    shares = {OpKind.F: 1, OpKind.B: -1, OpKind.I: between - 1, OpKind.W: -between}
    peaks = []
    for row in schedule.rows():
        held = peak = 0.0
        for cell in row:
            changes = [weights[op.stage] * shares.get(op.kind, 0) for op in cell]
            held += sum(change for change in changes if change > 0)
            peak = max(peak, held)
            held += sum(change for change in changes if change < 0)
        assert held == pytest.approx(0, abs=1e-9)
        peaks.append(peak)
    return peaks


@given(schedules())
def test_peaks_are_those_of_walking_the_rows(schedule):
    """Activations come with a forward and go with a backward; nothing is left at the end."""
    weights = np.linspace(1, 2, schedule.num_stages)
    np.testing.assert_allclose(peak_activations(schedule, weights), peaks_one_by_one(schedule, weights))
    np.testing.assert_allclose(peak_activations(schedule), peaks_one_by_one(schedule, schedule.unit_shares))


def test_a_pair_holds_both_of_its_operations():
    """In a cell of a forward and a backward, the forward's activations come before the backward's go."""
    assert peak_activations(parse_table("0F0 0F1&0B0 0B1")).tolist() == [2]
    assert peak_activations(parse_table("0F0 0B0 0F1 0I1 0W1")).tolist() == [1]


def test_activations_stay_until_the_weights_gradient():
    """An input gradient gives nothing back; a weight gradient long after it does."""
    assert peak_activations(parse_table("0F0 0I0 0F1 0I1 0W0 0W1")).tolist() == [2]
    assert peak_activations(parse_table("0F0 0I0 0W0 0F1 0I1 0W1")).tolist() == [1]


@given(cases(), p2ps)
def test_idle_ratio_counts_what_does_not_compute(case, p2p):
    """Between 0 and 1, computing time independent of the semantics, and consistent with the three ratios."""
    schedule, costs = case
    timeline = run_graph(compile_graph(schedule, p2p), costs)
    if timeline.makespan_s == 0 or busy_s(timeline).sum() == 0:
        return
    idle, ratios = idle_ratio(timeline), bubble_ratios(timeline)
    assert -1e-9 <= idle < 1
    assert ratios.total == pytest.approx(idle)
    assert ratios.ideal == pytest.approx(idle / (1 - idle))
    assert ratios.span <= ratios.total + 1e-9


@given(cases(), p2ps)
def test_computing_time_follows_from_the_costs_alone(case, p2p):
    """What the operations add, their sum, and what a timeline shows as busy are one and the same."""
    schedule, costs = case
    added = operations_s(schedule, costs)
    assert (added[schedule.kind == OpKind.R] == 0).all()
    assert added.sum() == pytest.approx(computing_s(schedule, [costs])[0])
    assert added.sum() == pytest.approx(busy_s(run_graph(compile_graph(schedule, p2p), costs)).sum())


def test_the_three_ratios_differ_where_they_should():
    """1F1B's first rank spans everything; a schedule without bubbles may still end later than it computes."""
    schedule = build("1f1b", 4, 8)
    ratios = bubble_ratios(run_graph(compile_graph(schedule), uniform_costs(schedule, 1, 2)))
    assert ratios == pytest.approx((3 / 11, 3 / 8, 3 / 11))
    shifted = parse_table("0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2\n1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2")
    ratios = bubble_ratios(run_graph(compile_graph(shifted), uniform_costs(shifted, 1, 2)))
    assert ratios == pytest.approx((1 / 10, 1 / 9, 0))


def test_no_ratio_is_below_zero_by_rounding():
    """ZB-H2's ranks never wait within their span, although to the last bit it is not the sum of its operations."""
    table = build("zb-h2", 2, 4)
    assert bubble_ratios(run_graph(compile_graph(table), uniform_costs(table, 0.1, 0.2))).span == 0


def test_reductions_do_not_count_as_computing():
    """The gradient all-reduce makes an iteration longer, not busier."""
    schedule = build("chimera", 4, 4)
    costs = uniform_costs(schedule, 1, 2, reduction=4)
    for how in ("excluded", "overlapped", "blocking"):
        assert busy_s(run_graph(compile_graph(schedule, allreduce=how), costs)).tolist() == [12] * 4


@given(schedules())
def test_table_ratio_is_the_share_of_idle_cells(schedule):
    """Counting the cells of the drawn grid gives the ratio, whatever shares a cell."""
    grid = schedule.table(reduction=0)
    idle = sum(cell == "." for row in grid for cell in row)
    assert table_bubble_ratio(schedule) == pytest.approx(idle / (len(grid) * len(grid[0])))


def test_messages_follow_the_boundaries_between_ranks():
    """2(S-1) messages a microbatch for one chunk a rank, whichever schedule."""
    for name in ("gpipe", "1f1b", "chimera"):
        assert messages_sent(build(name, 4, 8)).sum() == 8 * 2 * 3
    assert messages_sent(build("gpipe", 1, 4)).tolist() == [0]


def test_persistent_memory_counts_replicas():
    """Chimera's ranks hold two stages' weights, gradients and optimizer state, 18 bytes a parameter."""
    model, system = load_model("paper"), load_system("mid_cp_mid_nw")
    one, two = (
        memory(schedule, model, stages(schedule, model, system))
        for schedule in (build("1f1b", 4, 8), build("chimera", 4, 8))
    )
    np.testing.assert_allclose(two.persistent, 2 * one.persistent)
    parameters = 128 * (12 * 4096**2 + 13 * 4096)
    assert one.persistent.sum() == pytest.approx(18 * parameters)
    assert (one.total == one.persistent + one.activations).all()
    other = memory(
        build("1f1b", 4, 8),
        replace(model, gradient_bytes=2, optimizer_bytes=8),
        stages(build("1f1b", 4, 8), model, system),
    )
    assert [part.sum() / parameters for part in (other.weights, other.gradients, other.optimizer)] == [2, 2, 8]


def test_activation_bytes_are_units_times_a_stages_bytes():
    """For even stages the bytes are the units in another measure."""
    model, system = load_model("paper"), load_system("mid_cp_mid_nw")
    schedule = build("1f1b", 8, 16)
    table = stages(schedule, model, system)
    held = memory(schedule, model, table).activations
    np.testing.assert_allclose(held, peak_activations(schedule) * table[0].activation_bytes)


def test_computing_time_does_not_depend_on_company():
    """A system's computing time has the same bits alone and among others."""
    schedule = build("chimera", 8, 16)
    random = np.random.default_rng(1)
    many = [OpCosts(*random.uniform(0, 1, (3, 6, 8))) for _ in range(9)]
    alone = [computing_s(schedule, [costs])[0] for costs in many]
    assert computing_s(schedule, many).tolist() == alone


def test_the_halves_of_a_backward_give_back_in_two_steps():
    """What stays between the halves, less or more than the activations themselves, is counted until the second."""
    schedule = parse_table("0F0 0I0 0F1 0I1 0W0 0W1")
    peaks = [peak_activations(schedule, None, held).item() for held in (1, 0.5, 0, 2)]
    assert peaks == [2, 1.5, 1, 4]


def test_memory_of_a_model_counts_what_the_weight_gradient_needs():
    """A block keeps 32 sbh bytes from one half to the other (inputs and gradients of its dense layers), of 34 sbh."""
    schedule = parse_table("0F0 0I0 0F1 0I1 0W0 0W1")
    model, system = load_model("paper"), load_system("mid_cp_mid_nw")
    of_stages = stages(schedule, model, system)
    stage = of_stages[0]
    tokens = model.global_batch / 2 * model.sequence * model.hidden
    inner = model.heads * model.head_size / model.hidden  # 80 heads of a whole size do not fill the hidden size
    assert stage.weight_grad_bytes / stage.blocks == pytest.approx(2 * tokens * (1 + 3 * inner + inner + 1 + 5 + 5))
    assert memory(schedule, model, of_stages).activations == pytest.approx(
        [stage.activation_bytes + stage.weight_grad_bytes]
    )
