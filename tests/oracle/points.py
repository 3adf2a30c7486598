"""Some 2,000 points: every schedule, size, semantics, and models on systems under layouts, as frames of `compare`.

And timelines: of every schedule, all operations of one run.
"""

import warnings
from functools import cache

import numpy as np
import pandas as pd

import ppmodel as pp

from .texts import without_paths

LINEAR = "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"
FOLDED = "zb-v", "v-half", "v-min", "dualpipev", "stp", "stp:warm-up=memory-saving", "1f1b-v"
LOOPED = (
    "interleaved-1f1b", "interleaved-1f1b:chunks=3", "combined-1f1b", "combined-1f1b:chunks=3", "looped-bfs",
    "looped-bfs:chunks=4", "interleaved-zb", "interleaved-zb:chunks=3",
    "seq1f1b", "seq1f1b:slices=2", "seq1f1b:slices=2,chunks=2",
    "grouped-interleaving", "grouped-interleaving:chunks=3,group=half", "grouped-interleaving:group=1",
)  # fmt: skip
COPIED = (
    "dualpipe", "chimera", "chimera:concat=overlapping", "chimera:concat=forward-doubling",
    "chimera:concat=backward-halving", "asymmetric-chimera", "asymmetric-chimera:split=1:3",
    "asymmetric-chimera:split=2:1,concat=overlapping", "asymmetric-chimera:concat=forward-doubling",
    "asymmetric-chimera:concat=backward-halving", "chimera:concat=merged", "asymmetric-chimera:concat=merged",
)  # fmt: skip
SQUARE = "hanayo", "hanayo:waves=2", "hanayo:waves=3"
SEARCHED = (
    "zb-1p:limit=3", "zb-1p:times=2:3:1:0.5", "zb-1p:held=1.5", "zb-2p:limit=6", "zb-2p:times=1:2:1:0.25",
    "zb-2p:delays=1:2:1",
)  # fmt: skip
DIVIDED = "vocab-1f1b", "vocab-1f1b:barriers=2", "interlaced"
CASES = (*LINEAR, *FOLDED, *LOOPED, *COPIED, *SQUARE, *SEARCHED, *DIVIDED)
"""Every registered schedule, with the alternatives of its options."""

FEW = (
    "gpipe", "1f1b", "zb-h1", "zb-2p", "zb-v", "v-min", "dualpipev", "stp", "interleaved-1f1b", "combined-1f1b",
    "interleaved-zb", "looped-bfs", "dualpipe", "chimera", "asymmetric-chimera",
)  # fmt: skip
OCCUPIED = (
    "latency", "overlapped", "overlapped_nic", "blocking_send", "blocking_recv", "blocking", "rendezvous", "streams",
)  # fmt: skip
REDUCED = "excluded", "overlapped", "blocking", "overlapped_links"
TIMES = {"forward": 1, "backward": 2.1, "comm": 0.13}
DENSE = {"model": "llama3_70b", "system": "h100"}
GROUPS = {"tp": 8, "dp": 2, "zero": 1, "sequence_parallel": True, "global_batch": 64}
SPARSE = {"model": "mixtral_8x7b", "system": "h100", "pp": 4, "dp": 8, "zero": 1, "global_batch": 128}
DUAL = "1f1b", "interleaved-1f1b", "dualpipev"

