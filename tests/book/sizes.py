"""Small sizes at which tests run the notebooks, and other systems than their own."""

AS_PUBLISHED = {"claims", "executed", "measured", "plan-right", "schedules-measured", "tensor-pipeline"}
"""Notebooks whose results are those of the built book; `make attack` runs them at the sizes below, too."""

PARAMETERS = {
    "by-hand": {
        "model": "llama3_8b",
        "pp": 2,
        "tp": 2,
        "global_batch": 64,
        "expert_model": "mixtral_8x22b",
        "expert_pp": 4,
        "expert_dp": 16,
        "models": ["llama3_8b"],
    },
    "table": {"pp": 6, "microbatches": 6, "schedules": ["gpipe", "chimera"]},
    "timeline": {
        "pp": 3, "microbatches": 4, "schedules": ["1f1b", "eager-1f1b"], "system": "mid_cp_slow_nw",
        "setting": "default",
    },
    "bubble": {"pp": 4, "microbatches": [4, 8], "max_pp": 3, "max_microbatches": 4, "setting": "default"},
    "runtime": {
        "pp": 4, "microbatches": [4, 8, 16], "systems": ["mid_cp_slow_nw", "fast_cp_fast_nw"],
        "picture_systems": ["dgx_h100"], "setting": "default", "p2p": "blocking",
    },
    "memory": {"pp": [4], "microbatches": [4, 8], "system": "mi300x"},
    "asymmetric": {
        "pp": [4], "microbatches": [4, 8], "splits": [[1, 2]], "systems": ["mid_cp_fast_nw"], "setting": "default",
        "split_pp": [4], "units": [1, 2],
    },
    "hanayo": {"pp": 8, "waves": [1, 2], "systems": ["mid_cp_slow_nw", "mid_cp_fast_nw"], "setting": "default"},
    "choose": {
        "pp": 4, "multiples": [1, 4], "ratios": [0.1, 0.5], "memories": [0.8, 1.0],
        "schedules": ["1f1b", "zb-h1", "v-half"], "model": "llama3_8b", "tp": 2,
    },
    "which-layout": {
        "model": "llama3_8b", "gpus": 8, "global_batch": 16, "memory_limit": "60 GiB",
        "schedules": ["1f1b", "interleaved-1f1b", "zb-v"], "models": ["llama3_8b"], "systems": ["b200"],
        "case_gpus": [4], "case_batch": [16], "usual_tp": [2], "fitted": ["a100_bigscience", "b200_simumax"],
    },
    "beside": {
        "model": "gpt3_175b", "pp": 2, "tps": [1, 8], "dps": [1, 4], "global_batch": 16, "gpus": 16,
        "splits": [[2, 8], [4, 4], [4, 3]], "batches": [16, 64], "schedules": ["1f1b", "gpipe", "zb-h1"],
    },
    "tensor-pipeline": {"max_pp": 3, "max_microbatches": 12},
    "pairs": {
        "schedules": ["1f1b", "dualpipev"], "paired": ["dualpipev"], "factors": [0.5], "contentions": [1.2],
        "bare_pp": 4, "bare_systems": ["fast_cp_slow_nw", "slow_cp_fast_nw"], "bare_factors": [0.5],
    },
    "tutorial": {"pp": 2, "microbatches": 4},
    "measured": {},
    "plan-right": {"systems": ["a100_bigscience"], "recipes_on": ["b200"]},
    "claims": {"setting": "default"},
    "semantics": {
        "pp": 4, "form_microbatches": 8, "ratios": [0.1, 0.5], "picture_microbatches": 4, "systems": ["mid_cp_slow_nw"],
        "sizes": [4], "microbatches": [8],
    },
    "schedules-measured": {},
    "executed": {},
    "experts": {"systems": ["h100"], "sizes": [8, 16]},
    "long-sequences": {"pp": 4, "microbatches": 4, "sequences": [8192, 65536], "slices": [2, 4]},
    "field": {
        "pp": [4], "multiples": [1, 2], "picture_pp": 4, "systems": ["mid_cp_mid_nw", "fast_cp_slow_nw"],
        "long_multiples": [2, 4, 8], "picture_systems": ["fast_cp_slow_nw", "slow_cp_fast_nw"],
    },
    "own-schedule": {"mistakes": ["deadlock", "my_table"], "comm": 1.5},
    "nodes": {
        "node_systems": ["slow_between_nodes"], "schedules": ["1f1b", "chimera"], "pp": 8, "microbatches": 8,
        "inside_pp": 8,
    },
}  # fmt: skip
