"""
Sharp edges for a coarse segmentation
=====================================

A network that labels an image is often right about what is there and vague about where it ends.
A *dense* CRF joins every pixel with every other: pixels that are near and of like colour want
the same label, however fine the outline.

Summing over all pairs of pixels sounds hopeless; with Gaussian kernels it is a filter, and
takes a fraction of a second.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import DenseCRF, make_scenes

# %%
# A made scene and what a coarse network might say of it
# ------------------------------------------------------

made = make_scenes(1, (120, 160), random_state=4)
coarse = made.probabilities[0].argmax(axis=-1)

# %%
# The weights are set by hand here; ``fit`` learns them from labelled images.

model = DenseCRF(smooth_weight=3, colour_weight=10, colour_width=13, sweeps=5).untrained(
    range(5)
)
fine = model.predict(made.images, unary=made.probabilities)[0]

# %%
figure, grid = plt.subplots(2, 2, figsize=(7, 5.4), layout="constrained")
shown = {
    "image": made.images[0],
    f"network alone: {np.mean(coarse == made.labels[0]):.1%} of the pixels": coarse,
    f"dense CRF: {np.mean(fine == made.labels[0]):.1%}": fine,
    "truth": made.labels[0],
}
for axes, (title, picture) in zip(grid.flat, shown.items()):
    axes.imshow(picture, cmap="tab10", vmin=0, vmax=9, interpolation="nearest")
    axes.set_title(title, fontsize="medium")
    axes.set_axis_off()
plt.show()
