from support.html import assert_self_contained

from stillmotion.data.synthetic.factors import FACTOR_VALUES
from stillmotion.studies.confounding.hypotheses import evaluate_hypotheses
from stillmotion.studies.confounding.report import write_confounding_page

SEMANTICS = ("color", "shape", "brightness", "trajectory")
STUDY = {
    "positives": "same-factors",
    "factor_values": "default",
    "num_values": [2, 2, 2, 2],
    "confounding_strength": 0.95,
    "shape_scale": 0.35,
    "steps": 20,
}


def run(setting, loss, seed):
    """A made-up run: the decoupled loss learns everything, the unified one nothing of the harder component."""
    hard = 1.0 if loss == "decoupled" or setting == "none" else 0.5
    start, end = dict.fromkeys(SEMANTICS, 0.5), dict(zip(SEMANTICS, (1.0, hard, 1.0, hard), strict=True))
    streams = {"static": start, "dynamic": start}
    return {
        "setting": setting,
        "loss": loss,
        "seed": seed,
        "untrained": start,
        "accuracy": end,
        "by_stream": {"untrained": streams, "trained": {"static": end, "dynamic": end}},
        "steps": [0, 20],
        "accuracy_curve": {f: [start[f], end[f]] for f in SEMANTICS},
        "grad_norm_curves": {"static": [1.0] * 20, "dynamic": [2.0] * 20},
    }


def test_the_page_has_the_papers_figures_and_a_verdict_for_each_prediction(tmp_path):
    settings = {"color=trajectory": ["color=trajectory"], "brightness=shape": ["brightness=shape"], "none": []}
    runs = [run(s, loss, seed) for seed in (0, 1) for s in settings for loss in ("unified", "decoupled")]
    result = evaluate_hypotheses(runs)
    results = {
        "config": STUDY,
        "confounded_pairs": settings,
        "classes": {f: names[:2] for f, names in FACTOR_VALUES.items()},
        "chance": dict.fromkeys(SEMANTICS, 0.5),
        "runs": runs,
        "hypotheses": result,
        "cpu_seconds": 12.0,
    }
    html = write_confounding_page(tmp_path, results).read_text()
    assert_self_contained(html)
    panels = ["Figure 5", *(f"({letter}) " for letter in "abcdef"), "Figure 7"]
    for panel in panels:
        assert f'aria-label="{panel}' in html
    assert "Lines are means over 2 seeds" in html
    # The gradient norms of both streams are the same everywhere, so the prediction about gradients is not supported.
    unsupported = [p["title"] for p in result if not p["supported"]]
    assert unsupported.count("the harder stream's gradient is preserved") == 2
    assert html.count("not supported</td>") == len(unsupported)
    assert "The runs support 10" in html
    assert "predicts trajectory with an accuracy of 0.50 after training with one loss" in html