MODELS = (
    "bloom_176b", "deepseek_v3", "gpt3_175b", "llama2_13b", "llama3_405b", "llama3_70b", "llama3_8b", "llama3_8x70b",
    "megascale_175b", "mixtral_8x22b", "mixtral_8x22b_g8t8", "mixtral_8x7b", "nemotron4_340b", "paper",
    "qwen2_57b_a14b", "stp_12b", "stp_26b", "zero_bubble_14_6b", "zero_bubble_1_5b", "zero_bubble_28_3b",
    "zero_bubble_6_2b",
)  # fmt: skip
SYSTEMS = (
    "a100", "a100_bigscience", "a100_layouts", "a100_pcie", "a100_selene", "a100_vtrain", "a2_highgpu_8g", "a800",
    "b200", "b200_simumax", "dgx_a100", "dgx_h100", "dgx_h100_nodes", "fast_cp_fast_nw", "fast_cp_mid_nw",
    "fast_cp_slow_nw", "gb200", "gb300", "h100", "h100_mlperf", "h100_playbook", "h200", "h800", "mi300x",
    "mi300x_nodes", "mid_cp_fast_nw", "mid_cp_mid_nw", "mid_cp_slow_nw", "rtx4090", "slow_between_nodes",
    "slow_cp_fast_nw", "slow_cp_mid_nw", "slow_cp_slow_nw",
)  # fmt: skip
FRAMEWORKS = (
    "bigscience", "deepspeed", "eager", "fsdp", "megatron", "megatron_deepspeed", "nanotron", "nemo", "plain",
    "scaling",
)  # fmt: skip
LAYOUTS = {
    "bloom_176b": "bloom_176b", "deepseek_v3": "deepseek_v3", "gpus_64": "llama3_70b", "korthikanti_175b": "gpt3_175b",
    "llama3_405b_128k": "llama3_405b", "llama3_405b_8k": "llama3_405b", "llama3_405b_8k_8192": "llama3_405b",
    "megatron_175b": "gpt3_175b", "mlperf_llama3_405b": "llama3_405b",
}  # fmt: skip
VALUES = {
    "plain": {}, "tp 1": {"tp": 1}, "dp 8": {"dp": 8}, "cp 2": {"cp": 2},
    "cp 2, all-gather": {"cp": 2, "context_exchange": "all-gather"}, "no causal": {"causal": False},
    "zero 0": {"zero": 0}, "zero 2": {"zero": 2}, "zero 3": {"zero": 3},
    "microbatches of 2": {"microbatch_size": 2}, "sequence": {"sequence": 2048},
    "no sequence parallelism": {"sequence_parallel": False}, "selective": {"recompute": "selective"},
    "light": {"recompute": "light"}, "full": {"recompute": "full"}, "three layers": {"recompute": 3},
    "fp8": {"precision": "fp8"}, "kept fp8": {"kept_precision": "fp8"}, "tensor hidden": {"overlap_tensor": True},
    "backward hidden": {"overlap_backward": True}, "gradients shown": {"overlap_gradients": False},
    "parameters shown": {"overlap_parameters": False}, "best pairs": {"pairing": "best"},
    "when ready": {"hand_on": "when_ready"}, "offload": {"offload": 0.5, "system": "dgx_h100_nodes"},
    "offload all": {"offload": 0.3, "offload_chunks": "all", "system": "dgx_h100_nodes"},
    "offload the warm-up": {"offload_warm_up": 0.8, "system": "dgx_h100_nodes"}, "even": {"layers": "even"},
    "order": {"order": "tp-cp-ep-pp-dp"}, "wrong gpus": {"gpus": 48}, "wrong batch": {"global_batch": 63},
    "tp 3": {"tp": 3},
}  # fmt: skip
EXPERTS = {
    "plain": {}, "ep 8": {"ep": 8}, "ep 4, tp 2": {"ep": 4, "tp": 2, "sequence_parallel": True},
    "ep 8, etp 1": {"ep": 8, "tp": 2, "etp": 1, "sequence_parallel": True},
    "imbalance": {"ep": 8, "expert_imbalance": 1.3}, "nodes": {"ep": 8, "expert_nodes": 1},
    "fp8 tokens": {"ep": 8, "dispatch_precision": "fp8"}, "ep 3": {"ep": 3},
    "hidden": {"ep": 8, "overlap_tensor": True, "pairing": "best"},
    "order": {"ep": 4, "order": "tp-cp-ep-pp-dp"}, "zero 3": {"ep": 8, "zero": 3},
}  # fmt: skip
CHANGES = (
    {}, {"bandwidth": 0.5}, {"latency": 3}, {"compute": 2}, {"memory": 0.5}, {"memory_follows": False},
    {"efficiency": 0.9}, {"collectives": 2}, {"backward": 1.5}, {"overlap": 0.8}, {"straggler": 1.4},
    {"straggler": 1.4, "straggling": 0.3}, {"network": False},
)  # fmt: skip


