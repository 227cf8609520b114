"""`stillmotion controlled`: appearance without motion, motion without appearance."""

from stillmotion.cli.controlled_evaluate import controlled_evaluate_command
from stillmotion.cli.controlled_make import controlled_make_command
from stillmotion.cli.shell import group


def controlled_command(args: list[str]) -> None:
    """Make the static and the dynamic version of a data set, and measure what encoders know of each.

    examples:
      stillmotion controlled make --from ~/ucf101 --kind static --out sets/static
      stillmotion controlled make --from ~/ucf101 --kind dynamic --out sets/dynamic
      stillmotion controlled evaluate --encoder runs/mine --data ~/ucf101 \\
          --static sets/static --dynamic sets/dynamic --out runs/appearance-and-motion

    """
    group(
        args,
        "controlled",
        {"make": controlled_make_command, "evaluate": controlled_evaluate_command},
        controlled_command,
    )
