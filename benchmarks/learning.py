"""Do the debug twins learn? What is left of each component's loss after 100 steps, chance beside it.

    python benchmarks/learning.py                                           five objectives, whole and split
    python benchmarks/learning.py --recipe debug-bod-simclr --seeds 3 method.balance=0

Every run takes 5 to 15 s on one core; fields of the configuration behind the options are changed in all of them.
"""

import argparse
import tempfile
from pathlib import Path

from stillmotion.config import Config
from stillmotion.recipes import recipe
from stillmotion.recipes.bod_vcl import BASELINES
from stillmotion.study.learning import learned, learning_table
from stillmotion.study.overrides import assignments, overridden
from stillmotion.tasks.pretrain import pretrain

COURSE = {"optim.epochs": 25, "optim.warmup_epochs": 2.0, "train.log_every": 1, "train.threads": 1}


def configured(name: str, seed: int, changes: dict[str, str]) -> Config:
    return overridden(recipe(name), COURSE | {"train.seed": seed, "train.checkpoint_every": 1000} | changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", nargs="*", default=[f"debug-{s}{m}" for m in BASELINES for s in ("", "bod-")])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("changes", nargs="*", help="such as method.balance=0")
    options = parser.parse_args()
    changes = assignments(options.changes)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.recipe:
            for seed in range(options.seeds):
                run = pretrain(configured(name, seed, changes), Path(folder) / f"{name}-{seed}")
                runs[f"{name}, seed {seed}"] = learned(run)
    print(learning_table(runs))


if __name__ == "__main__":
    main()
