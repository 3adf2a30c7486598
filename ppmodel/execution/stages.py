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
    def forward(ctx, value, weight):
        ctx.save_for_backward(value, weight)
        return value @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        value, weight = ctx.saved_tensors
        of_input = gradient @ weight if ctx.needs_input_grad[0] else None
        if _deferred is None:
            return of_input, _weight_gradient(value, gradient)
        _deferred.append((weight, value, gradient))
        return of_input, None


def _weight_gradient(value, gradient):
    return gradient.flatten(0, -2).T @ value.flatten(0, -2)


class Linear(torch.nn.Module):
    """A layer whose weight gradient `backward` can defer."""

    def __init__(self, inputs, outputs, bias=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs) / math.sqrt(inputs))
        self.bias = torch.nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, value):
        result = _Product.apply(value, self.weight)
        return result if self.bias is None else result + self.bias


def backward(result, gradient, split):
    """Accumulate a stage's gradients; if split, return what `add_weight_gradients` still has to do, else None.

    Parameters
    ----------
    result : Tensor
        What the stage's forward returned: one number on the last stage, whose gradient is None.
    gradient : Tensor or None
    split : bool
    """
    global _deferred
    _deferred = deferred = [] if split else None
    result.backward(gradient)
    _deferred = None
    return deferred


@torch.no_grad()
def add_weight_gradients(deferred):
    """Add the weight gradients that an input gradient has deferred."""
    for weight, value, gradient in deferred:
        weight.grad += _weight_gradient(value, gradient)


class _Block(torch.nn.Module):
    """A transformer block: attention, then the multilayer perceptron."""

    def __init__(self, model):
        super().__init__()
        self.heads, self.kv_heads, self.size = model["heads"], model["kv_heads"], round(model["head_size"])
        self.queries = Linear(model["hidden"], self.heads * self.size, model["bias"])
        self.keys_values = Linear(model["hidden"], 2 * self.kv_heads * self.size, model["bias"])
        self.out = Linear(self.heads * self.size, model["hidden"], model["bias"])
        norm = {"layernorm": torch.nn.LayerNorm, "rmsnorm": torch.nn.RMSNorm}[model["norm"]]
        self.norms = torch.nn.ModuleList(norm(model["hidden"]) for _ in range(2))
        self.gated = model["gated_mlp"]
        self.up = Linear(model["hidden"], (1 + self.gated) * model["mlp_hidden"], model["bias"])
        self.down = Linear(model["mlp_hidden"], model["hidden"], model["bias"])

    def forward(self, value):
        inner = self.norms[0](value)
        queries = self.queries(inner).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        keys_values = self.keys_values(inner).unflatten(-1, (2, self.kv_heads, self.size))
        keys, values = keys_values.repeat_interleave(self.heads // self.kv_heads, 3).permute(2, 0, 3, 1, 4)
        heads = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        value = value + self.out(heads.transpose(1, 2).flatten(2))
        inner = self.up(self.norms[1](value))
        if self.gated:
            gate, inner = inner.chunk(2, -1)
            return value + self.down(functional.silu(gate) * inner)
        return value + self.down(functional.gelu(inner))


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
    if (model := workload.get("model")) is None:
        layers = Linear(_WIDTH, _WIDTH, True), torch.nn.Tanh(), Linear(_WIDTH, _WIDTH), torch.nn.Tanh()
        return torch.nn.Sequential(*layers)
    layers = [_Block(model) for _ in range(workload["blocks"][stage])]
    if stage == 0 and model["vocabulary"]:
        layers.insert(0, torch.nn.Embedding(model["vocabulary"], model["hidden"]))
    if stage == num_stages - 1 and model["vocabulary"]:
        layers.append(Linear(model["hidden"], model["vocabulary"]))
    return torch.nn.Sequential(*layers)


def message_shape(workload, parts):
    """The shape of what one stage sends to another for one part of a microbatch."""
    rows, model = workload["rows"] // parts, workload.get("model")
    return (rows, _WIDTH) if model is None else (rows, model["sequence"], model["hidden"])


def first_input(workload, parts, microbatch):
    """The data of one part of a microbatch, as `Schedule.microbatch` numbers them."""
    model, shape = workload.get("model"), message_shape(workload, 1)
    torch.manual_seed(microbatch // parts)
    is_text = model is not None and model["vocabulary"]
    data = torch.randint(model["vocabulary"], shape[:2]) if is_text else torch.randn(shape)
    return data.chunk(parts)[microbatch % parts]


def loss(result, data, total_rows):
    """The loss of one part of a microbatch, a share of the mean over all rows of the iteration.

    If the data are tokens, each has to predict the next; else results have to be small.
    """
    if data.is_floating_point():
        return (result**2).mean(-1).sum() / total_rows
    total = functional.cross_entropy(result.flatten(0, 1), data.roll(-1, -1).flatten(), reduction="sum")
    return total / (total_rows * data.shape[1])


def reference(workload, num_stages, num_microbatches, device, rate):
    """Gradients of every stage, and its weights after a step, by one process without a pipeline.

    Returns
    -------
    list of (list of Tensor, list of Tensor)
    """
    stages = [stage_module(workload, stage, num_stages).to(device) for stage in range(num_stages)]
    for microbatch in range(num_microbatches):
        data = first_input(workload, 1, microbatch).to(device)
        loss(torch.nn.Sequential(*stages)(data), data, workload["rows"] * num_microbatches).backward()
    for stage in stages:
        step(stage, rate)
    return [gradients_and_weights(stage) for stage in stages]


def step(stage, rate):
    """Gradient descent on one stage."""
    with torch.no_grad():
        for weight in stage.parameters():
            weight -= rate * weight.grad


def gradients_and_weights(stage):
    """Copies of a stage's gradients and weights, on the host."""
    weights = list(stage.parameters())
    return [weight.grad.cpu().clone() for weight in weights], [weight.detach().cpu().clone() for weight in weights]
