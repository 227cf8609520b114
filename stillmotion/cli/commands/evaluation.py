"""Verbs that evaluate frozen encoders: probe, retrieve, cluster, order, propagate, geometry and others."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stillmotion.cli.parser import (
    DryRun,
    EncoderArg,
    EncoderArgs,
    NumFrames,
    OptionalFile,
    OptionalFolder,
    OutputDir,
    print_estimate,
    print_extraction_estimate,
    print_lines,
    process_group,
)
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.propagation.config import PropagationConfig, SequenceDataConfig
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.static_dynamic.config import StaticDynamicDataConfig, StaticDynamicEvalConfig
from stillmotion.evaluation.temporal_order.config import OrderConfig
from stillmotion.utils.option_types import DeviceName
from stillmotion.utils.progress import progress_bar

if TYPE_CHECKING:
    from stillmotion.encoders import Encoder

_SYNTHETIC = TrainTestConfig("synthetic")
_SYNTHETIC_200 = TrainTestConfig("synthetic", num_synthetic=200)
_SYNTHETIC_VIDEOS = VideoDataConfig("synthetic")


@contextmanager
def loaded_encoders(
    specs: tuple[str, ...], device: str, num_frames: int | None = None, *, dry_run: bool = False
) -> "Iterator[list[Encoder]]":
    """Load encoders on this process's device, and show the progress of what is done with them.

    Args:
        specs: Encoder specs.
        device: Device as the user gave it.
        num_frames: Frames per clip; None leaves the encoder's own number.
        dry_run: Join no process group: the first process estimates alone.
    """
    from stillmotion.encoders import load_comparable

    with process_group(device, dry_run=dry_run) as device_name, progress_bar("embedding"):
        yield [encoder.with_input(num_frames=num_frames) for encoder in load_comparable(specs, device=device_name)]


def probe(
    encoder: EncoderArg,
    config: LinearProbeConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig = _SYNTHETIC,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Linear probe: top-1 and top-5 accuracy of a linear classifier on frozen features.

    Examples:
      stillmotion probe runs/mine --data ~/labeled
      stillmotion probe runs/mine --data ~/ucf101 --compare-untrained
      torchrun --nproc-per-node 8 -m stillmotion probe runs/k400 --data /data/k400 --preset k400 --precision bf16

    The data is a folder CLASS/VIDEO.mp4, a CSV list, or a public data set. Without --data, the factors of synthetic
    videos are probed. Under torchrun, processes share the videos. Run the same command again to continue after an
    interruption.
    """
    from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe, prepare_linear_probe

    with loaded_encoders((encoder,), device, dry_run=dry_run) as (loaded,):
        if dry_run:
            print_extraction_estimate(prepare_linear_probe(loaded, videos, config)[0], loader)
            return
        report = evaluate_linear_probe(loaded, videos, config, loader=loader)
    print_lines(report.to_lines())


