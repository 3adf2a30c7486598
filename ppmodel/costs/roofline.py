"""Seconds of a kernel: t = max(FLOP / (peak e_c) + L_c, bytes / (bandwidth e_m) + L_m)."""

from ppmodel.costs.work import NO_WORK


def roofline_s(work, system):
    """Seconds of one kernel: the longer of its arithmetic and its memory traffic.

    Parameters
    ----------
    work : Work
        FLOP and bytes of the kernel.
    system : SystemSpec
        Gives peaks, efficiencies and the fixed cost on either side of the roofline.

    Returns
    -------
    float
        In seconds; 0 where there is no work.

    Examples
    --------
    >>> from ppmodel.costs import Work
    >>> from ppmodel.specs import load_system
    >>> roofline_s(Work(1e15, 0), load_system("mid_cp_mid_nw"))
    1.0
    """
    if work == NO_WORK:
        return 0.0
    arithmetic = work.flops / (system.peak_compute_flops * system.compute_efficiency) + system.compute_latency_s
    traffic = work.bytes / (system.memory_bandwidth_bytes_per_s * system.memory_efficiency) + system.memory_latency_s
    return max(arithmetic, traffic)
