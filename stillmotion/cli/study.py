"""`stillmotion study`: many runs, one question."""

from stillmotion.cli.shell import group
from stillmotion.cli.study_confounding import study_confounding_command
from stillmotion.cli.study_spectrum import study_spectrum_command
from stillmotion.cli.study_sweep import study_sweep_command
from stillmotion.cli.study_transfer import study_transfer_command


def study_command(args: list[str]) -> None:
    """Compare many runs to answer one question.

    examples:
      stillmotion study confounding --out runs/confounding
      stillmotion study sweep --over method.split.radius --values 0.05 0.15 0.4 --out runs/sweeps
      stillmotion study sweep --ready all --out runs/sweeps
      stillmotion study spectrum --out runs/spectrum
      stillmotion study transfer --out runs/transfer-study
    """
    commands = {
        "confounding": study_confounding_command,
        "sweep": study_sweep_command,
        "spectrum": study_spectrum_command,
        "transfer": study_transfer_command,
    }
    group(args, "study", commands, study_command)
