"""Stages that a rank can run, with gradients by autograd: small layers that sleep, or transformer blocks.

Needs PyTorch and nothing else of `ppmodel`, so that it can be copied into a script of its own.
"""

import math
from functools import partial

import torch
from torch.nn import functional

_kept = None  # keys and values of a microbatch's slices by block, while one of its slices runs
_deferred = []  # weight, input and gradient by the output of each product of the current backward


class _Product(torch.autograd.Function):
    """A product with a weight, whose gradient waits: the two halves of a split backward then do no work twice."""

    @staticmethod
    def forward(ctx, value, weight):
        ctx.save_for_backward(value, weight)
        return value @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        value, weight = ctx.saved_tensors
        _deferred.append((weight, value, gradient))
        return gradient @ weight if ctx.needs_input_grad[0] else None, None


class Linear(torch.nn.Linear):
    """A layer whose weight gradient comes later."""

    def forward(self, value):
        result = _Product.apply(value, self.weight)
        return result if self.bias is None else result + self.bias


def forward(stage, value, kept):
    """Run a stage; a slice of a sequence attends to those before it, whose keys and values are in `kept`."""
    global _kept
    _kept = kept
    return stage(value)


def backward(result, gradient, kept):
    """Accumulate a stage's gradients, but for what it returns: that is left to `add_weight_gradients`.

    Gradients of keys and values that later slices have used come back through those that the slice made.

    Parameters
    ----------
    result : Tensor
        What the stage's forward returned: one number on the last stage, whose gradient is None.
    gradient : Tensor or None
    kept : dict
        As given to `forward`; the last slice is taken off.
    """
    made = [pair for slices in kept.values() for pair in zip(*slices.pop(), strict=True) if pair[1].grad is not None]
    outputs, copies = zip((result, None), *made, strict=True)
    torch.autograd.backward(outputs, [gradient, *(copy.grad for copy in copies[1:])])
    deferred = _deferred.copy()
    _deferred.clear()
    return deferred


@torch.no_grad()
def add_weight_gradients(deferred):
    """Add the weight gradients that `backward` has left."""
    for weight, value, gradient in deferred:
        weight.grad += gradient.flatten(0, -2).T @ value.flatten(0, -2)


@torch.no_grad()
def shard_forward(shard, value, targets, number, with_gradient):
    """Run S of one shard of an output layer.

    Parameters
    ----------
    shard : torch.nn.Module
    value : Tensor
        What the last stage returned.
    targets : Tensor of int
    number : int
        Of the shard; its columns follow those of the shards before it.
    with_gradient : bool
        Whether S computes the gradient of `value`, for which only a factor is missing.

    Returns
    -------
    result : Tensor
        For each token the logarithm of the sum of the shard's exponentials, then the two terms of the gradient.
    kept : tuple
        For `shard_backward`.
    """
    weight, logits = shard[0].weight, shard(value)
    total = logits.logsumexp(-1, keepdim=True)
    columns = torch.arange(len(weight), device=value.device) + number * len(weight)
    softmax, right = (logits - total).exp(), (targets[..., None] == columns).to(logits.dtype)
    terms = [softmax @ weight, right @ weight] if with_gradient else []
    return torch.cat([total, *terms], -1), (weight, value, total, softmax, right)


@torch.no_grad()
def shard_backward(kept, results, scale):
    """Run T: add the shard's weight gradient, and return its part of the gradient of its input unless S has done so.

    `results` are those of S of all shards, and `scale` what a token's loss is multiplied by.
    """
    weight, value, total, softmax, right = kept
    gradient = scale * (softmax * (total - results[..., :1].logsumexp(0)).exp() - right)
    add_weight_gradients([(weight, value, gradient)])
    return gradient @ weight if results.shape[-1] == 1 else None


