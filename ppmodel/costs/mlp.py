"""The MLP on one GPU, split over tp by columns, then by rows."""

from ppmodel.costs.work import elementwise, gather, linear, reduce


def mlp_operations(model, share, size, place="MLP"):
    """From the normalised stream to the sum over tp of the second product, in the order of the forward.

    `size` is the hidden width, `place` the name of the products.
    """
    up, activation, down = mlp_products(model, share.tokens, size / share.tp, place, kept_rows=share.stream)
    return [*gather(place, model, share, model.hidden, [up]), activation, down, *reduce(place, model, share)]


def mlp_products(model, rows, size, place, **options):
    """Both products and the activation between them, which keeps its input (with a gate, both halves)."""
    projections = 2 if model.gated_mlp else 1
    wide = rows * size
    saved = projections * model.element_bytes * wide
    activation = elementwise("activation", model, wide, flops=8.0 + projections, reads=projections, saved=saved)
    up = linear(f"{place} up", model, rows, model.hidden, projections * size, **options)
    down = linear(f"{place} down", model, rows, size, model.hidden, **(options | {"kept_rows": rows}))
    return up, activation if place == "MLP" else activation._replace(name=f"{place} activation"), down
