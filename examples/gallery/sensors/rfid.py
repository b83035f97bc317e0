"""
Readings that come when they come, and another room
===================================================

A tag without a battery is worn on the chest; four antennas hear it now and then. Which antenna
hears it, and how strongly, tells where its wearer is, so a model that learns from it is very
good in the room it was trained in. In another room the antennas hang elsewhere, and the same
model is misled.

``ReadingFeatures`` knows of every column whether it describes a place, and ``travels=True``
leaves those out. ``PlaceShift`` moves recordings to another room, which is the test everybody
should make before promising anything.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import ChainCRF, PlaceShift, ReadingFeatures
from crfield.storage.datasets.rfid import Trial

# %%
# Made trials
# -----------
# Lying and sitting on a bed under antenna 0, a chair under antenna 3, walking in between.

ACTIVITIES = ["lying", "sit on bed", "ambulating", "sit on chair"]
NEAREST = {"lying": 0, "sit on bed": 0, "ambulating": 2, "sit on chair": 3}


def make_trial(seed):
    rng = np.random.default_rng(seed)
    activity = np.repeat(
        ["lying", "sit on bed", "ambulating", "sit on chair", "ambulating", "lying"], 40
    )
    n = len(activity)
    nearest = np.array([NEAREST[one] for one in activity])
    antenna = np.where(rng.random(n) < 0.8, nearest, rng.integers(0, 4, n))
    up = np.where(activity == "lying", 0.1, 1.0) + rng.normal(scale=0.1, size=n)
    turn = 0.3 * (activity == "ambulating") * rng.normal(size=n)
    motion = np.stack([turn, up, rng.normal(scale=0.05, size=n)], axis=1)
    seconds = np.cumsum(rng.exponential(0.5, n))
    return Trial(
        f"trial {seed}",
        seconds,
        motion,
        antenna,
        -60.0 + rng.normal(size=n),
        motion[:, 0],
        activity,
    )


trials = [make_trial(seed) for seed in range(12)]
X, y = [trial.readings() for trial in trials], [trial.activity for trial in trials]
moved = PlaceShift(random_state=1).fit(X).transform(X[8:])

# %%
# At home and away
# ----------------

scores = {}
for name, travels in (("all columns", False), ("columns that travel", True)):
    columns = ReadingFeatures(
        axes=("frontal", "vertical", "lateral"), radii=(1.0, 8.0), travels=travels
    )
    model = ChainCRF(features=columns, l2=10.0, standardize=True).fit(X[:8], y[:8])
    scores[name] = model.score(X[8:], y[8:]), model.score(moved, y[8:])
    print(f"{name:20} same room {scores[name][0]:.2f}, another room {scores[name][1]:.2f}")

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(7, 3.2), width_ratios=[3, 2], layout="constrained"
)
for activity in ACTIVITIES:
    here = trials[0].activity == activity
    left.scatter(trials[0].seconds[here], trials[0].antenna[here], s=9, label=activity)
left.set_yticks(range(4), [f"antenna {k}" for k in range(4)])
left.set_xlabel("seconds")
left.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.28), frameon=False)
for k, values in enumerate(scores.values()):
    bars = right.bar([k - 0.2, k + 0.2], values, 0.38, color=["#33658a", "#f26419"])
    right.bar_label(bars, fmt="%.2f", fontsize=9)
right.bar(0, 0, color="#33658a", label="same room")
right.bar(0, 0, color="#f26419", label="another room")
right.set_xticks([0, 1], [name.replace("columns ", "columns\n") for name in scores])
right.set_ylim(0, 1.15)
right.set_ylabel("readings right")
right.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2, frameon=False)
plt.show()
