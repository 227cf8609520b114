"""`stillmotion report`."""

from tyro.conf import Positional

from stillmotion.cli.shell import parse


def report_command(args: list[str]) -> None:
    """Write a run's report.html: settings, curves, probes, eigenvalues and nearest neighbours on one page.

    examples:
      stillmotion report runs/mine
    """

    def run(run: Positional[str]) -> None:
        """Report.

        Args:
            run: a run folder of pretrain or finetune.
        """
        from stillmotion.report.finetune import finetune_report, is_finetuning
        from stillmotion.report.page import run_report

        print(f"written: {finetune_report(run) if is_finetuning(run) else run_report(run)}")

    parse(run, args, "report", report_command)
