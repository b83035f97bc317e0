"""
A label now, or a better one a moment later
===========================================

``predict`` wants the whole recording. A robot has what it has seen so far. ``model.stream()``
takes one observation at a time and answers at once; and if the answer may come a few steps
late, it is better, because what happened since speaks as well.

How much is waiting worth? The picture shows the share of right labels against the delay, from
the answer given at once to that given in hindsight.
"""

import matplotlib.pyplot as plt
import numpy as np

from crfield import ChainCRF

# %%
# Activities that last, seen through noise.

rng = np.random.default_rng(0)


def make_recording(steps=600):
    labels = np.zeros(steps, int)
    for t in range(1, steps):
        labels[t] = labels[t - 1] if rng.random() < 0.96 else rng.integers(4)
    return np.eye(4)[labels] + rng.normal(scale=1.3, size=(steps, 4)), labels


X, y = zip(*[make_recording() for _ in range(12)])
model = ChainCRF(l2=0.5).fit(X[:6], y[:6])

# %%
# Stream the other recordings
# ---------------------------
# ``lag=10`` asks of each step what was probably the label ten steps ago. ``finish`` answers for
# the last ones.

delays = [0, 1, 2, 3, 5, 8, 12, 20]
right = []
for delay in delays:
    hits = []
    for x, labels in zip(X[6:], y[6:]):
        stream = model.stream(lag=delay)
        late = [step.smoothed for step in map(stream.push, x) if step.smoothed is not None]
        late += list(stream.finish().smoothed[-delay:]) if delay else []
        hits += (np.array(late).argmax(axis=1) == labels).tolist()
    right.append(np.mean(hits))
    print(f"{delay:3} steps late: {right[-1]:.3f}")
hindsight = np.mean(
    np.concatenate([t.argmax(axis=1) == o for t, o in zip(model.predict_proba(X[6:]), y[6:])])
)

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.axhline(hindsight, color="#888888", linestyle="--", label="the whole recording is known")
axes.plot(delays, right, marker="o", color="#33658a", label="streamed")
axes.set_xlabel("steps that may pass before the answer")
axes.set_ylabel("steps right")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
