"""
Something helpful that is only sometimes known
==============================================

Somebody noted the part of speech of each word in a tenth of the training data, and nobody will
when the model is used. A classifier that ignores the note loses what it says; one that needs it
cannot be used. ``IncompleteBoost`` learns from both kinds of rows: where the hidden part is not
known, it is summed over.

It pays where the hidden part decides what the other columns *mean*. In these made data a column
speaks for the label "name" if the word is a noun and against it if it is a verb: no linear
model of the columns alone can learn that, and boosted trees can only in part.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from crfield import IncompleteBoost

# %%
# Rows with a hidden tag
# ----------------------
# Four columns hint at the tag, four more at the label, in a direction that depends on the tag.

rng = np.random.default_rng(0)
n = 3000
tag = rng.choice(["noun", "verb"], n)
noun = np.where(tag == "noun", 1, -1)[:, None]
label = rng.choice([-1, 1], n)
hints = noun + rng.normal(scale=1.5, size=(n, 4))
meant = noun * label[:, None] + rng.normal(scale=1.5, size=(n, 4))
X = np.hstack([hints, meant])
y = np.where(label > 0, "name", "word")
train, test = slice(0, 1500), slice(1500, n)

# %%
# How many rows must have the tag?
# --------------------------------

shares = [0.02, 0.05, 0.1, 0.3, 1.0]
scores = {"tag hidden at test": [], "tag given at test": []}
for share in shares:
    known = [t if k < share * 1500 else None for k, t in enumerate(tag[train].tolist())]
    model = IncompleteBoost(prior="learnt", interactions="all").fit(
        X[train], y[train], hidden=known
    )
    scores["tag hidden at test"].append(model.score(X[test], y[test]))
    scores["tag given at test"].append(model.score(X[test], y[test], hidden=tag[test].tolist()))
without = {
    "logistic regression, no tags": LogisticRegression(),
    "boosted trees, no tags": HistGradientBoostingClassifier(random_state=0),
}
for name, rival in without.items():
    without[name] = rival.fit(X[train], y[train]).score(X[test], y[test])
    print(f"{name}: {without[name]:.3f}")
for name, found in scores.items():
    print(f"{name}:", *(f"{score:.3f}" for score in found))

# %%
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (name, found), colour, mark in zip(scores.items(), ("#33658a", "#3a7d44"), "o^"):
    axes.plot(shares, found, marker=mark, color=colour, label=name)
for (name, score), style in zip(without.items(), (":", "--")):
    axes.axhline(score, color="#888888", linestyle=style, label=name)
axes.set_xscale("log")
axes.set_xticks(shares, [f"{share:.0%}" for share in shares])
axes.minorticks_off()
axes.set_xlabel("share of the training rows with a tag")
axes.set_ylabel("rows right")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
