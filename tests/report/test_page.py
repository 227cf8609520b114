from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from support.class_videos import write_class_folders
from support.html import assert_self_contained

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.encoders import load
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Code, Section, Table, Text, Thumbnail, Thumbnails
from stillmotion.training.pretrain.report import describe_method, write_pretrain_page
from stillmotion.training.tasks import get_recipe


def test_a_page_escapes_its_text(tmp_path):
    blocks = [
        Text("a < b & c"),
        Code("<script>"),
        Table(["x", "y", "z"], [["1", "<2>", "3"]], bold_cells=frozenset({(0, 1)})),
        Thumbnails([Thumbnail("data:image/webp;base64,AAAA", 'say "cheese"')], "some"),
    ]
    html = write_page(tmp_path / "new" / "page.html", "T <title>", [Section("S & s", blocks)]).read_text()
    assert_self_contained(html)
    for text in ("a &lt; b &amp; c", "&lt;script&gt;", 'class="strong">&lt;2&gt;<', "T &lt;title&gt;", "S &amp; s"):
        assert text in html


def test_a_run_has_a_report_of_one_file(run):
    evaluate_linear_probe(
        load(run),
        TrainTestConfig("synthetic", num_synthetic=20),
        LinearProbeConfig(num_clips=1, compare_untrained=True),
    )
    before = {p.name for p in run.iterdir()}
    file = write_pretrain_page(run)
    assert {p.name for p in run.iterdir()} - before == {"report.html"}
    html = file.read_text()
    assert_self_contained(html)
    titles = ("Settings", "Losses", "Training diagnostics", "Linear probes", "Eigenvalues", "Similarity", "Nearest")
    for title in titles:
        assert f"<h2>{title}" in html
    for name in ("static", "dynamic", "prediction", "orthogonality"):
        assert f'aria-label="loss part {name}"' in html
    assert "debug:k400-bod-simclr" in html
    assert "majority class" in html
    assert html.count("data:image/webp") >= 4 * 9


def test_a_report_shows_the_readable_videos_of_the_run(run, tmp_path):
    folder = write_class_folders(tmp_path / "videos", videos_per_class=3)
    (folder / "dark" / "torn.mp4").write_bytes(b"torn")
    config = run / "config.json"
    config.write_text(config.read_text().replace('"path": "synthetic"', f'"path": "{folder}"'))
    html = write_pretrain_page(run).read_text()
    assert "among 6 training videos" in html
    assert "<figcaption>light</figcaption>" in html


def test_a_report_lists_what_is_missing(run):
    config = run / "config.json"
    config.write_text(config.read_text().replace('"path": "synthetic"', '"path": "/nowhere/at/all"'))
    html = write_pretrain_page(run).read_text()
    assert "Not shown: /nowhere/at/all" in html
    assert "None were made yet" in html
    assert "<h2>Losses" in html


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("k400-simclr", "on the whole embedding; there is no inner level"),
        ("k400-bod-byol", "BYOL on the static and on the dynamic component"),
        ("k400-bod-simclr", "inner level of 1 step, solved by aid-fd"),
    ],
)
def test_a_method_is_described_in_words(name, words):
    assert words in describe_method(get_recipe(name))


def test_a_plugin_objective_is_described_by_its_title():
    @dataclass(frozen=True)
    class Alignment(ObjectiveConfig):
        name: ClassVar[str] = "alignment"
        title: ClassVar[str] = "alignment and uniformity"

    config = get_recipe("k400-bod-simclr")
    config = replace(config, method=replace(config.method, objective=Alignment()))
    assert describe_method(config).startswith("The objective is alignment and uniformity on the static and on")
