"""`stillmotion detect`."""

import os
import sys
from dataclasses import replace
from typing import Annotated

import tyro

from stillmotion.cli.shell import bar, parse, value_of


def detect_command(args: list[str]) -> None:
    """Say who does what, where and when: train an encoder with a head on boxes, frame mAP as on AVA.

    examples:
      stillmotion detect --encoder runs/mine --data /data/ava --out runs/ava
      stillmotion detect --encoder runs/mine --untrained --data /data/ava --out runs/fresh      the baseline
      stillmotion detect --recipe vididi --encoder runs/mine --data /data/ava --draw 4 --out runs/ava
      stillmotion detect --recipe debug --out runs/try
      stillmotion detect --recipe debug --head.frozen --out runs/frozen       a head on an untrained backbone
      torchrun --nproc-per-node 2 -m stillmotion detect --recipe debug --out runs/two
      stillmotion detect --list

    The same command again resumes a run that was stopped or killed. A recipe sets every option; what follows it
    changes single ones. docs/detect.md says how AVA is laid out.
    """
    from stillmotion.recipes.detect import detect_recipe, detect_recipe_names
    from stillmotion.train.detect_config import DetectConfig
    from stillmotion.train.run import Interrupted

    if "--list" in args:
        print("\n".join(detect_recipe_names()))
        return
    start = detect_recipe(value_of(args, "--recipe") or "slowfast")

    def run(
        out: str,
        data: str | None = None,
        draw: int = 0,
        config: Annotated[DetectConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands] = start,
    ) -> tuple[str, str | None, int, DetectConfig]:
        """Detect.

        Args:
            out: the run folder.
            data: a folder with AVA's videos or frames, or "acting" for drawn ones.
            draw: write so many test videos with their boxes on them.
        """
        return out, data, draw, config

    out, data, draw, config = parse(run, args, "detect", detect_command)
    if data is not None:
        config = replace(config, data=replace(config.data, path=data))

    from stillmotion.downstream.detect import detect
    from stillmotion.downstream.start import read_results
    from stillmotion.report.detect import detect_report, draw_detections, result_lines

    try:
        folder = detect(config, out, watch=bar)
    except Interrupted as stop:
        print(f"stillmotion: {stop}", file=sys.stderr)
        raise SystemExit(130) from None
    if os.environ.get("RANK", "0") == "0":
        print("\n".join(result_lines(read_results(folder))))
        if draw:
            print("\n".join(f"written: {file}" for file in draw_detections(folder, draw)))
        print(f"written: {detect_report(folder)}")
