"""
Tags that depend on each other: a tree
======================================

An item has twelve tags that are there or not, and each depends on one other: *ski* on *snow*,
*snow* on *mountain*. Twelve classifiers would ignore that. A graph whose nodes are the tags of
one item says it, and since the graph is a tree, inference is exact.

What the features say of one tag then reaches the others: the picture shows how much every tag
gains.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import GraphCRF, edge_list, make_tags

# %%
# Items, their tags, and the tree
# -------------------------------

made = make_tags(600, random_state=0)
names = list(made.names)
truth = np.asarray(made.tags, dtype=int)
relations = {f"{names[a]}-{names[b]}": [(int(a), int(b))] for a, b in made.tree}


def items(joined):
    # Each tag has weights of its own: its features stand in columns of its own.
    return [
        edge_list(
            len(names),
            relations if joined else {},
            features=[{f"{tag}:{k}": value for k, value in enumerate(x)} for tag in names],
        )
        for x in made.features
    ]


# %%
right = {}
for title, joined in (("each tag alone", False), ("as a tree", True)):
    X = items(joined)
    model = GraphCRF(l2=1.0, feature_pairs="all", intercept=False).fit(
        X[:300], truth[:300].tolist()
    )
    hit = np.stack(list(model.predict(X[300:]))) == truth[300:]
    right[title] = hit.mean(axis=0)
    print(f"{title:15} tags right {hit.mean():.3f}, whole items {hit.all(axis=1).mean():.3f}")

# %%
order = np.argsort(right["as a tree"] - right["each tag alone"])
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.hlines(
    range(len(names)),
    right["each tag alone"][order],
    right["as a tree"][order],
    color="#bbbbbb",
    linewidth=3,
)
for title, colour, mark in (("each tag alone", "#888888", "s"), ("as a tree", "#33658a", "o")):
    axes.plot(right[title][order], range(len(names)), mark, color=colour, label=title)
axes.set_yticks(range(len(names)), [names[k] for k in order])
axes.set_xlabel("items in which the tag is right")
axes.grid(axis="x", alpha=0.3)
axes.legend(loc="lower right")
plt.show()
