"""Number formats of products with weights. A new one is an entry of `FORMATS`.

These products run in the format, forward and in both gradients; attention, the output projection and the router stay at
16 bits, as in Transformer Engine and Megatron-LM.
"""

from typing import NamedTuple


class NumberFormat(NamedTuple):
    """A number format.

    Parameters
    ----------
    bits : int
        Of a number.
    kept_bytes : float or None
        Bytes of a number kept for the backward, with its part of the scales; None for the model's.
    speed : float
        Of products, over that of products with one scale a tensor at the same fraction of the peak.

    Examples
    --------
    >>> FORMATS["mxfp8"].kept_bytes
    1.03125
    """

    bits: int
    kept_bytes: float | None
    speed: float = 1.0


FORMATS = {
    "bf16": NumberFormat(16, None), "fp8": NumberFormat(8, 1 + 4 / 128),
    "fp8-blockwise": NumberFormat(8, 1 + 4 / 128, 0.87), "mxfp8": NumberFormat(8, 1 + 1 / 32, 0.95),
    "nvfp4": NumberFormat(4, 0.5 + 1 / 16),
}  # fmt: skip
"""By name. A scale of fp8 holds for a whole tensor; we count one for 128 numbers, as DeepSeek-V3 has them (DeepSeek-AI,
2024, section 3.3.2). Those of MXFP8 are of the OCP's standard, those of NVFP4 NVIDIA's. On a B300, the twelve products
of a block take 6.812 ms with one scale a tensor and 7.161 in MXFP8; on an H200, 16.785 and, if blocks are converted in
the same 3.5 ms, 19.382 (NVIDIA/TransformerEngine, 8f2e6357, docs/examples/gemm_profiling)."""
