"""
A few columns out of many
=========================

A thousand columns, of which five know anything about the label. A model that uses all of them
learns the noise by heart. *Feature selection* walks from an empty model to larger ones and asks
held-out data where to stop.

``SelectedCRF`` keeps the whole walk: what entered when, and how the error changed. The picture
shows the error falling while true columns come in, and where it stops to fall.
"""

import matplotlib.pyplot as plt

from crfield import ChainCRF, SelectedCRF, make_sparse_columns

# %%
# Chains of three labels and 1000 columns
# ---------------------------------------

world = make_sparse_columns(
    60, n_chains=24, n_columns=1000, n_true=5, low=0.8, high=1.4, random_state=2
)
X, y = world.features, world.labels
names = [f"true {k}" if k in set(world.true.tolist()) else f"noise {k}" for k in range(1000)]
train, test = slice(0, 16), slice(16, 24)

# %%
# ``grafting`` adds the candidate whose weight would lower the loss fastest, fits again, and
# repeats.

model = SelectedCRF(method="grafting", feature_names=names, options={"max_features": 25}).fit(
    X[train], y[train]
)
everything = ChainCRF(standardize=True).fit(X[train], y[train])
print(model.choice_)
print(
    "true columns found:",
    len({item.name for item in model.features_ if item.name.startswith("true")}),
    "of 5",
)
print(
    f"right steps: {model.score(X[test], y[test]):.3f} with {model.n_features_} features,",
    end=" ",
)
print(f"{everything.score(X[test], y[test]):.3f} with all columns")

# %%
rows = model.path_.rows()
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.plot(
    [row["n_features"] for row in rows],
    [row["held_error"] for row in rows],
    color="#33658a",
    marker=".",
)
for row in rows[1:]:
    true = all(name.startswith("true") for name in row["added"])
    axes.plot(
        row["n_features"],
        row["held_error"],
        "o",
        color="#3a7d44" if true else "#f26419",
        markersize=7,
    )
axes.plot([], [], "o", color="#3a7d44", label="a true column came in")
axes.plot([], [], "o", color="#f26419", label="a column of noise came in")
axes.axvline(model.n_features_, color="#888888", linestyle="--", label="where it stops")
axes.set_xlabel("features in the model")
axes.set_ylabel("error on held-out steps")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
