"""Who seeks? A model of tag in a robot's loop: ``python examples/robot_loop.py [OUTPUT.h]``.

Trains on five minutes of simulated tag, then plays a new game frame by frame: raw positions go in, the filtered
label comes out, and a second later a surer one. With a file name the model is also written for the robot, as a C
header (.h) or as a Python module (.py) without dependencies.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import crfield

RATE, LAG = 60.0, 60
FEATURES = """
chase  state : cosang(rel(a,b),vel(a)) | for a in robots, b in robots | where a != b | win mean 1,12
still  state : speed(a)                | for a in robots | test < 300 | win all 6,30
touch  trans : lt(dist(a,b),240) and not lag(lt(dist(a,b),240),2) | for a in robots, b in robots | where a < b
"""


def main(path: str | None = None) -> None:
    """Train, play, and tell how often the loop was right and how long a frame took."""
    train, played = (crfield.make_tag(m, scheme="unconstrained", random_state=m) for m in (5, 3))
    catalogue = crfield.Specification.parse(FEATURES).expand(labels=3, agents=3)
    columns = np.arange(catalogue.n_columns)
    table = catalogue.on(crfield.Recordings.of(train.positions, rate=RATE)).chunk(columns)
    linked = np.flatnonzero([catalogue.column_name(k).startswith("touch") for k in columns]).tolist()
    model = crfield.ChainCRF(standardize=True, transition_features=linked, transition_pairs="all", tol=1e-3)
    model.fit([table], [train.labels])
    stream = model.stream(lag=LAG, viterbi=True, features=catalogue.stream(columns, rate=RATE))
    now_right, later_right, delays, forced = [], [], [], 0
    committed = 0
    began = time.perf_counter()
    for t, positions in enumerate(played.positions):
        now = stream.push(positions)
        now_right.append(now.label == played.labels[t])
        if now.smoothed is not None:
            later_right.append(model.classes_[now.smoothed.argmax()] == played.labels[t - LAG])
        for _ in now.committed:
            delays.append(t - committed)
            committed += 1
        forced += now.forced
    taken = (time.perf_counter() - began) / len(played.positions)
    print(f"right at once                {np.mean(now_right):.1%}")
    print(f"right {LAG / RATE:.1f} s later            {np.mean(later_right):.1%}")
    print(
        f"label final after            {np.median(delays) / RATE:.2f} s (median), {max(delays) / RATE:.1f} s (most)"
    )
    print(f"labels forced                {forced}")
    print(f"a frame, features and label  {taken * 1e6:.0f} µs")
    if path is not None:
        model.export(path)
        print(f"written to {path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
