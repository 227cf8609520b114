from PIL import Image
from support.cached_run import cached_run
from support.html import assert_self_contained

from stillmotion.studies.demo.report import write_demo_page

FACTORS = ["color", "shape", "brightness", "trajectory"]


def accuracies(*values):
    return dict(zip(FACTORS, values, strict=True))


def test_the_demo_report_holds_every_section_and_a_picture(tmp_path):
    results = {
        "factors": FACTORS,
        "chance": accuracies(0.25, 0.25, 0.5, 0.25),
        "methods": {
            "simclr": {"seeds": {"0": accuracies(0.9, 0.5, 0.5, 0.6), "1": accuracies(1.0, 0.5, 0.6, 0.6)}},
            "simclr+bod": {"seeds": {"0": accuracies(0.9, 0.6, 0.9, 0.8), "1": accuracies(0.9, 0.6, 1.0, 0.8)}},
            "untrained": {"mean": accuracies(0.9, 0.3, 0.8, 0.5)},
        },
    }
    runs = {"simclr": cached_run("k400-simclr"), "simclr+bod": cached_run("k400-bod-simclr")}
    html = write_demo_page(tmp_path, results, runs).read_text()
    assert_self_contained(html)
    expected = [
        "Summary",
        "Videos",
        "Linear probes on frozen features",
        "Training",
        "Losses",
        "Eigenvalues of clips",
        "Nearest neighbors by static and dynamic embedding",
        "Your own videos",
    ]
    for title in expected:
        assert f"<h2>{title}" in html
    # The summary has the numbers of the results, with the largest change first.
    seeds = "2 of 2 seeds"
    won = f"brightness (0.55 → 0.95, {seeds}), trajectory (0.60 → 0.80, {seeds}) and shape (0.50 → 0.60, {seeds})"
    assert f"V-SimCLR + BOD-VCL improves {won} and worsens color (0.95 → 0.90, 1 of 2 seeds)." in html
    assert "V-SimCLR is below the untrained network on brightness (0.55, 0.80)." in html
    assert "0.550 (0.50–0.60)" in html
    assert "method.static_dynamic.method" in html  # the fields in which the two runs differ
    for name in ("V-SimCLR", "V-SimCLR + BOD-VCL"):
        assert f'aria-label="eigenvalues of {name}"' in html
    assert html.count("nearest by dynamic</div>") == 2 * 4
    assert html.count("data:image/webp") == 8 + 2 * 4 * 9
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.width > 1000
