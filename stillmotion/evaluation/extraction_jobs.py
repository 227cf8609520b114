"""What the verbs that ask frozen encoders will show them: each is checked as by the verb, and nothing is made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import MissingLabelsError, TrainTestConfig
from stillmotion.data.datasets.wrappers import ConcatDataset, FrozenFrameDataset, ReversedDataset
from stillmotion.encoders import Encoder, resolve_num_clips
from stillmotion.encoders.embedding_export import blocks_dir_for, check_table_file
from stillmotion.encoders.feature_cache import DEFAULT_NUM_CLIPS
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.input_paths import (
    InputPaths,
    check_dir_no_overlap,
    check_file_no_overlap,
    collect_input_paths,
)
from stillmotion.evaluation.common import encoder_names
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import (
    check_single_fold,
    resolve_protocol,
    select_encoders,
    train_test_views,
)
from stillmotion.evaluation.linear_probe.online_classifier import SGDProbeConfig
from stillmotion.evaluation.static_dynamic.config import StaticDynamicEvalConfig
from stillmotion.evaluation.static_dynamic.evaluate import VERSIONS, check_inputs
from stillmotion.evaluation.temporal_order.tasks import build_order_tasks
from stillmotion.planning.extraction_estimate import ExtractionJob, cached_extraction_job
from stillmotion.utils.files import check_writable


def prepare_embedding_export(
    encoder: Encoder, videos: VideoDataConfig, output_file: str, *, num_clips: int | None, num_crops: int
) -> Iterator[ExtractionJob]:
    """Of `embed`."""
    file = check_table_file(output_file)
    check_writable(file.parent)
    opened = videos.open(synthetic=encoder.synthetic_config, seed=encoder.seed)
    check_file_no_overlap(file, collect_input_paths(videos, dataset=opened, encoders=[encoder]))
    views = ClipViews(
        num_clips=resolve_num_clips(encoder, num_clips, default=4), num_crops=num_crops, average_views=True
    )
    yield ExtractionJob(name=encoder.name, encoder=encoder, videos=opened, views=views, cache_dir=blocks_dir_for(file))


def prepare_feature_tables(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    *,
    num_clips: int | None,
    cache_dir: str | None,
    output_dir: str | None = None,
) -> Iterator[ExtractionJob]:
    """Of `retrieve` and `clusters`, with labels or without. out: the folder that is written to, where there is one."""
    for title, encoder in zip(encoder_names(encoders), encoders, strict=True):
        videos: VideoDataset
        try:
            videos = split_config.open(encoder.synthetic_config).dataset
        except MissingLabelsError:
            videos = split_config.with_split().open()
        read = collect_input_paths(split_config, dataset=videos, encoders=encoders)
        _check_dir(cache_dir, read, option_name="--cache-dir")
        _check_dir(output_dir, collect_input_paths(split_config, encoders=encoders))
        views = ClipViews(
            num_clips=resolve_num_clips(encoder, num_clips, default=DEFAULT_NUM_CLIPS), average_views=True
        )
        yield cached_extraction_job(title, encoder, videos, views, cache_dir)


def prepare_linear_probe(
    encoder: Encoder, split_config: TrainTestConfig, config: LinearProbeConfig
) -> Iterator[ExtractionJob]:
    """Of `probe`; a random clip takes as long as one in the middle."""
    rule = resolve_protocol(encoder, config)
    check_single_fold(split_config)
    parted = split_config.open(encoder.synthetic_config)
    _check_dir(
        config.cache_dir,
        collect_input_paths(split_config, dataset=parted.dataset, encoders=[encoder]),
        option_name="--cache-dir",
    )
    train, test = parted.train_test()
    views, tested = train_test_views(rule, config)
    for name, network in select_encoders(encoder, config).items():
        both = {f"{name}, training videos": (train, views, 1), f"{name}, test videos": (test, tested, 1)}
        if rule.use_sgd and config.cache_dir is None:
            both[f"{name}, training videos"] = (
                train,
                replace(views, num_clips=1, average_views=True),
                SGDProbeConfig().epochs,
            )
        for what, (half, of, times) in both.items():
            if config.cache_dir is not None:
                yield cached_extraction_job(what, network, half, of, config.cache_dir)
            else:
                yield ExtractionJob(name=what, encoder=network, videos=half, views=of, num_passes=times)


def prepare_temporal_order(
    encoders: Sequence[Encoder],
    split_config: TrainTestConfig,
    *,
    action_pairs: str | None,
    compare_untrained: bool,
    output_dir: str | None,
) -> Iterator[ExtractionJob]:
    """Of `order`: a clip and its reverse are two videos."""
    _check_dir(output_dir, collect_input_paths(split_config, encoders=encoders, extra_paths=[action_pairs]))
    named = dict(zip(encoder_names(encoders), encoders, strict=True))
    asked = build_order_tasks(split_config, action_pairs=action_pairs, synthetic=encoders[0].synthetic_config)
    for name, encoder in named.items():
        for network in (encoder, encoder.untrained()) if compare_untrained else (encoder,):
            played = ReversedDataset(
                asked.videos, num_frames=network.input_config.num_frames, with_reversed=asked.includes_reversed
            )
            what = name if network is encoder else f"{name}, untrained"
            yield ExtractionJob(
                name=what, encoder=network.with_input(stride=1, fps=0), videos=played, views=ClipViews()
            )


def prepare_static_dynamic(
    encoders: Mapping[str, Encoder],
    versions: Mapping[str, TrainTestConfig],
    output_dir: str,
    config: StaticDynamicEvalConfig,
) -> Iterator[ExtractionJob]:
    """Of `controlled evaluate`: each version, and single frames of the dynamic one."""
    check_inputs(encoders, versions)
    parted = {name: versions[name].open() for name in VERSIONS if name in versions}
    for name, halves in parted.items():
        _check_dir(output_dir, collect_input_paths(versions[name], dataset=halves.dataset, encoders=encoders.values()))
    for title, encoder in encoders.items():
        sets = {name: (halves.dataset, config.num_clips) for name, halves in parted.items()}
        if "dynamic" in parted:
            sets["single frames of the dynamic"] = ConcatDataset([FrozenFrameDataset(parted["dynamic"].dataset)]), 1
        for name, (videos, clips) in sets.items():
            yield cached_extraction_job(
                f"{title}, {name}", encoder, videos, ClipViews(num_clips=clips), Path(output_dir) / "features"
            )


def _check_dir(folder: str | None, inputs: InputPaths, *, option_name: str = "--out") -> None:
    if folder is not None:
        check_dir_no_overlap(folder, inputs, option_name=option_name)
        check_writable(folder, option_name=option_name)
