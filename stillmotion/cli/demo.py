"""`stillmotion demo`."""

from stillmotion.cli.shell import cores, parse


def demo_command(args: list[str]) -> None:
    """Watch a model learn on this machine, in minutes, what plain contrastive learning misses.

    examples:
      stillmotion demo
      stillmotion demo --out runs/demo --seeds 5

    Pre-trains V-SimCLR and V-SimCLR + BOD-VCL on synthetic videos whose colour tells their motion, probes every
    factor, and writes report.html and results.json. The same command again goes on where it stopped.
    """

    def run(out: str = "runs/demo", seeds: int = 3, processes: int = cores()) -> None:
        """Demo.

        Args:
            out: the folder to write to.
            seeds: runs of each method.
            processes: runs at a time, a core each.
        """
        from stillmotion.demo import demo

        print(f"written: {demo(out, seeds=seeds, processes=processes)}")

    parse(run, args, "demo", demo_command)
