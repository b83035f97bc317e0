"""What ``import crfield`` costs, in fresh processes taking turns.

The yardstick is the import of the libraries below it: numpy, scipy.sparse, scipy.optimize, sklearn.base. Names of
``crfield`` load their modules when first used, so the cost of the estimator itself, on top of those libraries, is
shown too.
"""

from __future__ import annotations

from benchmarks.children import BASE, run_task
from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import Timing

REQUIRED = 0.3
ESTIMATOR = "from crfield import ChainCRF"


def run(bench: Bench) -> list[Row]:
    """The package alone, and the estimator on top of its libraries."""
    package, base, estimator, unwanted = Timing(), Timing(), Timing(), set()
    for _ in range(3 if bench.quick else 9):
        alone = run_task("imports", "import crfield", ESTIMATOR)
        package.seconds.append(alone["seconds"][0])
        unwanted |= set(alone["unwanted"])
        both = run_task("imports", BASE, ESTIMATOR)
        base.seconds.append(both["seconds"][0])
        estimator.seconds.append(both["seconds"][1])
    return [
        Row(
            "imports: import crfield, share of its libraries' import",
            package.best / base.best,
            required=REQUIRED,
            better="less",
            ours=seconds(package.best),
            rival=seconds(base.best),
        ),
        Row(
            "imports: ChainCRF on top of the libraries, share of theirs",
            estimator.best / base.best,
            required=REQUIRED,
            better="less",
            ours=seconds(estimator.best),
            rival=seconds(base.best),
        ),
        Row(
            "imports: of typer, rich, matplotlib, pandas, how many came along",
            float(len(unwanted)),
            unit="",
            required=0,
            better="less",
            note=", ".join(sorted(unwanted)),
        ),
    ]
