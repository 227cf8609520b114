"""Debug twins learn: every component's loss falls well below that of a batch in which nothing is told apart."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_run import trained

from stillmotion.config import Config
from stillmotion.recipes import recipe
from stillmotion.recipes.bod_vcl import BASELINES
from stillmotion.study.learning import Learned, learned, learning_table
from stillmotion.train.health import ALIKE

WHOLE = 10  # epochs of four steps
SPLIT = {"simclr": 15, "moco": 25, "byol": 40, "swav": 40, "vicreg": 15}


def course(name: str) -> Config:
    config = recipe(name)
    epochs = SPLIT[config.method.objective.name] if "bod-" in name else WHOLE
    return replace(
        config,
        optim=replace(config.optim, epochs=epochs, warmup_epochs=2.0),
        train=replace(config.train, log_every=max(1, epochs // 10), checkpoint_every=1000, threads=1),
    )


@pytest.mark.parametrize("name", [f"debug-{split}{objective}" for objective in BASELINES for split in ("", "bod-")])
def test_a_debug_twin_learns(name: str, tmp_path: Path) -> None:
    components = learned(trained(course(name), tmp_path))
    print(learning_table({name: components}))
    assert list(components) == (["static", "dynamic"] if "bod-" in name else ["whole"])
    for component, found in components.items():
        assert found.deviation > 2 * ALIKE, component
        assert found.loss < 0.85 * found.chance, (component, found)


def test_the_table_names_losses_and_their_chance() -> None:
    table = learning_table({"debug-bod-simclr": {"static": Learned(1.5, 3.434, 0.9)}})
    assert table.splitlines()[-1] == "| debug-bod-simclr | static | 1.50 | 3.43 | 0.90 |"
