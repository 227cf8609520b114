"""Reference Koopman operator, literally as in the paper: M×M matrices, one clip (T, M) at a time, in float64."""

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


def decompose(clip, *, radius, pooling, ridge=0.0):
    """Eq. 21, or a projection: the eigenvectors of K (of B B⁺ K) whose eigenvalues lie within the radius of 1."""
    b, _ = past_and_future(clip)
    k = operator(clip, ridge=ridge)
    values, vectors = torch.linalg.eig(k if pooling == "eq21" else b @ regularized_inverse(b) @ k)
    is_static = ((values - 1).abs() < radius).to(values.dtype)
    is_static = is_static * values if pooling == "eq21" else is_static
    return pool(clip, (vectors @ torch.diag(is_static) @ torch.linalg.inv(vectors)).real, k, pooling)


def slow_decompose(clip, *, radius, filter_order, pooling):
    """(I + (DᵀD/ξ²)^order)⁻¹ with D = K - I in an orthonormal basis of span(B)."""
    b, _ = past_and_future(clip)
    k = operator(clip)
    basis = torch.linalg.qr(b).Q
    eye = torch.eye(basis.shape[1], dtype=basis.dtype)
    d = basis.T @ k @ basis - eye
    power = torch.linalg.matrix_power(d.T @ d / radius**2, filter_order)
    projector = basis @ torch.linalg.inv(eye + power) @ basis.T
    return pool(clip, k @ projector if pooling == "eq21" else projector, k, pooling)


def pool(clip, projector, k, pooling):
    """Static and dynamic component by an M×M projector: Eq. 21, the time mean, or the rms frame by frame."""
    mean = clip.double().mean(0)
    static = projector @ mean
    if pooling == "rms":
        residuals = [frame - projector @ frame for frame in clip.double()]
        return static, torch.stack(
            [torch.stack([r[c] ** 2 for r in residuals]).mean().sqrt() for c in range(len(mean))]
        )
    return static, (k @ mean if pooling == "eq21" else mean) - static


def prediction_loss(clip, *, ridge, hold_out):
    """The mean squared distance between next frames and their prediction, each K fitted anew, and that per channel."""
    b, f = past_and_future(clip)
    n, epsilon = b.shape[1], absolute_ridge(ridge, clip)
    if hold_out == "leave-one-out":
        folds = [[i] for i in range(n)]
    else:
        folds = [list(range(n - hold_out, n)) if hold_out else list(range(n))]
    errors = []
    for test_indices in folds:
        train_indices = list(range(n)) if hold_out == 0 else [i for i in range(n) if i not in test_indices]
        k = f[:, train_indices] @ regularized_inverse(b[:, train_indices], epsilon)
        errors += [(f[:, i] - k @ b[:, i]).square().sum() for i in test_indices]
    return torch.stack(errors).mean()


def difficult_clips(t=8, m=16):
    """Float32 clips (2, T, M) by name that are degenerate, or far from unit scale."""
    clips = torch.randn(2, t, m, generator=torch.Generator().manual_seed(0))
    return {
        "equal frames": clips[:, :1].expand(-1, t, -1).clone(),
        "zeros": torch.zeros(2, t, m),
        "huge": 1e18 * clips,
        "minute": 1e-30 * clips,
        "one channel": clips[..., :1].clone(),
        "fewer channels than transitions": clips[..., :3].clone(),
        "zeros but for the first frame": torch.cat([clips[:, :1], torch.zeros(2, t - 1, m)], 1),
        "zeros but for the last frame": torch.cat([torch.zeros(2, t - 1, m), clips[:, -1:]], 1),
        "almost zeros but for the last frame": torch.cat([1e-10 * clips[:, :-1], clips[:, -1:]], 1),
        "three frames": clips[:, :3].clone(),
        "two frames in turn": clips[:, [0, 1] * (t // 2)].clone(),
        "one outlier": clips.index_fill(1, torch.tensor(3), 1e6),
    }


def orthogonality_loss(clip, *, ridge):
    """‖KᵀK - I‖²_F less M - n (Eq. 19)."""
    k = operator(clip, ridge=ridge)
    m, n = len(k), len(clip) - 1
    return (k.T @ k - torch.eye(m, dtype=k.dtype)).square().sum() - (m - n)
