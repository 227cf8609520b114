"""Exact search by cosine against the plain matrix product with top-k, which holds all similarities in memory.

    python benchmarks/exact_search.py [--queries 10000] [--references 10000] [--channels 512]

Both return the 10 nearest references of each query. The plain product gets unit vectors; `top_k` normalizes its input.
The methods take turns; the figures are medians over rounds of the CPU time on one thread.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from stillmotion.functional.knn import knn_search

K = 10
MAX_RATIO = 1.5


def make_candidates(queries: torch.Tensor, references: torch.Tensor) -> dict[str, Callable[[], object]]:
    x, y = F.normalize(queries, dim=1), F.normalize(references, dim=1)
    return {
        "product + top-k": lambda: (x @ y.mT).topk(K),
        "top_k": lambda: knn_search(queries, references, k=K),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--references", type=int, default=10_000)
    parser.add_argument("--channels", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    queries, references = (torch.randn(n, options.channels) for n in (options.queries, options.references))
    methods = make_candidates(queries, references)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(options.rounds + 1):
        for name, method in methods.items():
            start = time.process_time()
            method()
            seconds[name].append(time.process_time() - start)
    print(f"torch {torch.__version__}; {options.queries} × {options.references} × {options.channels}, k = {K}")
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}  # the first round warms up
    base = medians["product + top-k"]
    for name, median in medians.items():
        limit = f"  (at most {MAX_RATIO}×)" if name == "top_k" else ""
        print(f"{name:18}{median:8.2f} s{median / base:8.2f}×{limit}")


if __name__ == "__main__":
    main()
