"""Verbs that ask frozen encoders: probe, retrieve, clusters, order, propagate, geometry, controlled evaluate."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from stillmotion.cli.parser import EncoderArg, EncoderArgs, NumFrames, OutputDir, print_once, process_group
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import MissingLabelsError, TrainTestConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.torchrun import is_multi_process
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.propagation.config import PropagationConfig, SequenceDataConfig
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.static_dynamic.config import StaticDynamicEvalConfig
from stillmotion.utils.option_types import DeviceName
from stillmotion.utils.progress import progress_bar

if TYPE_CHECKING:
    from stillmotion import encoders


_SYNTHETIC = TrainTestConfig("synthetic")
_SYNTHETIC_200 = TrainTestConfig("synthetic", num_synthetic=200)
_SYNTHETIC_VIDEOS = VideoDataConfig("synthetic")


def probe(
    encoder: EncoderArg,
    config: LinearProbeConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig = _SYNTHETIC,
    device: DeviceName = "auto",
) -> None:
    """Ask a frozen encoder with a linear classifier: top-1 and top-5, by every embedding.

    examples:
      stillmotion probe runs/mine --data ~/labelled          a folder class/video.mp4, a list, or a public set
      stillmotion probe runs/mine --data ~/ucf101 --compare-untrained  beside the network it started from
      stillmotion probe runs/demo/simclr-0                   the four factors of synthetic videos
      torchrun --nproc-per-node 8 -m stillmotion probe runs/k400 --data /data/k400 --preset k400 --precision bf16

    Under torchrun, processes share the videos. k400 keeps no features, and its classifiers between epochs: the same
    command again goes on from there.
    """
    from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe, format_probe_results

    with process_group(device) as place:
        (loaded,) = _load_encoders((encoder,), place)
        with progress_bar("embedding") as progress:
            results = evaluate_linear_probe(loaded, videos, config, loader=loader, progress=progress)
    print_once("\n".join(format_probe_results(results)))


def retrieve(
    encoder: EncoderArgs,
    config: RetrievalConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig = _SYNTHETIC,
    num_frames: NumFrames = None,
    device: DeviceName = "auto",
) -> None:
    """Ask which videos an encoder holds to be most alike: R@1, R@5, R@10 and mAP by each embedding.

    examples:
      stillmotion retrieve --encoder runs/mine --data ~/ucf101 --num-frames 16   test videos among the training videos
      stillmotion retrieve --encoder runs/a runs/b laptop --data ~/ucf101    side by side, the last one untrained
      stillmotion retrieve --encoder runs/mine --data ~/hmdb51 --protocol leave-one-out
      stillmotion retrieve --encoder models/dinov2@size=112 --data ~/labelled --fold all --cache-dir ~/features

    Features are kept in the run's folder (or in --cache-dir) and reused while encoder, videos and sampling stay the same.
    Of videos without labels, the nearest to each are printed. Under torchrun, processes share the videos.
    """
    from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval, format_retrieval_results
    from stillmotion.evaluation.retrieval.unlabeled import format_neighbors, list_neighbors

    with process_group(device) as place, progress_bar("embedding") as progress:
        loaded = _load_encoders(encoder, place, num_frames)
        try:
            lines = format_retrieval_results(
                evaluate_retrieval(loaded, videos, config, loader=loader, progress=progress)
            )
        except MissingLabelsError:
            clips, cache = config.num_clips, config.cache_dir
            nearest = list_neighbors(loaded, videos, num_clips=clips, cache_dir=cache, loader=loader, progress=progress)
            lines = format_neighbors(nearest, videos.path)
    print_once("\n".join(lines))


def cluster(
    encoder: EncoderArgs,
    config: ClusteringConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig = _SYNTHETIC,
    out: str | None = None,
    num_frames: NumFrames = None,
    device: DeviceName = "auto",
) -> None:
    """See how far an encoder keeps classes apart: silhouette scores and t-SNE maps of the best-retrieved classes.

    examples:
      stillmotion cluster --encoder runs/mine --data ~/ucf101
      stillmotion cluster --encoder runs/base runs/vididi --data ~/ucf101 --features whole --out runs/clusters
      stillmotion cluster --encoder runs/demo/simclr-0 laptop --out runs/clusters   the factors of synthetic videos

    Writes report.html and results.json. Features are kept and reused as for retrieve. Videos without labels are put
    into groups, which are looked at in place of classes. Under torchrun, processes share the videos.

    Args:
        out: the folder to write to; by default "clusters" in the first run's.
    """
    from stillmotion.distributed.process_group import run_on_main
    from stillmotion.evaluation.clustering.evaluate import evaluate_clustering
    from stillmotion.evaluation.clustering.grouping import group_videos
    from stillmotion.evaluation.clustering.report import format_clustering_results, write_clustering_page

    with process_group(device) as place:
        loaded = _load_encoders(encoder, place, num_frames)
        if out is None and loaded[0].run_dir is None:
            raise StillmotionError(f"{encoder[0]} has no run folder to write to; give --out")
        with progress_bar("embedding") as progress:
            try:
                found = evaluate_clustering(loaded, videos, config, loader=loader, progress=progress)
            except MissingLabelsError:
                found = group_videos(loaded, videos, config, loader=loader, progress=progress)
        folder = out or f"{loaded[0].folder}/clusters"
        page = run_on_main(lambda: write_clustering_page(found, folder, config, data=videos.path))
    if found:
        print("\n".join([*format_clustering_results(found), f"written: {page}"]))


def order(
    loader: LoaderConfig,
    encoder: EncoderArgs = (),
    videos: TrainTestConfig = _SYNTHETIC_200,
    action_pairs: str | None = None,
    out: str | None = None,
    num_frames: NumFrames = None,
    compare_untrained: bool = False,
    device: DeviceName = "auto",
    recipe: Literal["debug"] | None = None,
) -> None:
    """Ask frozen encoders in which order things happen: clips against their reverses, or pairs of opposite actions.

    examples:
      stillmotion order --encoder runs/mine --data ~/videos            a clip or its reverse? no labels needed
      stillmotion order --encoder runs/a runs/b --data ~/videos --compare-untrained --out runs/order
      stillmotion order --encoder runs/mine --data ~/ssv2/videos --action-pairs chiral_pairs.json
      stillmotion order --recipe debug --out runs/order-debug          drawn videos, about a minute

    A linear classifier is asked by frames one after the other, and by whole, static and dynamic embeddings. One that
    is blind to order, such as the mean over frames that were seen one by one, tells a clip from its reverse at 0.5.
    Under torchrun, processes share the videos.

    Args:
        action_pairs: a JSON file of opposite actions, by ids or by classes; without it, clips against their reverses.
        out: a folder for results.json and results.txt.
        compare_untrained: the network that each run started from, beside it.
        recipe: debug trains small encoders into --out first, and takes none.
    """
    if recipe == "debug":
        from stillmotion.studies.temporal_order_debug import format_debug_lines, run_debug_order

        if encoder or out is None:
            raise StillmotionError("--recipe debug trains its own encoders; give --out FOLDER and no --encoder")
        if is_multi_process():
            raise StillmotionError("--recipe debug works in one process; start it without torchrun")
        print("\n".join(format_debug_lines(run_debug_order(out, device=device))))
        return
    if not encoder:
        raise StillmotionError("no encoder given; name a run folder or a recipe, or add --recipe debug")
    from stillmotion.evaluation.temporal_order.evaluate import evaluate_temporal_order, format_order_results

    with process_group(device) as place, progress_bar("embedding") as progress:
        loaded = _load_encoders(encoder, place, num_frames)
        results = evaluate_temporal_order(
            loaded,
            videos,
            action_pairs=action_pairs,
            compare_untrained=compare_untrained,
            output_dir=out,
            loader=loader,
            progress=progress,
        )
    print_once("\n".join(format_order_results(results)))


def propagate(
    encoder: EncoderArg,
    sequences: SequenceDataConfig,
    config: PropagationConfig,
    out: str,
    overlay: bool = True,
    device: DeviceName = "auto",
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
    from stillmotion.evaluation.propagation.evaluate import evaluate_propagation, format_propagation_results
    from stillmotion.evaluation.propagation.overlay_video import write_overlay_video

    (loaded,) = _load_encoders((config.encoder_spec(encoder),), device)
    watch = (lambda track: write_overlay_video(out, track)) if overlay else None
    with progress_bar("propagating") as progress:
        results = evaluate_propagation(
            loaded,
            sequences,
            out,
            preset=config.preset,
            image_size=config.parsed_image_size(),
            progress=progress,
            on_track=watch,
        )
    print("\n".join(format_propagation_results(results)))


def geometry(
    encoder: EncoderArgs,
    config: GeometryConfig,
    videos: VideoDataConfig = _SYNTHETIC_VIDEOS,
    out: str | None = None,
    device: DeviceName = "auto",
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
    from stillmotion.evaluation.geometry.evaluate import evaluate_geometry, format_geometry_results

    with progress_bar("measuring") as progress:
        results = evaluate_geometry(encoder, videos, config, output_file=out, device=device, progress=progress)
    print("\n".join(format_geometry_results(results)))


def static_dynamic_evaluate(
    encoder: EncoderArgs,
    out: OutputDir,
    videos: TrainTestConfig,
    config: StaticDynamicEvalConfig,
    loader: LoaderConfig,
    static_data: str | None = None,
    dynamic_data: str | None = None,
    device: DeviceName = "auto",
) -> None:
    """Measure what encoders know of appearance and of motion, side by side.

    examples:
      stillmotion static-dynamic evaluate --encoder runs/mine --data ~/ucf101 \\
          --static-data sets/static --dynamic-data sets/dynamic --out runs/appearance-and-motion
      stillmotion static-dynamic evaluate --encoder V-SimCLR=runs/simclr BOD-VCL=runs/bod \\
          I3D=i3d:i3d.safetensors@frames=32 models/dinov2@size=112 --dynamic-data sets/dynamic --out runs/motion

    NAME= in front of an encoder is what tables call it. `stillmotion static-dynamic make` writes the static and the dynamic
    version of a set. OUT gets results.json, report.html and the features, so that the same command again is quick.
    Under torchrun, processes share the videos.

    Args:
        videos: as they are; layout, fold and annotations are those of every version.
        static_data: their static version.
        dynamic_data: their dynamic version.
    """
    from stillmotion.distributed.process_group import run_on_main
    from stillmotion.evaluation.static_dynamic.evaluate import evaluate_static_dynamic, parse_named_specs
    from stillmotion.evaluation.static_dynamic.report import format_static_dynamic_results, write_static_dynamic_page

    paths = {"plain": videos.path, "static": static_data, "dynamic": dynamic_data}
    versions = {name: replace(videos, path=path) for name, path in paths.items() if path}
    texts = parse_named_specs(encoder)
    with process_group(device) as place, progress_bar("embedding") as progress:
        loaded = dict(zip(texts, _load_encoders(tuple(texts.values()), place), strict=True))
        results = evaluate_static_dynamic(loaded, versions, out, config, loader=loader, progress=progress)
        page = run_on_main(lambda: write_static_dynamic_page(out, results))
    print_once("\n".join(["", *format_static_dynamic_results(results), "", f"written: {page}"]))


def _load_encoders(texts: tuple[str, ...], device: str, frames: int | None = None) -> "list[encoders.Encoder]":
    from stillmotion.encoders import load_comparable

    return [encoder.with_input(num_frames=frames) for encoder in load_comparable(texts, device=device)]


_STILL_CLIPS_VIDEOS = VideoDataConfig("synthetic")


def still_clips(
    encoder: EncoderArgs,
    loader: LoaderConfig,
    videos: VideoDataConfig = _STILL_CLIPS_VIDEOS,
    num_clips: int = 4,
    compare_untrained: bool = False,
    out: str | None = None,
    device: DeviceName = "auto",
) -> None:
    """Ask how much of a dynamic half is motion: stop clips at their middle frame, and see what is left of it.

    examples:
      stillmotion study still-clips --encoder runs/mine --data ~/videos --compare-untrained
      stillmotion study still-clips --encoder runs/mine runs/zeros --data ~/videos --out still.json

    Prints the cosine of a clip's dynamic half with that of the same clip standing still, how long the latter is, as a
    share of the former, and the lengths of both halves. Without motion there should be nothing: a share near 0.

    Args:
        num_clips: evenly spaced, of each video.
        compare_untrained: also the network that each run started from.
        out: a file for the results as JSON.
    """
    from stillmotion.encoders import load
    from stillmotion.evaluation.still_clips import evaluate_still_clips, format_still_clip_results

    loaded = [load(text, device=device) for text in encoder]
    with progress_bar("embedding") as progress:
        results = evaluate_still_clips(
            loaded,
            videos,
            num_clips=num_clips,
            compare_untrained=compare_untrained,
            output_file=out,
            loader=loader,
            progress=progress,
        )
    print("\n".join(format_still_clip_results(results)))
