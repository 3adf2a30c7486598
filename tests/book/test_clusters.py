"""What two pages try on a GPU cluster: the same base, layouts and overlap; and where a saving comes from."""

from pathlib import Path

import nbformat
import pandas as pd
import pytest

import ppmodel
from ppbook.clusters import Training, divisions, layout_text, room, saving_by_cause
from ppbook.parameters import declared
from ppmodel.schedules.cases import as_case
from ppmodel.specs import load_layout, load_model, load_system

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def defaults(name):
    """The parameters of a notebook."""
    parameters = declared(nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4))
    return {key: parameter.value for key, parameter in parameters.items()}


def test_both_pages_try_what_the_first_page_names():
    """One base; of the first page's layouts and schedules none is missing on the other."""
    take, yours = defaults("take"), defaults("your-system")
    assert (take["base"], take["p2p"]) == (yours["base"], yours["p2p"])
    assert all(set(take[name]) <= set(yours[name]) for name in ("pp", "tp", "cp"))
    tried = {as_case(case).name for case in [*ppmodel.names(), *yours["more_schedules"]]}
    assert {as_case(case).name for case in take["schedules"]} <= tried
    asked = list(zip(take["models"], take["systems"], take["gpus"], take["global_batch"], strict=True))
    layout = load_layout(yours["layout"])
    assert (yours["model"], yours["system"], layout.gpus, layout.global_batch) in asked
    assert (layout.zero, layout.sequence_parallel) == (take["zero"], True)


@pytest.fixture(scope="module")
def training():
    given = {"zero": 1, "sequence_parallel": True}
    return Training(load_model("llama3_8b"), load_system("h100"), 8, 32, given)


@pytest.fixture(scope="module")
def fitting(training):
    cases = [as_case(name) for name in ("1f1b", "zb-v")]
    return training.fitting(cases, cases[0], ([1, 2], [1, 2], [1]), [4])


def test_all_gpus_are_used():
    """Nothing is left over, and replicas share the batch evenly."""
    for gpus, batch in ((16, 48), (24, 20)):
        ways = list(divisions(gpus, batch, [1, 2, 3], [1, 2, 4], [1, 2]))
        assert all(pp * tp * cp * dp == gpus and batch % dp == 0 for pp, tp, cp, dp in ways)
        assert len(set(ways)) == len(ways) > 0


def test_what_is_kept_fits_and_is_a_single_run(training, fitting):
    """Every row fits, has all GPUs, and is what one simulation of its layout gives."""
    assert (fitting.peak_memory_bytes <= fitting.memory_capacity_bytes).all()
    assert (fitting.pp * fitting.tp * fitting.cp * fitting.dp == 8).all()
    assert set(fitting.room) <= {"yes", "tight"}
    row = fitting[fitting.label == "1F1B"].iloc[-1]
    sizes = {name: int(row[name]) for name in ("tp", "cp", "dp")} | training.given
    alone = ppmodel.compare(
        "1f1b", int(row.pp), model="llama3_8b", system="h100", global_batch=32, recompute=row.recompute, **sizes
    )
    assert row.iteration_s == alone.iteration_s[0]
    assert training.changed(as_case("1f1b"), row).iteration_s.tolist() == [row.iteration_s]


def test_more_overlap_is_never_slower(training, fitting):
    """What the framework hides lies between nothing and everything."""
    cases = {case.label: case for case in map(as_case, ("1f1b", "zb-v"))}
    keys = ["label", "pp", "tp", "recompute"]
    nothing, everything = (
        training.under(way, fitting, cases).set_index(keys).iteration_s for way in ("nothing", "everything")
    )
    default = fitting.set_index(keys).iteration_s
    assert (nothing >= default[nothing.index] - 1e-9).all()
    assert (everything <= default[everything.index] + 1e-9).all()


def test_causes_add_up(training, fitting):
    """The shares by cause are those of the whole saving, and a schedule saves nothing on itself."""
    rows = {label: rows.iloc[0] for label, rows in fitting[fitting.pp > 1].groupby("label")}
    first, second = ((as_case(name), rows[as_case(name).label]) for name in ("1f1b", "zb-v"))
    shares, parts = saving_by_cause(training, first, second)
    assert sum(shares.values()) - shares["saved"] == pytest.approx(shares["saved"])
    assert shares["saved"] == pytest.approx(1 - rows["ZB-V"].iteration_s / rows["1F1B"].iteration_s)
    assert len(parts) == 3
    assert set(saving_by_cause(training, first, first)[0].values()) == {0.0}


def test_layouts_in_short():
    """Groups of one are left out; a layout that leaves little memory is tight."""
    row = {"pp": 4, "tp": 2, "cp": 1, "dp": 2, "ep": 1, "microbatch_size": 1, "recompute": "none"}
    more = row | {"cp": 2, "ep": 8, "microbatch_size": 2, "recompute": "1"}
    assert layout_text(pd.DataFrame([row, more])).tolist() == [
        "pp 4, tp 2, dp 2",
        "pp 4, tp 2, cp 2, dp 2, ep 8, 2 sequences a microbatch, 1 layer of a stage recomputed",
    ]
    held = pd.DataFrame({"peak_memory_bytes": [7, 79, 81], "memory_capacity_bytes": 80, "fits": [True, True, False]})
    assert room(held).tolist() == ["yes", "tight", "no"]
