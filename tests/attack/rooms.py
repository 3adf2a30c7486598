"""What takes files, and which: a room that comes later is met by all attacks after one line here."""

import json
from typing import NamedTuple

from ppmodel.clusters.specs import DATA

ON = "--forward 1 --backward 2"
SIZE = "--pp 4 --microbatches 8"
POINT = f"simulate 1f1b {SIZE}"


class Room(NamedTuple):
    """A kind of file: a good one, and the command lines that read it as ``{}``."""

    good: str
    lines: tuple
    writes: str = ""


def _text(*names):
    return DATA.joinpath(*names).read_text(encoding="utf-8")


DOCUMENTS = {
    "system": Room(_text("templates", "system.yaml"), (f"{POINT} --model paper --system {{}}",)),
    "nodes": Room(_text("systems", "a2_highgpu_8g.yaml"), (f"{POINT} --model paper --system {{}}",)),
    "model": Room(_text("templates", "model.yaml"), (f"{POINT} --system dgx_h100 --model {{}}",)),
    "layout": Room(_text("templates", "layout.yaml"), (f"{POINT} --model llama3_70b --system h100 --layout {{}}",)),
    "clusters": Room(_text("systems", "h100.yaml"), (f"{POINT} --model llama3_70b --tp 4 --system {{}}",)),
    "experts": Room(_text("models", "deepseek_v3.yaml"), (f"{POINT} --system h100 --ep 8 --dp 8 --model {{}}",)),
    "framework": Room(
        _text("frameworks", "megatron.yaml"),
        (
            f"{POINT} --model llama3_8b --system h100 --tp 2 --framework {{}}",
            f"compare 1f1b zb-v {SIZE} --model llama3_8b --system h100_mlperf --framework {{}} --csv out.csv",
        ),
        r"out\.csv",
    ),
    "fitted": Room(_text("systems", "h100_mlperf.yaml"), (f"{POINT} --model llama3_8b --tp 2 --system {{}}",)),
    "setting": Room(_text("settings", "default.yaml"), ("claims --system nowhere --setting {}",)),
    "sweep": Room(_text("templates", "sweep.yaml"), ("sweep {} --out out.parquet",), r"out\.parquet"),
}
"""Files in YAML. The second room is the first with nodes; a setting is read before the system that is not there."""

TABLES = Room(
    _text("templates", "my_table.csv"), ("check {}", f"simulate {{}} {ON} --json", "table {} --format pytorch")
)
ROWS = Room(
    _text("reference", "measured", "simumax_b200.csv"),
    (
        "predict {} --system b200 --out out.csv",
        "calibrate {} --system b200 --constants compute_efficiency --out out.yaml",
    ),
    r"out\.(csv|yaml)",
)
PRODUCTS = Room(
    "m,n,k,precision,latency_us\n4096,1024,1024,bf16,20\n2048,2048,1024,fp8,10\n",
    ("measure --system h100 --gemm {} --out out.yaml",), r"out\.yaml",
)  # fmt: skip
OPERATIONS = Room(
    "rank,operation,start_s,end_s\n0,0F0,0,1\n1,1F0,1,2\n1,1B0,2,4\n0,0B0,4,6\n",
    ("replay {} --schedule 1f1b --pp 2 --microbatches 1 --against zb-v --csv out.csv",), r"out\.csv",
)  # fmt: skip
MEASURED = {
    "operations": Room(
        json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "rank 0"}},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "PP:0F0", "pid": 1, "tid": 2, "ts": 0, "dur": 1000},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "PP:0B0", "pid": 1, "tid": 2, "ts": 1000, "dur": 2000},
        ]}),
        ("replay {} --schedule 1f1b --pp 1 --microbatches 1 --csv out.yaml",),
    ),
    "probe": Room(_text("reference", "own_step", "probe.json"), ("measure --system h100 --probe {} --out out.yaml",)),
    "trace": Room(
        json.dumps({"traceEvents": [
            {"cat": "cpu_op", "name": "aten::mm", "dur": 200, "args": {
                "External id": 1, "Input Dims": [[4096, 1024], [1024, 4096]], "Input type": ["c10::BFloat16"] * 2,
            }},
            {"cat": "kernel", "name": "gemm", "dur": 150, "args": {"External id": 1}},
            {"cat": "kernel", "name": "nccl", "dur": 900, "args": {
                "External id": 2, "Collective name": "allreduce", "Process Group Ranks": "[0, 1]", "Group size": 2,
                "In msg nelems": 4194304, "Out msg nelems": 4194304, "dtype": "BFloat16",
            }},
        ]}),
        ("measure --system h100 --trace {} --out out.yaml",),
    ),
    "nccl-tests": Room(
        "#  Rank  0 Group  0 Pid  1 on node-1 device  0\n#  Rank  1 Group  0 Pid  2 on node-1 device  1\n"
        "#  size  count  type  redop  root  time  algbw  busbw\n 1048576 262144 float sum -1 30.0 35.0 35.0\n"
        " 16777216 4194304 float sum -1 120.0 140.0 140.0\n",
        ("measure --system h100 --collectives all_reduce={} --out out.yaml",),
    ),
    "attention": Room(
        "sequence,pass,tflops\n2048,forward,400\n8192,forward,600\n8192,backward,500\n",
        ("measure --system h100 --attention {} --out out.yaml",),
    ),
}  # fmt: skip
"""What `measure` reads besides products; all of it writes ``out.yaml``."""

GENERATORS = Room(_text("templates", "my_schedule.py"), (f"check {{}} {SIZE}", f"simulate {{}} {SIZE} {ON} --json"))
