"""
Activities from an accelerometer
================================

A sensor on the chest measures acceleration in three directions, fifty times a second. What is
its wearer doing? One sample says nothing; a second of samples has a mean, an energy, a rhythm.
``SensorFeatures`` cuts the signal into steps and measures them, and a chain CRF labels the
steps, knowing that activities last.

The recordings are made here, one for each of six people who differ in how they move. The model
is tested on a person it has not met, which is the honest test: windows of one person resemble
each other.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import ChainCRF, SensorFeatures

# %%
# Six people
# ----------

RATE = 50.0
ACTIVITIES = ["sit", "walk", "stairs", "run"]
HERTZ = {"sit": 0.3, "walk": 1.8, "stairs": 1.5, "run": 2.6}
SWING = {"sit": 0.05, "walk": 0.55, "stairs": 0.65, "run": 1.2}


def make_person(seed):
    rng = np.random.default_rng(seed)
    pace, force = rng.normal(1, 0.08), rng.normal(1, 0.15)
    signal, labels = [], []
    for activity in rng.choice(ACTIVITIES, 14):
        t = np.arange(int(RATE * rng.integers(6, 15))) / RATE
        wave = np.sin(2 * np.pi * pace * HERTZ[activity] * t[:, None] + [0, 1, 2])
        lean = [0, 0.15 * (activity == "stairs"), 1]
        signal.append(
            force * SWING[activity] * wave + lean + rng.normal(scale=0.8, size=(len(t), 3))
        )
        labels += [activity] * len(t)
    return np.concatenate(signal), np.array(labels, dtype=object)


signals, samples = zip(*[make_person(seed) for seed in range(6)])

# %%
# From samples to steps
# ---------------------
# A step is one second; some measures look at two. Every column has a name.

features = SensorFeatures(
    rate=RATE, spans=(1.0, 2.0), measures=["mean", "deviation", "log energy", "crossings"]
)
X, y = features.fit(signals).transform(signals), features.labels(samples)
print(
    len(features.get_feature_names_out()),
    "columns, such as",
    features.get_feature_names_out()[5],
)

# %%
# The last person was not met in training.

alone = ChainCRF(standardize=True, transition_pairs="none", boundaries=False, l2=5.0).fit(
    X[:5], y[:5]
)
chain = ChainCRF(standardize=True, l2=5.0).fit(X[:5], y[:5])
found = {"seconds alone": alone.predict(X[5:])[0], "chain": chain.predict(X[5:])[0]}
for name, labels in found.items():
    print(f"{name:14} right {np.mean(labels == y[5]):.3f}")

# %%
COLOURS = dict(zip(ACTIVITIES, ("#bbbbbb", "#33658a", "#f6ae2d", "#c1121f")))
figure, (above, below) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
above.plot(np.arange(len(signals[5])) / RATE, signals[5][:, 0], linewidth=0.4, color="#555555")
above.set_ylabel("acceleration, x")
for row, labels in enumerate([y[5], *found.values()]):
    below.bar(
        range(len(labels)),
        0.8,
        1.0,
        bottom=row,
        color=[COLOURS[label] for label in labels],
        align="edge",
    )
below.set_yticks([0.4, 1.4, 2.4], ["truth", *found])
below.invert_yaxis()
below.set_xlabel("seconds")
for activity, colour in COLOURS.items():
    below.bar(0, 0, color=colour, label=activity)
below.legend(
    ncols=4, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.28), frameon=False
)
plt.show()
