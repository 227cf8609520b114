"""Made-up results of a sweep in the format of `sweep`."""

from stillmotion.studies.sweep.table import significance_margins

ACCURACY = {"a": [[0.5, 0.7], [0.3, 0.3]], "b": [[0.9, 1.0], [0.4, 0.5]]}


def make_results(**overrides):
    """Two points, two seeds, targets light and motion; untrained the same for both points."""

    def table(light, motion):
        average = [(x + y) / 2 for x, y in zip(light, motion, strict=True)]
        return {"whole": {"light": light, "motion": motion, "average": average}}

    points = {
        name: {
            "overrides": {"optim.lr": name},
            "run_dirs": [f"runs/{name}-0", f"runs/{name}-1"],
            "accuracy": table(*ACCURACY[name]),
            "untrained": table([0.4, 0.6], [0.2, 0.4]),
            "step_seconds": [0.1, 0.3],
            "step_memory_mib": [8.0, 8.0],
        }
        for name in ACCURACY
    }
    result = {
        "name": "try",
        "title": "a try",
        "field": "optim.lr",
        "reference": "a",
        "feature": "whole",
        "seeds": 2,
        "chance": {"light": 0.5, "motion": 0.25},
        "base_config": {"recipe": "debug:k400-simclr"},
        "points": points,
        "claims": [],
        "command": "stillmotion study sweep --field optim.lr",
    } | overrides
    return result | {"significance_margin": significance_margins(result)}
