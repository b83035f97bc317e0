"""
Phrases of a sentence, and what neighbours are worth
====================================================

*Chunking* cuts a sentence into phrases: [the old dog] [saw] [a cat]. A classifier that looks at
one word at a time must decide without knowing how the phrase began. A chain CRF decides about
all words together.

How much is that worth? Both models below have the same features; the only difference is whether
neighbouring labels have a say. More sentences do not close the gap: what a word alone does not
tell, no amount of data will teach.
"""

import random

import matplotlib.pyplot as plt

from crfield import ChainCRF
from crfield.metrics import span_f1

# %%
# A small grammar
# ---------------
# Words are ambiguous on purpose: "watch", "light" and "saw" may be nouns or verbs.

NOUNS = "dog cat man park light watch saw play book show".split()
VERBS = "sees watch light saw play book show finds".split()
ADJECTIVES = "old small light green".split()


def make_sentence(draw):
    words, tags = [], []

    def phrase(kind, parts):
        words.extend(parts)
        tags.extend([f"B-{kind}"] + [f"I-{kind}"] * (len(parts) - 1))

    def noun_phrase():
        adjectives = draw.sample(ADJECTIVES, draw.choice([0, 0, 1, 2]))
        phrase(
            "NP",
            [draw.choice(["the", "a", "my"])] * draw.choice([0, 1])
            + adjectives
            + [draw.choice(NOUNS)],
        )

    noun_phrase()
    phrase("VP", draw.choice([[], ["will"], ["did", "not"]]) + [draw.choice(VERBS)])
    noun_phrase()
    if draw.random() < 0.5:
        phrase("PP", [draw.choice(["in", "near", "with"])])
        noun_phrase()
    return words, tags


draw = random.Random(1)
sentences, y = zip(*[make_sentence(draw) for _ in range(1200)])

# %%
# Features are a template in the format of CRF++. This one is the shortest there is: the word
# itself.

TEMPLATE = "U0:%x[0,0]\n"
X = [[[word] for word in sentence] for sentence in sentences]
test, truth = X[800:], y[800:]

# %%
# A line ``B`` in the template asks for transitions between labels.

sizes = [10, 20, 40, 80, 160, 320, 800]
scores = {"each word alone": [], "chain": []}
for n in sizes:
    for name, template in (("each word alone", TEMPLATE), ("chain", TEMPLATE + "B\n")):
        model = ChainCRF(template=template, l2=0.5, boundaries=name == "chain").fit(
            X[:n], y[:n]
        )
        scores[name].append(span_f1(truth, model.predict(test)))
        print(f"{n:4} sentences, {name:16} F1 of phrases {scores[name][-1]:.3f}")

# %%
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, found), colour, mark in zip(scores.items(), ("#888888", "#33658a"), "so"):
    axes.plot(sizes, found, marker=mark, color=colour, label=name)
axes.set_xscale("log")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.set_xlabel("sentences to learn from")
axes.set_ylabel("F1 of phrases")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
