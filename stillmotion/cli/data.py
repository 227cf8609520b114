"""`stillmotion data`: the public data sets on disk."""

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from stillmotion.cli.shell import bar, cores, group, parse
from stillmotion.errors import StillmotionError


def data_command(args: list[str]) -> None:
    """See whether a public data set is whole and readable.

    examples:
      stillmotion data check ucf101 ~/ucf101
      stillmotion data check davis ~/DAVIS

    """
    group(args, "data", {"check": data_check_command}, data_command)


def data_check_command(args: list[str]) -> None:
    """Hold a folder against the official lists of a data set, and read a frame of every video.

    examples:
      stillmotion data check ucf101 ~/UCF-101 --annotations ~/ucfTrainTestlist
      stillmotion data check kinetics ~/k400/videos --annotations ~/k400/train.csv --workers 16
      stillmotion data check ssv2 ~/ssv2 --list missing.txt

    What is missing or unreadable is named, a class of which nothing is there by its name alone. The exit code is 0
    where nothing is, and 1 otherwise.
    """

    def run(
        set: Positional[
            Literal[
                "ucf101",
                "hmdb51",
                "kinetics",
                "ssv2",
                "gym99",
                "diving48",
                "ava",
                "davis",
                "vip",
                "jhmdb",
                "breakfast",
            ]
        ],
        folder: Positional[str],
        annotations: str | None = None,
        workers: int = cores(),
        list: str | None = None,
    ) -> None:
        """Check.

        Args:
            set: which data set it should be.
            folder: where its videos lie.
            annotations: folder or file of its lists, where they are neither in the folder nor beside it.
            workers: processes that read videos.
            list: a file for the names of all that is missing or unreadable, one a line.
        """
        from stillmotion.data.check import check, check_lines

        with bar("reading") as progress:
            found = check(set, folder, annotations=annotations, workers=workers, progress=progress)
        print("\n".join(check_lines(found)))
        if list is not None:
            names = [*found.absent, *found.missing, *(name for name, _ in found.unreadable)]
            try:
                Path(list).write_text("".join(f"{name}\n" for name in names))
            except OSError as error:
                raise StillmotionError(f"cannot write {list} ({error.strerror}); choose another --list") from None
        if not found.whole:
            raise SystemExit(1)

    parse(run, args, "data check", data_check_command)
