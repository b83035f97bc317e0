"""
How long things last: a semi-Markov CRF
=======================================

A chain decides step by step and cannot count: to it, an episode that has lasted one step is as
likely to end as one that has lasted ten. A *semi-Markov* CRF labels whole segments, and a
segment has a length. Where each label has its typical length, that is worth a lot.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import ChainCRF, SemiMarkovCRF
from crfield.metrics import segments

# %%
# Three labels, each with a typical length
# ----------------------------------------
# The columns are so noisy that single steps say little.

LENGTHS = {"tick": 3, "hum": 8, "ring": 14}
rng = np.random.default_rng(0)


def make_sequence():
    labels, last = [], None
    while len(labels) < 90:
        last = rng.choice([label for label in LENGTHS if label != last])
        labels += [last] * int(LENGTHS[last] + rng.integers(-1, 2))
    columns = np.array([[label == one for one in LENGTHS] for label in labels]) + rng.normal(
        size=(len(labels), 3)
    )
    return columns, np.array(labels, dtype=object)


X, y = zip(*[make_sequence() for _ in range(80)])

# %%
chain = ChainCRF(l2=0.5).fit(X[:40], y[:40])
semi = SemiMarkovCRF(max_length=16, l2=0.5).fit(X[:40], y[:40])
for name, model in (("chain", chain), ("semi-Markov", semi)):
    print(f"{name:12} steps right {model.score(X[40:], y[40:]):.3f}")

# %%
# How long are the segments that each of them finds?

figure, row = plt.subplots(1, 3, figsize=(7, 2.8), sharey=True, layout="constrained")
for axes, label in zip(row, LENGTHS):
    for (name, found), colour in zip(
        {
            "truth": y[40:],
            "chain": chain.predict(X[40:]),
            "semi-Markov": semi.predict(X[40:]),
        }.items(),
        ("black", "#bbbbbb", "#33658a"),
    ):
        lasted = [
            stop - start
            for one in found
            for start, stop, what in segments(one)
            if what == label
        ]
        share = np.bincount(lasted, minlength=25)[:25] / len(lasted)
        axes.step(
            range(25),
            share,
            where="mid",
            color=colour,
            label=name,
            linewidth=2 if name == "truth" else 1.5,
        )
    axes.set_title(label, fontsize="medium")
    axes.set_xlabel("steps")
row[0].set_ylabel("share of the segments")
row[0].legend(fontsize=9)
plt.show()