@cache
def questions():
    """Return the keyword arguments of `compare` by the name of each question, in order."""
    asked = {f"sizes {case}": _asked(case, [2, 3, 4, 8], [4, 7, 16], **TIMES) for case in CASES}
    asked["squares"] = _asked(SQUARE, [2, 8], [2, 8], **TIMES)
    asked["one rank"] = _asked(CASES, 1, [1, 3], **TIMES)
    asked["large"] = _asked(FEW, 16, 48, **TIMES, p2p=["overlapped", "streams"])
    costs = TIMES | {"latency": 0.07, "reduction": 0.7, "optimizer": 0.2}
    for case in FEW:
        asked[f"semantics {case}"] = _asked(case, 4, 12, **costs, p2p=OCCUPIED, allreduce=REDUCED)
    asked["semantics hanayo"] = _asked(SQUARE[1], 4, 4, **costs, p2p=OCCUPIED, allreduce=REDUCED)
    some = {"p2p": ["overlapped", "rendezvous", "streams"]}
    asked["halves"] = _asked(FEW, 4, 12, forward=1, input_grad=1.2, weight_grad=0.7, comm=0.2)
    asked["pairs"] = _asked(FEW, 4, 12, **TIMES, pair=2.6)
    asked["free"] = _asked(FEW, 4, 12, forward=1, backward=2, p2p=["overlapped", "blocking"])
    asked["links"] = _asked(FEW, 4, 12, **TIMES, links=[None, "1-2:delay=1", "0>1:delay=60ms 2>3:delay=2s"], **some)
    asked["own"] = _asked(["data/templates/my_table.csv", "1f1b"], **TIMES, p2p=OCCUPIED)
    three = "1f1b", "interleaved-1f1b", "zb-v"
    for system in SYSTEMS:
        asked[f"system {system}"] = _asked([*three, "chimera"], 8, 16, model="paper", system=system)
    for model in MODELS:
        asked[f"model {model}"] = _asked(three, 4, 16, model=model, system="h100", allreduce="overlapped")
    asked["paper"] = _asked(FEW, 8, 16, model="paper", system=["mid_cp_slow_nw", "a100"], p2p=OCCUPIED[1:])
    for name, change in _changes().items():
        asked[f"change {name}"] = _asked(three, 8, 16, model="paper", system="mid_cp_mid_nw", changes=change)
    slow = [None, "3-4:delay=5ms,bandwidth=1GB/s"]
    asked["slow links"] = _asked(three, 8, 16, model="llama3_70b", system="h100", links=slow)
    for layout, model in LAYOUTS.items():
        asked[f"layout {layout}"] = _asked(DUAL, model=model, system="h100", layout=layout)
    for name, values in VALUES.items():
        asked[f"values {name}"] = _asked([*DUAL, "zb-1p"], pp=4, **DENSE | GROUPS | values)
    for name, values in EXPERTS.items():
        asked[f"experts {name}"] = _asked(DUAL, **SPARSE | values)
    for framework in FRAMEWORKS:
        asked[f"framework {framework}"] = _asked(three, pp=4, **DENSE, **GROUPS, framework=framework)
    for system in ("a100_selene", "b200_simumax", "gb200", "h100_mlperf", "mi300x_nodes", "h800", "rtx4090"):
        asked[f"iteration {system}"] = _asked(three, pp=4, model="llama3_8b", system=system, tp=2, global_batch=32)
    grid = {"pp": [2, 4, 8], "tp": [4, 8], "dp": [1, 2], "zero": [0, 1]}
    asked["grid"] = _asked(["1f1b", "zb-v"], **DENSE | GROUPS | grid)
    asked["64 gpus"] = _asked("1f1b", **DENSE | GROUPS | {"pp": [2, 4, 8], "tp": [2, 4, 8], "dp": [1, 4], "gpus": 64})
    asked["unknown word"] = _asked("1f1b", 4, 8, **TIMES, p2p="overlaped")
    asked["unknown option"] = _asked("1f1b:chunks=2", 4, 8, **TIMES)
    asked["no backward"] = _asked("1f1b", 4, 8, forward=1)
    asked["no schedule"] = _asked("1f1c", 4, 8, **TIMES)
    return asked


def _asked(schedules, pp=None, microbatches=None, **others):
    return {"schedules": schedules, "pp": pp, "microbatches": microbatches} | others


def _changes():
    return {" ".join(f"{key} {value}" for key, value in change.items()) or "none": change for change in CHANGES}


def timeline(case):
    """Return the operations of a run of a schedule, by a frame and what is said, as `answer` does."""
    microbatches = 4 if case in SQUARE else 16 if "doubling" in case else 12
    costs = TIMES | {"latency": 0.07, "p2p": "streams"}
    if case in COPIED:
        costs |= {"reduction": 0.7, "allreduce": "overlapped"}
    return _heard(lambda: pp.simulate(case, 4, microbatches, **costs).to_frame())


def answer(name):
    """Ask one question.

    Returns
    -------
    frame : DataFrame
        What `compare` returns; empty if it refuses.
    said : dict
        Texts: names and types of the columns, warnings, and the error.
    """
    asked = {key: list(value) if isinstance(value, tuple) else value for key, value in questions()[name].items()}
    if isinstance(asked.get("changes"), dict):
        asked["changes"] = pp.Change(**asked["changes"])
    return _heard(lambda: pp.compare(**{key: value for key, value in asked.items() if value is not None}))


def _heard(ask):
    frame, error = pd.DataFrame(), ""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            frame = ask()
        except pp.PPModelError as refused:
            error = f"{type(refused).__name__}: {refused}"
    said = {
        "columns": " ".join(f"{column}:{kind}" for column, kind in frame.dtypes.items()),
        "warnings": without_paths("\n".join(sorted(str(one.message) for one in heard))),
        "error": without_paths(error),
    }
    return frame, said


def cell(value):
    """Return a value of a frame as None, a number or a text."""
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | float | np.integer | np.floating):
        return float(value)
    return without_paths(str(value))


def typed(cells):
    """Return the values of a column as numbers, or as texts where any of them is one."""
    if any(isinstance(value, str) for value in cells):
        return pd.Series([repr(value) if isinstance(value, float) else value for value in cells], dtype=object)
    return pd.Series(cells, dtype=float)
