"""Hypotheses of Proposition 1 and Corollary 1 (BOD-VCL), tested against the measured runs.

A hypothesis is a claim with a fixed limit on means over seeds. It is supported or not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stillmotion.data.synthetic.factors import FACTORS

MIN_ACCURACY_DIFFERENCE = 0.10  # smaller differences of accuracy do not count
LEARNED_ACCURACY = 0.95  # smallest accuracy of a learned factor
_ALL_LEARNED_ACCURACY = 0.90  # the same if all four factors share one embedding
_MIN_STEP_FRACTION = 0.90  # fraction of the steps that counts as "throughout"
_MAX_FADED_RATIO = 0.5  # late over early gradient norm
_EDGE_FRACTION = 5  # early and late are the first and the last fifth of training

# By setting: the stream of the easier factor of the pair, and the stream of the harder one.
EASY_AND_HARD_STREAM = {"color=trajectory": ("static", "dynamic"), "brightness=shape": ("dynamic", "static")}
_SYMBOL = {"static": "‖∇θ_A‖", "dynamic": "‖∇θ_M‖"}


def evaluate_hypotheses(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every hypothesis with its source, setting, title, claim, measured values and verdict."""
    means = _SeedMeans(runs)
    hypotheses = [hypothesis for setting in EASY_AND_HARD_STREAM for hypothesis in _unified(means, setting)]
    hypotheses.append(_unconfounded(means))
    return hypotheses + [hypothesis for setting in EASY_AND_HARD_STREAM for hypothesis in _decoupled(means, setting)]


def select_runs(runs: Sequence[dict[str, Any]], setting: str, loss: str) -> list[dict[str, Any]]:
    """Return the runs of a setting and a loss.

    Args:
        runs: Runs.
        setting: Name of the confounded pairs.
        loss: "unified" or "decoupled".
    """
    return [run for run in runs if (run["setting"], run["loss"]) == (setting, loss)]


class _SeedMeans:
    """Means over seeds."""

    def __init__(self, runs: Sequence[dict[str, Any]]) -> None:
        self._runs = runs

    def accuracy(self, setting: str, loss: str, factor: str, *, when: str = "accuracy") -> float:
        return float(np.mean([run[when][factor] for run in select_runs(self._runs, setting, loss)]))

    def gradient_norms(self, setting: str, loss: str, stream: str) -> np.ndarray:
        """Return the gradient norm of a stream along training."""
        return np.mean([run["grad_norm_curves"][stream] for run in select_runs(self._runs, setting, loss)], axis=0)


def _unified(means: _SeedMeans, setting: str) -> list[dict[str, Any]]:
    """Test Proposition 1 on a confounded pair with the unified loss."""
    easy, hard = setting.split("=")
    easy_stream, hard_stream = EASY_AND_HARD_STREAM[setting]
    strong, weak = (means.gradient_norms(setting, "unified", stream) for stream in (easy_stream, hard_stream))
    fraction = float((strong > weak).mean())
    early, late = _first_and_last_fifth(weak)
    learned = means.accuracy(setting, "unified", easy)
    start, end = (means.accuracy(setting, "unified", hard, when=when) for when in ("untrained", "accuracy"))
    free = means.accuracy("none", "unified", hard)
    source = "Proposition 1, unified loss"
    return [
        _hypothesis(
            source,
            setting,
            "the easier stream has the larger gradient",
            f"The stream of the easier factor has the larger gradient throughout: {_SYMBOL[easy_stream]} > "
            f"{_SYMBOL[hard_stream]} in at least {_MIN_STEP_FRACTION:.0%} of the steps",
            f"in {fraction:.0%} of the steps; means {strong.mean():.2f} and {weak.mean():.2f}",
            fraction >= _MIN_STEP_FRACTION,
            fraction=fraction,
            easier=float(strong.mean()),
            harder=float(weak.mean()),
        ),
        _hypothesis(
            source,
            setting,
            "the harder stream's gradient fades",
            f"The gradient of the harder factor's stream fades: {_SYMBOL[hard_stream]} in the last fifth of training "
            f"is at most {_MAX_FADED_RATIO} of the first fifth's",
            f"{early:.2f} → {late:.2f}, a ratio of {late / early:.2f}",
            late <= _MAX_FADED_RATIO * early,
            early=early,
            late=late,
        ),
        _hypothesis(
            source,
            setting,
            "the easier factor is learned",
            f"The easier factor, {easy}, is learned: accuracy at least {LEARNED_ACCURACY}",
            f"{learned:.2f}",
            learned >= LEARNED_ACCURACY,
            accuracy=learned,
        ),
        _hypothesis(
            source,
            setting,
            "the harder factor is not learned",
            f"The harder factor, {hard}, is not learned: within {MIN_ACCURACY_DIFFERENCE:.2f} of its untrained probe, "
            f"or more than {MIN_ACCURACY_DIFFERENCE:.2f} below its unconfounded value",
            f"untrained {start:.2f}, trained {end:.2f}, unconfounded {free:.2f}",
            end <= start + MIN_ACCURACY_DIFFERENCE or end < free - MIN_ACCURACY_DIFFERENCE,
            untrained=start,
            trained=end,
            unconfounded=free,
        ),
    ]


