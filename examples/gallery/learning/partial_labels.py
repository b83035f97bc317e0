"""
Labels that nobody wrote down
=============================

Labelling every step of a recording is work. Often a person can label one step in ten and leave
the rest open. A chain CRF can learn from that: a step whose label is ``None`` is summed over,
so that the labelled steps and the order in which activities follow each other still teach.

Throwing the unlabelled steps away is the other way. It loses the order, since labelled steps
are then no longer neighbours.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import ChainCRF

# %%
# Three activities that last, and two noisy sensors.

rng = np.random.default_rng(0)
MEANS = np.array([[0.0, 0.0], [1.0, -0.6], [2.0, 0.3]])
NAMES = np.array(["rest", "walk", "run"])


def make_day(steps=300):
    code = np.zeros(steps, int)
    for t in range(1, steps):
        code[t] = code[t - 1] if rng.random() < 0.95 else rng.integers(3)
    return MEANS[code] + rng.normal(size=(steps, 2)), NAMES[code]


X, y = zip(*[make_day() for _ in range(20)])
test, truth = X[10:], y[10:]

# %%
# From all labels known down to one in a hundred
# ----------------------------------------------

shares = [1.0, 0.3, 0.1, 0.03, 0.01]
scores = {"unknown steps summed over": [], "unknown steps thrown away": []}
for share in shares:
    known = [rng.random(len(labels)) < share for labels in y[:10]]
    partial = [
        [label if k else None for label, k in zip(labels, here)]
        for labels, here in zip(y, known)
    ]
    chain = ChainCRF(transition_pairs="all", l2=0.5).fit(X[:10], partial)
    scores["unknown steps summed over"].append(chain.score(test, truth))
    kept = [(x[here], labels[here]) for x, labels, here in zip(X, y, known) if here.any()]
    alone = ChainCRF(transition_pairs="none", boundaries=False, l2=0.5).fit(*zip(*kept))
    scores["unknown steps thrown away"].append(alone.score(test, truth))
for name, found in scores.items():
    print(f"{name:27}", *(f"{score:.2f}" for score in found))

# %%
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, found), colour, mark in zip(scores.items(), ("#33658a", "#888888"), "os"):
    axes.plot(shares, found, marker=mark, color=colour, label=name)
axes.set_xscale("log")
axes.set_xticks(shares, [f"{share:.0%}" for share in shares])
axes.minorticks_off()
axes.invert_xaxis()
axes.set_xlabel("share of the training steps that are labelled")
axes.set_ylabel("steps right on other days")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
