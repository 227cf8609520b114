"""The Koopman operator as the paper writes it: M×M matrices, one clip (T, M) at a time, in float64, no shortcuts."""

import torch


def past_and_future(clip):
    """B and F, M×n."""
    x = clip.double().T
    return x[:, :-1], x[:, 1:]


def absolute_ridge(ridge, clip):
    """ε in the units of BᵀB."""
    b, _ = past_and_future(clip)
    return ridge * b.square().sum() / b.shape[1]


def regularized_inverse(b, epsilon=0.0):
    """B⁺, or (BᵀB + εI)⁻¹Bᵀ."""
    if epsilon == 0:
        return torch.linalg.pinv(b)
    return torch.linalg.inv(b.T @ b + epsilon * torch.eye(b.shape[1], dtype=b.dtype)) @ b.T


def operator(clip, *, ridge=0.0):
    """K = F B⁺ (Eq. 18)."""
    b, f = past_and_future(clip)
    return f @ regularized_inverse(b, absolute_ridge(ridge, clip))


def decompose(clip, *, radius, weighting, ridge=0.0):
    """Eq. 21, or its projection: the eigenvectors of K (of B B⁺ K) whose eigenvalues lie within the radius of 1."""
    b, _ = past_and_future(clip)
    k, mean = operator(clip, ridge=ridge), clip.double().mean(0)
    values, vectors = torch.linalg.eig(k if weighting == "advance" else b @ regularized_inverse(b) @ k)
    kept = ((values - 1).abs() < radius).to(values.dtype)
    kept = kept * values if weighting == "advance" else kept
    static = (vectors @ torch.diag(kept) @ torch.linalg.inv(vectors) @ mean.to(values.dtype)).real
    return static, (k @ mean if weighting == "advance" else mean) - static


def slow_decompose(clip, *, radius, filter_order, weighting):
    """(I + (DᵀD/ξ²)^power)⁻¹ with D = K - I in an orthonormal basis of span(B)."""
    b, _ = past_and_future(clip)
    k, mean = operator(clip), clip.double().mean(0)
    basis = torch.linalg.qr(b).Q
    eye = torch.eye(basis.shape[1], dtype=basis.dtype)
    d = basis.T @ k @ basis - eye
    kept = basis @ torch.linalg.inv(eye + torch.linalg.matrix_power(d.T @ d / radius**2, filter_order)) @ basis.T @ mean
    return (k @ kept, k @ mean - k @ kept) if weighting == "advance" else (kept, mean - kept)


def prediction_loss(clip, *, ridge, hold_out):
    """The mean squared distance between next frames and their prediction, each K fitted anew, and that per channel."""
    b, f = past_and_future(clip)
    n, epsilon = b.shape[1], absolute_ridge(ridge, clip)
    if hold_out == "leave-one-out":
        held = [[i] for i in range(n)]
    else:
        held = [list(range(n - hold_out, n)) if hold_out else list(range(n))]
    errors = []
    for scored in held:
        fitted = list(range(n)) if hold_out == 0 else [i for i in range(n) if i not in scored]
        k = f[:, fitted] @ regularized_inverse(b[:, fitted], epsilon)
        errors += [(f[:, i] - k @ b[:, i]).square().sum() for i in scored]
    return torch.stack(errors).mean()


def orthogonality_loss(clip, *, ridge):
    """‖KᵀK - I‖²_F less M - n (Eq. 19)."""
    k = operator(clip, ridge=ridge)
    m, n = len(k), len(clip) - 1
    return (k.T @ k - torch.eye(m, dtype=k.dtype)).square().sum() - (m - n)
