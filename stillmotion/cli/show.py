"""Verbs that show: browse, demo, explain, report."""

import tyro

from stillmotion.cli.shell import Encoder, Frames
from stillmotion.data.reading import cores
from stillmotion.errors import StillmotionError
from stillmotion.explain.options import Target
from stillmotion.options import Device
from stillmotion.train.log import bar


def browse(
    folder: tyro.conf.Positional[str],
    encoder: str | None = None,
    out: str | None = None,
    port: int = 0,
    open: bool = True,
    device: Device = "auto",
) -> None:
    """Open a page over a folder of videos: what moves like this, what looks like this, a map, and groups.

    examples:
      stillmotion browse ~/videos                     indexes what is new, and opens the page
      stillmotion browse synthetic                    the same on drawn videos
      stillmotion browse ~/videos --encoder models/dinov2
      stillmotion browse runs/index --no-open         an index as it is; prints the address alone

    The page is for this machine alone, behind a token in its address, and needs no network. Ctrl-C ends it.

    Args:
        folder: of videos, or of an index, or "synthetic".
        encoder: any text that names one; the index's own, or the best at hand, if left out.
        out: the folder for the index, in place of one in the cache.
        port: of 127.0.0.1; 0 takes a free one.
        open: the page in the browser.
    """
    from stillmotion.browse import serve
    from stillmotion.browse.place import find

    with bar("indexing") as progress:
        shown = find(folder, encoder=encoder, out=out, device=device, progress=progress)
    serve(shown.index, encode=shown.encode, port=port, show=open)


def demo(out: str = "runs/demo", seeds: int = 5, processes: int = cores()) -> None:
    """Watch four methods learn on this machine, in minutes, and see what each wins and loses.

    examples:
      stillmotion demo
      stillmotion demo --out runs/demo --seeds 1

    Pre-trains V-SimCLR, V-SimCLR + BOD-VCL, ViDiDi-SimCLR and this library's own method on synthetic videos whose
    colour tells their motion, probes every factor, and writes report.html and results.json. The same command again goes
    on where it stopped.

    Args:
        out: the folder to write to.
        seeds: runs of each method.
        processes: runs at a time, a core each.
    """
    from stillmotion.study.demo import demo

    print(f"written: {demo(out, seeds=seeds, processes=processes)}")


def explain(
    encoder: Encoder,
    video: tyro.conf.Positional[str],
    out: str,
    target: Target,
    beside: tuple[str, ...] = (),
    tubes: bool = False,
    videos: int = 8,
    frames: Frames = None,
    stride: int | None = None,
    size: int | None = None,
    device: Device = "auto",
) -> None:
    """Look inside: a video's modes in time, how alike its frames stay, and where each half of its embedding looks.

    examples:
      stillmotion explain runs/mine cat.mp4 --out cat           pictures, results.json and report.html
      stillmotion explain runs/mine cat.mp4 --out cat --tubes   saliency tubes beside Grad-CAM
      stillmotion explain runs/mine cat.mp4 --out cat --against dog.mp4
      stillmotion explain runs/mine ~/videos --out runs/mine/explain   some of a folder, shown by `report` too
      stillmotion explain runs/tuned punch.mp4 --class Punch --beside runs/other --out punch   a head's row, two runs
      stillmotion explain runs/vididi ~/videos --class Punch --labelled ~/ucf101 --beside runs/vicreg --out punch

    Args:
        video: a video, a folder of videos or frames, or "synthetic".
        out: the folder to write.
        beside: more encoders, shown the same clips, for the tubes of --class side by side.
        tubes: saliency tubes too.
        videos: so many of a folder, evenly spaced.
        stride: from frame to frame of a clip, in place of the encoder's.
        size: pixels a side, in place of the encoder's; larger ones give finer maps.
    """
    from stillmotion.encoders import load
    from stillmotion.report.explain import explain
    from stillmotion.report.tubes import explain_class

    if beside and target.row is None:
        raise StillmotionError("--beside is for the tubes of a class; add --class NAME")
    loaded = [load(text, device=device) for text in (encoder, *beside)]
    loaded[0] = loaded[0].shown(frames=frames, stride=stride, size=size)
    with bar("explaining") as progress:
        if target.row is not None:
            asked, labelled = target.row, target.labelled
            explain_class(loaded, video, out, name=asked, labelled=labelled, videos=videos, progress=progress)
        else:
            explain(loaded[0], video, out, tubes=tubes, target=target, videos=videos, progress=progress)
    print(f"written: {out}/report.html")


def report(run: tyro.conf.Positional[str], follow: int = 0) -> None:
    """Write a run's report.html: settings, curves and what the run found, on one page that needs no other file.

    examples:
      stillmotion report runs/mine
      stillmotion report runs/mine --follow 30        while it is trained, by another command

    A run that is being trained is only read: the page says how far it is, and what time is left.

    Args:
        run: a run folder of pretrain, transfer, finetune, detect or segment.
        follow: write the page anew every so many seconds until the run ends; the page then reloads itself. 0: once.
    """
    from stillmotion.report.run import follow as following
    from stillmotion.report.run import report

    print(f"written: {following(run, follow, say=_at_once) if follow else report(run)}")


def _at_once(line: str) -> None:
    print(line, flush=True)
