"""
An image under noise
====================

Each pixel is black or white, and the noise is such that no threshold tells them apart: white
pixels are dark or very bright, black ones in between. A model of single pixels can only guess.
A *grid* CRF knows that neighbouring pixels tend to agree, and sees the shapes.

On a grid exact sums are too expensive. ``GridCRF`` chooses an approximation and says so; the
best labelling as a whole is found exactly all the same, by a minimum cut.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import ChainCRF, GridCRF, make_noisy_images

# %%
# Features of a pixel
# -------------------
# Into which of sixteen bins does its intensity fall?

made = make_noisy_images(8, (48, 48), n_bases=4, random_state=0)
edges = np.linspace(0.0, 0.7, 15)
X = [np.eye(16)[np.searchsorted(edges, image)] for image in made.images]  # (48, 48, 16) each
y = list(made.labels)

# %%
# Pixels alone, and the grid
# --------------------------

flat = [x.reshape(-1, 16) for x in X]
alone = ChainCRF(transition_pairs="none", boundaries=False).fit(
    flat[:6], [labels.ravel() for labels in y[:6]]
)
grid = GridCRF(objective="pseudo_likelihood").fit(X[:6], y[:6])
print(grid.explain())
by_itself = alone.predict(flat[6:7])[0].reshape(48, 48)
together = grid.predict(X[6:7])[0]

# %%
figure, row = plt.subplots(1, 4, figsize=(7, 2.2), layout="constrained")
shown = {
    "what is seen": made.images[6],
    f"pixels alone {np.mean(by_itself == y[6]):.1%}": by_itself,
    f"grid {np.mean(together == y[6]):.1%}": together,
    "truth": y[6],
}
for axes, (title, picture) in zip(row, shown.items()):
    axes.imshow(picture, cmap="gray", interpolation="nearest")
    axes.set_title(title, fontsize="medium")
    axes.set_axis_off()
plt.show()
