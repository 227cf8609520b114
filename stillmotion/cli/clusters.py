"""`stillmotion clusters`."""

from typing import Literal

from tyro.conf import Positional

from stillmotion.cli.shell import bar, parse
from stillmotion.errors import StillmotionError


def clusters_command(args: list[str]) -> None:
    """See how far an encoder keeps classes apart: silhouette scores and t-SNE maps of the best-retrieved classes.

    examples:
      stillmotion clusters runs/mine --data ~/ucf101
      stillmotion clusters runs/base runs/vididi --data ~/ucf101 --by whole --out runs/clusters
      stillmotion clusters runs/demo/simclr-0 laptop --out runs/clusters     the four factors of synthetic videos

    Writes report.html and results.json. Features are kept and reused as for retrieve.
    """

    def run(
        run: Positional[str],
        others: Positional[tuple[str, ...]] = (),
        data: str = "synthetic",
        out: str | None = None,
        by: tuple[Literal["whole", "static", "dynamic", "both"], ...] = ("whole", "static", "dynamic"),
        half: Literal["test", "train", "all"] = "test",
        metric: Literal["euclidean", "cosine"] = "euclidean",
        clips: int = 10,
        frames: int | None = None,
        kind: str = "auto",
        fold: int | Literal["all"] | None = None,
        annotations: str | None = None,
        videos: int = 800,
        seed: int = 0,
        cache: str | None = None,
        workers: int = 0,
        device: str = "auto",
    ) -> None:
        """Clusters.

        Args:
            run: a run folder, or a recipe's name for its untrained network.
            others: more of them, to stand beside it.
            data: labelled videos, or "synthetic".
            out: the folder to write to; by default "clusters" in the first run's.
            by: kinds of embedding.
            half: whose videos are looked at.
            metric: of silhouette scores and maps.
            clips: evenly spaced clips of each video, averaged.
            frames: of a clip, in place of the run's; the papers take 16.
            kind: auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99 or diving48.
            fold: which of a set's splits, or all of them.
            annotations: where a public set's split files lie.
            videos: synthetic ones in each half.
            seed: of the split, where the set has none.
            cache: a folder for the features, in place of the run's own.
            workers: decoding processes.
            device: auto, cpu, cuda or another torch device.
        """
        from stillmotion.evaluate.clusters import clusters
        from stillmotion.evaluate.encoders import read_spec
        from stillmotion.report.clusters import cluster_lines, cluster_report

        if out is None:
            spec = read_spec(run)
            if spec.kind != "run":
                raise StillmotionError(f"{run} has no run folder to write to; give --out")
            out = f"{spec.path}/clusters"
        with bar("embedding") as progress:
            found = clusters(
                (run, *others),
                data,
                by=by,
                half=half,
                metric=metric,
                clips=clips,
                frames=frames,
                kind=kind,
                fold=fold,
                annotations=annotations,
                videos=videos,
                seed=seed,
                cache=cache,
                workers=workers,
                device=device,
                progress=progress,
            )
        print("\n".join(cluster_lines(found)))
        settings = {
            "encoders": ", ".join([run, *others]),
            "videos": f"the {half} videos of {data}" if half != "all" else f"all videos of {data}",
            "clips of a video": str(clips),
            "distance": metric,
        }
        print(f"written: {cluster_report(found, out, settings=settings, metric=metric)}")

    parse(run, args, "clusters", clusters_command)
