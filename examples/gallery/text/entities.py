"""
Names in sentences
==================

Who and where is in a text? A chain CRF gives each word a tag: ``B-PER`` begins a person,
``I-PER`` continues one, ``O`` is no name. From the tags it reads *spans*, and for each span it
can say how probable it is.

Here the sentences are made from a few patterns. The test sentence holds names that were never
seen in training, so the model has to go by capital letters and by the words around them, and it
says where it is less sure.
"""

import random

import matplotlib.pyplot as plt

from crfield import ChainCRF, TextFeatures

# %%
# Sentences with tags
# -------------------
# A pattern is a sentence with places to fill.

PEOPLE = ["Ana", "Luis Vega", "Marta Soto", "Iker", "Eva Ruiz", "Hugo Vega", "Olga", "Noa Gil"]
PLACES = ["Lima", "San Juan", "La Paz", "Vigo", "Santa Fe", "Soria", "Toledo"]
PATTERNS = [
    "PER lives in LOC",
    "yesterday PER met PER near LOC",
    "the mayor of LOC called PER",
    "LOC sleeps when PER sings",
]


def make_sentence(draw):
    words, tags = [], []
    for part in draw.choice(PATTERNS).split():
        name = draw.choice({"PER": PEOPLE, "LOC": PLACES}.get(part, [part])).split()
        words += name
        tags += ["O"] if name == [part] else [f"B-{part}"] + [f"I-{part}"] * (len(name) - 1)
    return words, tags


draw = random.Random(0)
X, y = zip(*[make_sentence(draw) for _ in range(120)])

# %%
# Training
# --------
# ``TextFeatures`` turns words into features: the word itself, its shape, its ending, and those
# of its neighbours. ``constraints="bio"`` forbids taggings that mean nothing, such as ``O
# I-PER``.

model = ChainCRF(features=TextFeatures(), l2=0.2, constraints="bio").fit(X, y)

# %%
# A sentence it has not seen
# --------------------------

words = "yesterday Zoe met Carmen Rios near San Mateo".split()
spans = model.predict_spans([words])[0]
for span in spans:
    name = " ".join(words[span.start : span.stop])
    print(f"{name:12} {span.label}  probability {span.probability:.2f}")

# %%
# The same as a picture: the height of a bar is the probability of the span under it.

COLOURS = {"PER": "#f26419", "LOC": "#33658a"}
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
for span in spans:
    width = span.stop - span.start
    axes.bar(
        span.start - 0.45,
        span.probability,
        width - 0.1,
        align="edge",
        color=COLOURS[span.label],
        alpha=0.85,
    )
    axes.text(
        span.start + width / 2 - 0.5,
        span.probability + 0.03,
        f"{span.label} {span.probability:.2f}",
        ha="center",
    )
axes.set_xticks(range(len(words)), words)
axes.set_xlim(-0.6, len(words) - 0.4)
axes.set_ylim(0, 1.2)
axes.set_yticks([0, 0.5, 1])
axes.set_ylabel("probability")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
