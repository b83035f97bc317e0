"""
Two layers of labels: motion and place
======================================

What is somebody doing, and where? Each has sensors of its own, and each tells something about
the other: nobody drives indoors, and to an accelerometer a moving car is nearly a chair.
``FactorialCRF`` labels both layers together, the model of figure 2 of Liao, Choudhury, Fox &
Kautz (2007, *Training conditional random fields using virtual evidence boosting*).
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import ChainCRF, FactorialCRF, make_wearable_episodes

# %%
# Made episodes
# -------------

made = make_wearable_episodes(12, length=200, random_state=0)
X = [{"motion": m, "place": c} for m, c in zip(made.motion_features, made.context_features)]
y = [{"motion": m, "place": c} for m, c in zip(made.motions, made.contexts)]

# %%
# Apart and together
# ------------------

together = FactorialCRF(decode="marginal").fit(X[:8], y[:8])
apart, scores = {}, {}
for k, layer in enumerate(("motion", "place")):
    model = ChainCRF(decode="marginal").fit(
        [x[layer] for x in X[:8]], [t[layer] for t in y[:8]]
    )
    apart[layer] = model.predict([x[layer] for x in X[8:]])
    own = np.mean(np.concatenate([p == t[layer] for p, t in zip(apart[layer], y[8:])]))
    both = np.mean(
        np.concatenate([p[:, k] == t[layer] for p, t in zip(together.predict(X[8:]), y[8:])])
    )
    print(f"{layer:7} apart {own:.3f}, together {both:.3f}")

# %%
# The motions of one episode, the one in which the two models differ most.

joint = [found[:, 0] for found in together.predict(X[8:])]
most = int(np.argmax([np.mean(a != b) for a, b in zip(joint, apart["motion"])]))
labels = sorted({label for one in y for label in one["motion"]})
colours = dict(zip(labels, plt.get_cmap("tab10").colors))
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
rows = {
    "truth": y[8 + most]["motion"],
    "a chain": apart["motion"][most],
    "two layers": joint[most],
}
for row, said in enumerate(rows.values()):
    axes.bar(
        range(len(said)),
        0.8,
        1.0,
        bottom=row,
        color=[colours[label] for label in said],
        align="edge",
    )
axes.set_yticks([0.4, 1.4, 2.4], list(rows))
axes.invert_yaxis()
axes.set_xlabel("step")
for label, colour in colours.items():
    axes.bar(0, 0, color=colour, label=label)
axes.legend(ncols=3, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.25), frameon=False)
plt.show()
