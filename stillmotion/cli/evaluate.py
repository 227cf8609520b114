"""Verbs that ask frozen encoders: probe, retrieve, clusters, order, propagate, geometry, controlled evaluate."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from stillmotion.cli.shell import Encoder, Encoders, Frames, Out, say, together
from stillmotion.data.halves import Halves, Unlabelled
from stillmotion.data.reading import Reading
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.options import Carrying, Clustering, Comparing, Geometry, Probing, Retrieval, Sequences
from stillmotion.options import Device
from stillmotion.parent import several
from stillmotion.train.log import bar

if TYPE_CHECKING:
    from stillmotion import encoders

_DRAWN = Halves("synthetic")
_FEWER = Halves("synthetic", videos=200)
_SOME = Videos("synthetic")


def probe(
    encoder: Encoder, probing: Probing, reading: Reading, videos: Halves = _DRAWN, device: Device = "auto"
) -> None:
    """Ask a frozen encoder with a linear classifier: top-1 and top-5, by every embedding.

    examples:
      stillmotion probe runs/mine --data ~/labelled          a folder class/video.mp4, a list, or a public set
      stillmotion probe runs/mine --data ~/ucf101 --untrained  beside the network it started from
      stillmotion probe runs/demo/simclr-0                   the four factors of synthetic videos
      torchrun --nproc-per-node 8 -m stillmotion probe runs/k400 --data /data/k400 --preset k400 --precision bf16

    Under torchrun, processes share the videos. k400 keeps no features, and its classifiers between epochs: the same
    command again goes on from there.
    """
    from stillmotion.evaluate.probe import probe, result_lines

    with together(device) as place:
        (loaded,) = _loaded((encoder,), place)
        with bar("embedding") as progress:
            results = probe(loaded, videos, probing, reading=reading, progress=progress)
    say("\n".join(result_lines(results)))


def retrieve(
    encoder: Encoders,
    retrieval: Retrieval,
    reading: Reading,
    videos: Halves = _DRAWN,
    frames: Frames = None,
    device: Device = "auto",
) -> None:
    """Ask which videos an encoder holds to be most alike: R@1, R@5, R@10 and mAP by each embedding.

    examples:
      stillmotion retrieve --encoder runs/mine --data ~/ucf101 --frames 16   test videos among the training videos
      stillmotion retrieve --encoder runs/a runs/b laptop --data ~/ucf101    side by side, the last one untrained
      stillmotion retrieve --encoder runs/mine --data ~/hmdb51 --protocol leave-one-out
      stillmotion retrieve --encoder models/dinov2@size=112 --data ~/labelled --fold all --cache ~/features

    Features are kept in the run's folder (or in --cache) and reused while encoder, videos and sampling stay the same.
    Of videos without labels, the nearest to each are printed. Under torchrun, processes share the videos.
    """
    from stillmotion.evaluate.retrieve import result_lines, retrieve
    from stillmotion.evaluate.unlabelled import neighbour_lines, neighbours

    with together(device) as place, bar("embedding") as progress:
        loaded = _loaded(encoder, place, frames)
        try:
            lines = result_lines(retrieve(loaded, videos, retrieval, reading=reading, progress=progress))
        except Unlabelled:
            clips, cache = retrieval.clips, retrieval.cache
            nearest = neighbours(loaded, videos, clips=clips, cache=cache, reading=reading, progress=progress)
            lines = neighbour_lines(nearest, videos.path)
    say("\n".join(lines))


def clusters(
    encoder: Encoders,
    clustering: Clustering,
    reading: Reading,
    videos: Halves = _DRAWN,
    out: str | None = None,
    frames: Frames = None,
    device: Device = "auto",
) -> None:
    """See how far an encoder keeps classes apart: silhouette scores and t-SNE maps of the best-retrieved classes.

    examples:
      stillmotion clusters --encoder runs/mine --data ~/ucf101
      stillmotion clusters --encoder runs/base runs/vididi --data ~/ucf101 --by whole --out runs/clusters
      stillmotion clusters --encoder runs/demo/simclr-0 laptop --out runs/clusters   the factors of synthetic videos

    Writes report.html and results.json. Features are kept and reused as for retrieve. Videos without labels are put
    into groups, which are looked at in place of classes. Under torchrun, processes share the videos.

    Args:
        out: the folder to write to; by default "clusters" in the first run's.
    """
    from stillmotion.distributed import on_first
    from stillmotion.evaluate.clusters import clusters
    from stillmotion.evaluate.unlabelled import groups
    from stillmotion.report.clusters import cluster_lines, cluster_report

    with together(device) as place:
        loaded = _loaded(encoder, place, frames)
        if out is None and loaded[0].folder is None:
            raise StillmotionError(f"{encoder[0]} has no run folder to write to; give --out")
        with bar("embedding") as progress:
            try:
                found = clusters(loaded, videos, clustering, reading=reading, progress=progress)
            except Unlabelled:
                found = groups(loaded, videos, clustering, reading=reading, progress=progress)
        folder = out or f"{loaded[0].folder}/clusters"
        page = on_first(lambda: cluster_report(found, folder, clustering, data=videos.path))
    if found:
        print("\n".join([*cluster_lines(found), f"written: {page}"]))


def order(
    reading: Reading,
    encoder: Encoders = (),
    videos: Halves = _FEWER,
    pairs: str | None = None,
    out: str | None = None,
    frames: Frames = None,
    untrained: bool = False,
    device: Device = "auto",
    recipe: Literal["debug"] | None = None,
) -> None:
    """Ask frozen encoders in which order things happen: clips against their reverses, or pairs of opposite actions.

    examples:
      stillmotion order --encoder runs/mine --data ~/videos            a clip or its reverse? no labels needed
      stillmotion order --encoder runs/a runs/b --data ~/videos --untrained --out runs/order
      stillmotion order --encoder runs/mine --data ~/ssv2/videos --pairs chiral_pairs.json
      stillmotion order --recipe debug --out runs/order-debug          drawn videos, about a minute

    A linear classifier is asked by frames one after the other, and by whole, static and dynamic embeddings. One that
    is blind to order, such as the mean over frames that were seen one by one, tells a clip from its reverse at 0.5.
    Under torchrun, processes share the videos.

    Args:
        pairs: a JSON file of opposite actions, by ids or by classes; without it, clips against their reverses.
        out: a folder for results.json and results.txt.
        untrained: the network that each run started from, beside it.
        recipe: debug trains small encoders into --out first, and takes none.
    """
    if recipe == "debug":
        from stillmotion.study.order_debug import debug_lines, debug_order

        if encoder or out is None:
            raise StillmotionError("--recipe debug trains its own encoders; give --out FOLDER and no --encoder")
        if several():
            raise StillmotionError("--recipe debug works in one process; start it without torchrun")
        print("\n".join(debug_lines(debug_order(out, device=device))))
        return
    if not encoder:
        raise StillmotionError("no encoder given; name a run folder or a recipe, or add --recipe debug")
    from stillmotion.evaluate.order import order, result_lines

    with together(device) as place, bar("embedding") as progress:
        loaded = _loaded(encoder, place, frames)
        results = order(loaded, videos, pairs=pairs, untrained=untrained, out=out, reading=reading, progress=progress)
    say("\n".join(result_lines(results)))


def propagate(
    encoder: Encoder, sequences: Sequences, carrying: Carrying, out: str, overlay: bool = True, device: Device = "auto"
) -> None:
    """Carry the first frame's labels through videos: J and F of DAVIS, mIoU of VIP, PCK of JHMDB.

    examples:
      stillmotion propagate models/dinov2 --data ~/DAVIS --out runs/davis
      stillmotion propagate runs/mine --data ~/DAVIS --resolution 240p --layer 3 --out runs/davis
      stillmotion propagate dinov2:dinov2_vits14.pth@layer=11 --data ~/DAVIS --out runs/frozen
      stillmotion propagate models/dinov2 --data ~/JHMDB --layout jhmdb --out runs/jhmdb
      stillmotion propagate models/dinov2 --data ~/mine --layout points --out runs/points

    Args:
        out: the folder to write masks or points, overlays and results.json to.
        overlay: write a video with the labels on it for each sequence.
    """
    from stillmotion.evaluate.propagate import propagate, result_lines
    from stillmotion.explain.tracked import overlay_track

    (loaded,) = _loaded((carrying.of(encoder),), device)
    watch = (lambda track: overlay_track(out, track)) if overlay else None
    with bar("propagating") as progress:
        results = propagate(
            loaded, sequences, out, preset=carrying.preset, size=carrying.pixels(), progress=progress, watch=watch
        )
    print("\n".join(result_lines(results)))


def geometry(
    encoder: Encoders, measured: Geometry, videos: Videos = _SOME, out: str | None = None, device: Device = "auto"
) -> None:
    """Measure distances within and between videos, before and after transfer, and how often patches find back.

    examples:
      stillmotion geometry --encoder runs/mine --data ~/videos
      stillmotion geometry --encoder runs/a runs/b --data ~/ucf101 --split test     beside the frozen model they share
      stillmotion geometry --encoder facebook/dinov2-small --data ~/videos --gamma estimate

    Encoders are transfer runs, or image models as transfer takes them. D_inter and D_intra are mean distances over the
    largest radius, D = D_inter - γ·D_intra; intervals are bootstraps over videos.

    Args:
        out: a file for the results as JSON.
    """
    from stillmotion.evaluate.geometry import geometry, result_lines

    with bar("measuring") as progress:
        results = geometry(encoder, videos, measured, out=out, device=device, progress=progress)
    print("\n".join(result_lines(results)))


def controlled_evaluate(
    encoder: Encoders,
    out: Out,
    videos: Halves,
    comparing: Comparing,
    reading: Reading,
    static: str | None = None,
    dynamic: str | None = None,
    device: Device = "auto",
) -> None:
    """Measure what encoders know of appearance and of motion, side by side.

    examples:
      stillmotion controlled evaluate --encoder runs/mine --data ~/ucf101 \\
          --static sets/static --dynamic sets/dynamic --out runs/appearance-and-motion
      stillmotion controlled evaluate --encoder V-SimCLR=runs/simclr BOD-VCL=runs/bod \\
          I3D=i3d:i3d.safetensors@frames=32 models/dinov2@size=112 --dynamic sets/dynamic --out runs/motion

    NAME= in front of an encoder is what tables call it. `stillmotion controlled make` writes the static and the dynamic
    version of a set. OUT gets results.json, report.html and the features, so that the same command again is quick.
    Under torchrun, processes share the videos.

    Args:
        videos: as they are; layout, fold and annotations are those of every version.
        static: their static version.
        dynamic: their dynamic version.
    """
    from stillmotion.distributed import on_first
    from stillmotion.evaluate.controlled import evaluate_controlled, named_encoders
    from stillmotion.report.controlled import controlled_lines, controlled_report

    paths = {"plain": videos.path, "static": static, "dynamic": dynamic}
    versions = {name: replace(videos, path=path) for name, path in paths.items() if path}
    texts = named_encoders(encoder)
    with together(device) as place, bar("embedding") as progress:
        loaded = dict(zip(texts, _loaded(tuple(texts.values()), place), strict=True))
        results = evaluate_controlled(loaded, versions, out, comparing, reading=reading, progress=progress)
        page = on_first(lambda: controlled_report(out, results))
    say("\n".join(["", *controlled_lines(results), "", f"written: {page}"]))


def _loaded(texts: tuple[str, ...], device: str, frames: int | None = None) -> "list[encoders.Encoder]":
    from stillmotion.encoders import load_alike

    return [encoder.shown(frames=frames) for encoder in load_alike(texts, device=device)]