def _unconfounded(means: _SeedMeans) -> dict[str, Any]:
    """Test that all factors are learned without confounding (Figure 7)."""
    accuracies = {f: means.accuracy("none", "unified", f) for f in FACTORS}
    return _hypothesis(
        "Figure 7, unified loss",
        "none",
        "all four factors are learned",
        f"Without confounding all four factors are learned: accuracy at least {_ALL_LEARNED_ACCURACY:.2f} each",
        ", ".join(f"{f} {value:.2f}" for f, value in accuracies.items()),
        min(accuracies.values()) >= _ALL_LEARNED_ACCURACY,
        **accuracies,
    )


def _decoupled(means: _SeedMeans, setting: str) -> list[dict[str, Any]]:
    """Test Corollary 1 on a confounded pair with the decoupled loss."""
    easy, hard = setting.split("=")
    stream = EASY_AND_HARD_STREAM[setting][1]
    one, two = (float(means.gradient_norms(setting, loss, stream).mean()) for loss in ("unified", "decoupled"))
    before, after = (means.accuracy(setting, loss, hard) for loss in ("unified", "decoupled"))
    easy_accuracy = means.accuracy(setting, "decoupled", easy)
    source = "Corollary 1, decoupled loss"
    return [
        _hypothesis(
            source,
            setting,
            "the harder stream's gradient is preserved",
            f"The gradient of the harder factor's stream is preserved: {_SYMBOL[stream]} larger than under the "
            "unified loss",
            f"mean {one:.2f} → {two:.2f}, {two / one:.1f} times",
            two > one,
            unified=one,
            decoupled=two,
        ),
        _hypothesis(
            source,
            setting,
            "the harder factor is learned",
            f"The harder factor, {hard}, is learned: at least {MIN_ACCURACY_DIFFERENCE:.2f} above the unified loss",
            f"{before:.2f} → {after:.2f}, a gain of {after - before:+.2f}",
            after - before >= MIN_ACCURACY_DIFFERENCE,
            unified=before,
            decoupled=after,
        ),
        _hypothesis(
            source,
            setting,
            "the easier factor is still learned",
            f"The easier factor, {easy}, is still learned: accuracy at least {LEARNED_ACCURACY}",
            f"{easy_accuracy:.2f}",
            easy_accuracy >= LEARNED_ACCURACY,
            accuracy=easy_accuracy,
        ),
    ]


def _hypothesis(
    source: str, setting: str, title: str, claim: str, observed: str, supported: bool, **values: float
) -> dict[str, Any]:
    return {
        "source": source,
        "setting": setting,
        "title": title,
        "claim": claim,
        "observed": observed,
        "values": {name: round(value, 4) for name, value in values.items()},
        "supported": bool(supported),
    }


def _first_and_last_fifth(series: np.ndarray) -> tuple[float, float]:
    fifth = max(1, len(series) // _EDGE_FRACTION)
    return float(series[:fifth].mean()), float(series[-fifth:].mean())
