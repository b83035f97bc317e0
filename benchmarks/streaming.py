"""One step of a stream against one matrix–vector product of NumPy.

The product of a 5 × 40 table with a vector is the least that scoring a step of 40 columns for 5 labels can cost from
Python, and mostly the price of calling NumPy at all; `LabelStream.push` is measured in such products, taken in the
same run, median over median. Pushing a batch of streams shares the overhead. A million steps then show whether
memory grows (resident after the first tenth, and after all) and whether digits are lost: a second stream that begins
two thousand steps before the end has seen the same since and must say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.children import peak_megabytes
from benchmarks.corpora import Bench
from benchmarks.table import Row
from benchmarks.timing import interleaved
from crfield import ChainCRF

PRODUCTS, MEGABYTES, DIGITS = 20.0, 1.0, 1e-10
LABELS, COLUMNS, STREAMS = 5, 40, 100
KINDS: dict[str, dict[str, Any]] = {
    "filter": {},
    "filter, Viterbi": {"viterbi": True},
    "filter, lag 10": {"lag": 10},
    "filter, Viterbi, lag 60": {"viterbi": True, "lag": 60},
}


def models() -> tuple[ChainCRF, ChainCRF, np.ndarray]:
    """A model of 40 columns, one with four of them on transitions too, and observations."""
    rng = np.random.default_rng(0)
    states = [np.repeat(rng.integers(LABELS, size=40), rng.integers(5, 30, size=40)) for _ in range(4)]
    centres = rng.normal(size=(LABELS, COLUMNS)) * 0.4
    X = [centres[state] + rng.normal(size=(len(state), COLUMNS)) for state in states]
    y = [state.tolist() for state in states]
    plain = ChainCRF(standardize=True).fit(X, y)
    linked = ChainCRF(standardize=True, transition_features=[0, 10, 20, 30]).fit(X, y)
    return plain, linked, np.concatenate(X)


def repeated(call: Callable[[np.ndarray], Any], x: np.ndarray, times: int) -> Callable[[], None]:
    """Many calls as one turn, so that the clock can see them."""

    def turn() -> None:
        for k in range(times):
            call(x[k])

    return turn


def steps_in_products(bench: Bench) -> list[Row]:
    """Time of a step for each kind of answer."""
    plain, linked, x = models()
    table = np.random.default_rng(1).normal(size=(LABELS, COLUMNS))
    pushes = {f"{name}": plain.stream(**options).push for name, options in KINDS.items()}
    pushes["filter, 4 columns on transitions"] = linked.stream().push
    times = 1000
    turns = [repeated(lambda row: table @ row, x, times), *(repeated(push, x, times) for push in pushes.values())]
    many, batch = plain.streams(STREAMS), x[:STREAMS]
    turns.append(lambda: [many.push(batch) for _ in range(times // STREAMS)])
    product, *taken = interleaved(*turns, turns=7 if bench.quick else 25)
    rows = []
    for name, timing in zip([*pushes, f"filter, {STREAMS} streams pushed together"], taken, strict=True):
        rows.append(
            Row(
                f"streaming: one step, {LABELS} labels × {COLUMNS} columns, {name}",
                timing.median / product.median,
                unit="products",
                required=PRODUCTS if name == "filter" else None,
                better="less",
                ours=f"{timing.median / times * 1e6:.2f} µs",
                rival=f"{product.median / times * 1e6:.2f} µs",
            )
        )
    return rows


def resident_megabytes() -> float:
    """Memory in use now; where the system does not tell, the most there was."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1.024e-3
    return peak_megabytes()


def a_million(bench: Bench) -> list[Row]:
    """Memory and digits over a long stream."""
    _, linked, x = models()
    total = 100_000 if bench.quick else 1_000_000
    options = {"lag": 5, "viterbi": True, "max_lag": 100}
    long, short = linked.stream(**options), linked.stream(**options)
    early, apart, said = 0.0, 0.0, 0
    for t in range(total):
        now = long.push(x[t % len(x)])
        said += len(now.committed)
        if t == total // 10:
            early = resident_megabytes()
        if t >= total - 2000:
            apart = float(np.abs(short.push(x[t % len(x)]).probabilities - now.probabilities).max())
    grown = resident_megabytes() - early
    said += len(long.finish().committed)
    return [
        Row(f"streaming: memory gained over {total:,} steps", grown, unit="MB", required=MEGABYTES, better="less"),
        Row("streaming: a filter that began 2,000 steps ago", apart, unit="", required=DIGITS, better="less"),
        Row("streaming: labels committed, of all steps", said / total, unit="", required=1.0),
    ]


def run(bench: Bench) -> list[Row]:
    """All of them."""
    return [*steps_in_products(bench), *a_million(bench)]
