"""Plans of the verbs that ask frozen encoders; each has the options of its verb."""

from dataclasses import replace

from stillmotion.amounts import Row
from stillmotion.cli.dry import processes
from stillmotion.data.halves import Halves
from stillmotion.data.moments import Cutting
from stillmotion.data.reading import Reading
from stillmotion.data.videos import Videos
from stillmotion.encoders import Encoder, load_alike
from stillmotion.errors import StillmotionError
from stillmotion.evaluate import plans
from stillmotion.evaluate.controlled import named_encoders
from stillmotion.evaluate.cost import rows
from stillmotion.evaluate.options import Clustering, Comparing, Probing, Retrieval


def embed(
    encoder: str, videos: Videos, reading: Reading, out: str, clips: int | None, crops: int, device: str
) -> list[Row]:
    (one,) = _loaded((encoder,), device)
    showings = list(plans.embedding(one, videos, out, clips=clips, crops=crops))
    return rows(showings, reading, processes=processes())


def probe(encoder: str, probing: Probing, reading: Reading, videos: Halves, device: str) -> list[Row]:
    (one,) = _loaded((encoder,), device)
    return rows(list(plans.probing(one, videos, probing)), reading, processes=processes())


def retrieve(
    encoder: tuple[str, ...], retrieval: Retrieval, reading: Reading, videos: Halves, frames: int | None, device: str
) -> list[Row]:
    asked = plans.comparison(_loaded(encoder, device, frames), videos, clips=retrieval.clips, cache=retrieval.cache)
    return rows(list(asked), reading, processes=processes())


def clusters(
    encoder: tuple[str, ...],
    clustering: Clustering,
    reading: Reading,
    videos: Halves,
    out: str | None,
    frames: int | None,
    device: str,
) -> list[Row]:
    found = _loaded(encoder, device, frames)
    if out is None and found[0].folder is None:
        raise StillmotionError(f"{encoder[0]} has no run folder to write to; give --out")
    asked = plans.comparison(found, videos, clips=clustering.clips, cache=clustering.cache, out=out)
    return rows(list(asked), reading, processes=processes())


def order(
    reading: Reading,
    encoder: tuple[str, ...],
    videos: Halves,
    pairs: str | None,
    out: str | None,
    frames: int | None,
    untrained: bool,
    device: str,
    recipe: str | None,
) -> list[Row]:
    if recipe is not None:
        raise StillmotionError(f"order --recipe {recipe} trains its own encoders in about a minute; it has no plan")
    if not encoder:
        raise StillmotionError("no encoder given; name a run folder or a recipe, or add --recipe debug")
    asked = plans.ordering(_loaded(encoder, device, frames), videos, pairs=pairs, untrained=untrained, out=out)
    return rows(list(asked), reading, processes=processes())


def controlled_evaluate(
    encoder: tuple[str, ...],
    out: str,
    videos: Halves,
    comparing: Comparing,
    reading: Reading,
    static: str | None,
    dynamic: str | None,
    device: str,
) -> list[Row]:
    paths = {"plain": videos.path, "static": static, "dynamic": dynamic}
    texts = named_encoders(encoder)
    found = dict(zip(texts, _loaded(tuple(texts.values()), device), strict=True))
    versions = {name: replace(videos, path=path) for name, path in paths.items() if path}
    return rows(list(plans.versions(found, versions, out, comparing)), reading, processes=processes())


def index(videos: str, cutting: Cutting, encoder: str | None, out: str | None, device: str) -> list[Row]:
    from stillmotion.encoders import best, load
    from stillmotion.index.cost import rows

    return rows(videos, load(encoder or best(), device=device), out, cutting=cutting, processes=processes())


def _loaded(texts: tuple[str, ...], device: str, frames: int | None = None) -> list[Encoder]:
    return [encoder.shown(frames=frames) for encoder in load_alike(texts, device=device)]