def retrieve(
    encoder: EncoderArgs,
    config: RetrievalConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig = _SYNTHETIC,
    num_frames: NumFrames = None,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Nearest-neighbor retrieval: Recall@1/5/10 and mAP.

    Examples:
      stillmotion retrieve runs/mine --data ~/ucf101 --num-frames 16
      stillmotion retrieve runs/a runs/b laptop --data ~/ucf101
      stillmotion retrieve runs/mine --data ~/hmdb51 --protocol leave-one-out

    Features are cached in the run folder (or in --cache-dir) and reused as long as encoder, videos and sampling stay
    the same. For videos without labels, the nearest neighbors of each are printed. Under torchrun, processes share
    the videos.
    """
    from stillmotion.evaluation.common import prepare_feature_tables
    from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval
    from stillmotion.evaluation.retrieval.report import format_retrieval_reports

    with loaded_encoders(encoder, device, num_frames, dry_run=dry_run) as loaded:
        if dry_run:
            print_extraction_estimate((job for job, _ in prepare_feature_tables(loaded, videos, config)), loader)
            return
        reports = evaluate_retrieval(loaded, videos, config, loader=loader)
    print_lines(format_retrieval_reports(reports))


def cluster(
    encoder: EncoderArgs,
    config: ClusteringConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig = _SYNTHETIC,
    out: OptionalFolder = None,
    num_frames: NumFrames = None,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Cluster quality: silhouette scores and t-SNE plots of the best-retrieved classes.

    Examples:
      stillmotion cluster runs/mine --data ~/ucf101
      stillmotion cluster runs/base runs/vididi --data ~/ucf101 --features whole --out runs/clusters

    Writes report.html and results.json. Videos without labels are grouped by agglomerative clustering first. Under
    torchrun, processes share the videos.

    Args:
        out: Folder to write report.html and results.json to. Default: "clusters" in the first run folder.
    """
    from stillmotion.distributed.process_group import run_on_main
    from stillmotion.evaluation.clustering.evaluate import evaluate_clustering
    from stillmotion.evaluation.clustering.report import format_clustering_results, write_clustering_page
    from stillmotion.evaluation.common import prepare_feature_tables

    with loaded_encoders(encoder, device, num_frames, dry_run=dry_run) as loaded:
        if out is None and loaded[0].run_dir is None:
            raise StillmotionError(f"{encoder[0]} has no run folder to write to; add --out FOLDER")
        if dry_run:
            jobs = (job for job, _ in prepare_feature_tables(loaded, videos, config, output_dir=out))
            print_extraction_estimate(jobs, loader)
            return
        clusters = evaluate_clustering(loaded, videos, config, output_dir=out, loader=loader)
        folder = out or f"{loaded[0].run_dir}/clusters"
        page = run_on_main(lambda: write_clustering_page(clusters, folder, config, data=videos.path))
    print_lines([*format_clustering_results(clusters), f"written: {page}"])


def order(
    encoder: EncoderArgs,
    config: OrderConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig = _SYNTHETIC_200,
    out: OptionalFolder = None,
    num_frames: NumFrames = None,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Arrow-of-time and opposite-action tests on frozen features.

    Examples:
      stillmotion order runs/mine --data ~/videos
      stillmotion order runs/a runs/b --data ~/videos --compare-untrained --out runs/order
      stillmotion order runs/mine --data ~/ssv2/videos --action-pairs chiral_pairs.json

    A linear classifier is trained on the features of all frames in order, and on the whole, static and dynamic
    embeddings. Features that ignore temporal order score 0.5. Under torchrun, processes share the videos.

    Args:
        out: Folder for results.json and results.txt.
    """
    from stillmotion.evaluation.temporal_order.evaluate import evaluate_temporal_order, prepare_temporal_order

    with loaded_encoders(encoder, device, num_frames, dry_run=dry_run) as loaded:
        if dry_run:
            print_extraction_estimate(prepare_temporal_order(loaded, videos, config, output_dir=out)[0], loader)
            return
        report = evaluate_temporal_order(loaded, videos, config, output_dir=out, loader=loader)
    print_lines(report.to_lines())


def propagate(
    encoder: EncoderArg,
    sequences: SequenceDataConfig,
    config: PropagationConfig,
    out: OutputDir,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Label propagation from the first frame: J&F on DAVIS, mIoU on VIP, PCK on JHMDB.

    Examples:
      stillmotion propagate models/dinov2 --data ~/DAVIS --out runs/davis
      stillmotion propagate dinov2:dinov2_vits14.pth@layer=11 --data ~/DAVIS --protocol authors --out runs/frozen
      stillmotion propagate models/dinov2 --data ~/JHMDB --layout jhmdb --out runs/jhmdb

    Args:
        out: Folder for masks or points, overlay videos and results.json.
    """
    from stillmotion.encoders import load
    from stillmotion.evaluation.propagation.evaluate import estimate_propagation, evaluate_propagation

    loaded, size = load(config.encoder_spec(encoder), device=device), config.parsed_image_size()
    if dry_run:
        print_estimate(estimate_propagation(loaded, sequences, out, protocol=config.protocol, image_size=size))
        return
    with progress_bar("propagating"):
        report = evaluate_propagation(
            loaded, sequences, out, protocol=config.protocol, image_size=size, write_overlays=config.overlay
        )
    print_lines(report.to_lines())


def geometry(
    encoder: EncoderArgs,
    config: GeometryConfig,
    videos: VideoDataConfig = _SYNTHETIC_VIDEOS,
    out: OptionalFile = None,
    device: DeviceName = "auto",
) -> None:
    """Inter- and intra-video distances, cycle accuracy and effective rank of image models.

    Examples:
      stillmotion geometry runs/mine --data ~/videos
      stillmotion geometry runs/a runs/b --data ~/ucf101 --split test
      stillmotion geometry facebook/dinov2-small --data ~/videos --gamma estimate

    Encoders are transfer runs (shown beside the frozen model they start from) or image models. D_inter and D_intra are
    mean distances divided by the largest radius, and D = D_inter - γ·D_intra. Intervals are bootstraps over videos.

    Args:
        out: JSON file to write the results to.
    """
    from stillmotion.encoders import load
    from stillmotion.evaluation.geometry.evaluate import evaluate_geometry

    with progress_bar("measuring"):
        report = evaluate_geometry([load(spec, device=device) for spec in encoder], videos, config, output_file=out)
    print_lines(report.to_lines())


def static_dynamic_evaluate(
    encoder: EncoderArgs,
    out: OutputDir,
    data: StaticDynamicDataConfig,
    config: StaticDynamicEvalConfig,
    loader: LoaderConfig,
    device: DeviceName = "auto",
    dry_run: DryRun = False,
) -> None:
    """Linear probes on the plain, static and dynamic versions of a data set, for several encoders.

    Examples:
      stillmotion static-dynamic evaluate runs/mine --data ~/ucf101 \\
          --static-data sets/static --dynamic-data sets/dynamic --out runs/appearance-and-motion
      stillmotion static-dynamic evaluate V-SimCLR=runs/simclr BOD-VCL=runs/bod \\
          --dynamic-data sets/dynamic --out runs/motion

    NAME= before an encoder spec is its name in the tables. `stillmotion static-dynamic make` writes both versions of a
    data set. Features are kept in OUT, so that the same command again is quick. Under torchrun, processes share the
    videos.
    """
    from stillmotion.distributed.process_group import run_on_main
    from stillmotion.evaluation.static_dynamic.evaluate import (
        evaluate_static_dynamic_sets,
        parse_named_specs,
        prepare_static_dynamic_sets,
    )
    from stillmotion.evaluation.static_dynamic.report import format_static_dynamic_report, write_static_dynamic_page

    specs, versions = parse_named_specs(encoder), data.versions()
    with loaded_encoders(tuple(specs.values()), device, dry_run=dry_run) as loaded:
        named = dict(zip(specs, loaded, strict=True))
        if dry_run:
            print_extraction_estimate(prepare_static_dynamic_sets(named, versions, out, config)[0], loader)
            return
        report = evaluate_static_dynamic_sets(named, versions, out, config, loader=loader)
        page = run_on_main(lambda: write_static_dynamic_page(out, report))
    print_lines([*format_static_dynamic_report(report), "", f"written: {page}"])


def still_clips(
    encoder: EncoderArgs,
    loader: LoaderConfig,
    videos: VideoDataConfig = _SYNTHETIC_VIDEOS,
    num_clips: int = 4,
    compare_untrained: bool = False,
    out: OptionalFile = None,
    device: DeviceName = "auto",
) -> None:
    """Measure how much of the dynamic component remains when every clip is frozen at its middle frame.

    Examples:
      stillmotion study still-clips runs/mine --data ~/videos --compare-untrained
      stillmotion study still-clips runs/mine runs/zeros --data ~/videos --out still.json

    Prints the cosine between the dynamic component of a clip and that of its frozen copy, the ratio of their norms,
    and the norms of both components. A ratio near 0 means that a still clip has no motion.

    Args:
        num_clips: Number of evenly spaced clips per video.
        compare_untrained: Also evaluate each network with its initial weights.
        out: JSON file to write the results to.
    """
    from stillmotion.encoders import load
    from stillmotion.evaluation.still_clips import evaluate_still_clips

    loaded = [load(text, device=device) for text in encoder]
    with progress_bar("embedding"):
        report = evaluate_still_clips(
            loaded, videos, num_clips=num_clips, compare_untrained=compare_untrained, output_file=out, loader=loader
        )
    print_lines(report.to_lines())
