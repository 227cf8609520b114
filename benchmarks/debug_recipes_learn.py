"""Loss of each component after 100 steps of the debug recipes, beside the loss at chance.

    python benchmarks/debug_recipes_learn.py                                           five objectives, whole and split
    python benchmarks/debug_recipes_learn.py --recipe debug:k400-bod-simclr --seeds 3 method.gradient_balance=0

Every run takes 5 to 15 s on one core; fields of the configuration behind the options are changed in all of them.
"""

import argparse
import tempfile
from pathlib import Path

from loss_vs_chance import final_loss_table, final_losses

from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.recipes_bod_vcl import BASELINES
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import apply_overrides, parse_assignments

OVERRIDES = {"optim.epochs": 25, "optim.warmup_epochs": 2.0, "train.log_every_steps": 1, "train.num_threads": 1}


def make_config(name: str, seed: int, overrides: dict[str, str]) -> PretrainConfig:
    return apply_overrides(
        get_recipe(name), OVERRIDES | {"train.seed": seed, "train.checkpoint_every_steps": 1000} | overrides
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", nargs="*", default=[f"debug:k400-{s}{m}" for m in BASELINES for s in ("", "bod-")])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("changes", nargs="*", help="such as method.gradient_balance=0")
    options = parser.parse_args()
    changes = parse_assignments(options.changes)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.recipe:
            for seed in range(options.seeds):
                run = pretrain(make_config(name, seed, changes), Path(folder) / f"{name}-{seed}")
                runs[f"{name}, seed {seed}"] = final_losses(run)
    print(final_loss_table(runs))


if __name__ == "__main__":
    main()
