"""Verbs that ask frozen encoders: probe, retrieve, clusters, order, propagate, geometry, controlled evaluate."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from stillmotion.cli.shell import Encoder, Encoders, bar
from stillmotion.data.halves import Halves
from stillmotion.data.reading import Reading
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.options import Geometry, Intervals, Sequences

if TYPE_CHECKING:
    from stillmotion import encoders

Part = Literal["whole", "static", "dynamic", "both"]
Flat = Annotated[Halves, tyro.conf.OmitArgPrefixes]
_DRAWN = Halves("synthetic")


def probe(
    encoder: Encoder,
    videos: Halves = _DRAWN,
    preset: Literal["small", "k400"] = "small",
    clips: int | None = None,
    untrained: bool = False,
    reading: Reading = Reading(),
    device: str = "auto",
) -> None:
    """Ask a frozen encoder with a linear classifier: top-1 and top-5, for whole, static, dynamic and both.

    examples:
      stillmotion probe runs/mine --data ~/labelled          a folder class/video.mp4, a list, or a public set
      stillmotion probe runs/mine --data ~/ucf101 --untrained  beside the network it started from
      stillmotion probe runs/demo/simclr-0                   the four factors of synthetic videos

    Args:
        encoder: a run folder, a recipe's name (untrained), a model's folder or file; @frames=…,size=… behind it.
        videos: labelled ones, parted in two halves.
        preset: small is logistic regression on 4 clips; k400 the Kinetics protocol on 10.
        clips: per video, in place of the preset's.
        untrained: the network that the run started from, beside it.
        device: auto, cpu, cuda or another torch device.
    """
    from stillmotion.evaluate.probe import probe, result_lines

    (loaded,) = _loaded((encoder,), device)
    with bar("embedding") as progress:
        results = probe(
            loaded, videos, preset=preset, clips=clips, untrained=untrained, reading=reading, progress=progress
        )
    print("\n".join(result_lines(results)))


def retrieve(
    encoder: Encoders,
    videos: Halves = _DRAWN,
    protocol: Literal["split", "leave-one-out"] = "split",
    among: Literal["test", "all"] = "test",
    clips: int = 10,
    frames: int | None = None,
    cache: str | None = None,
    index: str | None = None,
    reading: Reading = Reading(),
    device: str = "auto",
) -> None:
    """Ask which videos an encoder holds to be most alike: R@1, R@5, R@10 and mAP by whole, static and dynamic.

    examples:
      stillmotion retrieve --encoder runs/mine --data ~/ucf101 --frames 16   test videos among the training videos
      stillmotion retrieve --encoder runs/a runs/b laptop --data ~/ucf101    side by side, the last one untrained
      stillmotion retrieve --encoder runs/mine --data ~/hmdb51 --protocol leave-one-out
      stillmotion retrieve --encoder models/dinov2@size=112 --data ~/labelled --fold all --cache ~/features

    Features are kept in the run's folder (or in --cache) and reused while encoder, videos and sampling stay the same.

    Args:
        encoder: run folders, recipes' names (untrained), models' folders or files, side by side.
        videos: labelled ones, parted in two halves.
        protocol: split asks test videos among training videos; leave-one-out each video among the others.
        among: the videos of leave-one-out.
        clips: evenly spaced clips of each video, averaged.
        frames: of a clip, in place of the encoder's; the papers take 16.
        cache: a folder for the features, in place of the run's own.
        index: a file for FAISS's index of the references, made or reused.
        device: auto, cpu, cuda or another torch device.
    """
    from stillmotion.evaluate.retrieve import result_lines, retrieve

    encoders = _loaded(encoder, device, frames)
    with bar("embedding") as progress:
        results = retrieve(
            encoders,
            videos,
            protocol=protocol,
            among=among,
            clips=clips,
            cache=cache,
            index=index,
            reading=reading,
            progress=progress,
        )
    print("\n".join(result_lines(results)))


def clusters(
    encoder: Encoders,
    videos: Halves = _DRAWN,
    out: str | None = None,
    by: tuple[Part, ...] = ("whole", "static", "dynamic"),
    split: Literal["test", "train", "all"] = "test",
    metric: Literal["euclidean", "cosine"] = "euclidean",
    clips: int = 10,
    frames: int | None = None,
    cache: str | None = None,
    reading: Reading = Reading(),
    device: str = "auto",
) -> None:
    """See how far an encoder keeps classes apart: silhouette scores and t-SNE maps of the best-retrieved classes.

    examples:
      stillmotion clusters --encoder runs/mine --data ~/ucf101
      stillmotion clusters --encoder runs/base runs/vididi --data ~/ucf101 --by whole --out runs/clusters
      stillmotion clusters --encoder runs/demo/simclr-0 laptop --out runs/clusters   the four factors of synthetic videos

    Writes report.html and results.json. Features are kept and reused as for retrieve.

    Args:
        encoder: run folders, recipes' names (untrained), models' folders or files, side by side.
        videos: labelled ones, parted in two halves.
        out: the folder to write to; by default "clusters" in the first run's.
        by: kinds of embedding.
        split: whose videos are looked at.
        metric: of silhouette scores and maps.
        clips: evenly spaced clips of each video, averaged.
        frames: of a clip, in place of the encoder's; the papers take 16.
        cache: a folder for the features, in place of the run's own.
        device: auto, cpu, cuda or another torch device.
    """
    from stillmotion.evaluate.clusters import clusters
    from stillmotion.report.clusters import cluster_lines, cluster_report

    encoders = _loaded(encoder, device, frames)
    folder = encoders[0].folder
    if out is None and folder is None:
        raise StillmotionError(f"{encoder[0]} has no run folder to write to; give --out")
    with bar("embedding") as progress:
        found = clusters(
            encoders,
            videos,
            by=by,
            split=split,
            metric=metric,
            clips=clips,
            cache=cache,
            reading=reading,
            progress=progress,
        )
    print("\n".join(cluster_lines(found)))
    settings = {
        "encoders": ", ".join(encoder),
        "videos": f"the {split} videos of {videos.path}" if split != "all" else f"all videos of {videos.path}",
        "clips of a video": str(clips),
        "distance": metric,
    }
    print(f"written: {cluster_report(found, out or f'{folder}/clusters', settings=settings, metric=metric)}")


def order(
    encoder: Encoders = (),
    videos: Halves = replace(_DRAWN, videos=200),
    pairs: str | None = None,
    out: str | None = None,
    frames: int | None = None,
    untrained: bool = False,
    reading: Reading = Reading(),
    device: str = "auto",
    recipe: Literal["debug"] | None = None,
) -> None:
    """Ask frozen encoders in which order things happen: clips against their reverses, or pairs of opposite actions.

    examples:
      stillmotion order --encoder runs/mine --data ~/videos            a clip or its reverse? no labels needed
      stillmotion order --encoder runs/a runs/b --data ~/videos --untrained --out runs/order
      stillmotion order --encoder runs/mine --data ~/ssv2/videos --pairs chiral_pairs.json
      stillmotion order --encoder runs/mine models/dinov2 --data ~/set --fold all
      stillmotion order --recipe debug --out runs/order-debug          drawn videos, about a minute

    A linear classifier is asked by frames one after the other, and by whole, static and dynamic embeddings. One that
    is blind to order, such as the mean over frames that were seen one by one, tells a clip from its reverse at 0.5.

    Args:
        encoder: run folders, recipes' names (untrained), models' folders or files, side by side.
        videos: labelled or not.
        pairs: a JSON file of opposite actions, by ids or by classes; without it, clips against their reverses.
        out: a folder for results.json and results.txt.
        frames: of a video, evenly spaced, in place of the encoder's.
        untrained: the network that each run started from, beside it.
        device: auto, cpu, cuda or another torch device.
        recipe: debug trains small encoders into --out first, and takes none.
    """
    if recipe == "debug":
        from stillmotion.study.order_debug import debug_lines, debug_order

        if encoder or out is None:
            raise StillmotionError("--recipe debug trains its own encoders; give --out FOLDER and no --encoder")
        print("\n".join(debug_lines(debug_order(out, device=device))))
        return
    if not encoder:
        raise StillmotionError("no encoder given; name a run folder or a recipe, or add --recipe debug")
    from stillmotion.evaluate.order import order, result_lines

    encoders = _loaded(encoder, device, frames)
    with bar("embedding") as progress:
        results = order(
            encoders, videos, pairs=pairs, untrained=untrained, out=out, reading=reading, progress=progress
        )
    print("\n".join(result_lines(results)))


def propagate(
    encoder: Encoder,
    sequences: Sequences,
    out: str,
    preset: Literal["image-to-video", "dino", "videowalk"] = "image-to-video",
    layer: int | None = None,
    size: str | None = None,
    overlay: bool = True,
    device: str = "auto",
) -> None:
    """Carry the first frame's labels through videos: J and F of DAVIS, mIoU of VIP, PCK of JHMDB.

    examples:
      stillmotion propagate models/dinov2 --data ~/DAVIS --out runs/davis
      stillmotion propagate runs/mine --data ~/DAVIS --resolution 240p --layer 3 --out runs/davis
      stillmotion propagate models/dinov2 --data ~/JHMDB --layout jhmdb --out runs/jhmdb
      stillmotion propagate models/dinov2 --data ~/mine --layout points --out runs/points

    Args:
        encoder: a run folder, a recipe's name, a model's folder or file; @frames=…,size=… behind it.
        sequences: and their labels.
        out: the folder to write masks or points, overlays and results.json to.
        preset: whose protocol: matches, context, radius, temperature and frame size.
        layer: take features after this block of a transformer, or stage of a backbone; the last if left out.
        size: height×width of frames such as 480x880, in place of the preset's, which never enlarges them.
        overlay: write a video with the labels on it for each sequence.
        device: auto, cpu, cuda or another torch device.
    """
    asked = _size(size)
    from stillmotion.evaluate.propagate import propagate, result_lines
    from stillmotion.explain.tracked import overlay_track

    if layer is not None:
        encoder += f"{',' if '@' in encoder else '@'}layer={layer}"
    (loaded,) = _loaded((encoder,), device)
    with bar("propagating") as progress:
        results = propagate(
            loaded,
            sequences,
            out,
            preset=preset,
            size=asked,
            progress=progress,
            watch=(lambda track: overlay_track(out, track)) if overlay else None,
        )
    print("\n".join(result_lines(results)))


def geometry(
    encoder: Encoders,
    videos: Videos = Videos("synthetic"),
    measured: Geometry = Geometry(),
    out: str | None = None,
    device: str = "auto",
) -> None:
    """Measure distances within and between videos, before and after transfer, and how often patches find back.

    examples:
      stillmotion geometry --encoder runs/mine --data ~/videos
      stillmotion geometry --encoder runs/a runs/b --data ~/ucf101 --split test     beside the frozen model they share
      stillmotion geometry --encoder models/dinov2 --data ~/videos --gamma estimate

    D_inter and D_intra are mean distances over the largest radius, D = D_inter - γ·D_intra; intervals are bootstraps
    over videos.

    Args:
        encoder: transfer runs, or folders of image models, side by side.
        videos: labelled or not.
        measured: and how.
        out: a file for the results as JSON.
        device: auto, cpu, cuda or another torch device.
    """
    from stillmotion.evaluate.geometry import geometry, result_lines

    with bar("measuring") as progress:
        results = geometry(encoder, videos, measured, out=out, device=device, progress=progress)
    print("\n".join(result_lines(results)))


def controlled_evaluate(
    encoder: Encoders,
    out: str,
    videos: Halves = Halves(),
    static: str | None = None,
    dynamic: str | None = None,
    clips: int = 4,
    by: tuple[Part, ...] = ("whole",),
    intervals: Intervals = Intervals(),
    reading: Reading = Reading(),
    device: str = "auto",
) -> None:
    """Measure what encoders know of appearance and of motion, side by side.

    examples:
      stillmotion controlled evaluate --encoder runs/mine --data ~/ucf101 \\
          --static sets/static --dynamic sets/dynamic --out runs/appearance-and-motion
      stillmotion controlled evaluate --encoder V-SimCLR=runs/simclr BOD-VCL=runs/bod \\
          I3D=i3d:i3d.safetensors@frames=32 models/dinov2@size=112 --dynamic sets/dynamic --out runs/motion

    NAME= in front of an encoder is what tables call it. `stillmotion controlled make` writes the static and the dynamic
    version of a set. OUT gets results.json, report.html and the features, so that the same command again is quick.

    Args:
        encoder: run folders, recipes' names (untrained), models' folders or files; @frames=…,size=… behind each.
        out: the folder to write to.
        videos: labelled ones as they are; layout, fold and annotations are those of every version.
        static: their static version.
        dynamic: their dynamic version.
        clips: evenly spaced, of each video.
        by: kinds of embedding; both is static ⊕ dynamic. Tables take the first.
        device: auto, cpu, cuda or another torch device.
    """
    from stillmotion.evaluate.controlled import Options, evaluate_controlled, named_encoders
    from stillmotion.report.controlled import controlled_lines, controlled_report

    paths = {"plain": videos.path, "static": static, "dynamic": dynamic}
    versions = {name: replace(videos, path=path) for name, path in paths.items() if path}
    texts = named_encoders(encoder)
    encoders = dict(zip(texts, _loaded(tuple(texts.values()), device), strict=True))
    options = Options(clips=clips, kinds=by, level=intervals.level, resamples=intervals.resamples, seed=videos.seed)
    with bar("embedding") as progress:
        results = evaluate_controlled(encoders, versions, out, options=options, reading=reading, progress=progress)
    print("\n".join(["", *controlled_lines(results), "", f"written: {controlled_report(out, results)}"]))


def _loaded(texts: tuple[str, ...], device: str, frames: int | None = None) -> "list[encoders.Encoder]":
    from stillmotion.encoders import load

    return [load(text, device=device).shown(frames=frames) for text in texts]


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.replace("×", "x").partition("x")
    if not (height.isdigit() and width.isdigit() and int(height) and int(width)):
        raise StillmotionError(f"size is {text!r}; write height and width, such as 480x880")
    return int(height), int(width)
