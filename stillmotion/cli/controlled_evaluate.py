"""`stillmotion controlled evaluate`."""

from typing import Literal

from stillmotion.cli.shell import bar, parse


def controlled_evaluate_command(args: list[str]) -> None:
    """Measure what encoders know of appearance and of motion, side by side.

    examples:
      stillmotion controlled evaluate --encoder runs/mine --data ~/ucf101 \\
          --static sets/static --dynamic sets/dynamic --out runs/appearance-and-motion
      stillmotion controlled evaluate --encoder V-SimCLR=runs/simclr BOD-VCL=runs/bod \\
          I3D=i3d:i3d.safetensors@frames=32 models/dinov2@size=112 --dynamic sets/dynamic --out runs/motion

    An encoder is a run folder, a recipe's name (untrained), a folder of a transformers model (VideoMAE, V-JEPA 2,
    TimeSformer, or of images: DINOv2, ViT, CLIP, whose frames are averaged) or i3d:<file.safetensors>. NAME= in front
    is what tables call it; behind an @ stand frames=, stride=, size=, and for transformers pool= and layer=.
    `stillmotion controlled make` writes the static and the dynamic version of a set. OUT gets results.json,
    report.html and the features, so that the same command again is quick.
    """

    def run(
        encoder: tuple[str, ...],
        out: str,
        data: str | None = None,
        static: str | None = None,
        dynamic: str | None = None,
        clips: int = 4,
        features: tuple[Literal["whole", "both", "static", "dynamic"], ...] = ("whole",),
        level: float = 0.95,
        resamples: int = 2000,
        kind: str = "auto",
        fold: int | None = None,
        annotations: str | None = None,
        seed: int = 0,
        batch: int = 16,
        workers: int = 0,
        device: str = "auto",
    ) -> None:
        """Evaluate.

        Args:
            encoder: one or more of them.
            out: the folder to write to.
            data: the labelled videos as they are.
            static: their static version.
            dynamic: their dynamic version.
            clips: evenly spaced, of each video.
            features: one or more of whole, both (static ⊕ dynamic), static and dynamic.
            level: of the confidence intervals.
            resamples: of the test videos, for the intervals.
            kind: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            fold: which of the sets' splits.
            annotations: where a public set's split files lie.
            seed: of the split, where the set has none, and of resampling.
            batch: videos at a time.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.controlled import Options, evaluate_controlled
        from stillmotion.report.controlled import controlled_lines, controlled_report

        options = Options(clips=clips, kinds=features, level=level, resamples=resamples, seed=seed)
        with bar("embedding") as progress:
            results = evaluate_controlled(
                encoder,
                out=out,
                data=data,
                static=static,
                dynamic=dynamic,
                options=options,
                kind=kind,
                fold=fold,
                annotations=annotations,
                batch=batch,
                workers=workers,
                device=device,
                progress=progress,
            )
        print("\n".join(["", *controlled_lines(results), "", f"written: {controlled_report(out, results)}"]))

    parse(run, args, "controlled evaluate", controlled_evaluate_command)
