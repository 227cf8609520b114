"""Results of a sweep as `sweep` returns them, without a run behind them."""

from stillmotion.study.table import margins

ACCURACY = {"a": [[0.5, 0.7], [0.3, 0.3]], "b": [[0.9, 1.0], [0.4, 0.5]]}


def results(**more):
    """Two points, two seeds, targets light and motion; untrained the same for both points."""

    def table(light, motion):
        average = [(x + y) / 2 for x, y in zip(light, motion, strict=True)]
        return {"whole": {"light": light, "motion": motion, "average": average}}

    points = {
        name: {
            "changes": {"optim.lr": name},
            "runs": [f"runs/{name}-0", f"runs/{name}-1"],
            "accuracy": table(*ACCURACY[name]),
            "untrained": table([0.4, 0.6], [0.2, 0.4]),
            "seconds": [0.1, 0.3],
            "memory": [8.0, 8.0],
        }
        for name in ACCURACY
    }
    found = {
        "name": "try",
        "title": "a try",
        "axis": "optim.lr",
        "reference": "a",
        "feature": "whole",
        "seeds": 2,
        "chance": {"light": 0.5, "motion": 0.25},
        "settings": {"recipe": "debug-simclr"},
        "points": points,
        "claims": [],
        "command": "stillmotion study sweep --over optim.lr",
    } | more
    return found | {"margin": margins(found)}
