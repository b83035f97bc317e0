"""
The same name twice: a skip-chain
=================================

"Mr Green … the Green sleeps": at the first place a word tells that Green is a person, at the
second nothing does. A chain cannot carry the answer over so many words. An edge between the two
mentions can: this is a *skip-chain* (Sutton & McCallum 2004, *Collective segmentation and
labeling of distant entities in information extraction*).

A graph may have several relations, each with weights of its own. Here ``next`` joins neighbours
and ``same`` joins equal names.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import Edges, Graph, GraphCRF

# %%
# Texts in which names occur twice
# --------------------------------
# One of the two mentions has a cue ("mr" or "in") before it, the other has not.

rng = np.random.default_rng(0)
NAMES = "green lima vega york cole paris stone berlin hall victoria".split()


def make_text():
    pieces = []
    for name in rng.permutation(NAMES)[:3]:
        kind, told = rng.choice(["PER", "LOC"]), rng.integers(2)
        for mention in (0, 1):
            cue = {"PER": "mr", "LOC": "in"}[kind] if mention == told else "the"
            pieces.append([(cue, "O"), (name, kind), (rng.choice(["sleeps", "waits"]), "O")])
    order = rng.permutation(len(pieces))
    return zip(*[pair for k in order for pair in pieces[k]])


def as_graph(words, skip=True):
    features = [
        {
            "word": "name" if word in NAMES else word,
            "before": words[t - 1] if t and words[t - 1] not in NAMES else "",
        }
        for t, word in enumerate(words)
    ]
    edges = {"next": [(t, t + 1) for t in range(len(words) - 1)]}
    if skip:
        same = [
            (a, b)
            for a in range(len(words))
            for b in range(a)
            if words[a] == words[b] and words[a] in NAMES
        ]
        edges["same"] = Edges(np.array([(b, a) for a, b in same]), symmetric=True)
    return Graph(features, edges)


texts, y = zip(*[make_text() for _ in range(160)])

# %%
# With and without the long edges
# -------------------------------

names = [np.array(labels) != "O" for labels in y[80:]]
right, models = {}, {}
for title, skip in (("chain", False), ("skip-chain", True)):
    X = [as_graph(words, skip) for words in texts]
    models[title] = GraphCRF(l2=0.1, decode="marginal").fit(X[:80], y[:80])
    found = models[title].predict(X[80:])
    right[title] = np.mean(
        np.concatenate([(f == np.array(t))[n] for f, t, n in zip(found, y[80:], names)])
    )
    print(f"{title:10} names right {right[title]:.3f}")

# %%
# One text: words from left to right, the probability of "person" under each name, edges between
# equal names.

words, labels = list(texts[90]), y[90]
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for title, colour, shift in (("chain", "#bbbbbb", -0.2), ("skip-chain", "#33658a", 0.2)):
    model = models[title]
    table = model.predict_proba([as_graph(words, title == "skip-chain")])[0]
    person = table[:, model.classes_.tolist().index("PER")]
    places = [t for t, word in enumerate(words) if word in NAMES]
    axes.bar(
        [t + shift for t in places], [person[t] for t in places], 0.4, color=colour, label=title
    )
for a, word in enumerate(words):
    if word in words[:a] and word in NAMES:
        b = words.index(word)
        axes.annotate(
            "",
            (b, 1.04),
            (a, 1.04),
            arrowprops={"arrowstyle": "-", "connectionstyle": "arc3,rad=0.25"},
        )
truth = [f"{word}\n({label})" if label != "O" else word for word, label in zip(words, labels)]
axes.set_xticks(range(len(words)), truth, rotation=60, fontsize=9)
axes.set_ylim(0, 1.5)
axes.set_yticks([0, 0.5, 1])
axes.set_ylabel("probability of a person")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(loc="upper right", ncols=2, fontsize=9)
plt.show()
