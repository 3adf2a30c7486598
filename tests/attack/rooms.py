"""What takes files, and which: a room that comes later is met by all attacks after one line here."""

from typing import NamedTuple

from ppmodel.specs import DATA

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
    "setting": Room(_text("settings", "default.yaml"), ("claims --system nowhere --setting {}",)),
    "sweep": Room(_text("templates", "sweep.yaml"), ("sweep {} --out out.parquet",), r"out\.parquet"),
}
"""Files in YAML. The second room is the first with nodes; a setting is read before the system that is not there."""

TABLES = Room(
    _text("templates", "my_table.csv"), ("check {}", f"simulate {{}} {ON} --json", "table {} --format pytorch")
)
ROWS = Room(
    _text("reference", "measured", "simumax_b200.csv"),
    ("predict {} --system b200 --out out.csv", "calibrate {} --system b200 --constants host_overhead --out out.yaml"),
    r"out\.(csv|yaml)",
)
PRODUCTS = Room(
    "m,n,k,precision,latency_us\n4096,1024,1024,bf16,20\n2048,2048,1024,fp8,10\n",
    ("measure --system h100 --gemm {} --out out.yaml",), r"out\.yaml",
)  # fmt: skip
GENERATORS = Room(_text("templates", "my_schedule.py"), (f"check {{}} {SIZE}", f"simulate {{}} {SIZE} {ON} --json"))
