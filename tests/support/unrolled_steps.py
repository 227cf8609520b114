"""Inner steps of the bi-level problem, written out with autograd."""

import torch

INNER_LR = 0.1


def inner_path(inner, weights, count):
    """Return θ_0 … θ_count by gradient descent with autograd; each point is differentiable in θ_0."""
    path = [weights]
    for _ in range(count):
        point = path[-1]
        grads = torch.autograd.grad(inner(point), list(point.values()), create_graph=True, materialize_grads=True)
        path.append({k: w - INNER_LR * g for (k, w), g in zip(point.items(), grads, strict=True)})
    return path


def leaves(weights):
    """Return copies of weights that take gradients."""
    return {k: w.detach().clone().requires_grad_() for k, w in weights.items()}
