"""Measured constants of a machine, in a system file whose other values are those of the system it starts from."""

from typing import NamedTuple

from ppmodel.clusters.specs import KernelSpec, Provenance, to_unit
from ppmodel.errors import PPModelError
from ppmodel.studies.measured import kernel_fits, timings
from ppmodel.studies.measured.constants import TIME
from ppmodel.studies.measured.start import by_block

_SIXTEEN_BITS = "bf16", "fp16", "tf32", "fp32"
_TIMES = "kernels.block_host", "collectives.node_latency", "collectives.network_latency"
_DIGITS = 4


class Measurement(NamedTuple):
    """A measured machine.

    Parameters
    ----------
    entries : list of Provenance
        All values of its system file.
    fits : list of tuple of (str, Fit)
        What was fitted, by what it is, such as ``products in bf16``.
    left : list of str
        Constants of the starting system that were not measured, unless they are stated in a primary source.
    """

    entries: list
    fits: list
    left: list


def measured_system(system, files, date):
    """Fit the constants of a system to what was measured.

    Parameters
    ----------
    system : SystemSpec
        The system to start from, with its provenance: it must have been read from a file.
    files : sequence of Timings
    date : str
        Date of the fit, as YYYY-MM-DD.

    Returns
    -------
    Measurement
        Fitted values have the kind ``fitted``, with their files, timings, mean error and date; all others stay as they
        are. If products were not timed in bf16, those in fp16, tf32 or fp32 stand for them, in this order. Errors of a
        calibrated system are left out, for they are no longer known.

    Raises
    ------
    PPModelError
        If nothing was measured, or something that the system has no place for: collectives inside a node without nodes,
        or fp8 without its peak.
    """
    entries = {entry.field: entry for entry in system.provenance if not entry.field.startswith("errors.")}
    fits = list(_fits(system, files))
    if not fits:
        raise PPModelError("timings", "none", "must be in one of the files", "pass, for example, --gemm FILE.csv")
    for kind, label, fit in fits:
        names = ", ".join(file.file for file in files if any(isinstance(row, kind) for row in file.rows))
        source = f"{fit.rows} timings of {label}, mean error {fit.error:.1%}; {names}; {date}"
        for field, value in fit.values.items():
            unit = entries[field].unit if field in entries else "us" * (field in _TIMES)
            written = value if isinstance(value, bool) else float(f"{to_unit(value, unit):.{_DIGITS}g}")
            entries[field] = Provenance(field, written, unit, "fitted", source)
        if kind is timings.AttentionTiming:  # of the kernel that runs
            entries.pop("kernels.flash_attention_factor", None)
    if any(file.device == "cpu" for file in files):
        source = "a CPU runs an operation in the thread that launches it, so that host and device take turns"
        entries["kernels.host_exponent"] = Provenance("kernels.host_exponent", 1, "", "inferred", source)
    kept = [entry for entry in entries.values() if entry in system.provenance and entry.kind != "stated"]
    labelled = [(label, fit) for _, label, fit in fits]
    return Measurement(by_block(entries.values()), labelled, [entry.field for entry in kept if entry.field in TIME])


def _fits(system, files):
    """Each fit with what it is of, and the kind of timings that it uses."""

    def timed(kind):
        return [row for file in files for row in file.rows if isinstance(row, kind)]

    products, passes = timed(timings.ProductTiming), timed(timings.PassTiming)
    spec, precisions = system.kernels or KernelSpec(), {product.precision for product in products}
    wide = [precision for precision in _SIXTEEN_BITS if precision in precisions][:1]
    for precision in wide + ["fp8"] * ("fp8" in precisions):
        constants = "fp8" if precision == "fp8" else "bf16"
        if (peak := system.peak_flops(constants)) is None:
            remedy = "add fp8_peak_compute to its file, or leave these timings out"
            raise PPModelError("precision", "fp8", f"is not supported by {system.name}", remedy)
        m, n, k, _, seconds = zip(*(row for row in products if row.precision == precision), strict=True)
        half = [getattr(spec, name.rpartition(".")[2]) or 0.0 for name in kernel_fits.PRODUCT_CONSTANTS[constants][1:]]
        fit = kernel_fits.fit_products(m, n, k, seconds, peak, constants, half)
        yield timings.ProductTiming, f"products in {precision}", fit
    if attention := timed(timings.AttentionTiming):
        fit = kernel_fits.fit_attention(*zip(*attention, strict=True), system.peak_compute_flops)
        yield timings.AttentionTiming, "attention", fit
    for kernel in dict.fromkeys(row.kernel for row in passes):
        rows = [(row.bytes, row.seconds) for row in passes if row.kernel == kernel]
        fit = kernel_fits.fit_bandwidth(*zip(*rows, strict=True), system.memory_bandwidth_bytes_per_s, kernel)
        yield timings.PassTiming, f"memory: {kernel}", fit
    if collectives := timed(timings.CollectiveTiming):
        yield from ((timings.CollectiveTiming, *fit) for fit in kernel_fits.fit_collectives(collectives, system))
    if host := timed(timings.LaunchTiming):
        yield timings.LaunchTiming, "launches", kernel_fits.fit_host([launch.seconds for launch in host])
