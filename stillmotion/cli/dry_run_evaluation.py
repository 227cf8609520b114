"""Plans of the verbs that ask frozen encoders; each has the options of its verb."""

from dataclasses import replace

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.distributed.torchrun import torchrun_world_size
from stillmotion.encoders import Encoder, load_comparable
from stillmotion.errors import StillmotionError
from stillmotion.evaluation import extraction_jobs
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.static_dynamic.config import StaticDynamicEvalConfig
from stillmotion.evaluation.static_dynamic.evaluate import parse_named_specs
from stillmotion.index.video_segments import VideoSegmentConfig
from stillmotion.planning.extraction_estimate import format_extraction_estimates
from stillmotion.utils.formatting import LabelValue


def embed(
    encoder: str,
    videos: VideoDataConfig,
    loader: LoaderConfig,
    out: str,
    num_clips: int | None,
    num_crops: int,
    device: str,
) -> list[LabelValue]:
    (one,) = _load_encoders((encoder,), device)
    showings = list(
        extraction_jobs.prepare_embedding_export(one, videos, out, num_clips=num_clips, num_crops=num_crops)
    )
    return format_extraction_estimates(showings, loader, num_processes=torchrun_world_size())


def probe(
    encoder: str, config: LinearProbeConfig, loader: LoaderConfig, videos: TrainTestConfig, device: str
) -> list[LabelValue]:
    (one,) = _load_encoders((encoder,), device)
    return format_extraction_estimates(
        list(extraction_jobs.prepare_linear_probe(one, videos, config)), loader, num_processes=torchrun_world_size()
    )


def retrieve(
    encoder: tuple[str, ...],
    config: RetrievalConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig,
    num_frames: int | None,
    device: str,
) -> list[LabelValue]:
    asked = extraction_jobs.prepare_feature_tables(
        _load_encoders(encoder, device, num_frames), videos, num_clips=config.num_clips, cache_dir=config.cache_dir
    )
    return format_extraction_estimates(list(asked), loader, num_processes=torchrun_world_size())


def cluster(
    encoder: tuple[str, ...],
    config: ClusteringConfig,
    loader: LoaderConfig,
    videos: TrainTestConfig,
    out: str | None,
    num_frames: int | None,
    device: str,
) -> list[LabelValue]:
    found = _load_encoders(encoder, device, num_frames)
    if out is None and found[0].run_dir is None:
        raise StillmotionError(f"{encoder[0]} has no run folder to write to; give --out")
    asked = extraction_jobs.prepare_feature_tables(
        found, videos, num_clips=config.num_clips, cache_dir=config.cache_dir, output_dir=out
    )
    return format_extraction_estimates(list(asked), loader, num_processes=torchrun_world_size())


def order(
    loader: LoaderConfig,
    encoder: tuple[str, ...],
    videos: TrainTestConfig,
    action_pairs: str | None,
    out: str | None,
    num_frames: int | None,
    compare_untrained: bool,
    device: str,
    recipe: str | None,
) -> list[LabelValue]:
    if recipe is not None:
        raise StillmotionError(f"order --recipe {recipe} trains its own encoders in about a minute; it has no plan")
    if not encoder:
        raise StillmotionError("no encoder given; name a run folder or a recipe, or add --recipe debug")
    asked = extraction_jobs.prepare_temporal_order(
        _load_encoders(encoder, device, num_frames),
        videos,
        action_pairs=action_pairs,
        compare_untrained=compare_untrained,
        output_dir=out,
    )
    return format_extraction_estimates(list(asked), loader, num_processes=torchrun_world_size())


def static_dynamic_evaluate(
    encoder: tuple[str, ...],
    out: str,
    videos: TrainTestConfig,
    config: StaticDynamicEvalConfig,
    loader: LoaderConfig,
    static_data: str | None,
    dynamic_data: str | None,
    device: str,
) -> list[LabelValue]:
    paths = {"plain": videos.path, "static": static_data, "dynamic": dynamic_data}
    texts = parse_named_specs(encoder)
    found = dict(zip(texts, _load_encoders(tuple(texts.values()), device), strict=True))
    versions = {name: replace(videos, path=path) for name, path in paths.items() if path}
    return format_extraction_estimates(
        list(extraction_jobs.prepare_static_dynamic(found, versions, out, config)),
        loader,
        num_processes=torchrun_world_size(),
    )


def index(
    videos: str, segmentation: VideoSegmentConfig, encoder: str | None, out: str | None, device: str
) -> list[LabelValue]:
    from stillmotion.encoders import default_encoder_spec, load
    from stillmotion.index.build_estimate import estimate_index_build

    return estimate_index_build(
        videos,
        load(encoder or default_encoder_spec(), device=device),
        out,
        segmentation=segmentation,
        num_processes=torchrun_world_size(),
    )


def _load_encoders(texts: tuple[str, ...], device: str, frames: int | None = None) -> list[Encoder]:
    return [encoder.with_input(num_frames=frames) for encoder in load_comparable(texts, device=device)]