def last_gradient(results, scale):
    """The gradient of the last stage's result, from the results of S of all shards."""
    total, softmax, right = results.split([1, *[results.shape[-1] // 2] * 2], -1)
    return scale * (softmax * total.softmax(0) - right).sum(0)


class _Block(torch.nn.Module):
    """A transformer block: attention, then the multilayer perceptron."""

    def __init__(self, model):
        super().__init__()
        self.size, self.gates, hidden = round(model["head_size"]), 1 + model["gated_mlp"], model["hidden"]
        self.heads, linear = [model["heads"], *[model["kv_heads"]] * 2], partial(Linear, bias=model["bias"])
        self.projections = linear(hidden, sum(self.heads) * self.size)
        self.out = linear(self.heads[0] * self.size, hidden)
        norm = {"layernorm": torch.nn.LayerNorm, "rmsnorm": torch.nn.RMSNorm}[model["norm"]]
        self.norms = torch.nn.ModuleList(norm(hidden) for _ in range(2))
        self.up = linear(hidden, self.gates * model["mlp_hidden"])
        self.down = linear(model["mlp_hidden"], hidden)

    def forward(self, value):
        heads = self.projections(self.norms[0](value)).unflatten(-1, (-1, self.size)).transpose(1, 2)
        queries, *made = heads.split(self.heads, 1)  # and keys and values
        mask, slices = None, [] if _kept is None else _kept.setdefault(self, [])
        if _kept is not None:
            copies = [each.detach().requires_grad_() for each in made]
            slices.append((made, copies))
            made = [torch.cat(each, 2) for each in zip(*(of for _, of in slices[:-1]), made, strict=True)]
            mask = torch.ones(queries.shape[2], made[0].shape[2], dtype=torch.bool, device=value.device)
            mask = mask.tril(made[0].shape[2] - queries.shape[2])
        heads = functional.scaled_dot_product_attention(queries, *made, mask, is_causal=mask is None, enable_gqa=True)
        value = value + self.out(heads.transpose(1, 2).flatten(2))
        *gate, inner = self.up(self.norms[1](value)).chunk(self.gates, -1)
        return value + self.down(functional.silu(*gate) * inner if gate else functional.gelu(inner))


def stage_module(workload, stage, num_stages):
    """Make a stage, its gradients 0; all ranks make the same.

    Parameters
    ----------
    workload : dict
        ``rows``, the sequences of a microbatch, and the ``shape`` of each between stages; ``model``, values of a
        model's file, and ``blocks``, how many of its transformer blocks each stage has, or None; ``shards``, how many
        the output layer has that the last stage lacks, or 0.
    stage, num_stages : int
        Stages from `num_stages` on are the shards.

    Returns
    -------
    torch.nn.Module
    """
    torch.manual_seed(1000 + stage)
    width, model = workload["shape"][-1], workload["model"]
    if stage >= num_stages:
        columns = (model and model["vocabulary"]) or width
        layers = [Linear(width, -(-columns // workload["shards"]), False)]
    elif model is None:
        layers = [Linear(width, width), torch.nn.Tanh(), Linear(width, width, False), torch.nn.Tanh()]
    else:
        layers = [_Block(model) for _ in range(workload["blocks"][stage])]
        if stage == 0 and model["vocabulary"]:
            layers.insert(0, torch.nn.Embedding(model["vocabulary"], width))
        if stage == num_stages - 1 and model["vocabulary"] and not workload["shards"]:
            layers.append(Linear(width, model["vocabulary"], False))
    module = torch.nn.Sequential(*layers)
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight)
    return module


def first_input(workload, parts, slices, unit):
    """The data of one part or slice of a microbatch, as `Schedule.microbatch` numbers them, and what they predict.

    If the data are tokens, each has to predict the next; else results have to be small, or an output layer has to tell
    the largest number of each row.
    """
    microbatch, part = divmod(unit // slices, parts)
    torch.manual_seed(microbatch)
    shape, vocabulary = (workload["rows"], *workload["shape"]), workload["model"] and workload["model"]["vocabulary"]
    data = torch.randint(vocabulary, shape[:2]) if vocabulary else torch.randn(shape)
    targets = data.roll(-1, -1) if vocabulary else data.argmax(-1) if workload["shards"] else data
    cut = int(workload["model"] is not None)  # tokens, or rows
    return [each.chunk(parts)[part].chunk(slices, cut)[unit % slices] for each in (data, targets)]


def loss(result, targets, workload, num_microbatches):
    """The loss of one part or slice of a microbatch, a share of the mean over all rows of the iteration."""
    if targets.is_floating_point():
        return (result**2).mean(-1).sum() / (workload["rows"] * num_microbatches)
    total = functional.cross_entropy(result.flatten(0, -2), targets.flatten(), reduction="sum")
    return total * token_share(workload, num_microbatches)


def token_share(workload, num_microbatches):
    """What the loss of one token counts for."""
    return 1 / (workload["rows"] * num_microbatches * math.prod(workload["shape"][:-1]))


def reference(workload, num_stages, num_microbatches, device, rate):
    """Gradients of every stage and shard, and its weights after a step, by one process without a pipeline.

    Returns
    -------
    list of (list of Tensor, list of Tensor)
    """
    stages = [stage_module(workload, stage, num_stages).to(device) for stage in range(num_stages + workload["shards"])]
    model, shards = torch.nn.Sequential(*stages[:num_stages]), stages[num_stages:]
    for microbatch in range(num_microbatches):
        data, targets = (each.to(device) for each in first_input(workload, 1, 1, microbatch))
        result = forward(model, data, None)
        result = torch.cat([shard(result) for shard in shards], -1) if shards else result
        result = loss(result, targets, workload, num_microbatches)
        add_weight_gradients(backward(result, None, {}))
    for stage in stages:
        step(stage, rate)
    return [gradients_and_weights(stage) for stage in stages]


def step(stage, rate):
    """Gradient descent."""
    with torch.no_grad():
        for weight in stage.parameters():
            weight -= rate * weight.grad


def gradients_and_weights(stage):
    """Copies of a stage's gradients and weights, on the host."""
    weights = list(stage.parameters())
    return [weight.grad.cpu().clone() for weight in weights], [weight.detach().cpu().clone() for weight in weights]
