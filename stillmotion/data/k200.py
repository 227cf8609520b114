"""K200-40k: 200 classes of Kinetics-400 with 200 training videos each (ViDiDi, §3.1), chosen by rule.

The paper does not publish its list. The rule here goes by names alone, so that every copy of Kinetics, re-encoded or
not, gives the same list as long as the same videos are there:

1. Classes of which fewer than 200 videos are there are left out.
2. Of the others, the 200 whose names have the smallest SHA-256.
3. Of each class, the 200 videos whose file names without suffix have the smallest SHA-256.
4. The list is sorted by class and then by file name; labels count the chosen classes.

`--layout k200` takes this part of a Kinetics folder.
"""

import hashlib
from collections import defaultdict
from pathlib import Path

from stillmotion.data.paths import TARGET, PathSet
from stillmotion.errors import StillmotionError


def k200(videos: PathSet, *, classes: int = 200, each: int = 200) -> PathSet:
    """The part of Kinetics that the rule above chooses.

    videos: its training split, labelled. classes, each: how many classes, and videos of each.
    """
    found: defaultdict[str, list[Path]] = defaultdict(list)
    names = videos.classes.get(TARGET, [])
    for path, label in zip(videos.paths, videos.labels.get(TARGET, ()), strict=False):
        if label >= 0:
            found[names[label]].append(path)
    large = [name for name, paths in found.items() if len(paths) >= each]
    if len(large) < classes:
        raise StillmotionError(
            f"{videos.root}: {len(large)} classes have {each} videos; K200-40k needs {classes} (give all of "
            "Kinetics-400's training videos, in class folders or with their CSV by --annotations)"
        )
    chosen = sorted(sorted(large, key=_hash)[:classes])
    paths = [sorted(sorted(found[name], key=lambda p: _hash(p.stem))[:each], key=lambda p: p.stem) for name in chosen]
    return PathSet(
        [path for some in paths for path in some],
        labels=[label for label, some in enumerate(paths) for _ in some],
        classes=chosen,
        root=videos.root,
    )


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
