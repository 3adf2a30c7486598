"""ppmodel measure: a system file for one's own machine, from timings of its kernels and collectives."""

import datetime
from pathlib import Path

from ppmodel.cli.arguments import Output, combined, option
from ppmodel.cli.calibrate import FILE, POOR, about
from ppmodel.cli.commands import command
from ppmodel.cli.text import say
from ppmodel.clusters import specs
from ppmodel.errors import PPModelError, counted
from ppmodel.files import write_whole

_FILES = {
    "gemm": ("FILE.csv", "Matrix products: columns m, n, k, latency_us or tflops, and optionally precision."),
    "collectives": ("FILE|OP=FILE", "Output of nccl-tests; name the test (OP) if the file does not."),
    "attention": ("FILE.csv", "Fused attention: columns sequence, pass (forward or backward) and tflops."),
    "trace": ("FILE.json[.gz]", "Trace of one step by PyTorch's profiler with record_shapes=True."),
    "probe": ("FILE.json", "What probe.py wrote on the machine."),
}


@command("measure")
@option("system", "NAME|FILE", "The system to start from; gives peaks, and what is not measured.")
@option("out", "FILE.yaml", "Where to write the result.", FILE)
@combined(*(option(name, form, f"{text} May be repeated.", multiple=True) for name, (form, text) in _FILES.items()))
@about
@option("write-probe", "FILE.py", "Only write the script probe.py.", Output())
def measure_command(system, out, title, date, write_probe, **files):
    """Write a system file for your own machine.

    Fits compute efficiency, half-widths of products, attention, memory bandwidth, links and host time to timings: your
    own, or those that the script probe.py takes in about two minutes:

        ppmodel measure --write-probe probe.py

        torchrun --nproc-per-node 8 probe.py

        ppmodel measure --system h100 --probe probe.json --out mine.yaml

    Peaks come from the system to start from, as does all that is not measured, with kind and source.
    """
    from ppmodel.studies.measured import timings
    from ppmodel.studies.measured.measure import measured_system
    from ppmodel.studies.measured.system_file import entries_text

    if write_probe is not None:
        write_whole(write_probe, specs.template_path("probe", ".py").read_text(encoding="utf-8"), "--write-probe")
        return say(f"{write_probe}: run it with python, or with torchrun on all GPUs")
    for name, value in (("--system", system), ("--out", out)):
        if value is None:
            raise PPModelError(name, None, "is missing", f"pass, for example, {name} {name[2:]}.yaml")
    start = specs.load_system(system)
    room = start.nodes.devices_per_node if start.nodes else 1
    read = {
        "gemm": timings.read_gemm_table, "attention": timings.read_attention_table, "probe": timings.read_probe,
        "trace": lambda path: timings.read_trace(path, room),
        "collectives": lambda text: timings.read_nccl_tests(text.rpartition("=")[2], text.rpartition("=")[0] or None),
    }  # fmt: skip
    given = [read[name](path) for name, paths in files.items() for path in paths]
    measurement = measured_system(start, given, str(date or datetime.date.today()))
    options = " ".join(f"--{name} {Path(path).name}" for name, given in files.items() for path in given)
    line = f"measure --system {Path(system).name} {options}"
    write_whole(out, entries_text(measurement.entries, title or start.title, line), "--out")
    return say(_lines(measurement, start, out))


def _lines(measurement, start, out):
    entries = {entry.field: entry for entry in measurement.entries}
    yield f"{out}: {counted(sum(len(fit.values) for _, fit in measurement.fits), 'constant')} measured"
    for label, fit in measurement.fits:
        poor = "  (poor: are the units right, and was the machine quiet?)" if fit.error > POOR else ""
        yield f"{label}: {counted(fit.rows, 'timing')}, mean error {fit.error:.1%}{poor}"
        for name in fit.values:
            value = entries[name].value
            text = str(value).lower() if isinstance(value, bool) else f"{value:.4g} {entries[name].unit}".strip()
            at_limit = name.endswith("efficiency") and value == 1
            yield f"  {name:36} {text}{'  (at its limit: is the peak right?)' if at_limit else ''}"
    yield f"not measured, as in {start.name}: {', '.join(measurement.left) or 'none'}"
