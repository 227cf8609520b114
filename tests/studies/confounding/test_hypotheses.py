import numpy as np

from stillmotion.studies.confounding.hypotheses import evaluate_hypotheses

SEMANTICS = ("color", "shape", "brightness", "trajectory")


def run(setting, loss, accuracy, *, static=(1.0, 1.0), dynamic=(1.0, 1.0), seed=0, untrained=0.5):
    """Return a run of ten steps whose gradient norms change linearly between two values."""
    return {
        "setting": setting,
        "loss": loss,
        "seed": seed,
        "untrained": dict.fromkeys(SEMANTICS, untrained),
        "accuracy": dict(zip(SEMANTICS, accuracy, strict=True)),
        "grad_norm_curves": {
            "static": np.linspace(*static, 10).tolist(),
            "dynamic": np.linspace(*dynamic, 10).tolist(),
        },
    }


PAPER_RESULTS = [
    run("color=trajectory", "unified", (1, 1, 1, 0.5), static=(3, 2), dynamic=(1, 0.1)),
    run("color=trajectory", "decoupled", (1, 1, 1, 0.9), dynamic=(3, 3)),
    run("brightness=shape", "unified", (1, 0.55, 1, 1), dynamic=(3, 2), static=(1, 0.1)),
    run("brightness=shape", "decoupled", (1, 0.9, 1, 1), static=(3, 3)),
    run("none", "unified", (1, 1, 1, 1)),
    run("none", "decoupled", (1, 1, 1, 1)),
]


def verdicts(runs):
    return {(p["setting"], p["title"]): p["supported"] for p in evaluate_hypotheses(runs)}


def test_runs_like_the_papers_support_every_prediction():
    result = evaluate_hypotheses(PAPER_RESULTS)
    assert len(result) == 15
    assert all(p["supported"] for p in result)


def test_a_small_gain_and_a_learned_shortcut_are_not_supported():
    worse = run("color=trajectory", "decoupled", (0.8, 1, 1, 0.59), dynamic=(0.1, 0.1))
    result = verdicts([PAPER_RESULTS[0], worse, *PAPER_RESULTS[2:]])
    unsupported = {title for (_, title), supported in result.items() if not supported}
    assert unsupported == {
        "the harder factor is learned",
        "the easier factor is still learned",
        "the harder stream's gradient is preserved",
    }
    assert all(supported for (setting, _), supported in result.items() if setting != "color=trajectory")


def test_a_harder_factor_that_is_learned_contradicts_the_proposition():
    learned = run("color=trajectory", "unified", (1, 1, 1, 0.95), static=(1, 1), dynamic=(2, 2))
    result = verdicts([learned, *PAPER_RESULTS[1:]])
    assert not result["color=trajectory", "the harder factor is not learned"]
    assert not result["color=trajectory", "the easier stream has the larger gradient"]
    assert not result["color=trajectory", "the harder stream's gradient fades"]


def test_numbers_are_means_over_seeds():
    second = run("none", "unified", (1, 0.5, 1, 1), seed=1)
    (free,) = [p for p in evaluate_hypotheses([*PAPER_RESULTS, second]) if p["setting"] == "none"]
    assert free["values"]["shape"] == 0.75
    assert not free["supported"]
    assert "shape 0.75" in free["observed"]
