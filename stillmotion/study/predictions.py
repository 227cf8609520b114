"""What Proposition 1 and Corollary 1 predict of the confounding study, held against what was measured.

A prediction is a claim with a limit and numbers that are means over seeds. It is supported or not; nothing here looks
for the reading that would save it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stillmotion.data.synthetic import FACTORS

NEAR = 0.10  # of accuracy: less is no difference
LEARNED = 0.95  # accuracy of a semantic that was learned
_ALL = 0.90  # the same where all four share one embedding
_MOSTLY = 0.90  # share of the steps that counts as throughout
_FADED = 0.5  # late over early gradient norm
_EDGE = 5  # early and late are the first and the last fifth of training

# By setting: the stream that holds the easier semantic of the pair, and the stream that holds the harder one.
STREAMS = {"color=trajectory": ("static", "dynamic"), "brightness=shape": ("dynamic", "static")}
_SYMBOL = {"static": "‖∇θ_A‖", "dynamic": "‖∇θ_M‖"}


def predictions(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every prediction: its source, setting, title and claim, what was measured in words and numbers, and a verdict."""
    found = []
    for setting in STREAMS:
        found += _unified(_Means(runs), setting)
    found.append(_free(_Means(runs)))
    for setting in STREAMS:
        found += _decoupled(_Means(runs), setting)
    return found


def runs_of(runs: Sequence[dict[str, Any]], setting: str, loss: str) -> list[dict[str, Any]]:
    """Those of a setting and a loss."""
    return [run for run in runs if (run["setting"], run["loss"]) == (setting, loss)]


class _Means:
    """Means over seeds of what the runs measured."""

    def __init__(self, runs: Sequence[dict[str, Any]]) -> None:
        self._runs = runs

    def accuracy(self, setting: str, loss: str, semantic: str, *, when: str = "accuracy") -> float:
        return float(np.mean([run[when][semantic] for run in runs_of(self._runs, setting, loss)]))

    def norms(self, setting: str, loss: str, stream: str) -> np.ndarray:
        """The gradient norm of a stream along training."""
        return np.mean([run["gradient_norms"][stream] for run in runs_of(self._runs, setting, loss)], axis=0)


def _unified(means: _Means, setting: str) -> list[dict[str, Any]]:
    """What Proposition 1 says of a confounded pair under the unified loss."""
    easy, hard = setting.split("=")
    easy_stream, hard_stream = STREAMS[setting]
    strong, weak = (means.norms(setting, "unified", stream) for stream in (easy_stream, hard_stream))
    share = float((strong > weak).mean())
    early, late = _ends(weak)
    learned = means.accuracy(setting, "unified", easy)
    start, end = (means.accuracy(setting, "unified", hard, when=when) for when in ("untrained", "accuracy"))
    free = means.accuracy("none", "unified", hard)
    source = "Proposition 1, unified loss"
    return [
        _claim(
            source,
            setting,
            "the easier stream has the larger gradient",
            f"The stream of the easier semantic has the larger gradient throughout: {_SYMBOL[easy_stream]} > "
            f"{_SYMBOL[hard_stream]} in at least {_MOSTLY:.0%} of the steps",
            f"in {share:.0%} of the steps; means {strong.mean():.2f} and {weak.mean():.2f}",
            share >= _MOSTLY,
            share=share,
            easier=float(strong.mean()),
            harder=float(weak.mean()),
        ),
        _claim(
            source,
            setting,
            "the harder stream's gradient fades",
            f"The gradient of the harder semantic's stream fades: {_SYMBOL[hard_stream]} in the last fifth of training "
            f"is at most {_FADED} of the first fifth's",
            f"{early:.2f} → {late:.2f}, a ratio of {late / early:.2f}",
            late <= _FADED * early,
            early=early,
            late=late,
        ),
        _claim(
            source,
            setting,
            "the easier semantic is learned",
            f"The easier semantic, {easy}, is learned: accuracy at least {LEARNED}",
            f"{learned:.2f}",
            learned >= LEARNED,
            accuracy=learned,
        ),
        _claim(
            source,
            setting,
            "the harder semantic is not learned",
            f"The harder semantic, {hard}, is not learned: within {NEAR:.2f} of its untrained probe, or more than "
            f"{NEAR:.2f} behind its unconfounded value",
            f"untrained {start:.2f}, trained {end:.2f}, unconfounded {free:.2f}",
            end <= start + NEAR or end < free - NEAR,
            untrained=start,
            trained=end,
            unconfounded=free,
        ),
    ]


def _free(means: _Means) -> dict[str, Any]:
    """Without confounding nothing stands in the way (Figure 7)."""
    reached = {f: means.accuracy("none", "unified", f) for f in FACTORS}
    return _claim(
        "Figure 7, unified loss",
        "none",
        "all four semantics are learned",
        f"Without confounding all four semantics are learned: accuracy at least {_ALL:.2f} each",
        ", ".join(f"{f} {value:.2f}" for f, value in reached.items()),
        min(reached.values()) >= _ALL,
        **reached,
    )


def _decoupled(means: _Means, setting: str) -> list[dict[str, Any]]:
    """What Corollary 1 says of a confounded pair under the decoupled loss."""
    easy, hard = setting.split("=")
    stream = STREAMS[setting][1]
    one, two = (float(means.norms(setting, loss, stream).mean()) for loss in ("unified", "decoupled"))
    before, after = (means.accuracy(setting, loss, hard) for loss in ("unified", "decoupled"))
    kept = means.accuracy(setting, "decoupled", easy)
    source = "Corollary 1, decoupled loss"
    return [
        _claim(
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
        _claim(
            source,
            setting,
            "the harder semantic is learned",
            f"The harder semantic, {hard}, is learned: at least {NEAR:.2f} above the unified loss",
            f"{before:.2f} → {after:.2f}, a gain of {after - before:+.2f}",
            after - before >= NEAR,
            unified=before,
            decoupled=after,
        ),
        _claim(
            source,
            setting,
            "the easier semantic is still learned",
            f"The easier semantic, {easy}, is still learned: accuracy at least {LEARNED}",
            f"{kept:.2f}",
            kept >= LEARNED,
            accuracy=kept,
        ),
    ]


def _claim(
    source: str, setting: str, title: str, claim: str, words: str, supported: bool, **numbers: float
) -> dict[str, Any]:
    told = {name: round(value, 4) for name, value in numbers.items()}
    return {
        "source": source,
        "setting": setting,
        "title": title,
        "claim": claim,
        "measured": words,
        "numbers": told,
        "supported": bool(supported),
    }


def _ends(series: np.ndarray) -> tuple[float, float]:
    fifth = max(1, len(series) // _EDGE)
    return float(series[:fifth].mean()), float(series[-fifth:].mean())
