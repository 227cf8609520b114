"""Swap and DCI scores: how cleanly static and dynamic components separate the factors of synthetic videos.

DCI is Eastwood and Williams, "A Framework for the Quantitative Evaluation of Disentangled Representations" (ICLR 2018),
with random forests. The swap exchanges components of embeddings as benchmarks of sequential disentanglement exchange
latents, with a linear judge of embeddings in place of a decoder and a judge of videos.

Shapes: n videos, D channels of a component, C channels of a code, K factors.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.encoders.encoder import Encoder
from stillmotion.encoders.feature_extraction import extract_features

STATIC_FACTORS, DYNAMIC_FACTORS = ("color", "shape"), ("brightness", "trajectory")
_CODE_CHANNELS = 16  # principal components of each component that make the code
_NUM_TREES = 100


@dataclass(frozen=True)
class DisentanglementScores:
    """Scores from 0 to 1; higher is better.

    Attributes:
        disentanglement: DCI: how few factors each channel of the code is important for.
        completeness: DCI: how few channels are important for each factor.
        informativeness: DCI: accuracy of the predicted factors, mean over factors.
        static_swap: After the dynamic component is exchanged with that of another video, how often a judge still sees
            the static factors of the video. Chance is 0.5 for a judge that cannot say which of both it sees.
        dynamic_swap: The same for the dynamic factors and an exchanged static component.
    """

    disentanglement: float
    completeness: float
    informativeness: float
    static_swap: float
    dynamic_swap: float


def evaluate_disentanglement(
    encoder: Encoder, config: SyntheticConfig | None = None, *, seed: int = 0, loader: LoaderConfig | None = None
) -> DisentanglementScores:
    """Score an encoder on synthetic videos; half of them train the judges and forests, the others are scored.

    Args:
        encoder: Encoder with static and dynamic components.
        config: Options of the videos; by default 512 videos.
        seed: Seed of the videos and the forests.
        loader: Batch size and number of decoding processes.

    Raises:
        StillmotionError: If the encoder has no such components.
    """
    dataset = SyntheticDataset(config or SyntheticConfig(num_videos=512), seed=seed)
    features = extract_features(encoder, dataset, loader=loader)
    labels = {name: values[features.index] for name, values in dataset.labels.items()}
    return score_disentanglement(
        features.vectors("static"),
        features.vectors("dynamic"),
        {name: labels[name] for name in STATIC_FACTORS},
        {name: labels[name] for name in DYNAMIC_FACTORS},
        seed=seed,
    )


def score_disentanglement(
    static: np.ndarray,
    dynamic: np.ndarray,
    static_factors: Mapping[str, np.ndarray],
    dynamic_factors: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
) -> DisentanglementScores:
    """Score components; the first half of the videos trains, the second is scored.

    Args:
        static: Static components, (n, D).
        dynamic: Dynamic components, (n, D).
        static_factors: Values (n,) of each static factor.
        dynamic_factors: Values (n,) of each dynamic factor.
        seed: Seed of the forests.
    """
    from sklearn.decomposition import PCA

    half = len(static) // 2
    codes = []
    for component in (static, dynamic):
        pca = PCA(min(_CODE_CHANNELS, *component[:half].shape), random_state=seed).fit(component[:half])
        code = pca.transform(component)
        codes.append(code / max(float(code[:half].std()), 1e-12))
    importances, informativeness = _fit_forests(np.hstack(codes), {**static_factors, **dynamic_factors}, half, seed)
    disentanglement, completeness = dci_from_importances(importances)
    swaps = [_swap_score(codes, factors, i, half) for i, factors in enumerate((static_factors, dynamic_factors))]
    return DisentanglementScores(disentanglement, completeness, informativeness, *swaps)


def dci_from_importances(importances: np.ndarray) -> tuple[float, float]:
    """Return disentanglement and completeness of importances (C, K) of channels for factors.

    Disentanglement is 1 minus the entropy (base K) of a channel's importances, weighted by the channels' total
    importance; completeness is 1 minus the entropy (base C) of a factor's importances, weighted in the same way.
    """
    return _concentration(importances), _concentration(importances.T)


def _concentration(weights: np.ndarray) -> float:
    """Return 1 minus the normalized entropy of each row, averaged with the rows' sums as weights."""
    from scipy.stats import entropy

    totals = weights.sum(1)
    used = totals > 0
    if not used.any() or weights.shape[1] < 2:
        return 0.0
    entropies = entropy(weights[used], base=weights.shape[1], axis=1)
    return float(np.average(1 - entropies, weights=totals[used]))


def _fit_forests(code: np.ndarray, factors: Mapping[str, np.ndarray], half: int, seed: int) -> tuple[np.ndarray, float]:
    """Return the importances (C, K) of channels for factors, and the accuracy on the second half."""
    from sklearn.ensemble import RandomForestClassifier

    forests = [
        RandomForestClassifier(_NUM_TREES, random_state=seed).fit(code[:half], values[:half])
        for values in factors.values()
    ]
    scores = [
        forest.score(code[half:], values[half:]) for forest, values in zip(forests, factors.values(), strict=True)
    ]
    return np.stack([forest.feature_importances_ for forest in forests], 1), float(np.mean(scores))


def _swap_score(codes: list[np.ndarray], factors: Mapping[str, np.ndarray], kept: int, half: int) -> float:
    """Exchange the component that is not `kept` with that of the next video, and return how often a judge of both
    components sees the factors of the kept one, among videos whose values differ."""
    from sklearn.linear_model import LogisticRegression

    swapped = [code[half:] if i == kept else np.roll(code[half:], -1, 0) for i, code in enumerate(codes)]
    scores = []
    for values in factors.values():
        judge = LogisticRegression(max_iter=1000).fit(np.hstack([code[:half] for code in codes]), values[:half])
        own = values[half:]
        differs = own != np.roll(own, -1)
        predictions = judge.predict(np.hstack(swapped))
        scores.append(float(np.mean(predictions[differs] == own[differs])) if differs.any() else np.nan)
    return float(np.nanmean(scores))
