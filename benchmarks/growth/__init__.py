"""How time grows with the size of things: curves, their slopes, and the page that shows them.

Every curve is one operation at sizes over some decades, everything else held fixed; its slope is that of log time
over log size, so 1 is linear and 2 quadratic. Beside it stands the exponent that the algorithm promises. Small sizes
cost what any call costs, so the slope that is judged is that of the upper part of the curve (``Curve.upper``).

CPU time, best of several turns, except for threads, where the clock counts. A full run rewrites the table and the
picture of `docs/design/growth.md`; a quick one prints only, and so does one of some topics:

    CRFIELD_GROWTH="steps labels" python -m benchmarks growth

Topics are steps, labels, features, threads, segments, nodes, rounds and candidates.
"""

from __future__ import annotations

import os
import time

from benchmarks.corpora import Bench
from benchmarks.growth import chains, others, page
from benchmarks.growth.curve import Curve
from benchmarks.table import Row

ALLOWED = 0.15  # above the exponent expected


def run(bench: Bench) -> list[Row]:
    """All curves as rows; their page unless the run is quick."""
    curves: list[Curve] = []
    groups = {group.__name__: group for group in (*chains.GROUPS, *others.GROUPS)}
    wanted = os.environ.get("CRFIELD_GROWTH", "").split() or list(groups)
    if set(wanted) - set(groups):
        raise SystemExit(f"CRFIELD_GROWTH names topics of {', '.join(groups)}, got {', '.join(wanted)}.")
    for name in wanted:
        began = time.perf_counter()
        for curve in groups[name](bench.quick):
            print(f"    {curve}", flush=True)
            curves.append(curve)
        print(f"    {name}: {time.perf_counter() - began:.0f} s", flush=True)
    if not bench.quick and wanted == list(groups):
        page.write(curves)
    return [
        Row(
            f"growth: {curve.what}, {curve.sizes[0]:,} … {curve.sizes[-1]:,} {curve.unit}",
            curve.slope,
            unit="",
            required=None if bench.quick or curve.clock else curve.expected + ALLOWED,
            better="less",
            note=f"expected {curve.expected:g}; over all sizes {curve.whole:.2f}",
            detail={"sizes": curve.sizes, "seconds": curve.seconds},
        )
        for curve in curves
    ]
