"""`stillmotion order`."""

import sys
from typing import Literal

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse
from stillmotion.errors import StillmotionError


def order_command(args: list[str]) -> None:
    """Ask frozen encoders in which order things happen: clips against their reverses, or pairs of opposite actions.

    examples:
      stillmotion order runs/mine --data ~/videos                      a clip or its reverse? no labels needed
      stillmotion order runs/a runs/b --data ~/videos --untrained --out runs/order
      stillmotion order runs/mine --data ~/ssv2/videos --pairs chiral_pairs.json
      stillmotion order runs/mine models/dinov2 --data ~/set --fold all
      stillmotion order --recipe debug --out runs/order-debug          drawn videos, about a minute

    A linear classifier is asked by frames one after the other, and by whole, static and dynamic embeddings. One that
    is blind to order, such as the mean over frames that were seen one by one, tells a clip from its reverse at 0.5.
    """

    def run(
        runs: Positional[tuple[str, ...]] = (),
        data: str = "synthetic",
        pairs: str | None = None,
        out: str | None = None,
        frames: int | None = None,
        untrained: bool = False,
        kind: str = "auto",
        fold: int | Literal["all"] | None = None,
        annotations: str | None = None,
        videos: int = 200,
        seed: int = 0,
        workers: int = 0,
        device: str = "auto",
        recipe: Literal["debug"] | None = None,
    ) -> None:
        """Order.

        Args:
            runs: run folders, recipes' names for untrained networks, or other encoders, side by side.
            data: videos, labelled or not, or "synthetic".
            pairs: a JSON file of opposite actions, by ids or by classes; without it, clips against their reverses.
            out: a folder for results.json and results.txt.
            frames: of a video, evenly spaced, in place of the run's.
            untrained: the network that each run started from, beside it.
            kind: auto, folder, list, ucf101, hmdb51, kinetics, ssv2, gym99 or diving48.
            fold: which of a set's splits, or all of them.
            annotations: where a public set's split files lie.
            videos: synthetic ones.
            seed: of the split, where the set has none.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
            recipe: debug trains small encoders into --out first, and takes no runs.
        """
        if recipe == "debug":
            _debug(runs, out, device)
            return
        if not runs:
            raise StillmotionError("no encoder given; name a run folder or a recipe, or add --recipe debug")
        from stillmotion.evaluate.order import order, result_lines

        with bar("embedding") as progress:
            results = order(
                runs,
                data,
                pairs=pairs,
                frames=frames,
                untrained_too=untrained,
                kind=kind,
                fold=fold,
                annotations=annotations,
                videos=videos,
                seed=seed,
                out=out,
                workers=workers,
                device=device,
                progress=progress,
            )
        print("\n".join(result_lines(results)))

    parse(run, args, "order", order_command)


def _debug(runs: tuple[str, ...], out: str | None, device: str) -> None:
    from stillmotion.evaluate.order_debug import debug_lines, debug_order
    from stillmotion.train.run import Interrupted

    if runs or out is None:
        raise StillmotionError("--recipe debug trains its own encoders; give --out FOLDER and no runs")
    try:
        results = debug_order(out, device=device)
    except Interrupted as stop:
        print(f"stillmotion: {stop}", file=sys.stderr)
        raise SystemExit(130) from None
    print("\n".join(debug_lines(results)))
