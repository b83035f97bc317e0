"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib import import_module
from pathlib import Path

COMPARISONS = (
    "evaluation",
    "roofline",
    "levels",
    "training",
    "owlqn",
    "tagging",
    "sentence",
    "serve",
    "labels",
    "memory",
    "stopping",
    "finishing",
    "imports",
    "programs",
    "pseudo",
    "graphs",
    "dense",
    "boosting",
    "trees",
    "families",
    "segments",
    "relatives",
    "selection",
    "streaming",
    "m-estimator",
    "hmm",
    "online",
    "letters",
    "out-of-core",
    "growth",
    "cluster",
    "torch",
    "bodies",
)
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def main(arguments: list[str] | None = None) -> int:
    """Run the comparisons named, print the table, write JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__package__ or "") and __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(COMPARISONS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a part of the data and fewer turns: minutes less")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="where the figures go (bench.json)")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(COMPARISONS))
    if unknown:
        parser.error(f"no comparison is called {', '.join(unknown)}; there are {', '.join(COMPARISONS)}")

    # Before numpy is loaded: a spinning BLAS thread would count as somebody's CPU time.
    os.environ.update(dict.fromkeys(THREADS, "1"))
    from benchmarks.corpora import Bench
    from benchmarks.table import machine, render, write_json

    bench, rows, about = Bench(quick=options.quick), [], machine()
    about |= {"data": str(bench.chunks), "quick": options.quick}
    print(f"{about['data']}, {about['processors']} processors, load {about['load_average'][0]}")
    if not bench.chunks.real:
        print("CRFIELD_DATA is not set: generated phrases serve, and figures meant for real data are not judged.")
    if options.quick:
        print("Quick: parts of the data, few turns; not the figures to quote.")
    try:
        for name in options.names or COMPARISONS:
            began = time.perf_counter()
            made = import_module(f"benchmarks.{name.replace('-', '_')}").run(bench)
            rows += made
            print(f"\n{render(made)}\n    [{name}: {time.perf_counter() - began:.0f} s]", flush=True)
            write_json(options.json, rows, about)
    finally:
        bench.close()
    print(f"\n{'═' * 40}\n{render(rows)}\n\nWritten to {options.json}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
