"""
Which labels depend on which?
=============================

In most models a person says which labels are neighbours. Here nobody does: in the made
sequences each label depends on the one *two* steps before and not on the one before it, and a
model that joins direct neighbours is looking in the wrong place.

*Virtual evidence boosting* treats a possible dependency as one more weak feature: in every
round columns and relations compete, and a relation joins if it pays. Here it finds the right
distance. The picture compares it with models that were told a distance, the right one and wrong
ones.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import Graph, GraphCRF, VirtualEvidenceBoosting, make_order_chains

# %%
# Sequences of order two
# ----------------------

world = make_order_chains(0.95, 2, n_chains=8, length=400, n_features=50, random_state=1)
X, y = world.features, world.labels
train, test = slice(0, 4), slice(4, 8)

# %%
# Boosting is offered four distances.

model = VirtualEvidenceBoosting(mode="verified", relations=(1, 2, 3, 4)).fit(X[train], y[train])
print("accepted:", model.accepted_relations_)
print(model.rounds_[:5])

# %%
# For comparison
# --------------
# Graphs in which a person fixed the distance: each step is joined to the one d steps later.


def joined(distance):
    steps = [np.arange(len(x) - distance) if distance else np.arange(0) for x in X]
    return [
        Graph(x.astype(float), {"joined": np.stack([t, t + distance], axis=1)})
        for x, t in zip(X, steps)
    ]


scores = {}
for distance in (0, 1, 2, 3, 4):
    graphs = joined(distance)
    told = GraphCRF(l2=5.0, decode="marginal").fit(graphs[train], y[train])
    name = (
        "no neighbours"
        if distance == 0
        else f"told: {distance} step{'s' * (distance > 1)} apart"
    )
    scores[name] = told.score(graphs[test], y[test])
scores["found by boosting"] = model.score(X[test], y[test])
print(*(f"{name:22} {score:.3f}" for name, score in scores.items()), sep="\n")

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
colours = ["#33658a" if name.startswith("found") else "#bbbbbb" for name in scores]
bars = axes.barh(list(scores), list(scores.values()), color=colours)
axes.bar_label(bars, fmt="%.2f", padding=4)
axes.invert_yaxis()
axes.set_xlim(0.5, 0.9)
axes.set_xlabel("steps right on other sequences")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
