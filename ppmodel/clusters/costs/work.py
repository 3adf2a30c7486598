"""Arithmetic, memory traffic and saved bytes of one operation, and the operations that a transformer is made of."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ppmodel.clusters.costs.collectives import Collective
from ppmodel.clusters.specs.formats import FORMATS
from ppmodel.clusters.specs.layout import STAGE_GROUPS, LayoutSpec
from ppmodel.clusters.specs.recompute import Module


class Work(NamedTuple):
    """Arithmetic and memory traffic of one or several kernels.

    Parameters
    ----------
    flops : float
        Floating-point operations, in FLOP.
    bytes : float
        Bytes read from and written to memory.
    """

    flops: float
    bytes: float


NO_WORK = Work(0.0, 0.0)


class Phase(IntEnum):
    """The phases of an operation: forward, both halves of the backward, and the recomputed forward."""

    FORWARD = 0
    INPUT_GRAD = 1
    WEIGHT_GRAD = 2
    RECOMPUTE = 3


PARTS = ("computing", *STAGE_GROUPS.values(), "expert", "data")
"""The parts of an operation's seconds: kernels, and the exposed collectives of each group.

Collectives of expert-tensor groups count as exchanges of experts.
"""


class Kernel(IntEnum):
    """Classes of kernels: on a system, each may attain its own fraction of the peak or of the memory bandwidth."""

    MEMORY = 0
    PRODUCT = 1
    ATTENTION = 2
    ATTENTION_BACKWARD = 3
    WEIGHT_PRODUCT = 4
    BATCHED = 5
    STREAM = 6
    SOFTMAX = 7
    LOSS = 8
    ACTIVATION = 9
    FUSED_SOFTMAX = 10
    UNQUANTISED = 11  # a product that stays at 16 bits when others run in fp8
    UNQUANTISED_WEIGHT = 12
    CAST = 13  # into a number format
    TRANSPOSE = 14  # of numbers in it
    EAGER = 15  # one of PyTorch's passes where others have fused kernels
    ROTARY = 16  # this and the next: only where a framework has it among its passes
    SEARCH = 17


_SIZES = "saved_bytes", "core_bytes", "weight_grad_bytes", "parameters", "count"
_WORKS = "forward", "input_grad", "weight_grad"
_PRODUCTS = Kernel.PRODUCT, Kernel.UNQUANTISED, Kernel.BATCHED


class BlockOperation(NamedTuple):
    """One operation of a transformer block, or of the embedding or the head, on one microbatch and one GPU.

    Parameters
    ----------
    name : str
        Its name in tables; unique within a block.
    forward, input_grad, weight_grad : Work
        Work of the forward and of the two halves of the backward.
    saved_bytes : float
        Bytes of its input, which the operation before it has made, that the forward keeps for the backward; of a
        dropout behind a branch, those of the mask that it makes.
    core_bytes : float
        Bytes of the activations that grow with the square of the sequence, and that the operation itself makes.
    weight_grad_bytes : float
        Bytes that the weight-gradient half still needs once the input-gradient half is done.
    parameters : float
        Number of parameters that the GPU holds.
    module : Module or None
        With which its forward runs again; None with the whole layer alone.
    kernel : Kernel or None
        The class of its kernel in the forward; None for a collective, which has no work. The weight gradient of a
        `PRODUCT` is a `WEIGHT_PRODUCT`, the backward of an `ATTENTION` an `ATTENTION_BACKWARD`.
    shape : tuple of float
        For a product, rows, columns and depth (m, n, k) of the forward, for one of `count`; for an attention kernel,
        heads over all sequences, queries, keys and head size.
    count : float
        Number of kernels, such as a GPU's experts; each has the fixed cost. Work, bytes and parameters are totals over
        all of them.
    casts : dict
        Bytes that conversions of a product's operands to the number format move, by phase and `Kernel`.
    forward_comm, input_grad_comm, weight_grad_comm : Collective, optional
        For a collective, what it does in the forward and in each half of the backward.
    can_hide : bool
        Whether a product may hide the collective; those of the loss wait for all logits, or for each other.
    experts : bool
        Whether its parameters belong to experts, which the data-parallel ranks share out among themselves.
    """

    name: str
    forward: Work = NO_WORK
    input_grad: Work = NO_WORK
    weight_grad: Work = NO_WORK
    saved_bytes: float = 0.0
    core_bytes: float = 0.0
    weight_grad_bytes: float = 0.0
    parameters: float = 0.0
    module: Module | None = None
    kernel: Kernel | None = Kernel.MEMORY
    shape: tuple = ()
    count: float = 1.0
    casts: Mapping = MappingProxyType({})
    forward_comm: Collective | None = None
    input_grad_comm: Collective | None = None
    weight_grad_comm: Collective | None = None
    can_hide: bool = True
    experts: bool = False

    def times(self, share):
        """The operation in a share of blocks, as a part of their mean."""
        if share == 1:
            return self
        sizes = {name: share * getattr(self, name) for name in _SIZES}
        for name, work, comm in zip(_WORKS, self.works, self.collectives, strict=False):
            if work is not NO_WORK:
                sizes[name] = Work(share * work.flops, share * work.bytes)
            if comm:
                sizes[f"{name}_comm"] = comm._replace(bytes=share * comm.bytes)
        return self._replace(**sizes)

    @property
    def works(self):
        """Its work by phase."""
        return self.forward, self.input_grad, self.weight_grad, self.forward

    @property
    def collectives(self):
        """Its collective by phase, each or None."""
        return self.forward_comm, self.input_grad_comm, self.weight_grad_comm, self.forward_comm

    @property
    def is_product(self):
        """True for a matrix product, with weights or, as in unfused attention, without."""
        return self.kernel in _PRODUCTS


def exchange(name, forward=None, input_grad=None, weight_grad=None, **options):
    """An operation that is a collective alone, in the forward or in a half of the backward."""
    comm = {"forward_comm": forward, "input_grad_comm": input_grad, "weight_grad_comm": weight_grad}
    return BlockOperation(name, kernel=None, **comm, **options)


def gathering(name, group, volume, moved=None):
    """A tensor that a group gathers in the forward, see `scattering`; its gradient is reduced and scattered."""
    moved = volume if moved is None else moved
    return exchange(name, Collective("all-gather", group, moved), Collective("reduce-scatter", group, volume))


def scattering(name, group, volume, moved=None):
    """A tensor that a group reduces and scatters in the forward; its gradient is gathered.

    Sums move all bytes of the tensor, the volume; what is gathered may be in fewer bits, and moves `moved` bytes.
    """
    moved = volume if moved is None else moved
    return exchange(name, Collective("reduce-scatter", group, volume), Collective("all-gather", group, moved))


class GpuWork(NamedTuple):
    """One GPU's part of a microbatch under a layout; it makes the operations that blocks consist of.

    Parameters
    ----------
    model : ModelSpec
    sequences : float
        Sequences of the microbatch, b.
    tokens : float
        Its tokens, bs/cp; products that are split over tp see all of them.
    stream : float
        Tokens that norms, dropout and residuals see: bs/cp, or bs/(cp tp) with sequence parallelism.
    layout : LayoutSpec
        Whatever else operations depend on.
    """

    model: object
    sequences: float
    tokens: float
    stream: float
    layout: LayoutSpec

    @classmethod
    def of(cls, model, sequences, layout=None):
        """The part of one GPU; without a layout it is the whole microbatch, and no attention is causal."""
        layout = layout or LayoutSpec(causal=False)
        tokens = sequences * model.sequence / (layout.stage_gpus // layout.tp)
        gpu = cls(model, sequences, tokens, tokens, layout)
        return gpu._replace(stream=tokens / layout.tp) if gpu.splits_stream else gpu

    @property
    def tp(self):
        """GPUs of a tensor group."""
        return self.layout.tp

    @property
    def is_split(self):
        """True if there are several, in all runs."""
        return bool(np.all(self.tp > 1))

    @property
    def splits_stream(self):
        """True if `stream` is only a part of `tokens`."""
        return self.layout.sequence_parallel and self.is_split

    def width(self, precision):
        """Bytes of a number in a precision; None and bf16 stand for the model's."""
        return FORMATS[precision or "bf16"].kept_bytes or self.model.element_bytes

    def linear(
        self, name, rows, inputs, outputs, *, kernel=Kernel.PRODUCT, kept_rows=None, kept_width=None,
        shares_input=False, gradient_rows=None, **others,
    ):  # fmt: skip
        """A dense layer: a matrix product forward and one per gradient; the weight gradient needs input and gradient.

        `kept_rows` rows of its input are kept: fewer than it multiplies if they are gathered before each use; or none
        if another operation keeps the same input. What is kept has the width that the product computes with, unless one
        is given. Fewer `gradient_rows` than outputs have are converted to the number format if gradients are gathered
        afterwards. `others` are further fields of the operation. If they have a `count` of products, such as those of
        experts, each has its part of the rows and its own weights.

        Normalisations have weights too, but so few that their gradients are taken to be computed with the input's.
        """
        width, count, quantises = self.model.element_bytes, others.get("count", 1), kernel == Kernel.PRODUCT
        kept_rows = rows if kept_rows is None else kept_rows
        if kept_width is None:
            kept_width = self.width(self.layout.kept_precision or self.layout.precision) if quantises else width
        flops, weights = 2.0 * rows * inputs * outputs, count * (inputs * outputs)
        read = self.width(self.layout.precision) if quantises else width
        forward = Work(flops, read * (rows * inputs + weights) + width * rows * outputs)
        gradient = Work(flops, read * (rows * outputs + weights) + width * rows * inputs)
        added = Work(flops, read * rows * (inputs + outputs) + 2 * self.model.gradient_bytes * weights)
        saved, kept = kept_width * kept_rows * inputs, kept_width * (kept_rows * inputs + rows * outputs)
        saved, kept = (0.0, kept - saved) if shares_input else (saved, kept)
        if quantises and self.layout.precision not in (None, "bf16"):
            of_input = self._cast(rows, kept_rows, inputs)
            of_gradient = self._cast(rows, rows if gradient_rows is None else gradient_rows, outputs)
            others["casts"] = {Phase.FORWARD: of_input, Phase.RECOMPUTE: of_input, Phase.INPUT_GRAD: of_gradient}
        values = {
            "parameters": count * (inputs * outputs + (outputs if self.model.bias else 0)), "weight_grad_bytes": kept,
            "shape": (rows / count, outputs, inputs),
        }  # fmt: skip
        return BlockOperation(name, forward, gradient, added, saved, kernel=kernel, **values | others)

    def _cast(self, rows, cast_rows, size):
        """Bytes moved to convert a tensor of `rows`, of which a GPU converts some and gathers the others.

        The copy along columns, for products that read the operand the other way, is written together with the one along
        rows, or made from it once all rows are gathered (Transformer Engine).
        """
        kept = FORMATS[self.layout.precision].kept_bytes
        passes = np.where(cast_rows < rows, 2, 1)
        return {Kernel.CAST: (2 + kept) * cast_rows * size, Kernel.TRANSPOSE: passes * kept * rows * size}

    def residual(self, number):
        """Dropout of a branch's output and its sum with the stream; in the backward, the sum of both gradients."""
        dropout, width = self.model.dropout, self.model.element_bytes
        elements = self.stream * self.model.hidden
        mask, module = (elements, Module.DROPOUT) if dropout else (0.0, None)
        undropped = 2 if dropout else 0  # the gradient before the dropout is read and written once
        forward = Work(2.0 * elements, 3.0 * width * elements + mask)
        backward = Work(2.0 * elements, (3.0 + undropped) * width * elements + mask)
        name = f"residual and dropout {number}" if dropout else f"residual {number}"
        return BlockOperation(name, forward, backward, saved_bytes=mask, module=module, kernel=Kernel.STREAM)

    def norm(self, name, size=None, module=Module.NORM):
        """Layer or RMS normalisation: a reduction over each row; its input is kept."""
        size = self.model.hidden if size is None else size
        elements = self.stream * size
        width, vectors = self.model.element_bytes, 2 if self.model.norm == "layernorm" else 1
        forward, input_grad = Work(5.0 * elements, 2.0 * width * elements), Work(8.0 * elements, 3.0 * width * elements)
        weight_grad = Work(2.0 * vectors * elements, 2.0 * width * elements)
        return BlockOperation(
            name, forward, input_grad, weight_grad, saved_bytes=width * elements, parameters=vectors * size,
            module=module, kernel=Kernel.STREAM,
        )  # fmt: skip

    def gather(self, place, size, users, *, beside=0):
        """Products split over tp by columns, `users`, and the collectives for their input of `size` columns.

        Columns `beside` them are gathered too, but no product reads them.

        They are preceded by Megatron-LM's f: nothing forward, an all-reduce backward (Shoeybi et al., 2019). With
        sequence parallelism it gathers forward and reduce-scatters backward, and the input, of which only a part is
        kept, is gathered again for the weight gradient (Korthikanti et al., 2022, section 4.2.2). As the backward walks
        the list in reverse, this last gather is listed after the products that need it.
        """
        if not self.is_split:
            return users
        volume = self.model.element_bytes * self.tokens * (size + beside)
        if not self.splits_stream:
            return [exchange(f"enter {place}", input_grad=Collective("all-reduce", "tensor", volume)), *users]
        converts = users and users[0].kernel == Kernel.PRODUCT  # before it gathers (Transformer Engine)
        width = self.width(self.layout.precision if converts else None)
        again = Collective("all-gather", "tensor", width * self.tokens * size)
        for_weights = exchange(f"enter {place} for the weights", weight_grad=again)
        gathered = gathering(f"enter {place}", "tensor", volume, width * self.tokens * (size + beside))
        return [gathered._replace(module=users[0].module), *users, for_weights]

    def reduce(self, place):
        """Megatron-LM's g, after a product split over tp by rows: an all-reduce forward, nothing backward.

        With sequence parallelism, a reduce-scatter forward and an all-gather backward.
        """
        if not self.is_split:
            return []
        volume = self.model.element_bytes * self.tokens * self.model.hidden
        if not self.splits_stream:
            return [exchange(f"leave {place}", Collective("all-reduce", "tensor", volume))]
        width = self.width(None if place == "embedding" else self.layout.precision)
        return [scattering(f"leave {place}", "tensor", volume, width * self.tokens * self.model.hidden)]


def recompute_of(model, layout=None):
    """The way to recompute: a key of `MODES`, or how many blocks of each stage are recomputed in full."""
    return model.recompute if layout is None or layout.recompute is None else layout.recompute
