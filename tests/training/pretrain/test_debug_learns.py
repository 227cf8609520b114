"""Debug recipes learn: the loss of every component falls well below that of embeddings without information."""

from dataclasses import replace
from pathlib import Path

import pytest
from loss_vs_chance import FinalLoss, final_loss_table, final_losses
from support.small_pretrain import train

from stillmotion.training.pretrain.collapse_monitor import MIN_EMBEDDING_STD
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.recipes_bod_vcl import BASELINES
from stillmotion.training.tasks import get_recipe

pytestmark = pytest.mark.slow

WHOLE_EPOCHS = 10  # epochs of four steps
SPLIT_EPOCHS = {"simclr": 15, "moco": 40, "byol": 40, "swav": 40, "vicreg": 15}


def make_config(name: str) -> PretrainConfig:
    config = get_recipe(name)
    epochs = SPLIT_EPOCHS[config.method.objective.name] if "bod-" in name else WHOLE_EPOCHS
    return replace(
        config,
        optim=replace(config.optim, epochs=epochs, warmup_epochs=2.0),
        train=replace(config.train, log_every_steps=max(1, epochs // 10), checkpoint_every_steps=1000, num_threads=1),
    )


@pytest.mark.parametrize(
    "name", [f"debug:k400-{split}{objective}" for objective in BASELINES for split in ("", "bod-")]
)
def test_a_debug_twin_learns(name: str, tmp_path: Path) -> None:
    components = final_losses(train(make_config(name), tmp_path))
    print(final_loss_table({name: components}))
    assert list(components) == (["static", "dynamic"] if "bod-" in name else ["whole"])
    for component, result in components.items():
        assert result.embedding_std > 2 * MIN_EMBEDDING_STD, component
        assert result.loss < 0.85 * result.chance_loss, (component, result)


def test_the_table_names_losses_and_their_chance() -> None:
    table = final_loss_table({"debug:k400-bod-simclr": {"static": FinalLoss(1.5, 3.434, 0.9)}})
    assert table.splitlines()[-1] == "| debug:k400-bod-simclr | static | 1.50 | 3.43 | 0.90 |"
