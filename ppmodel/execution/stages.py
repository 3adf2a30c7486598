"""Stages that a rank can run, with gradients by autograd: small layers that sleep, or transformer blocks.

Needs PyTorch and nothing else of `ppmodel`, so that it can be copied into a script of its own.
"""

import math

import torch
from torch.nn import functional

_WIDTH = 32
_deferred = None  # what the input gradient of a split backward leaves to the weight gradient


class _Product(torch.autograd.Function):
    """A product with a weight, whose gradient can wait: the two halves of a backward then do no work twice."""

    @staticmethod
    def forward(ctx, given, weight):
        ctx.save_for_backward(given, weight)
        return given @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        given, weight = ctx.saved_tensors
        of_input = gradient @ weight if ctx.needs_input_grad[0] else None
        if _deferred is None:
            return of_input, _of_weight(given, gradient)
        _deferred.append((weight, given, gradient))
        return of_input, None


def _of_weight(given, gradient):
    return gradient.flatten(0, -2).T @ given.flatten(0, -2)


class Linear(torch.nn.Module):
    """A layer whose weight gradient `backward` can defer."""

    def __init__(self, inputs, outputs, bias=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs) / math.sqrt(inputs))
        self.bias = torch.nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, given):
        result = _Product.apply(given, self.weight)
        return result if self.bias is None else result + self.bias


def backward(result, gradient, split):
    """Accumulate a stage's gradients; if split, return what `weight_gradients` still has to do, else None.

    Parameters
    ----------
    result : Tensor
        What the stage's forward returned: one number on the last stage, whose gradient is None.
    gradient : Tensor or None
    split : bool
    """
    global _deferred
    _deferred = [] if split else None
    try:
        result.backward(gradient)
        return _deferred
    finally:
        _deferred = None


def weight_gradients(deferred):
    """Add the weight gradients that an input gradient has left."""
    for weight, given, gradient in deferred:
        of_weight = _of_weight(given, gradient)
        weight.grad = of_weight if weight.grad is None else weight.grad + of_weight


class _Attention(torch.nn.Module):
    def __init__(self, of):
        super().__init__()
        self.heads, self.kv_heads, self.size = of["heads"], of["kv_heads"], round(of["head_size"])
        self.queries = Linear(of["hidden"], self.heads * self.size, of["bias"])
        self.keys_values = Linear(of["hidden"], 2 * self.kv_heads * self.size, of["bias"])
        self.out = Linear(self.heads * self.size, of["hidden"], of["bias"])

    def forward(self, given):
        queries = self.queries(given).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        keys, values = self.keys_values(given).unflatten(-1, (2, self.kv_heads, self.size)).unbind(2)
        keys, values = (
            each.transpose(1, 2).repeat_interleave(self.heads // self.kv_heads, 1) for each in (keys, values)
        )
        found = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class _Block(torch.nn.Module):
    def __init__(self, of):
        super().__init__()
        norm = {"layernorm": torch.nn.LayerNorm, "rmsnorm": torch.nn.RMSNorm}[of["norm"]]
        self.norms = torch.nn.ModuleList(norm(of["hidden"]) for _ in range(2))
        self.attention, self.gated = _Attention(of), of["gated_mlp"]
        self.up = Linear(of["hidden"], (1 + self.gated) * of["mlp_hidden"], of["bias"])
        self.down = Linear(of["mlp_hidden"], of["hidden"], of["bias"])

    def forward(self, given):
        given = given + self.attention(self.norms[0](given))
        inner = self.up(self.norms[1](given))
        if self.gated:
            gate, inner = inner.chunk(2, -1)
            return given + self.down(functional.silu(gate) * inner)
        return given + self.down(functional.gelu(inner))


class _Embedding(torch.nn.Module):
    def __init__(self, of):
        super().__init__()
        self.tokens = torch.nn.Embedding(of["vocabulary"], of["hidden"])

    def forward(self, tokens):
        return self.tokens(tokens)


class _Tanh(torch.nn.Module):
    def forward(self, given):
        return torch.tanh(given)


def stage_module(workload, stage, num_stages):
    """Make a stage; all ranks and replicas make the same.

    Parameters
    ----------
    workload : dict
        ``rows``, the sequences of a microbatch; for transformer blocks also ``model``, values of a model's file, and
        ``blocks``, how many each stage has.
    stage, num_stages : int

    Returns
    -------
    torch.nn.Module
    """
    torch.manual_seed(1000 + stage)
    if (of := workload.get("model")) is None:
        return torch.nn.Sequential(Linear(_WIDTH, _WIDTH, True), _Tanh(), Linear(_WIDTH, _WIDTH), _Tanh())
    parts = [_Block(of) for _ in range(workload["blocks"][stage])]
    if stage == 0 and of["vocabulary"]:
        parts.insert(0, _Embedding(of))
    if stage == num_stages - 1 and of["vocabulary"]:
        parts.append(Linear(of["hidden"], of["vocabulary"]))
    return torch.nn.Sequential(*parts)


def message_shape(workload, parts):
    """The shape of what one stage sends to another for one part of a microbatch."""
    rows, of = workload["rows"] // parts, workload.get("model")
    return (rows, _WIDTH) if of is None else (rows, of["sequence"], of["hidden"])


def first_input(workload, parts, microbatch):
    """The data of one part of a microbatch, as `Schedule.microbatch` numbers them."""
    of, rows = workload.get("model"), workload["rows"]
    torch.manual_seed(microbatch // parts)
    if of is not None and of["vocabulary"]:
        data = torch.randint(of["vocabulary"], (rows, of["sequence"]))
    else:
        data = torch.randn(message_shape(workload, 1))
    return data.chunk(parts)[microbatch % parts]


def loss(workload, result, tokens, total_rows):
    """The loss of one part of a microbatch, a share of the mean over all rows of the iteration."""
    of = workload.get("model")
    if of is None or not of["vocabulary"]:
        return (result**2).mean(-1).sum() / total_rows
    each = functional.cross_entropy(result.flatten(0, 1), tokens.roll(-1, -1).flatten(), reduction="sum")
    return each / (total_rows * of["sequence"])


def reference(workload, num_stages, num_microbatches, device, rate):
    """Gradients of every stage, and its weights after a step, by one process without a pipeline.

    Returns
    -------
    list of (list of Tensor, list of Tensor)
    """
    stages = [stage_module(workload, stage, num_stages).to(device) for stage in range(num_stages)]
    rows = workload["rows"] * num_microbatches
    for microbatch in range(num_microbatches):
        tokens = value = first_input(workload, 1, microbatch).to(device)
        for stage in stages:
            value = stage(value)
        loss(workload, value, tokens, rows).backward()
    gradients = [[weight.grad for weight in stage.parameters()] for stage in stages]
    for stage in stages:
        step(stage, rate)
    return list(zip(gradients, [[weight.detach() for weight in stage.parameters()] for stage in stages], strict=True))


def step(stage, rate):
    """Gradient descent on one stage."""
    with torch.no_grad():
        for weight in stage.parameters():
            weight -= rate * weight.grad
