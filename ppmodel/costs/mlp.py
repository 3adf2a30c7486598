"""The MLP on one GPU, split over tp by columns, then by rows; or the mixture of experts that replaces it."""

from ppmodel.costs.collectives import Collective
from ppmodel.costs.work import (
    NO_WORK,
    BlockOperation,
    Kernel,
    Work,
    elementwise,
    exchange,
    gather,
    linear,
    reduce,
    sharing_input,
)

_SINGLE = 4
"""Bytes of the router's probabilities, which are in single precision."""


def mlp_operations(model, share, size, place="MLP", *, shares_input=False):
    """From the normalised stream to the sum over tp of the second product, in the order of the forward.

    `size` is the hidden width, `place` the name of the products; another operation may keep the input of the first.
    """
    up, activation, down = _products(model, share.tokens, size / share.tp, place, kept_rows=share.stream)
    up = sharing_input(up) if shares_input else up
    return [*gather(place, model, share, model.hidden, [up]), activation, down, *reduce(place, model, share)]


def _products(model, rows, size, place, **options):
    """Both products and the activation between them, which keeps its input (with a gate, both halves)."""
    projections = 2 if model.gated_mlp else 1
    wide = rows * size
    saved = projections * model.element_bytes * wide
    name = "activation" if place == "MLP" else f"{place} activation"
    work = {"flops": 8.0 + projections, "reads": projections, "saved": saved}
    activation = elementwise(name, model, wide, **work, kernel=Kernel.ACTIVATION)
    up = linear(f"{place} up", model, rows, model.hidden, projections * size, **options)
    down = linear(f"{place} down", model, rows, size, model.hidden, **(options | {"kept_rows": rows}))
    return up, activation, down


def expert_operations(model, share):
    """From the normalised stream to the experts' weighted sum, in the order of the forward.

    Tokens are spread evenly over experts, and none is dropped. Experts are on `ep` of the dp x cp ranks, and each is
    split over tp like an MLP: Megatron-LM's default, expert-tensor parallelism = tp. As in Megatron-LM, the weights of
    a token's experts are applied in their activation, so their outputs need not be kept. Shared experts are one MLP,
    whose input the router keeps.

    Tokens go to the GPUs of their experts and back, one copy per expert. With sequence parallelism, a GPU sends its
    part of the tokens, and the copies that its tensor group has received are gathered there. Without it, every GPU of
    the group sends all tokens, and f and g are outside.
    """
    experts, outside = model.experts, not share.sequence_parallel
    shared = experts.shared * experts.hidden
    copies = share.stream * experts.experts_per_token
    moved = model.element_bytes * (share.stream + copies) * model.hidden
    copied, summed = Work(0.0, moved), Work(float(copies * model.hidden), moved)
    sent = Collective("all-to-all", "expert", float(model.element_bytes * copies * model.hidden))
    there, back = (
        [exchange(f"all-to-all {way} experts", sent, input_grad=sent)] if share.ep > 1 else [] for way in ("to", "from")
    )
    return [
        *_router(model, share),
        *(mlp_operations(model, share, shared, "shared experts", shares_input=True) if shared else []),
        *(gather("experts", model, share, model.hidden, []) if outside else []),
        BlockOperation("dispatch", copied, summed, NO_WORK),
        *there, *_of_experts(model, share), *back,
        BlockOperation("combine", summed, copied, NO_WORK),
        *(reduce("experts", model, share) if outside else []),
    ]  # fmt: skip


def _router(model, share):
    """A product for the scores of all experts, complete on every GPU, then softmax and selection of the best."""
    number, rows = model.experts.number, share.stream
    scores = _SINGLE * rows * number
    best = Work(5.0 * rows * number, 2.0 * scores), Work(4.0 * rows * number, 3.0 * scores)
    product = linear("router", model, rows, model.hidden, number)
    return [
        product._replace(parameters=model.hidden * number),  # no bias
        BlockOperation("top experts", *best, NO_WORK, saved_bytes=scores),
    ]


def _of_experts(model, share):
    """The experts of one GPU on the copies of its tensor group."""
    experts, copies = model.experts, share.tokens * model.experts.experts_per_token
    count = experts.number / share.ep
    operations = _products(model, copies, experts.hidden / share.tp, "experts", count=count, experts=True)
    if not share.sequence_parallel:
        return operations
    volume = float(model.element_bytes * copies * model.hidden)
    whole, parts = Collective("all-gather", "tensor", volume), Collective("reduce-scatter", "tensor", volume)
    return [
        exchange("gather copies", whole, input_grad=parts), *operations,
        exchange("scatter copies", parts, input_grad=whole),
    ]  # fmt: skip
