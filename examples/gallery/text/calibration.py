"""
When a model says 90 %, is it right nine times in ten?
======================================================

A model whose probabilities can be taken at their word is *calibrated*. Trained with next to no
penalty on little data, a CRF becomes too sure of itself: it puts probabilities near one on
answers that are often wrong.

``calibrated`` repairs this with one number, a temperature by which all weights are divided,
chosen on sequences that were held out. The predicted labels stay the same; the probabilities
become honest.
"""

import matplotlib.pyplot as plt

from crfield import ChainCRF, make_phrases, phrase_features
from crfield.report.calibration import label_reliability

# %%
# Too little data, too small a penalty
# ------------------------------------

phrases = make_phrases(1200, random_state=3)
X, y = [phrase_features(tokens) for tokens in phrases.tokens], phrases.labels
model = ChainCRF(l2=0.001).fit(X[:60], y[:60])
cooled = model.calibrated(X[60:200], y[60:200])
print(f"temperature {cooled.temperature_:.2f}")

# %%
# Reliability
# -----------
# Words are put into bins by the probability of their predicted label. In each bin: how sure was
# the model, and how often was it right? The *expected calibration error* is the mean distance
# between the two.

figure, axes = plt.subplots(figsize=(5.6, 4.4), layout="constrained")
axes.plot([0.3, 1], [0.3, 1], color="#888888", linestyle="--", label="says what is true")
for name, one, colour, mark in (
    ("as trained", model, "#f26419", "s"),
    ("calibrated", cooled, "#33658a", "o"),
):
    table = label_reliability(one, X[200:], y[200:], bins=10)
    filled = table.count >= 20
    axes.plot(table.confidence[filled], table.accuracy[filled], marker=mark, color=colour,
              label=f"{name}: error {table.error:.3f}")  # fmt: skip
axes.set_xlabel("probability of the predicted label")
axes.set_ylabel("share of right labels")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
