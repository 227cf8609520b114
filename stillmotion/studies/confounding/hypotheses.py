"""What Proposition 1 and Corollary 1 predict of the confounding study, held against what was measured.

A prediction is a claim with a limit and numbers that are means over seeds. It is supported or not; nothing here looks
for the reading that would save it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stillmotion.data.synthetic.factors import FACTORS

MIN_ACCURACY_DIFFERENCE = 0.10  # of accuracy: less is no difference
LEARNED_ACCURACY = 0.95  # accuracy of a semantic that was learned
_ALL_LEARNED_ACCURACY = 0.90  # the same where all four share one embedding
_MIN_STEP_FRACTION = 0.90  # share of the steps that counts as throughout
_MAX_FADED_RATIO = 0.5  # late over early gradient norm
_EDGE_FRACTION = 5  # early and late are the first and the last fifth of training

# By setting: the stream that holds the easier semantic of the pair, and the stream that holds the harder one.
EASY_AND_HARD_STREAM = {"color=trajectory": ("static", "dynamic"), "brightness=shape": ("dynamic", "static")}
_SYMBOL = {"static": "‖∇θ_A‖", "dynamic": "‖∇θ_M‖"}


def evaluate_hypotheses(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every prediction: its source, setting, title and claim, what was measured in words and numbers, and a verdict."""
    found = []
    for setting in EASY_AND_HARD_STREAM:
        found += _unified(_SeedMeans(runs), setting)
    found.append(_unconfounded(_SeedMeans(runs)))
    for setting in EASY_AND_HARD_STREAM:
        found += _decoupled(_SeedMeans(runs), setting)
    return found


def select_runs(runs: Sequence[dict[str, Any]], setting: str, loss: str) -> list[dict[str, Any]]:
    """Those of a setting and a loss."""
    return [run for run in runs if (run["setting"], run["loss"]) == (setting, loss)]


class _SeedMeans:
    """Means over seeds of what the runs measured."""

    def __init__(self, runs: Sequence[dict[str, Any]]) -> None:
        self._runs = runs

    def accuracy(self, setting: str, loss: str, semantic: str, *, when: str = "accuracy") -> float:
        return float(np.mean([run[when][semantic] for run in select_runs(self._runs, setting, loss)]))

    def gradient_norms(self, setting: str, loss: str, stream: str) -> np.ndarray:
        """The gradient norm of a stream along training."""
        return np.mean([run["grad_norm_curves"][stream] for run in select_runs(self._runs, setting, loss)], axis=0)


def _unified(means: _SeedMeans, setting: str) -> list[dict[str, Any]]:
    """What Proposition 1 says of a confounded pair under the unified loss."""
    easy, hard = setting.split("=")
    easy_stream, hard_stream = EASY_AND_HARD_STREAM[setting]
    strong, weak = (means.gradient_norms(setting, "unified", stream) for stream in (easy_stream, hard_stream))
    share = float((strong > weak).mean())
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
            f"The stream of the easier semantic has the larger gradient throughout: {_SYMBOL[easy_stream]} > "
            f"{_SYMBOL[hard_stream]} in at least {_MIN_STEP_FRACTION:.0%} of the steps",
            f"in {share:.0%} of the steps; means {strong.mean():.2f} and {weak.mean():.2f}",
            share >= _MIN_STEP_FRACTION,
            share=share,
            easier=float(strong.mean()),
            harder=float(weak.mean()),
        ),
        _hypothesis(
            source,
            setting,
            "the harder stream's gradient fades",
            f"The gradient of the harder semantic's stream fades: {_SYMBOL[hard_stream]} in the last fifth of training "
            f"is at most {_MAX_FADED_RATIO} of the first fifth's",
            f"{early:.2f} → {late:.2f}, a ratio of {late / early:.2f}",
            late <= _MAX_FADED_RATIO * early,
            early=early,
            late=late,
        ),
        _hypothesis(
            source,
            setting,
            "the easier semantic is learned",
            f"The easier semantic, {easy}, is learned: accuracy at least {LEARNED_ACCURACY}",
            f"{learned:.2f}",
            learned >= LEARNED_ACCURACY,
            accuracy=learned,
        ),
        _hypothesis(
            source,
            setting,
            "the harder semantic is not learned",
            f"The harder semantic, {hard}, is not learned: within {MIN_ACCURACY_DIFFERENCE:.2f} of its untrained probe, or more than "
            f"{MIN_ACCURACY_DIFFERENCE:.2f} behind its unconfounded value",
            f"untrained {start:.2f}, trained {end:.2f}, unconfounded {free:.2f}",
            end <= start + MIN_ACCURACY_DIFFERENCE or end < free - MIN_ACCURACY_DIFFERENCE,
            untrained=start,
            trained=end,
            unconfounded=free,
        ),
    ]


def _unconfounded(means: _SeedMeans) -> dict[str, Any]:
    """Without confounding nothing stands in the way (Figure 7)."""
    reached = {f: means.accuracy("none", "unified", f) for f in FACTORS}
    return _hypothesis(
        "Figure 7, unified loss",
        "none",
        "all four semantics are learned",
        f"Without confounding all four semantics are learned: accuracy at least {_ALL_LEARNED_ACCURACY:.2f} each",
        ", ".join(f"{f} {value:.2f}" for f, value in reached.items()),
        min(reached.values()) >= _ALL_LEARNED_ACCURACY,
        **reached,
    )


def _decoupled(means: _SeedMeans, setting: str) -> list[dict[str, Any]]:
    """What Corollary 1 says of a confounded pair under the decoupled loss."""
    easy, hard = setting.split("=")
    stream = EASY_AND_HARD_STREAM[setting][1]
    one, two = (float(means.gradient_norms(setting, loss, stream).mean()) for loss in ("unified", "decoupled"))
    before, after = (means.accuracy(setting, loss, hard) for loss in ("unified", "decoupled"))
    kept = means.accuracy(setting, "decoupled", easy)
    source = "Corollary 1, decoupled loss"
    return [
        _hypothesis(
            source,
            setting,
            "the harder stream's gradient is preserved",
            f"The gradient of the harder semantic's stream is preserved: {_SYMBOL[stream]} larger than under the "
            "unified loss",
            f"mean {one:.2f} → {two:.2f}, {two / one:.1f} times",
            two > one,
            unified=one,
            decoupled=two,
        ),
        _hypothesis(
            source,
            setting,
            "the harder semantic is learned",
            f"The harder semantic, {hard}, is learned: at least {MIN_ACCURACY_DIFFERENCE:.2f} above the unified loss",
            f"{before:.2f} → {after:.2f}, a gain of {after - before:+.2f}",
            after - before >= MIN_ACCURACY_DIFFERENCE,
            unified=before,
            decoupled=after,
        ),
        _hypothesis(
            source,
            setting,
            "the easier semantic is still learned",
            f"The easier semantic, {easy}, is still learned: accuracy at least {LEARNED_ACCURACY}",
            f"{kept:.2f}",
            kept >= LEARNED_ACCURACY,
            accuracy=kept,
        ),
    ]


def _hypothesis(
    source: str, setting: str, title: str, claim: str, words: str, supported: bool, **numbers: float
) -> dict[str, Any]:
    told = {name: round(value, 4) for name, value in numbers.items()}
    return {
        "source": source,
        "setting": setting,
        "title": title,
        "claim": claim,
        "observed": words,
        "values": told,
        "supported": bool(supported),
    }


def _first_and_last_fifth(series: np.ndarray) -> tuple[float, float]:
    fifth = max(1, len(series) // _EDGE_FRACTION)
    return float(series[:fifth].mean()), float(series[-fifth:].mean())
