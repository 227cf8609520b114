"""`stillmotion report`."""

from pathlib import Path

from tyro.conf import Positional

from stillmotion.cli.shell import parse


def report_command(args: list[str]) -> None:
    """Write a run's report.html: settings, curves and what the run found, on one page that needs no other file.

    examples:
      stillmotion report runs/mine
    """

    def run(run: Positional[str]) -> None:
        """Report.

        Args:
            run: a run folder of pretrain, transfer, finetune or detect.
        """
        from stillmotion.evaluate.tokens import is_transfer
        from stillmotion.report.detect import detect_report, is_detection
        from stillmotion.report.finetune import finetune_report, is_finetuning
        from stillmotion.report.page import run_report
        from stillmotion.report.transfer import transfer_report

        if is_finetuning(run):
            page = finetune_report(run)
        elif is_transfer(Path(run)):
            page = transfer_report(run)
        elif is_detection(run):
            page = detect_report(run)
        else:
            page = run_report(run)
        print(f"written: {page}")

    parse(run, args, "report", report_command)
